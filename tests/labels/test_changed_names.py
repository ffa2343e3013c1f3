"""Names that other tools change: what they make of them, and what is said where labels may be lost."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from opacc_ray.cli.main import main
from opacc_ray.labels.joining import AS_NUMBER, DATE, emptied, warnings_about
from opacc_ray.labels.label_rows import find_class


def test_pandas_loses_the_names_that_are_said_to_be_lost_and_no_others() -> None:
    pandas = pytest.importorskip("pandas")
    from pandas._libs.parsers import STR_NA_VALUES

    names = sorted({*STR_NA_VALUES, "na", "none", "nil", "NO", "TRUE", "MAR1", "n/A", "unknown", "NAN"} - {""})
    read = pandas.read_csv(io.StringIO("label,kept\n" + "".join(f"{name},x\n" for name in names)))
    lost = [name for name, is_lost in zip(names, read["label"].isna(), strict=True) if is_lost]
    assert [name for name in names if emptied([name])] == lost


def test_each_class_that_does_not_survive_a_table_is_warned_of() -> None:
    [lost, dates, numbers] = warnings_about(["cat", "NA", "null", "MAR1", "1E5", "True", "no"])
    assert "'NA', 'null'" in lost
    assert DATE in dates
    assert "'MAR1'" in dates
    assert AS_NUMBER in numbers
    assert "'1E5'" in numbers
    assert warnings_about(["True", "False", "yes", "no", "0", "1"]) == []


def test_a_truth_value_is_read_in_any_case_unless_another_class_differs_by_case() -> None:
    assert [find_class(text, ["False", "True"]) for text in ("TRUE", "true", "FALSE")] == [1, 1, 0]
    assert find_class("TRUE", ["True", "true"]) is None
    assert find_class("true", ["True", "true"]) == 1
    assert find_class("CAT", ["cat", "dog"]) is None


def test_labels_that_pandas_drops_are_counted_and_never_missing_at_random_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    truth = {f"i{n}": str(draw.choice(["NA", "US", "DK"])) for n in range(300)}
    rows = "".join(f"{id},{name},{draw.uniform(0.5, 1):.3f}\n" for id, name in truth.items())
    Path("states.csv").write_text(f"id,prediction,confidence\n{rows}")
    assert main(["run", "states.csv", "--budget", "40"]) == 0
    assert "pandas loses those of the class 'NA'" in "".join(capsys.readouterr())
    [run] = map(str, Path("audits").glob("states-*/"))
    assert main(["manifest", run, "--to", "csv", "--out", "tasks"]) == 0
    assert "pandas loses those of the class 'NA'" in capsys.readouterr().err
    table = pandas.read_csv("tasks/manifest-1.csv")
    table["label"] = table["id"].map(truth)
    table.to_csv("filled.csv", index=False)
    pandas.read_csv("filled.csv").to_csv("back.csv", index=False)
    lost = [truth[id] for id in table["id"]].count("NA")
    assert main(["labels", "import", run, "back.csv", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["blank"], document["labels"]) == (lost, 40 - lost)
    assert document["notes"][0].startswith(f"{lost} rows have empty labels, which may be the class 'NA'")
    assert main(["estimate", run, "--partial", "--json"]) == 0
    assert f"{lost} of 40 labels" in (reason := json.loads(capsys.readouterr().out)["reason"])
    assert "may be the class 'NA'" in reason
    assert main(["labels", "import", run, "filled.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == []
    assert main(["estimate", run, "--json"]) == 0
    assert "at random" not in json.loads(capsys.readouterr().out)["reason"]
