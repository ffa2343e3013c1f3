"""How many labels a goal takes, for a run: from the model's own word before any label, and after every whole round."""

from collections.abc import Sequence

import numpy as np

from opacc_ray.audit import goals
from opacc_ray.audit.budget_documents import LabelBudget, WidthCourse, WidthPoint
from opacc_ray.audit.history import read_history
from opacc_ray.audit.results import whole_rounds
from opacc_ray.estimators.intervals import inside
from opacc_ray.estimators.looks import expected_half_width, planned_rounds, shrinkage_rate
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run
from opacc_ray.samplers.base import NO_PREVIOUS, Previous
from opacc_ray.samplers.neyman import Parameters
from opacc_ray.samplers.neyman.forecast import forecast_labels, forecast_method, forecast_widths
from opacc_ray.samplers.select import find_method, parse_parameters

FIRST_ROUND = 0.1
"""Share of the labels forecast that the first round takes."""

POINTS, REACH, LEAST_SHOWN = 16, 4, 20
"""Forecasts of a course, how many times the labels so far they go to at least, and the fewest labels of a course."""


def label_budget(run: Run, half_width: float, *, level: float = 0.95, method: str | None = None) -> LabelBudget:
    """What an interval of ± ``half_width`` takes; with ``method`` also by that one. Nothing is written.

    Raises
    ------
    LabelError
        If ``half_width`` is not above 0.
    SpecError
        Unknown method, one that draws no random sample, or one whose features are missing.
    """
    whole = _whole(run)
    found = _by_labels(run, half_width, level) if whole else _by_the_models_word(run, half_width, level)
    if method is None or method == "srs":  # which the answer says in any case, and should say once
        own = None if method is None else found.srs_labels
    else:
        own = _by_method(run, whole, method, half_width, level)
    course = width_course(run, level=level, reach=found.total_labels)
    return found.model_copy(update={"method": method, "method_labels": own, "course": course})


def width_course(run: Run, *, level: float = 0.95, reach: int = 0) -> WidthCourse:
    """Half-widths against labels: after the rounds so far, and as forecast up to ``reach`` labels and beyond."""
    whole = _whole(run)
    return _course_by_labels(run, whole, level, reach) if whole else _course_by_word(run, level, reach)


def _whole(run: Run) -> list[LabelledRound]:
    """The rounds whose labels are all there."""
    return whole_rounds(having_labels(read_rounds(run))) if run.rounds() else []


def _by_the_models_word(run: Run, half_width: float, level: float) -> LabelBudget:
    parameters = Parameters()
    with feature_store.open_view(run, (), parameters.optional_features) as view:
        found = forecast_labels(view, half_width, level, parameters, read_history(run, keep=False))
        first = min(max(round(FIRST_ROUND * found.neyman), 10), view.size)
        sizes = [first] if first >= found.neyman else [first, *planned_rounds(first, found.neyman, view.size)]
    return LabelBudget(
        run=run.uri,
        half_width=half_width,
        level=level,
        labels=0,
        accuracy=found.foreseen_accuracy,
        reached=False,
        total_labels=found.neyman,
        worthless_labels=found.worthless,
        most_labels=found.at_worst,
        srs_labels=found.srs,
        sizes=sizes,
        advice=None,
    )


def _by_labels(run: Run, half_width: float, level: float) -> LabelBudget:
    goal = goals.look_for_goal(run, half_width, level=level)
    return LabelBudget(
        run=run.uri,
        half_width=half_width,
        level=level,
        labels=goal.looks[-1].labels,
        accuracy=inside(goal),
        reached=goal.reached,
        total_labels=goal.total_labels,
        worthless_labels=None,
        most_labels=None,
        srs_labels=goal.srs_labels,
        sizes=goal.sizes,
        advice=goal.advice,
    )


def _by_method(run: Run, whole: Sequence[LabelledRound], method: str, half_width: float, level: float) -> int:
    """Labels that a method takes in one round, if failures are where the labels so far, or the model, foresee them."""
    sample = run.spec.sample
    own = sample.parameters if method == sample.method else {}
    parameters, reads = parse_parameters(method, own), Parameters().optional_features
    optional = tuple(dict.fromkeys([*parameters.optional_features, *reads]))
    with feature_store.open_view(run, find_method(method).needs(parameters), optional, parameters.instead) as view:
        previous = _previous(whole)
        history = read_history(run, keep=False)
        return forecast_method(view, method, half_width, level, parameters=own, previous=previous, history=history)


def _previous(whole: Sequence[LabelledRound]) -> Previous:
    if not whole:
        return NO_PREVIOUS
    index = np.concatenate([item.known.index for item in whole])
    return Previous.of(index, np.concatenate([item.outcome for item in whole]))


def _course_by_word(run: Run, level: float, reach: int) -> WidthCourse:
    parameters = Parameters()
    with feature_store.open_view(run, (), parameters.optional_features) as view:
        labels = _grid(LEAST_SHOWN, max(reach, REACH * LEAST_SHOWN), view.size)
        found = forecast_widths(view, labels, level, parameters, read_history(run, keep=False))
    points = [
        WidthPoint(labels=n, half_width=own, srs_half_width=srs, seen=False)
        for n, own, srs in zip(labels, *found, strict=True)
    ]
    return WidthCourse(level=level, labels=0, points=points)


def _course_by_labels(run: Run, whole: Sequence[LabelledRound], level: float, reach: int) -> WidthCourse:
    _, looks, _, plain = goals.look_at(run, whole, level)
    size, now = whole[0].selection.pool_size, looks[-1]
    rate = shrinkage_rate(looks, size)

    def by_srs(labels: int) -> float:
        return expected_half_width(plain, labels, size, 0.5)

    seen = [
        WidthPoint(labels=one.labels, half_width=one.half_width, srs_half_width=by_srs(one.labels), seen=True)
        for one in looks
    ]
    ahead = [
        WidthPoint(labels=n, half_width=expected_half_width(now, n, size, rate), srs_half_width=by_srs(n), seen=False)
        for n in _grid(now.labels, max(reach, REACH * now.labels), size)
        if n > now.labels
    ]
    return WidthCourse(level=level, labels=now.labels, points=[*seen, *ahead])


def _grid(least: int, most: int, size: int) -> list[int]:
    """Numbers of labels from ``least`` to ``most`` and a little more, at equal ratios, within the pool."""
    found = np.geomspace(min(least, size), min(max(1.2 * most, least + 1), size), POINTS)
    return sorted(set(np.rint(found).astype(int).tolist()))
