"""Follow one run from its first label to its goal."""

from collections.abc import Callable

from opacc_ray.audit.goals import ACCURACY_OF_POOL, Target, next_until
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Goal
from opacc_ray.samplers.base import Report, unreported

GoOn = Callable[[], bool]
"""Draws the next round if no label is missing and the goal is open; returns whether there is something to label."""


def label_until(
    run: Run,
    ask: Callable[[Run, GoOn], object],
    half_width: float | None = None,
    target: Target = ACCURACY_OF_POOL,
    *,
    on_round: Callable[[Goal], object] = lambda goal: None,
    selecting: Report = unreported,
) -> Goal | None:
    """Have the missing labels given by ``ask``, and draw and label further rounds until the interval is narrow enough.

    It ends when ``ask`` leaves labels missing, and can be called again then.

    Parameters
    ----------
    ask : gets the run whose labels are missing, and returns once labels are imported or people have stopped. It may
        call the function that it also gets, which draws the next round, and then ask for the labels of that one
    half_width, target : goal; None: only the rounds that are drawn are labelled
    on_round : called with the progress after each complete round
    selecting : progress of draws, in examples

    Returns
    -------
    Goal
        None if there is no goal, or labels are still missing.

    Raises
    ------
    LabelError
        No example has a label, or labels are in conflict.
    SpecError
        The method draws no random sample, or there is no such number.
    """
    goal: Goal | None = None

    def go_on() -> bool:
        nonlocal goal
        if missing_labels(run):
            return True
        if half_width is None or (goal is not None and goal.reached):
            return False
        goal = next_until(run, half_width, target, progress=selecting)
        on_round(goal)
        return not goal.reached

    while go_on():
        ask(run, go_on)
        if missing_labels(run):
            return None
    return goal


def missing_labels(run: Run) -> int:
    """Return how many labels of a run's track are missing."""
    return sum(len(item.missing) for item in read_rounds(run))
