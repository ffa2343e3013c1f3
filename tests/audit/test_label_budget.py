"""How many labels a goal takes, for a run: before any label and after them; and the estimate that reads the pool."""

from pathlib import Path

import pytest
from written_run import CLASSES, PREDICTION, TRUTH, N, label, write_run

from opacc_ray.audit import accuracy, goals, verbs
from opacc_ray.audit.goals import label_budget
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return write_run(tmp_path, "mine", PREDICTION, classes=CLASSES)


@pytest.mark.parametrize("labelled", [False, True])
def test_the_course_of_half_widths_goes_from_what_is_seen_to_what_is_forecast(labelled: bool, run: Run) -> None:
    if labelled:
        verbs.select(run, "neyman", 40, {})
        label(run, run.read_selection(1).ids)
    found = label_budget(run, 0.05)
    course = found.course
    assert course is not None
    assert course.labels == (40 if labelled else 0)
    assert [point.seen for point in course.points] == [labelled, *[False] * (len(course.points) - 1)]
    labels = [point.labels for point in course.points]
    assert labels == sorted(set(labels))
    assert found.total_labels <= labels[-1] <= N
    for name in ("half_width", "srs_half_width"):
        widths = [getattr(point, name) for point in course.points]
        assert widths == sorted(widths, reverse=True)
    if labelled:
        assert course.points[0].half_width == goals.look_for_goal(run, 0.05).looks[0].half_width
    else:  # the goal is where the line says
        below = next(point.labels for point in course.points if point.half_width <= 0.05)
        assert below >= found.total_labels


def test_rounds_are_combined_exactly_unbiased_if_the_run_asks_for_it(run: Run) -> None:
    chosen = verbs.select(run, "neyman", 30, {"combine": "rounds"})
    label(run, run.read_selection(1).ids)
    outcome = (PREDICTION == TRUTH)[chosen.index].astype(float)
    assert accuracy.estimate(run).value == pytest.approx(estimate_outcomes(chosen, outcome).value)
