"""Metrics and slices of a run: what the spec asks, what a command asks, and how they are printed."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parts_run import CAMERA, CLASSES, CONFIDENCE, IDS, PREDICTION, TRUTH, N, label, labelled, spec_of, write_table

import opacc_ray as opacc
from opacc_ray.audit import accuracy, goals, run_numbers, verbs
from opacc_ray.cli.command import terminal_text
from opacc_ray.errors import SpecError
from opacc_ray.estimation import failures as fit_module
from opacc_ray.labels import label_actions
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.report import answers
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import AccuracyEstimate, IfPredicted
from opacc_ray.spec import parse_spec
from opacc_ray.stored_audit import Audit


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("pool"))


def in_memory(run: Run, **asked: str) -> object:
    pool = opacc.Pool(
        IDS, prediction=PREDICTION, confidence=CONFIDENCE, classes=CLASSES, slices={"camera": CAMERA.tolist()}
    )
    return opacc.estimate(rounds_of(run), pool=pool, **asked)


def rounds_of(run: Run) -> list[opacc.Labelled]:
    selections = [run.read_selection(number) for number in run.rounds()]
    return [opacc.Labelled(own, labels=[CLASSES[TRUTH[int(name[1:])]] for name in own.ids]) for own in selections]


@pytest.mark.parametrize("method", ["srs", "neyman"])
def test_metrics_and_slices_of_the_spec_are_those_in_memory(method: str, table: Path, tmp_path: Path) -> None:
    run = labelled(spec_of(table, tmp_path, method, metrics=[{"f1": "defect"}, "accuracy", "macro_recall"]))
    verbs.next_round(run, 40)
    label(run)
    found, expected = accuracy.estimate(run), in_memory(run)
    rounds = rounds_of(run)
    assert isinstance(expected, opacc.Estimate)
    assert (found.value, found.low, found.high) == (expected.value, expected.low, expected.high)
    outcome = (PREDICTION == TRUTH).astype(float)
    by_design = opacc.estimate([opacc.Labelled(own.selection, outcomes=outcome[own.selection.index]) for own in rounds])
    assert (found.value == by_design.value) == (method == "srs"), "neyman reads the pool"
    assert found.low <= outcome.mean() <= found.high
    assert list(found.metrics) == ["f1@defect", "macro_recall"]
    for name, one in found.metrics.items():
        expected = in_memory(run, metric=name)
        assert isinstance(expected, opacc.Estimate)
        assert one.model_dump(exclude={"if_predicted"}) == expected.to_dict()
        told = expected.if_predicted
        assert (one.if_predicted and one.if_predicted.model_dump()) == (told and vars(told))
    [own] = found.by_slice
    assert (own.metric, own.by, own.level_together) == ("f1@defect", "camera", 0.95)
    expected = in_memory(run, metric="f1@defect", by="camera")
    assert isinstance(expected, dict)
    assert {name: one.value for name, one in own.slices.items()} == {name: one.value for name, one in expected.items()}
    assert {name: one.size for name, one in own.slices.items()} == {
        name: int((name == CAMERA).sum()) for name in ("north", "south", "shed")
    }
    for one in own.slices.values():
        assert one.low_together <= one.low <= one.high <= one.high_together
    assert not own.slices["shed"].tells
    assert AccuracyEstimate.from_bytes(found.to_bytes(), "estimate") == found


def test_a_changed_first_metric_is_what_the_next_round_serves_unless_another_was_named(
    table: Path, tmp_path: Path
) -> None:
    run = labelled(spec_of(table, tmp_path, metrics=[{"recall": "scratch"}]))
    run = verbs.first_round(spec_of(table, tmp_path, metrics=[{"f1": "defect"}]))
    assert run.rounds() == [1]
    assert verbs.next_round(run, 10).parameters["serve"] == ["f1@0"]
    label(run)
    assert verbs.next_round(run, 10, serve=["camera"]).parameters["serve"] == ["camera"]
    label(run)
    assert verbs.next_round(run, 10).parameters["serve"] == ["f1@0"]
    label(run)
    named = verbs.next_round(run, 10, parameters={"serve": ["prediction"]})
    assert named.parameters["serve"] == ["prediction"]
    label(run)
    run = verbs.first_round(spec_of(table, tmp_path))
    assert verbs.next_round(run, 10).parameters["serve"] == ["prediction"]


def test_an_estimate_fits_the_failure_model_once(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = labelled(spec_of(table, tmp_path, metrics=["macro_f1"]))
    goals.next_until(run, 0.45)
    assert run.newest_goal(reached=True) is not None
    fits, predict = [], fit_module.predict_failure
    monkeypatch.setattr(fit_module, "predict_failure", lambda *given: fits.append(1) or predict(*given))
    found = accuracy.estimate(run, by=["camera"])
    assert len(fits) == 1
    alone = run_numbers.measure_accuracy(run, read_rounds(run)).estimate(0.9525)
    assert len(fits) == 2
    assert (found.value, found.low, found.high) == (alone.value, alone.low, alone.high)


def test_first_metric_is_what_every_round_serves(table: Path, tmp_path: Path) -> None:
    run = labelled(spec_of(table, tmp_path, metrics=[{"recall": "scratch"}]))
    verbs.next_round(run, 30)
    assert [run.read_selection(k).parameters["serve"] for k in (1, 2)] == [["recall@2"]] * 2
    label(run)
    verbs.next_round(run, 10, parameters={"serve": ["accuracy", "camera", "f1@fine"]})
    assert run.read_selection(3).parameters["serve"] == ["accuracy", "camera", "f1@1"]
    with pytest.raises(SpecError, match="did you mean 'fine'"):
        verbs.next_round(run, 10, parameters={"serve": "f1@fin"}, close=True)
    with pytest.raises(SpecError, match="serve: 3 is no number to state"):
        verbs.next_round(run, 10, parameters={"serve": 3}, close=True)


def test_changed_metrics_keep_the_run_its_features_and_its_rounds(table: Path, tmp_path: Path) -> None:
    run = labelled(spec_of(table, tmp_path))
    drawn, features = run.read_selection(1).to_dict(), run.complete_features().digest
    again = verbs.first_round(spec_of(table, tmp_path, metrics=[{"f1": "defect"}]))
    assert (again.uri, again.header.digest) == (run.uri, run.header.digest)
    assert (again.read_selection(1).to_dict(), again.complete_features().digest) == (drawn, features)
    assert list(accuracy.estimate(Run.open(run.uri)).metrics) == ["f1@defect"]


def test_what_is_asked_replaces_what_the_spec_names(table: Path, tmp_path: Path) -> None:
    run = labelled(spec_of(table, tmp_path, metrics=[{"f1": "defect"}]))
    asked = Audit.open(run.uri).estimate(metrics=["recall@fine", "accuracy"], by=["camera", "truth"])
    assert list(asked.metrics) == ["recall@fine"]
    assert str(asked).splitlines()[1].startswith(f"recall@fine: {asked.metrics['recall@fine'].value:.4f} [")
    assert "<div>accuracy, camera south</div>" in asked._repr_html_()
    stated = [(one.metric, one.by) for one in asked.by_slice]
    assert stated == [("recall@fine", "camera"), ("accuracy", "camera"), ("accuracy", "truth")]
    assert asked.by_true_class is not None
    assert asked.by_slice[2].slices["fine"].value == asked.by_true_class["fine"].value
    assert sum(one.size for one in asked.by_slice[2].slices.values()) == pytest.approx(N, abs=2)
    for asked_for, words in (
        ({"metrics": ["f1@defcet"]}, "did you mean 'defect'"),
        ({"by": ["lens"]}, "the pool has no slices 'lens'"),
        ({"by": ["camera=south"]}, "'camera=south' is one slice, and an estimate states all of camera: give camera"),
    ):
        with pytest.raises(SpecError, match=words):
            accuracy.estimate(run, **asked_for)


def test_terminal_states_the_worst_slice_first_and_both_intervals_of_a_rare_class(table: Path, tmp_path: Path) -> None:
    run = labelled(spec_of(table, tmp_path, metrics=[{"f1": "defect"}]))
    found = accuracy.estimate(run, metrics=["f1@defect", "accuracy"], by=["camera"])
    assert [one.metric for one in found.by_slice] == ["f1@defect", "accuracy"]
    found = found.model_copy(update={"by_slice": found.by_slice[1:]})
    shown = terminal_text(answers.estimate(found))
    assert shown.startswith("F1 of defect  ")  # the number that was asked for first
    assert "\naccuracy  " in shown
    lines = [line for line in shown.splitlines() if line.startswith(("camera", "north", "south", "shed"))]
    assert lines[0].split() == ["camera", "in", "the", "pool", "labels", "accuracy", "all", "at", "once"]
    values = found.by_slice[0].slices
    worst = min(("north", "south"), key=lambda name: values[name].value)
    assert (lines[1].split()[0], lines[-1].split()[0]) == (worst, "shed")
    assert "too few labels to tell" in lines[-1]
    told = IfPredicted(value=0.5, low=0.4, high=0.6, factor=3.04, labels=400)
    rare = found.metrics["f1@defect"].model_copy(update={"if_predicted": told})
    shown = terminal_text(answers.estimate(found.model_copy(update={"metrics": {"f1@defect": rare}})))
    assert "allows for a confidence that is wrong" in shown
    assert "it is 40.0 to 60.0 %. It is below 40.0 % only if more than 3.04 times as many examples of defect" in shown


def test_score_of_a_regression_is_stated_by_slices(tmp_path: Path) -> None:
    value = np.linspace(0, 1, 50)
    path = tmp_path / "pool.parquet"
    half = np.where(np.arange(50) < 20, "low", "high")
    pq.write_table(pa.table({"id": [f"e{i}" for i in range(50)], "said": value + 0.1, "half": half}), path)
    spec = parse_spec(
        {
            "name": "values",
            "pool": {
                "uri": str(path),
                "format": "features",
                "columns": {"id": "id", "prediction": "said"},
                "slices": ["half"],
            },
            "model": {"task": "regression"},
            "sample": {"method": "srs", "budget": 30},
            "output": str(tmp_path),
        },
        "spec",
    )
    run = verbs.first_round(spec)
    rows = "".join(f"{name},{value[int(name[1:])].item()!r}\n" for name in run.read_selection(1).ids)
    label_actions.import_labels(run, "labels.csv", ("id,label\n" + rows).encode())
    found = accuracy.estimate(run)
    assert found.by_slice[0].slices["low"].value == pytest.approx(0.99)
    with pytest.raises(SpecError, match="task is regression"):
        accuracy.estimate(run, by=["prediction"])
    with pytest.raises(SpecError, match="task is regression"):
        accuracy.estimate(run, metrics=["macro_f1"])


def test_a_population_of_clusters_may_be_stated_for_a_run_that_has_labels(table: Path, tmp_path: Path) -> None:
    run = labelled(spec_of(table, tmp_path))
    before = accuracy.estimate(run)
    content = spec_of(table, tmp_path).model_dump(exclude_unset=True)
    content["pool"]["sample_of"] = {"camera": "more"}
    run = verbs.first_round(parse_spec(content, "spec"))
    found = accuracy.estimate(run)
    assert found.by_design == before.by_design
    assert found.low < before.low
    assert "about more values of camera, of which the pool has 3" in found.notes[0]
    content["pool"]["sample_of"] = {"id": 500}
    many = accuracy.estimate(verbs.first_round(parse_spec(content, "spec")))
    pool = opacc.Pool(IDS, prediction=PREDICTION, confidence=CONFIDENCE, classes=CLASSES)
    expected = opacc.estimate(rounds_of(run), pool=pool, sample_of=500, clusters=IDS)
    stated = (expected.value, expected.low, expected.high)
    assert (many.value, many.low, many.high) == pytest.approx(stated, rel=1e-12)  # the run adds up by slices
    assert [table.by for table in many.by_slice] == ["camera"]


def test_a_ranking_is_widened_where_annotators_differ_about_the_examples_that_decide_it(tmp_path: Path) -> None:
    said, true = (["no", "yes"][int(c == 0)] for c in PREDICTION), (["no", "yes"][int(c == 0)] for c in TRUTH)
    path, truth = tmp_path / "two.parquet", dict(zip(IDS, true, strict=True))
    pq.write_table(pa.table({"id": IDS, "said": list(said), "sure": CONFIDENCE, "camera": CAMERA}), path)
    run = verbs.first_round(spec_of(path, tmp_path, model={"classes": ["no", "yes"]}, metrics=["auc@yes", "brier"]))
    ids = list(run.read_selection(1).ids)

    def opinions(name: str, turned: set[str]) -> dict[str, float]:
        other = {"yes": "no", "no": "yes"}
        rows = "".join(f"{id},{other[truth[id]] if id in turned else truth[id]},{name}\n" for id in ids)
        label_actions.import_labels(run, f"{name}.csv", f"id,label,annotator\n{rows}".encode(), conflict="majority")
        return {name: own.high - own.low for name, own in accuracy.estimate(run).metrics.items()}

    alone = opinions("ann", set())
    assert opinions("bob", set()) == alone
    after = opinions("cy", set(ids[::3]))
    assert after["auc@yes"] > alone["auc@yes"]
    assert after["brier"] > alone["brier"]
