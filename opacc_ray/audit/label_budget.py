"""Forecast how many labels an interval needs: by the confidences before any label, then by the labels so far."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Literal

import numpy as np
from pydantic import Field

from opacc_ray.audit.accuracy import whole_rounds
from opacc_ray.audit.goals import ACCURACY_OF_POOL, Target, goal_on_classes, look_at, look_for_goal, served, target_of
from opacc_ray.audit.prior_knowledge import read_history
from opacc_ray.audit.run_numbers import coded_classes
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import SpecError
from opacc_ray.estimation.estimate import KnownPool, Numbers
from opacc_ray.estimation.forecast import (
    NumberForecast,
    forecast_labels,
    forecast_method,
    forecast_widths,
    worth_of_judges,
)
from opacc_ray.estimation.intervals import Estimate, clipped
from opacc_ray.estimation.sequential import expected_half_width, planned_rounds, shrinkage_rate
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds
from opacc_ray.metrics.metric import ACCURACY, find_place
from opacc_ray.parts.view import View, view_of
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Goal
from opacc_ray.samplers import find_method, parse_parameters
from opacc_ray.samplers.base import NO_PREVIOUS, Previous
from opacc_ray.samplers.neyman import Parameters
from opacc_ray.spec.table_spec import read_predictions, warn_without_confidence


class Way(Part):
    """One way to the goal: some calls of judges, and some labels."""

    calls: int = Field(ge=0, description="calls of judges: values of their columns")
    labels: int = Field(ge=1, description="total number of labels, as forecast")


class JudgeBudget(Part):
    """What the judges save, as forecast."""

    present: Way = Field(description="with the judges as they are")
    without: Way = Field(description="without judges")
    complete: Way | None = Field(default=None, description="if every judge had judged every example; null if they have")


def judge_budget(view: View, labels: int, previous: Previous, history: History) -> JudgeBudget | None:
    """Return the ways to a goal that takes ``labels`` with the judges of a pool; None without judges."""
    found = worth_of_judges(view, previous, history)
    if found is None:
        return None

    def way(calls: int, ratio: float) -> Way:
        return Way(calls=calls, labels=min(max(math.ceil(labels * ratio), 1), view.size))

    every = view.size * len(view.judges(history.judges))
    complete = None if found.complete is None else way(every, found.complete)
    return JudgeBudget(present=way(found.calls, 1.0), without=way(0, found.without), complete=complete)


class WidthPoint(Part):
    """Half-width of the interval for one number of labels."""

    labels: int = Field(ge=1, description="total number of labels")
    half_width: float = Field(ge=0, description="half the width of the interval")
    srs_half_width: float = Field(ge=0, description="half-width of a simple random sample with as many labels")
    seen: bool = Field(description="whether these labels exist; otherwise the half-width is a forecast")


class WidthCourse(Part):
    """Half-widths by numbers of labels: of the rounds so far, then forecasts."""

    level: float = Field(gt=0, lt=1, description="confidence level of the intervals")
    labels: int = Field(
        ge=0, description="labels that the forecast uses, from complete rounds; 0: it uses the confidences"
    )
    points: list[WidthPoint] = Field(description="sorted by number of labels")


class LabelBudget(Document):
    """Forecast of the labels for an interval of ±W: by the confidences before any label, then by the labels."""

    format: Literal["opacc-budget/1"] = format_field("opacc-budget/1")
    run: str = Field(description="URI of the run")
    metric: str = Field(default=ACCURACY, description="the number that the goal is about, such as f1@defect")
    by: str | None = Field(default=None, description="slices that the goal is about, or NAME=SLICE; null: the pool")
    half_width: float = Field(gt=0, description="the goal: half the width of the interval")
    level: float = Field(gt=0, lt=1, description="confidence level of that interval")
    labels: int = Field(
        ge=0, description="labels that the forecast uses, from complete rounds; 0: it uses the confidences"
    )
    accuracy: float = Field(description="expected value of the number; with labels, the estimate, within its interval")
    basis: Literal["labels", "confidence", "history", "judges", "guess"] = Field(
        default="confidence",
        description="what the expected accuracy is based on: labels of the run; the confidences, corrected for usual "
        "overconfidence; labels of a history; judges; or, without any of them, a rough guess",
    )
    reached: bool = Field(description="whether the interval is already narrow enough")
    total_labels: int = Field(ge=1, description="total number of labels, as forecast")
    worthless_labels: int | None = Field(
        description="total number of labels if the confidences do not predict failures; null once there are labels"
    )
    most_labels: int | None = Field(description="total number of labels in the worst case; null once there are labels")
    if_predicted_labels: int | None = Field(
        default=None,
        description="total number of labels if the confidence is right about the examples without a label; null where "
        "that is no fewer, and once there are labels",
    )
    srs_labels: int = Field(ge=1, description="total number of labels of a simple random sample")
    sizes: list[int] = Field(description="labels of each round to draw, as forecast; empty if the goal is reached")
    advice: str | None = Field(description="one sentence if the goal is too expensive; otherwise null")
    method: str | None = Field(default=None, description="the requested method; null if none")
    method_labels: int | None = Field(
        default=None, description="labels of that method in one round, from the start; null without a method"
    )
    judges: JudgeBudget | None = Field(
        default=None, description="what the judges save; null without judges, and for other numbers than the accuracy"
    )
    course: WidthCourse | None = Field(default=None, description="half-widths by numbers of labels")


FIRST_ROUND = 0.1
"""Share of the forecast labels for the first round."""

POINTS, REACH = 16, 4
"""Number of forecasts, and the least multiple of the present labels that they reach."""

_LEAST = 20
"""Fewest labels of a forecast before there are any."""


def label_budget(
    run: Run,
    half_width: float,
    target: Target = ACCURACY_OF_POOL,
    *,
    level: float = 0.95,
    method: str | None = None,
) -> LabelBudget:
    """Forecast the labels for an interval of ± ``half_width``, also by ``method`` if given; writes nothing.

    Raises LabelError if ``half_width`` is not positive; SpecError if there is no such number, or the method is unknown,
    draws no random sample, or lacks its features.
    """
    if method is not None and not target.is_accuracy:
        raise SpecError(f"--method forecasts the accuracy of the pool only; remove it for {target}")
    whole, target = _whole(run), target_of(run, target)
    if not whole:
        _refuse_ratio(target)
    judges = None
    if whole:
        found = _by_labels(run, half_width, level, target)
        if target.is_accuracy and run.spec.pool.columns.judges:
            with _open_view(run) as view:
                judges = judge_budget(view, found.total_labels, _known(whole), read_history(run, keep=False))
    else:
        with _open_view(run) as view:
            history = read_history(run, keep=False)
            if target.is_accuracy:
                found = _by_forecast(view, run.uri, half_width, level, history)
                judges = judge_budget(view, found.total_labels, NO_PREVIOUS, history)
            else:
                forecast = _forecast_of(run, view, target, history)
                return _by_number(forecast, run.uri, target, half_width, level, history)
    own = None
    if method is not None:
        own = found.srs_labels if method == "srs" else _by_method(run, whole, method, half_width, level)
    course = width_course(run, target, level=level, reach=found.total_labels)
    return found.model_copy(update={"method": method, "method_labels": own, "course": course, "judges": judges})


def label_budget_of_table(
    uri: str,
    half_width: float,
    target: Target = ACCURACY_OF_POOL,
    *,
    level: float = 0.95,
    columns: str | None = None,
) -> LabelBudget:
    """Return the labels that an interval of ± ``half_width`` takes for a file of predictions, before there is a run."""
    _refuse_ratio(target)
    table = read_predictions(uri, columns=columns)
    warn_without_confidence(table)
    view = view_of(table.pool)
    if target.is_accuracy:
        found = _by_forecast(view, uri, half_width, level, NO_HISTORY)
        course = _widths_by_confidences(view, level, found.total_labels, NO_HISTORY)
        saved = judge_budget(view, found.total_labels, NO_PREVIOUS, NO_HISTORY)
        return found.model_copy(update={"course": course, "judges": saved})
    predicted = view.column("prediction").astype(np.int32)
    classes = table.classes or [str(c) for c in range(1 + int(predicted.max()))]
    named = goal_on_classes(target, classes)
    serve = [f"{own.name}@{find_place(own, classes)}" if own.positive else str(own) for own in [named.metric]]
    serve = [*(serve if named.metric.name != ACCURACY else []), *([named.by] if named.by else [])]
    forecast = NumberForecast(
        KnownPool(view, predicted, classes), named.metric, _chosen(named), Parameters(serve=tuple(serve))
    )
    return _by_number(forecast, uri, named, half_width, level, NO_HISTORY)


def _refuse_ratio(target: Target) -> None:
    """Raise SpecError for a ratio of totals, whose error only labels tell."""
    if target.metric.ratio is not None:
        raise SpecError(
            f"{target}: how much counts vary is only known from labels; label a first round of about 50, then ask again"
        )


def width_course(run: Run, target: Target = ACCURACY_OF_POOL, *, level: float = 0.95, reach: int = 0) -> WidthCourse:
    """Return half-widths by numbers of labels: after the rounds so far, and forecasts beyond ``reach`` labels."""
    whole = _whole(run)
    if whole:
        return _widths_by_labels(run, whole, level, reach, target)
    with _open_view(run) as view:
        return _widths_by_confidences(view, level, reach, read_history(run, keep=False))


def _forecast_of(run: Run, view: View, target: Target, history: History) -> NumberForecast:
    """Return the forecast of a number, drawn to serve it, before any label."""
    predicted, classes = coded_classes(run, [], view)
    pool = KnownPool(view, predicted, list(classes), target.slicings(view))
    parameters = parse_parameters("neyman", run.spec.drawn_with("neyman", {"serve": served(run, target)}))
    assert isinstance(parameters, Parameters)
    return NumberForecast(pool, target.metric, _chosen(target), parameters, history)


def _chosen(target: Target) -> Callable[[Numbers, float], Estimate]:
    """Return what states the number of a goal, or the part of it that decides."""
    return lambda numbers, level: target.choose(numbers.interim(target.metric, target.by, level))[1].estimate


def _by_number(
    forecast: NumberForecast, uri: str, target: Target, half_width: float, level: float, history: History
) -> LabelBudget:
    """Return the labels for a number other than the accuracy, before any label."""
    own, worthless, by_srs = forecast.labels(half_width, level)
    trusting = forecast.labels_if_predicted(half_width, level)
    found = forecast.estimate(own, level)
    points = [
        WidthPoint(
            labels=n,
            half_width=_half(forecast.estimate(n, level)),
            srs_half_width=_half(forecast.random_sample(n, level)),
            seen=False,
        )
        for n in _grid(_LEAST, max(own, REACH * _LEAST), forecast.view.size)
    ]
    return LabelBudget(
        run=uri,
        metric=str(target.metric),
        by=target.parts,
        half_width=half_width,
        level=level,
        labels=0,
        accuracy=clipped(found),
        basis=_basis(forecast.view, history),
        reached=False,
        total_labels=own,
        worthless_labels=worthless,
        most_labels=None,
        if_predicted_labels=trusting if trusting < own else None,
        srs_labels=by_srs,
        sizes=_first_sizes(own, forecast.view.size),
        advice=None,
        course=WidthCourse(level=level, labels=0, points=points),
    )


def _basis(view: View, history: History) -> Literal["confidence", "history", "judges", "guess"]:
    """Return what the expected accuracy is based on before any label."""
    if history.labelled:
        return "history"
    if "confidence" in view.fields:
        return "confidence"
    return "judges" if view.judges(history.judges) else "guess"


def _known(whole: Sequence[LabelledRound]) -> Previous:
    index = np.concatenate([item.known.index for item in whole])
    return Previous.of(index, np.concatenate([item.outcome for item in whole]))


def _half(found: Estimate) -> float:
    return (found.high - found.low) / 2


def _first_sizes(total: int, size: int) -> list[int]:
    """Return the rounds of a total number of labels, as forecast before any label."""
    first = min(max(round(FIRST_ROUND * total), 10), size)
    return _summing_to(total, [first] if first >= total else [first, *planned_rounds(first, total, size)])


def _whole(run: Run) -> list[LabelledRound]:
    """Return the complete rounds."""
    return whole_rounds(having_labels(read_rounds(run))) if run.rounds() else []


def _open_view(run: Run) -> AbstractContextManager[View]:
    return feature_store.open_view(run, (), Parameters().optional_features)


def _by_forecast(view: View, uri: str, half_width: float, level: float, history: History) -> LabelBudget:
    found = forecast_labels(view, half_width, level, Parameters(), history)
    return LabelBudget(
        run=uri,
        half_width=half_width,
        level=level,
        labels=0,
        accuracy=found.foreseen_accuracy,
        basis=_basis(view, history),
        reached=False,
        total_labels=found.neyman,
        worthless_labels=found.worthless,
        most_labels=found.at_worst,
        srs_labels=found.srs,
        sizes=_first_sizes(found.neyman, view.size),
        advice=None,
    )


def _summing_to(total: int, sizes: Sequence[int]) -> list[int]:
    """Return sizes of rounds without their margin: the last ones are cut, so that the sum is ``total``."""
    left = [max(total - sum(sizes[:number]), 0) for number in range(len(sizes))]
    return [min(size, most) for size, most in zip(sizes, left, strict=True) if most]


def _by_labels(run: Run, half_width: float, level: float, target: Target) -> LabelBudget:
    goal = look_for_goal(run, half_width, target, level=level)
    labels = goal.looks[-1].labels
    total = max(goal.total_labels - labels, 1)
    return LabelBudget(
        run=run.uri,
        labels=labels,
        accuracy=clipped(goal),
        basis="labels",
        worthless_labels=None,
        most_labels=None,
        sizes=_summing_to(total, goal.sizes),
        **goal.model_dump(include=set(LabelBudget.model_fields) & set(Goal.model_fields) - {"format", "sizes"}),
    )


def _by_method(run: Run, whole: Sequence[LabelledRound], method: str, half_width: float, level: float) -> int:
    """Forecast the labels of a method in one round, with failures where labels or confidences predict them."""
    sample = run.spec.sample
    own = run.spec.drawn_with(method, sample.parameters if method == sample.method else {})
    parameters, reads = parse_parameters(method, own), Parameters().optional_features
    optional = tuple(dict.fromkeys([*parameters.optional_features, *reads]))
    with feature_store.open_view(run, find_method(method).needs(parameters), optional, parameters.instead) as view:
        previous = _known(whole) if whole else NO_PREVIOUS
        history = read_history(run, keep=False)
        return forecast_method(view, method, half_width, level, parameters=own, previous=previous, history=history)


def _widths_by_confidences(view: View, level: float, reach: int, history: History) -> WidthCourse:
    labels = _grid(_LEAST, max(reach, REACH * _LEAST), view.size)
    found = forecast_widths(view, labels, level, Parameters(), history)
    points = [
        WidthPoint(labels=n, half_width=own, srs_half_width=srs, seen=False)
        for n, own, srs in zip(labels, *found, strict=True)
    ]
    return WidthCourse(level=level, labels=0, points=points)


def _widths_by_labels(
    run: Run, whole: Sequence[LabelledRound], level: float, reach: int, target: Target
) -> WidthCourse:
    _, looks, _, plain, _ = look_at(run, whole, level, target)
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
    """Return numbers of labels from ``least`` to 1.2 ``most`` in equal ratios, within the pool."""
    found = np.geomspace(min(least, size), min(max(1.2 * most, least + 1), size), POINTS)
    return sorted(set(np.rint(found).astype(int).tolist()))
