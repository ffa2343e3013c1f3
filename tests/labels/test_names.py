"""The names that tools and people give to examples and classes: one rule, whatever the format, and no guess."""

import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from awkward_ids import random_ids
from written_run import CLASSES, PREDICTION, write_run

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, LabelError
from opacc_ray.labels import label_actions
from opacc_ray.labels.formats import emptied, id_of_copy, name_of_copy, warnings_about
from opacc_ray.labels.joining import find_class, ids_of_names
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.runs.run import Run

IDS = [
    id for id in [*random_ids(3000, seed=2), "../../etc/passwd", "..", "~", "~2F", "a~.png", "C:\\x"] if len(id) < 70
]


@pytest.mark.parametrize("is_made", [False, True])
def test_the_id_comes_back(is_made: bool) -> None:
    assert [id_of_copy(name_of_copy(id, is_made=is_made)) for id in IDS] == IDS


def test_no_name_leaves_its_folder_or_is_hidden() -> None:
    for id in IDS:
        assert re.fullmatch(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*", name_of_copy(id) or "x"), id


def test_an_id_that_is_no_name_is_refused() -> None:
    with pytest.raises(DataError, match="is too long for a file name"):
        name_of_copy("é" * 100)


ROUND = ["a/frame.1.jpeg", "a/frame.2.jpeg", "b/frame.2.jpeg", "c/d/x.png", "top.png", "a b.c"]
POOL = {*ROUND, "c/top.png", "b/frame.1.jpeg", "cam2/7.jpg"}


def meant(*names: str, selected: Sequence[str] = ROUND, only_selected: bool = False) -> dict[str, str]:
    return ids_of_names(names, selected, lambda ids: POOL.intersection(ids), only_selected=only_selected)


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("a~2Fframe.1.jpeg", "a/frame.1.jpeg"),
        ("images/a~2Fframe.1.jpeg", "a/frame.1.jpeg"),
        ("c~2Fd~2Fx.png~.png", "c/d/x.png"),
        ("s3://lake/pool/a/frame.2.jpeg", "a/frame.2.jpeg"),
        ("C:\\work\\a\\frame.2.jpeg", "a/frame.2.jpeg"),
        (" a/frame.2.jpeg ", "a/frame.2.jpeg"),
        ("a/frame.2", "a/frame.2.jpeg"),
        ("up/b/frame.2.png", "b/frame.2.jpeg"),
        ("frame.1.jpeg", "a/frame.1.jpeg"),
        ("todo/frame.1.JPG", "a/frame.1.jpeg"),
        ("frame.1", "a/frame.1.jpeg"),
        ("d/x.png", "c/d/x.png"),
        ("x", "c/d/x.png"),
        ("images/top.png", "top.png"),
        ("a b.c.png", "a b.c"),
    ],
)
def test_a_name_means_one_example(name: str, id: str) -> None:
    assert meant(name) == {name: id}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ["frame.2.jpeg"],
            "'frame.2.jpeg' may be 'a/frame.2.jpeg' or 'b/frame.2.jpeg': write ids as",
        ),
        (["up/frame.2"], "'up/frame.2' may be 'a/frame.2.jpeg' or 'b/frame.2.jpeg'"),
        (["cam1/x.png", "cam3/x.png"], "'cam1/x.png' and 'cam3/x.png' may both be 'c/d/x.png'"),
        (["c/d/x.png", "x.png"], "'c/d/x.png' and 'x.png' may both be 'c/d/x.png'"),
    ],
)
def test_what_may_mean_two_examples_is_refused_with_both(names: list[str], words: str) -> None:
    with pytest.raises(LabelError) as caught:
        meant(*names)
    assert words in str(caught.value)


def test_a_base_name_is_no_name_where_other_examples_are_labelled_too() -> None:
    assert meant("up/a/frame.1.jpeg", only_selected=True) == {"up/a/frame.1.jpeg": "a/frame.1.jpeg"}
    with pytest.raises(LabelError, match=r"'frame.1.jpeg' may be 'a/frame.1.jpeg', or an example that was not"):
        meant("frame.1.jpeg", only_selected=True)


# -- formats -----------------------------------------------------------------------------------------------


