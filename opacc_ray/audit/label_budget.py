"""Forecast how many labels an interval needs: by the confidences before any label, then by the labels so far."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal

import numpy as np
from pydantic import Field

from opacc_ray.audit import goals
from opacc_ray.audit.accuracy import whole_rounds
from opacc_ray.audit.goals import ACCURACY_OF_POOL, Target
from opacc_ray.audit.prior_knowledge import read_history
from opacc_ray.audit.run_numbers import coded_classes
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import SpecError
from opacc_ray.estimation.estimate import KnownPool, Numbers
from opacc_ray.estimation.forecast import AccuracyForecast, NumberForecast, forecast_method, worth_of_judges
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
    rounds, target = _complete_rounds(run), goals.target_of(run, target)
    if not rounds:
        _refuse_ratio(target)
    previous = _labels_of(rounds) if rounds else NO_PREVIOUS
    budget = _by_labels(run, rounds, half_width, level, target) if rounds else None
    judges = None
    if budget is None or (target.is_accuracy and run.spec.pool.columns.judges is not None):
        history = read_history(run, keep=False)
        with _open_view(run) as view:
            if budget is None:
                forecast = _forecast(run, view, target, history)
                budget = _by_forecast(forecast, run.uri, target, half_width, level, history)
            judges = judge_budget(view, budget.total_labels, previous, history) if target.is_accuracy else None
    by_method = None
    if method is not None:
        srs = budget.srs_labels
        by_method = srs if method == "srs" else _by_method(run, method, half_width, level, previous)
    return budget.model_copy(update={"method": method, "method_labels": by_method, "judges": judges})


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
        budget = _by_forecast(AccuracyForecast(view), uri, target, half_width, level)
        return budget.model_copy(update={"judges": judge_budget(view, budget.total_labels, NO_PREVIOUS, NO_HISTORY)})
    predicted = view.column("prediction").astype(np.int32)
    classes = table.classes or [str(c) for c in range(1 + int(predicted.max()))]
    target = goals.goal_on_classes(target, classes)
    metric = target.metric
    served = f"{metric.name}@{find_place(metric, classes)}" if metric.positive else str(metric)
    serve = [*([served] if metric.name != ACCURACY else []), *([target.by] if target.by else [])]
    forecast = _number_forecast(KnownPool(view, predicted, classes), target, Parameters(serve=tuple(serve)))
    return _by_forecast(forecast, uri, target, half_width, level)


def _refuse_ratio(target: Target) -> None:
    """Raise SpecError for a ratio of totals, whose error only labels tell."""
    if target.metric.ratio is not None:
        raise SpecError(
            f"{target}: how much counts vary is only known from labels; label a first round of about 50, then ask again"
        )


def width_course(run: Run, *, level: float = 0.95) -> WidthCourse:
    """Return half-widths of the accuracy by numbers of labels: after the rounds so far, and forecasts."""
    if rounds := _complete_rounds(run):
        return _course_by_labels(run, rounds, level, ACCURACY_OF_POOL)
    with _open_view(run) as view:
        return _course_by_forecast(AccuracyForecast(view, history=read_history(run, keep=False)), level)


# -- before any label ----------------------------------------------------------------------------------------


def _forecast(run: Run, view: View, target: Target, history: History) -> AccuracyForecast | NumberForecast:
    """Return the forecast of a number of a run, drawn to serve it."""
    if target.is_accuracy:
        return AccuracyForecast(view, history=history)
    predicted, classes = coded_classes(run, [], view)
    pool = KnownPool(view, predicted, list(classes), target.slicings(view))
    parameters = parse_parameters("neyman", run.spec.drawn_with("neyman", {"serve": goals.served(run, target)}))
    assert isinstance(parameters, Parameters)
    return _number_forecast(pool, target, parameters, history)


def _number_forecast(
    pool: KnownPool, target: Target, parameters: Parameters, history: History = NO_HISTORY
) -> NumberForecast:
    """Return the forecast of a number, or of the part of it that decides."""

    def number(numbers: Numbers, level: float) -> Estimate:
        return target.choose(numbers.interim(target.metric, target.by, level))[1].estimate

    return NumberForecast(pool, target.metric, number, parameters, history)


def _by_forecast(
    forecast: AccuracyForecast | NumberForecast,
    uri: str,
    target: Target,
    half_width: float,
    level: float,
    history: History = NO_HISTORY,
) -> LabelBudget:
    """Return the labels for a number before any label."""
    labels, view = forecast.labels(half_width, level), forecast.view
    return LabelBudget(
        run=uri,
        metric=str(target.metric),
        by=target.parts,
        half_width=half_width,
        level=level,
        labels=0,
        accuracy=forecast.value(labels.neyman, level),
        basis=_basis(view, history),
        reached=False,
        total_labels=labels.neyman,
        worthless_labels=labels.worthless,
        most_labels=labels.at_worst,
        if_predicted_labels=labels.if_predicted,
        srs_labels=labels.srs,
        sizes=_first_sizes(labels.neyman, view.size),
        advice=None,
        course=_course_by_forecast(forecast, level, labels.neyman),
    )


def _basis(view: View, history: History) -> Literal["confidence", "history", "judges", "guess"]:
    """Return what the expected accuracy is based on before any label."""
    if history.labelled:
        return "history"
    if "confidence" in view.fields:
        return "confidence"
    return "judges" if view.judges(history.judges) else "guess"


def _first_sizes(total: int, size: int) -> list[int]:
    """Return the rounds of a total number of labels, as forecast before any label."""
    first = min(max(round(FIRST_ROUND * total), 10), size)
    return _summing_to(total, [first] if first >= total else [first, *planned_rounds(first, total, size)])


def _summing_to(total: int, sizes: Sequence[int]) -> list[int]:
    """Return sizes of rounds without their margin: the last ones are cut, so that the sum is ``total``."""
    left = [max(total - sum(sizes[:number]), 0) for number in range(len(sizes))]
    return [min(size, most) for size, most in zip(sizes, left, strict=True) if most]


def _course_by_forecast(forecast: AccuracyForecast | NumberForecast, level: float, reach: int = 0) -> WidthCourse:
    points = []
    for num in _grid(_LEAST, max(reach, REACH * _LEAST), forecast.view.size):
        half_width, by_srs = forecast.half_widths(num, level)
        points.append(WidthPoint(labels=num, half_width=half_width, srs_half_width=by_srs, seen=False))
    return WidthCourse(level=level, labels=0, points=points)


def _grid(least: int, most: int, size: int) -> list[int]:
    """Return numbers of labels from ``least`` to 1.2 ``most`` in equal ratios, within the pool."""
    labels = np.geomspace(min(least, size), min(max(1.2 * most, least + 1), size), POINTS)
    return sorted(set(np.rint(labels).astype(int).tolist()))


# -- with labels ---------------------------------------------------------------------------------------------


def _complete_rounds(run: Run) -> list[LabelledRound]:
    return whole_rounds(having_labels(read_rounds(run))) if run.rounds() else []


def _labels_of(rounds: Sequence[LabelledRound]) -> Previous:
    index = np.concatenate([item.known.index for item in rounds])
    return Previous.of(index, np.concatenate([item.outcome for item in rounds]))


def _open_view(run: Run) -> AbstractContextManager[View]:
    return feature_store.open_view(run, (), Parameters().optional_features)


def _by_labels(
    run: Run, rounds: Sequence[LabelledRound], half_width: float, level: float, target: Target
) -> LabelBudget:
    goal = goals.look_for_goal(run, half_width, target, level=level)
    labels = goal.looks[-1].labels
    return LabelBudget(
        run=run.uri,
        labels=labels,
        accuracy=clipped(goal),
        basis="labels",
        worthless_labels=None,
        most_labels=None,
        sizes=_summing_to(max(goal.total_labels - labels, 1), goal.sizes),
        course=_course_by_labels(run, rounds, level, target, goal.total_labels),
        **goal.model_dump(include=set(LabelBudget.model_fields) & set(Goal.model_fields) - {"format", "sizes"}),
    )


def _course_by_labels(
    run: Run, rounds: Sequence[LabelledRound], level: float, target: Target, reach: int = 0
) -> WidthCourse:
    analyses = goals.analyse_rounds(run, rounds, level, target)
    looks, plain = analyses.looks, analyses.plain
    size, now = rounds[0].selection.pool_size, looks[-1]
    rate = shrinkage_rate(looks, size)
    widths = [(look.labels, look.half_width, True) for look in looks]
    further = (num for num in _grid(now.labels, max(reach, REACH * now.labels), size) if num > now.labels)
    widths += [(num, expected_half_width(now, num, size, rate), False) for num in further]
    points = [
        WidthPoint(
            labels=num, half_width=width, srs_half_width=expected_half_width(plain, num, size, 0.5), seen=is_seen
        )
        for num, width, is_seen in widths
    ]
    return WidthCourse(level=level, labels=now.labels, points=points)


def _by_method(run: Run, method: str, half_width: float, level: float, previous: Previous) -> int:
    """Forecast the labels of a method in one round, with failures where labels or confidences predict them."""
    sample = run.spec.sample
    own = run.spec.drawn_with(method, sample.parameters if method == sample.method else {})
    parameters, reads = parse_parameters(method, own), Parameters().optional_features
    optional = tuple(dict.fromkeys([*parameters.optional_features, *reads]))
    with feature_store.open_view(run, find_method(method).needs(parameters), optional, parameters.instead) as view:
        history = read_history(run, keep=False)
        return forecast_method(view, method, half_width, level, parameters=own, previous=previous, history=history)
