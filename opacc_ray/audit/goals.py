"""Goals of `opacc next --until`: whether the interval of a number is narrow enough, and how many labels it still takes;
and forecasts of `opacc budget`, by the confidences before any label, then by the labels so far.

The accuracy, a metric, or either in slices or classes: the widest interval of these decides. Every number stops by the
rule of :mod:`opacc_ray.estimation.sequential`, with half the width of its own interval as h, and as m the events
that this interval rests on (:meth:`opacc_ray.estimation.class_totals.ClassTotals`). Once a goal is reached, all
numbers of the run are stated at the level of interim analyses, because the stop depends on the labels of all of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from opacc_ray.audit import verbs
from opacc_ray.audit.accuracy import checked_metric, circumstances_of, whole_rounds, with_labels
from opacc_ray.audit.history import read_history
from opacc_ray.audit.run_numbers import class_names, coded_classes, measure_accuracy, measure_run, open_for_estimates
from opacc_ray.documents import Document, Part
from opacc_ray.errors import LabelError, SpecError, shown
from opacc_ray.estimation.adjustments import baseline
from opacc_ray.estimation.class_totals import Interim
from opacc_ray.estimation.estimate import KnownPool, Numbers
from opacc_ray.estimation.forecast import AccuracyForecast, NumberForecast, worth_of_judges
from opacc_ray.estimation.intervals import Estimate, clipped, joined_reasons
from opacc_ray.estimation.sequential import (
    InterimAnalysis,
    advice,
    analyse,
    expected_half_width,
    forecast,
    interim_level,
    labels_for,
    planned_rounds,
    shrinkage_rate,
)
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds, reason_of
from opacc_ray.metrics.metric import ACCURACY, Metric, find_place, parse_metric
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import CROSSING, NO_HISTORY, OF_CLASSES, History, Slicing
from opacc_ray.runs.run import Run, open_view
from opacc_ray.runs.run_documents import Goal, RoundLook
from opacc_ray.samplers import parse_parameters
from opacc_ray.samplers.base import NO_PREVIOUS, Previous, Report, unreported
from opacc_ray.samplers.neyman import Parameters
from opacc_ray.spec.spec_sections import check_metric
from opacc_ray.spec.table_spec import read_predictions, warn_without_confidence
from opacc_ray.spec.validation import read_share


class Target(NamedTuple):
    """The number that a goal is about."""

    metric: Metric = Metric(ACCURACY)
    by: str | None = None  # name of slices, "prediction" or "truth"
    part: str | None = None  # one slice of these; None: the one with the widest interval

    @property
    def is_accuracy(self) -> bool:
        """Whether it is the accuracy of the pool."""
        return self.metric.name == ACCURACY and self.by is None

    @property
    def parts(self) -> str | None:
        """Return what ``--by`` says."""
        return self.by if self.part is None else f"{self.by}={self.part}"

    def __str__(self) -> str:
        return str(self.metric) if self.by is None else f"{self.metric} by {self.parts}"

    def slicings(self, view: View) -> dict[str, Slicing]:
        """Return the slices that it is about; raises SpecError if the pool does not have them."""
        if self.by is None or self.by in OF_CLASSES:
            return {}
        found = view.slicing(self.by)
        if self.part is not None and self.part not in found.names:
            few = ", ".join(found.names[:10]) + (", …" if len(found.names) > 10 else "")
            raise SpecError(f"--by {self.parts}: {self.by} has no slice {shown(self.part)}; choose one of {few}")
        return {self.by: found}

    def choose(self, found: Mapping[str, Interim]) -> tuple[str, Interim]:
        """Return the part that decides, and its name; of all, the one with the widest interval."""
        if self.part is not None and self.part not in found:
            raise SpecError(f"--by {self.parts}: there is no such class; choose one of {', '.join(found)}")
        own = found if self.part is None else {self.part: found[self.part]}
        return max(own.items(), key=lambda item: _look(item[1], 1).cautious_half_width)


ACCURACY_OF_POOL = Target()


def served(run: Run, target: Target) -> list[str]:
    """Return the numbers that a draw for a goal serves: its metric, and the slices that it is in."""
    metric = ACCURACY if target.metric.ratio is not None else str(target.metric)
    result = [metric] if target.metric.name != ACCURACY or target.by is None else []
    if target.by is None:
        return result
    named = target.by in (*OF_CLASSES, *run.spec.pool.slice_names)
    return result + ([target.by] if named else [name.strip() for name in target.by.split(CROSSING)])


def read_goal(text: str | float, by: str | None = None) -> tuple[float, Target]:
    """Read half the width of an interval and what it is of, ``"f1@defect ±0.02"``; raises SpecError for anything else.

    ``by`` is as for :func:`read_target`.
    """
    try:
        metric, half_width = read_share(str(text))
    except ValueError as meant:
        raise SpecError(
            f"{shown(text)}: give a half-width between 0 and 1, such as 0.02 or 'f1@defect ±0.02'{meant}"
        ) from None
    return half_width, read_target(metric or ACCURACY, by)


def read_target(metric: str = ACCURACY, by: str | None = None) -> Target:
    """Read what a goal is about; ``by`` is a name of slices or classes, or NAME=SLICE.

    Raises SpecError for a metric that there is not, or that is not stated by these.
    """
    asked, (name, is_one, part) = parse_metric(metric), (by or "").partition("=")
    result = Target(asked, name or None, part if is_one else None)
    if result.by is not None and asked.is_of_pool:
        raise SpecError(f"{metric} is stated of the whole pool only; remove --by {by}")
    if result.by in OF_CLASSES and asked.name != ACCURACY:
        raise SpecError(f"{result}: by {result.by} there is the accuracy; remove {metric}, or give slices")
    return result


def goal_on_classes(target: Target, classes: Sequence[str] | None) -> Target:
    """Return a target whose metric names its class; raises SpecError if there is no such class."""
    return target._replace(metric=checked_metric(str(target.metric), classes))


def target_of(run: Run, target: Target) -> Target:
    """Return what a goal is about in a run; raises SpecError for a metric or a class that there is not."""
    if target.metric.is_error:
        raise SpecError(
            f"a goal is a share, and {target} is in the unit of the prediction; give ±W alone for the score"
        )
    if run.spec.model.counts is not None and target.metric.name != ACCURACY:
        check_metric(target.metric, run.spec.model, "--until")
    elif not run.spec.model.has_classes and (target.metric.name != ACCURACY or target.by in OF_CLASSES):
        raise SpecError(f"{target} needs classes, and the task is {run.spec.model.task}; give ±W alone")
    return goal_on_classes(target, class_names(run))


def next_until(
    run: Run,
    half_width: float,
    target: Target = ACCURACY_OF_POOL,
    *,
    budget: int | None = None,
    method: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    close: bool = False,
    progress: Report = unreported,
) -> Goal:
    """Draw the next planned round, unless the goal is reached; keep the goal with the run.

    A round of `neyman` serves the number of the goal, unless ``parameters`` name others. The other arguments are those
    of :func:`opacc_ray.audit.verbs.next_round`. Raises as that and :func:`look_for_goal`.
    """
    target = target_of(run, target)
    goal = look_for_goal(run, half_width, target, close=close)
    if goal.reached:
        if close:
            verbs.close_round(run)
    else:
        by_neyman = (method or run.read_selection(run.rounds()[-1]).method) == "neyman"
        verbs.next_round(
            run,
            goal.sizes[0] if budget is None else budget,
            method=method,
            parameters=parameters,
            serve=served(run, target) if by_neyman and not target.is_accuracy else None,
            close=close,
            progress=progress,
        )
    run.write_goal(goal)
    return goal


def look_for_goal(
    run: Run, half_width: float, target: Target = ACCURACY_OF_POOL, *, level: float = 0.95, close: bool = False
) -> Goal:
    """Decide whether the labels suffice for an interval of ``± half_width``, and forecast how many more it needs.

    Only complete or closed rounds count; with ``close`` also a round that is about to be closed. Writes nothing. The
    same labels and earlier goals give the same answer. Raises LabelError if there is no label or no complete round, or
    ``half_width`` is not positive; SpecError if there is no such number.
    """
    rounds = read_rounds(run)
    known = with_labels(run, rounds, partial=True)
    complete, looks, estimate, plain, part = analyse_rounds(run, known, level, target, close=close)
    pool_size = complete[0].selection.pool_size
    ahead = forecast(looks, half_width, pool_size)
    by_srs = labels_for(half_width, plain.labels, plain.half_width, pool_size)
    later = sum(len(item.outcome) for item in known[len(complete) :])
    low, high, notes = estimate.low, estimate.high, list[str]()
    if target.is_accuracy:
        statement = circumstances_of(run, complete, level)._replace(goal=None).statement(estimate)
        low, high, notes = statement.estimate.low, statement.estimate.high, list(statement.notes)
    return Goal(
        metric=str(target.metric),
        by=target.parts,
        slice=part,
        half_width=half_width,
        level=level,
        look_level=estimate.level,
        reached=ahead.reached,
        value=estimate.value,
        low=low,
        high=high,
        reason=joined_reasons([reason_of(estimate.reason, rounds), *notes]),
        looks=[
            RoundLook(
                round=item.number,
                labels=one.labels,
                half_width=one.half_width,
                cautious_half_width=one.cautious_half_width,
            )
            for item, one in zip(complete, looks, strict=True)
        ],
        total_labels=ahead.total,
        labels_to_go=0 if ahead.reached else max(1, ahead.total - looks[-1].labels - later),
        sizes=list(ahead.sizes),
        srs_labels=max(1, math.ceil(by_srs)),
        advice=advice(ahead, by_srs if rounds[-1].selection.method != "srs" else math.inf, looks[-1], pool_size),
        earlier_goals=_earlier_goals(run, target, half_width),
    )


class Analyses(NamedTuple):
    """Interim analyses of complete rounds."""

    rounds: list[LabelledRound]
    looks: list[InterimAnalysis]  # after each of them
    estimate: Estimate  # after the last one, at the level of interim analyses
    plain: InterimAnalysis  # a simple random sample with as many labels
    part: str | None = None  # the slice that decides


def analyse_rounds(
    run: Run,
    known: Sequence[LabelledRound],
    level: float,
    target: Target = ACCURACY_OF_POOL,
    *,
    close: bool = False,
) -> Analyses:
    """Analyse the labels after every complete round; raises LabelError without one. ``close`` counts all of them."""
    rounds, own_level, looks = list(known) if close else whole_rounds(known), interim_level(level), []
    if not rounds:
        raise LabelError(
            f"round {known[0].number} of {run.uri} needs {len(known[0].missing)} labels, and only complete "
            "rounds count; import them, or give --close to continue without them"
        )
    if target.is_accuracy:
        for k in range(1, len(rounds) + 1):
            accuracy = measure_accuracy(run, rounds[:k])
            estimate = accuracy.estimate(own_level)
            looks.append(analyse(accuracy.sample, estimate))
        plain = baseline(accuracy.sample, replace(estimate, level=level))
        by_srs = InterimAnalysis(plain.n, max(plain.high - plain.low, 1e-9) / 2, looks[-1].met)
        return Analyses(rounds, looks, estimate, by_srs)
    with open_for_estimates(run, [item.known for item in rounds]) as view:
        slicings = target.slicings(view)
        for k in range(1, len(rounds) + 1):
            numbers = measure_run(run, rounds[:k], rounds[:k], view, slicings, [target.metric])
            part, number = target.choose(numbers.numbers.interim(target.metric, target.by, own_level))
            looks.append(_look(number, numbers.sample.size))
        at_random = numbers.numbers.by_random_sample().interim(target.metric, target.by, level)
    return Analyses(rounds, looks, number.estimate, _look(at_random.get(part, number), looks[-1].labels), part or None)


def _look(found: Interim, labels: int) -> InterimAnalysis:
    return InterimAnalysis(labels, max(found.estimate.high - found.estimate.low, 1e-9) / 2, found.met())


def _earlier_goals(run: Run, target: Target, half_width: float) -> list[float | str]:
    """Return the other goals so far, each once: half-widths of the accuracy, texts of other numbers."""

    def text(target: str, half_width: float) -> float | str:
        return half_width if target == ACCURACY else f"{target} ±{half_width:g}"

    goals = [own for goal in run.goals().values() for own in (*goal.earlier_goals, text(goal.target, goal.half_width))]
    return [own for own in dict.fromkeys(goals) if own != text(str(target), half_width)]


# -- forecasts -----------------------------------------------------------------------------------------------


class Way(Part):
    """One way to the goal: some calls of judges, and some labels."""

    calls: int = Field(ge=0)  # calls of judges: values of their columns
    labels: int = Field(ge=1)  # total number of labels, as forecast


class JudgeBudget(Part):
    """What the judges save, as forecast."""

    present: Way  # with the judges as they are
    without: Way  # without judges
    complete: Way | None = None  # if every judge had judged every example; null if they have


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

    labels: int = Field(ge=1)  # total number of labels
    half_width: float = Field(ge=0)  # half the width of the interval
    srs_half_width: float = Field(ge=0)  # half-width of a simple random sample with as many labels
    seen: bool  # whether these labels exist; otherwise the half-width is a forecast


class WidthCourse(Part):
    """Half-widths by numbers of labels: of the rounds so far, then forecasts."""

    level: float = Field(gt=0, lt=1)  # confidence level of the intervals
    labels: int = Field(ge=0)  # labels that the forecast uses, from complete rounds; 0: it uses the confidences
    points: list[WidthPoint]  # sorted by number of labels


class LabelBudget(Document):
    """Forecast of the labels for an interval of ±W: by the confidences before any label, then by the labels."""

    format: Literal["opacc-budget/1"] = "opacc-budget/1"
    run: str  # URI of the run
    metric: str = ACCURACY  # the number that the goal is about, such as f1@defect
    by: str | None = None  # slices that the goal is about, or NAME=SLICE; null: the pool
    half_width: float = Field(gt=0)  # the goal: half the width of the interval
    level: float = Field(gt=0, lt=1)  # confidence level of that interval
    labels: int = Field(ge=0)  # labels that the forecast uses, from complete rounds; 0: it uses the confidences
    accuracy: float  # expected value of the number; with labels, the estimate, within its interval
    # what the expected accuracy is based on: labels of the run; the confidences, corrected for usual overconfidence;
    # labels of a history; judges; or, without any of them, a rough guess
    basis: Literal["labels", "confidence", "history", "judges", "guess"] = "confidence"
    reached: bool  # whether the interval is already narrow enough
    total_labels: int = Field(ge=1)  # total number of labels, as forecast
    # total number of labels if the confidences do not predict failures; null once there are labels
    worthless_labels: int | None
    most_labels: int | None  # total number of labels in the worst case; null once there are labels
    # total number of labels if the confidence is right about the examples without a label; null where that is no fewer,
    # and once there are labels
    if_predicted_labels: int | None = None
    srs_labels: int = Field(ge=1)  # total number of labels of a simple random sample
    sizes: list[int]  # labels of each round to draw, as forecast; empty if the goal is reached
    advice: str | None  # one sentence if the goal is too expensive; otherwise null
    # what the judges save; null without judges, and for other numbers than the accuracy
    judges: JudgeBudget | None = None
    course: WidthCourse | None = None  # half-widths by numbers of labels


FIRST_ROUND = 0.1
"""Share of the forecast labels for the first round."""

POINTS, REACH = 16, 4
"""Number of forecasts, and the least multiple of the present labels that they reach."""

_LEAST = 20
"""Fewest labels of a forecast before there are any."""


def label_budget(run: Run, half_width: float, target: Target = ACCURACY_OF_POOL, *, level: float = 0.95) -> LabelBudget:
    """Forecast the labels for an interval of ± ``half_width``; writes nothing.

    Raises LabelError if ``half_width`` is not positive; SpecError if there is no such number.
    """
    target = target_of(run, target)
    rounds = whole_rounds(having_labels(read_rounds(run))) if run.rounds() else []
    if not rounds:
        _refuse_ratio(target)
    previous = _labels_of(rounds) if rounds else NO_PREVIOUS
    budget = _by_labels(run, rounds, half_width, level, target) if rounds else None
    judges = None
    if budget is None or (target.is_accuracy and run.spec.pool.columns.judges is not None):
        history = read_history(run, keep=False)
        with open_view(run, (), Parameters().optional_features) as view:
            if budget is None:
                forecast = _forecast(run, view, target, history)
                budget = _by_forecast(forecast, run.uri, target, half_width, level, history)
            judges = judge_budget(view, budget.total_labels, previous, history) if target.is_accuracy else None
    return budget.model_copy(update={"judges": judges})


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
    target = goal_on_classes(target, classes)
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


# -- before any label ----------------------------------------------------------------------------------------


def _forecast(run: Run, view: View, target: Target, history: History) -> AccuracyForecast | NumberForecast:
    """Return the forecast of a number of a run, drawn to serve it."""
    if target.is_accuracy:
        return AccuracyForecast(view, history=history)
    predicted, classes = coded_classes(run, [], view)
    pool = KnownPool(view, predicted, list(classes), target.slicings(view))
    parameters = parse_parameters("neyman", run.spec.drawn_with("neyman", {"serve": served(run, target)}))
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


def _labels_of(rounds: Sequence[LabelledRound]) -> Previous:
    index = np.concatenate([item.known.index for item in rounds])
    return Previous.of(index, np.concatenate([item.outcome for item in rounds]))


def _by_labels(
    run: Run, rounds: Sequence[LabelledRound], half_width: float, level: float, target: Target
) -> LabelBudget:
    goal = look_for_goal(run, half_width, target, level=level)
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
    analyses = analyse_rounds(run, rounds, level, target)
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