def cvat(names: Sequence[str]) -> str:
    images = "".join(f'<image name="{name}"><tag label="cat"/></image>' for name in names)
    return f"<annotations>{images}</annotations>"


def label_studio(names: Sequence[str]) -> str:
    answer = {"from_name": "choice", "value": {"choices": ["cat"]}}
    places = [f"/data/upload/3/1a2b3c4d-{name}" for name in names]
    return json.dumps([{"id": 1, "data": {"img": place}, "annotations": [{"result": [answer]}]} for place in places])


def ground_truth(names: Sequence[str]) -> str:
    job = {"label": 0, "label-metadata": {"class-name": "cat", "human-annotated": "yes"}}
    return "".join(json.dumps({"source-ref": f"s3://lake/up/{name}"} | job) + "\n" for name in names)


def csv(names: Sequence[str]) -> str:
    return "id,label\n" + "".join(f"{name},cat\n" for name in names)


def jsonl(names: Sequence[str]) -> str:
    return "".join(json.dumps({"id": name, "label": "cat"}) + "\n" for name in names)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = write_run(
        tmp_path, "frames", PREDICTION, [f"{k % 3}/frame.{k}.jpeg" for k in range(len(PREDICTION))], classes=CLASSES
    )
    verbs.select(run, "srs", 20, {})
    return run


@pytest.mark.parametrize("write", [cvat, label_studio, ground_truth, csv, jsonl])
@pytest.mark.parametrize("name", [lambda id: id, name_of_copy, lambda id: id.rpartition("/")[2], lambda id: f"x/{id}"])
def test_every_format_has_the_rule(write: Callable[[Sequence[str]], str], name: Callable[[str], str], run: Run) -> None:
    ids = run.read_selection(1).ids
    data = write([name(id) for id in ids]).encode()
    done = label_actions.import_labels(run, "back", data)
    assert (done.labels, done.missing) == (20, 0)
    [known] = read_rounds(run)
    assert known.labelled.all()
    assert label_actions.import_labels(run, "back", data).again
    assert {item.id for item in label_actions.list_answers(run).answers} == set(ids)


# -- columns -----------------------------------------------------------------------------------------------

CUSTOMERS = {"uri": "nowhere", "format": "parquet", "columns": {"id": "customer", "array": "x"}}


@pytest.mark.parametrize(
    "header", ["customer,churn", "Customer,label", "customer,churn,annotator", "id,customer,label", "customer;churn"]
)
def test_the_columns_of_the_runs_table_are_read(header: str, tmp_path: Path) -> None:
    run = write_run(tmp_path, "churn", PREDICTION, sections={"pool": CUSTOMERS}, classes=CLASSES)
    ids = verbs.select(run, "srs", 20, {}).ids
    separator = ";" if ";" in header else ","
    row = {"id": "{}", "customer": "{}", "churn": "cat", "label": "cat", "annotator": "ann"}
    cells = [row[name.lower()] for name in header.split(separator)]
    data = header + "\n" + "".join(separator.join(cells).format(*[id] * 2) + "\n" for id in ids)
    assert label_actions.import_labels(run, "back.csv", data.encode()).missing == 0
    lines = "".join(json.dumps({"customer": id, "churn": "cat"}) + "\n" for id in ids)
    assert label_actions.import_labels(run, "back.jsonl", lines.encode()).missing == 0
    assert read_rounds(run)[0].labelled.all()


@pytest.mark.parametrize(
    "header", ["customer,prediction", "customer,Confidence", "customer,a,b", "name,churn", "id,churn"]
)
def test_columns_that_may_be_something_else_are_no_labels(header: str, tmp_path: Path) -> None:
    run = write_run(tmp_path, "churn", PREDICTION, sections={"pool": CUSTOMERS}, classes=CLASSES)
    verbs.select(run, "srs", 20, {})
    with pytest.raises(LabelError, match="start it with a header with the columns id and label"):
        label_actions.import_labels(run, "back.csv", f"{header}\n1,cat,3\n".encode())


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
    assert "makes a date of the class 'MAR1';" in dates
    assert "makes a number of the class '1E5';" in numbers
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
