"""Labelled failures as training data, and what a comparison says of labels that a model may have learned from."""

import csv
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from written_run import CLASSES, CONFIDENCE, IDS, OTHER, PREDICTION, TRUTH, label, write_run

import opacc_ray as opacc
from opacc_ray.audit import accuracy, comparison, verbs
from opacc_ray.audit.training_data import export_failures, export_training
from opacc_ray.cli.main import main
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels import label_actions
from opacc_ray.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return write_run(tmp_path, "a", PREDICTION, classes=CLASSES)


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_failures_are_written_with_what_they_stand_for(run: Run, tmp_path: Path) -> None:
    chosen = verbs.select(run, "css", 60, {})
    label(run, chosen.ids)
    found = export_failures(run, str(tmp_path / "training.csv"))
    rows = rows_of(tmp_path / "training.csv")
    wrong = [name for name in chosen.ids if PREDICTION[IDS.index(name)] != TRUTH[IDS.index(name)]]
    assert [row["id"] for row in rows] == wrong
    assert found.examples == len(wrong)
    assert all(row["label"] == CLASSES[TRUTH[IDS.index(row["id"])]] for row in rows)
    assert all(row["prediction"] == CLASSES[PREDICTION[IDS.index(row["id"])]] for row in rows)
    stated = accuracy.estimate(run)  # css: Σ P_j · mean, so failures stand for N · (1 - accuracy) examples
    assert sum(float(row["weight"]) for row in rows) == pytest.approx(len(IDS) * (1 - stated.value), rel=1e-3)
    everything = export_training(run, str(tmp_path / "all.csv"))
    assert everything.examples == 60
    assert sum(float(row["weight"]) for row in rows_of(tmp_path / "all.csv")) == pytest.approx(len(IDS), rel=1e-3)


def test_a_comparison_reports_labels_that_were_exported(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_run(tmp_path, "b", OTHER, classes=CLASSES)
    label(run, verbs.select(run, "srs", 50, {}).ids)
    assert comparison.compare(run, other).taught == 0
    assert main(["labels", "export", run.uri, str(tmp_path / "t.csv"), "--to", "failures", "--json"]) == 0
    number = json.loads(capsys.readouterr().out)["examples"]
    assert comparison.compare(Run.open(run.uri), other).taught == number > 3
    assert comparison.compare(Run.open(run.uri), run).taught == 0  # a model did not learn from its own labels
    assert main(["compare", run.uri, other.uri]) == 0
    assert f"{number} labels were exported as training data" in capsys.readouterr().out
    assert main(["status", "--log", run.uri]) == 0
    assert f"{number} labelled examples exported as training data" in capsys.readouterr().out
    again = write_run(tmp_path, "again", PREDICTION, classes=CLASSES)
    fresh = verbs.select(again, "srs", 40, {})
    label(again, fresh.ids)
    overlap = set(fresh.ids) & {row["id"] for row in rows_of(tmp_path / "t.csv")}
    assert comparison.compare(again, other).taught == len(overlap) > 0


def test_labels_that_the_old_model_gave_away_are_reported_on_a_draw_of_the_new_one(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The documented order: the failures of the old run are exported, and the labels are those of the new one."""
    old, chosen = run, verbs.select(run, "srs", 60, {})
    label(old, chosen.ids)
    taught = export_training(old, str(tmp_path / "t.csv"))
    new = write_run(tmp_path, "b", OTHER, classes=CLASSES)
    fresh = verbs.select(new, "srs", 80, {})
    label(new, fresh.ids)
    overlap = set(fresh.ids) & {row["id"] for row in rows_of(tmp_path / "t.csv")}
    assert taught.examples == 60
    found = comparison.compare(Run.open(new.uri), Run.open(old.uri))
    assert (found.taught, found.fresh) == (len(overlap), True)
    assert len(overlap) > 5
    rest = np.array([name not in {row["id"] for row in rows_of(tmp_path / "t.csv")} for name in fresh.ids])
    drawn = [IDS.index(name) for name in fresh.ids]
    gain = (OTHER[drawn] == TRUTH[drawn]).astype(float) - (PREDICTION[drawn] == TRUTH[drawn])
    assert found.unlearned is not None
    assert found.num_unlearned == 240
    assert found.unlearned.value == pytest.approx(gain[rest].sum() * 300 / 80 / 240)
    assert found.unlearned.low < found.unlearned.value < found.unlearned.high
    assert main(["compare", new.uri, old.uri]) == 0
    said = capsys.readouterr().out
    assert "exported as training data before they were drawn" in said
    assert re.search(r"not learned +-\d+\.\d points .* on the 240 examples not exported as training data", said)
    assert not comparison.compare(Run.open(old.uri), Run.open(new.uri)).fresh  # its labels are the exported ones


@pytest.mark.slow
def test_the_interval_of_the_difference_on_examples_not_learned_from_holds_it() -> None:
    """Learned examples are all right now: the difference on the pool is larger than that on the others."""
    learned = np.arange(0, 300, 3)
    better = OTHER.copy()
    better[learned] = TRUTH[learned]
    right = np.stack([better == TRUTH, PREDICTION == TRUTH]).astype(float)  # (2, 300)
    d = right[0] - right[1]
    truth, held, values = np.delete(d, learned).mean(), 0, []
    for seed in range(200):
        drawn = opacc.select(opacc.Pool(confidence=CONFIDENCE, ids=IDS), "srs", 100, seed)
        rounds = [SimpleNamespace(known=drawn, outcome=None)]
        taught, outcomes = {IDS[i] for i in learned}, [right[:, drawn.index]]
        found = comparison.difference_without(taught, 200, rounds, outcomes, 0.95)  # type: ignore[arg-type]
        held += found.low <= truth <= found.high
        values.append(found.value)
    assert held >= 184
    assert np.mean(values) == pytest.approx(truth, abs=0.015)
    assert d.mean() > truth + 0.1


def test_what_cannot_be_exported_is_one_sentence(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="training data are a CSV file"):
        export_training(run, str(tmp_path / "training.json"))
    chosen = verbs.select(run, "srs", 20, {})
    with pytest.raises(LabelError, match="label"):
        export_failures(run, str(tmp_path / "training.csv"))
    label_actions.import_labels(run, "labels.csv", ("id,label\n" + "".join(
        f"{name},{CLASSES[PREDICTION[IDS.index(name)]]}\n" for name in chosen.ids)).encode())  # fmt: skip
    with pytest.raises(LabelError, match=r"none of the 20 labels of .* is a misprediction; give --to training"):
        export_failures(run, str(tmp_path / "training.csv"))
