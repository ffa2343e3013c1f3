"""Rounds until the interval of a metric, a slice or a class is narrow enough, and how many labels that takes."""

import json
from pathlib import Path

import numpy as np
import pytest
from parts_run import CLASSES, CONFIDENCE, PREDICTION, TRUTH, label, labelled, spec_of, write_table
from written_run import write_run

from opacc_ray.audit import accuracy, goals, verbs
from opacc_ray.audit.comparison import compare
from opacc_ray.audit.goals import label_budget, label_budget_of_table
from opacc_ray.audit.status import status
from opacc_ray.cli.main import main
from opacc_ray.errors import SpecError
from opacc_ray.estimation.sequential import interim_level
from opacc_ray.runs.run import Run

DEFECT = goals.read_target("recall@defect")
BY_CAMERA = goals.read_target("accuracy", "camera")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("pool"))


@pytest.fixture(params=["neyman", "srs"])
def run(request: pytest.FixtureRequest, table: Path, tmp_path: Path) -> Run:
    return labelled(spec_of(table, tmp_path, request.param))


@pytest.fixture(scope="module")
def read(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with 60 labels, which is only read."""
    return labelled(spec_of(table, tmp_path_factory.mktemp("read"), "srs"))


# -- until -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "text", "by"),
    [("neyman", "recall@defect ±0.12", None), ("srs", "±0.2", "camera"), ("neyman", "f1@fine 0.04", None)],
    indirect=["run"],
)
def test_rounds_are_drawn_until_the_interval_of_the_number_is_narrow_enough(
    text: str, by: str | None, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--until", text, *(["--by", by] if by else [])]
    half_width, target = goals.read_goal(text)
    for _ in range(8):
        assert main(["next", run.uri, *options, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        goal = answer["goal"]
        if answer["goal"]["reached"]:
            break
        assert answer["n"] == goal["sizes"][0]
        label(run)
    assert goal["looks"][-1]["cautious_half_width"] <= half_width < goal["looks"][-2]["cautious_half_width"]
    assert (goal["metric"], goal["by"]) == (str(target.metric), by)
    assert (goal["slice"] is None) == (by is None)
    serve = run.read_selection(run.rounds()[-1]).parameters.get("serve")
    assert serve in (None, {"recall@defect ±0.12": ["recall@0"], "f1@fine 0.04": ["f1@1"]}.get(text, ["camera"]))


def test_the_interval_at_the_goal_is_the_one_that_the_estimate_states(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    goal = goals.next_until(run, 0.45, DEFECT)
    assert goal.reached
    found = accuracy.estimate(run, metrics=["recall@defect"], by=["camera"])
    stated = found.metrics["recall@defect"]
    assert (stated.low, stated.high, stated.level) == (goal.low, goal.high, 0.95)
    assert (found.goal, found.goal_of) == (0.45, "recall@defect")
    assert found.allows_for == compare(run, run).estimate_allows_for == ["stopping"]
    assert main(["compare", run.uri, run.uri]) == 0
    note = "the interval of opacc estimate also allows for stopping, and these do not"
    assert f"note      {note}\n" in capsys.readouterr().out
    assert found.notes == [
        "Sampling stopped once the interval of recall@defect was within ±0.45; the stated intervals allow for that."
    ]
    strict = goals.look_for_goal(run, 0.45, DEFECT, level=interim_level(0.95))
    assert strict.high - strict.low > goal.high - goal.low
    assert status(run).estimate_is_current
    assert main(["estimate", run.uri]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("recall of defect  ")
    assert "60 labels, stopped at ±45 points" in first
    assert "stopped at" not in " ".join(others)
    goals.next_until(run, 0.5, DEFECT)
    assert not status(run).estimate_is_current


def test_a_metric_with_too_few_labels_to_tell_is_proposed_as_a_goal(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = spec_of(table, tmp_path, "srs")
    run = labelled(spec.model_copy(update={"sample": spec.sample.model_copy(update={"budget": 12})}))
    assert main(["estimate", run.uri, "--metric", "recall@defect"]) == 0
    out = capsys.readouterr().out
    assert "too few labels to tell" in out
    assert out.endswith(" --until 'recall@defect ±0.1'\n")
    assert main(["estimate", run.uri]) == 0
    assert "next: opacc report" in capsys.readouterr().out


def test_of_slices_the_one_with_the_widest_interval_decides_or_the_one_that_is_named(run: Run) -> None:
    found = accuracy.estimate(run, level=interim_level(0.95), by=["camera"], metrics=["accuracy"], keep=False)
    widths = {name: one.high - one.low for name, one in found.by_slice[0].slices.items()}
    goal = goals.look_for_goal(run, 0.1, BY_CAMERA)
    assert goal.slice == max(widths, key=widths.__getitem__) == "shed"
    north = goals.look_for_goal(run, 0.1, goals.read_target("accuracy", "camera=north"))
    assert north.slice == "north"
    assert north.looks[-1].half_width == pytest.approx(widths["north"] / 2)
    with pytest.raises(SpecError, match=r'camera has no slice "east"; choose one of north, shed, south'):
        goals.look_for_goal(run, 0.1, goals.read_target("accuracy", "camera=east"))
    with pytest.raises(SpecError, match="no slices 'lens'"):
        goals.look_for_goal(run, 0.1, goals.read_target("accuracy", "lens"))


@pytest.mark.parametrize("by", ["prediction", "truth"])
def test_goals_hold_in_every_class(by: str, read: Run) -> None:
    goal = goals.look_for_goal(read, 0.1, goals.read_target("accuracy", by))
    found = accuracy.estimate(read, level=interim_level(0.95), keep=False)
    own = found.by_predicted_class if by == "prediction" else found.by_true_class
    widths = {name: (one.high - one.low) / 2 for name, one in own.items()}
    assert goal.looks[-1].half_width == pytest.approx(widths[goal.slice])
    assert goal.looks[-1].cautious_half_width >= max(widths.values())


def test_few_events_of_the_number_itself_ask_for_caution(read: Run) -> None:
    goal, plain = (goals.look_for_goal(read, 0.1, own).looks[-1] for own in (DEFECT, goals.ACCURACY_OF_POOL))
    ratio = goal.cautious_half_width / goal.half_width
    assert 1 < plain.cautious_half_width / plain.half_width < ratio <= np.sqrt(2)


def test_a_simple_random_sample_is_not_advised_to_those_who_draw_one(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goals, "labels_for", lambda *_: 1.0)  # so few would do
    advised = [
        goals.look_for_goal(labelled(spec_of(table, tmp_path / method, method)), 0.15, BY_CAMERA).advice
        for method in ("srs", "css")
    ]
    assert advised == [None, "that is more than simple random sampling takes; go on with --method srs"]


def test_a_goal_that_was_another_number_before_is_reported(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["next", run.uri, "--until", "recall@defect ±0.45"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("reached   recall of defect ±45 points with 60 labels in 1 round\n")
    assert main(["next", run.uri, "--until", "0.4"]) == 0
    assert "the goal was recall@defect ±0.45 before" in capsys.readouterr().out
    assert main(["status", "--log", run.uri]) == 0
    assert "goal recall@defect ±0.45 reached" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("metric", "by", "told"),
    [
        ("recall@dent", None, 'has the class "dent"'),
        ("brier", "camera", "brier is stated of the whole pool only"),
        ("macro_f1", "truth", "by truth there is the accuracy"),
        ("agreement", None, "metric 'agreement': choose one of"),
    ],
)
def test_numbers_that_there_are_not_are_refused(metric: str, by: str | None, told: str, read: Run) -> None:
    with pytest.raises(SpecError, match=told):
        goals.next_until(read, 0.1, goals.read_target(metric, by))


def test_a_regression_has_goals_of_its_score_only(tmp_path: Path) -> None:
    run = write_run(tmp_path, "mine", np.linspace(0, 1, 300), task="regression", error_scale=1.0)
    with pytest.raises(SpecError, match="accuracy by truth needs classes, and the task is regression"):
        label_budget(run, 0.1, goals.read_target("accuracy", "truth"))


@pytest.mark.parametrize("text", ["f1@defect", "f1@defect ±2", "±0", ""])
def test_goals_without_a_half_width_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="give a half-width between 0 and 1"):
        goals.read_goal(text)


# -- budget ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "by"),
    [("accuracy", None), ("recall@defect", None), ("accuracy", "camera=south"), ("accuracy", "prediction")],
)
def test_before_any_label_the_budget_is_where_the_expected_interval_is_narrow(
    metric: str, by: str | None, table: Path, tmp_path: Path
) -> None:
    run = verbs.first_round(spec_of(table, tmp_path))
    target = goals.read_target(metric, by)
    found, wide = label_budget(run, 0.1, target), label_budget(run, 0.2, target)
    assert wide.total_labels < found.total_labels <= found.srs_labels <= found.worthless_labels
    assert (found.labels, found.reached, found.basis, found.by) == (0, False, "confidence", by)
    assert (found.most_labels is None) != target.is_accuracy
    assert sum(found.sizes) == found.total_labels
    points = found.course.points
    assert next(one.labels for one in points if one.half_width <= 0.1) >= found.total_labels
    assert max(one.labels for one in points if one.half_width > 0.1) < found.total_labels


def test_the_forecast_is_about_what_the_labels_state(table: Path, tmp_path: Path) -> None:
    """So many labels, drawn for the number, give about the interval that was asked."""
    run = verbs.first_round(spec_of(table, tmp_path, sample={"method": "neyman", "budget": 20, "serve": ["f1@fine"]}))
    target = goals.read_target("f1@fine")
    asked = label_budget(run, 0.05, target)
    label(run)
    goal = goals.next_until(run, 0.05, target, budget=asked.total_labels - 20)
    label(run)
    goal = goals.look_for_goal(run, 0.05, target)
    assert goal.looks[-1].half_width == pytest.approx(0.05, rel=0.4)
    true = 2 * ((PREDICTION == 1) & (TRUTH == 1)).sum() / ((PREDICTION == 1).sum() + (TRUTH == 1).sum())
    assert goal.low <= true <= goal.high


def test_after_a_round_the_budget_is_that_of_the_goal(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for target, half_width, text, shown in (
        (goals.ACCURACY_OF_POOL, 0.03, ["0.03"], "±3"),
        (DEFECT, 0.1, ["recall@defect ±0.1"], "recall of defect ±10"),
        (BY_CAMERA, 0.1, ["0.1", "--by", "camera"], "accuracy by camera ±10"),
    ):
        found, goal = label_budget(run, half_width, target), goals.look_for_goal(run, half_width, target)
        assert (found.total_labels, found.srs_labels) == (goal.total_labels, goal.srs_labels)
        assert found.course.points[0].half_width == goal.looks[0].half_width
        assert main(["budget", run.uri, "--until", *text]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"goal      {shown} points")
        assert f", now 60, then further rounds of {found.sizes[0]}" in out
        assert "60 labels, which estimate" in out
        assert (found.labels, found.worthless_labels, found.most_labels, found.basis) == (60, None, None, "labels")
        assert sum(found.sizes) == found.total_labels - 60
        assert label_budget(run, 0.99, target).reached


def test_a_file_of_predictions_has_a_budget_for_any_number(tmp_path: Path) -> None:
    rows = zip(PREDICTION, CONFIDENCE, strict=True)
    table = tmp_path / "answers.csv"
    table.write_text("prediction,confidence\n" + "".join(f"{CLASSES[c]},{sure}\n" for c, sure in rows))
    found = label_budget_of_table(str(table), 0.08, goals.read_target("f1@scratch"))
    assert (found.metric, found.labels) == ("f1@scratch", 0)
    assert found.total_labels < found.srs_labels
    by_class = label_budget_of_table(str(table), 0.08, goals.read_target("accuracy", "prediction"))
    assert by_class.total_labels > found.total_labels
    with pytest.raises(SpecError, match="no slices 'camera'"):
        label_budget_of_table(str(table), 0.08, BY_CAMERA)


def test_a_rare_class_has_a_budget_for_either_statement(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    score = np.where(rng.random(20_000) < 0.003, 0.9, 0.0001)
    rows = "".join(f"{i},{'yes' if s > 0.5 else 'no'},{max(s, 1 - s):.5f}\n" for i, s in enumerate(score))
    (tmp_path / "pairs.csv").write_text("id,prediction,confidence\n" + rows)
    found = label_budget_of_table(str(tmp_path / "pairs.csv"), 0.1, goals.read_target("recall@yes"))
    assert found.if_predicted_labels < found.total_labels / 3
