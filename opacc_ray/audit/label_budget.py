"""Forecast how many labels an interval needs: by the confidences before any label, then by the labels so far.

This module also decides for `opacc next --until` whether a goal is reached.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from opacc_ray.audit.accuracy import accuracy_of, circumstances_of, sample_of, whole_rounds, with_labels
from opacc_ray.audit.prior_knowledge import read_history
from opacc_ray.documents import Document, Part
from opacc_ray.errors import LabelError
from opacc_ray.estimators.accuracy_estimate import Estimate, joined_reasons
from opacc_ray.estimators.interim_analyses import (
    InterimAnalysis,
    advice,
    analyse,
    expected_half_width,
    forecast,
    labels_for,
    planned_rounds,
    shrinkage_rate,
)
from opacc_ray.estimators.intervals import clipped
from opacc_ray.estimators.statement import baseline
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds, reason_of
from opacc_ray.parts.view import View, view_of
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Goal, RoundLook
from opacc_ray.samplers import find_method, parse_parameters
from opacc_ray.samplers.base import NO_PREVIOUS, Previous
from opacc_ray.samplers.neyman import Parameters
from opacc_ray.samplers.neyman.forecast import forecast_labels, forecast_method, forecast_widths
from opacc_ray.spec.predictions_table import read_predictions, warn_without_confidence


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

    format: Literal["opacc-budget/1"] = Field(default="opacc-budget/1", description="name and version of this form")
    run: str = Field(description="URI of the run")
    half_width: float = Field(gt=0, description="the goal: half the width of the interval")
    level: float = Field(gt=0, lt=1, description="confidence level of that interval")
    labels: int = Field(
        ge=0, description="labels that the forecast uses, from complete rounds; 0: it uses the confidences"
    )
    accuracy: float = Field(description="expected accuracy; with labels, the estimate, limited to its interval")
    basis: Literal["labels", "confidence", "history", "guess"] = Field(
        default="confidence",
        description="what the expected accuracy is based on: labels of the run; the confidences, corrected for usual "
        "overconfidence; labels of a history; or, without any of them, a rough guess",
    )
    reached: bool = Field(description="whether the interval is already narrow enough")
    total_labels: int = Field(ge=1, description="total number of labels, as forecast")
    worthless_labels: int | None = Field(
        description="total number of labels if the confidences do not predict failures; null once there are labels"
    )
    most_labels: int | None = Field(description="total number of labels in the worst case; null once there are labels")
    srs_labels: int = Field(ge=1, description="total number of labels of a simple random sample")
    sizes: list[int] = Field(description="labels of each round to draw, as forecast; empty if the goal is reached")
    advice: str | None = Field(description="one sentence if the goal is too expensive; otherwise null")
    method: str | None = Field(default=None, description="the requested method; null if none")
    method_labels: int | None = Field(
        default=None, description="labels of that method in one round, from the start; null without a method"
    )
    course: WidthCourse | None = Field(default=None, description="half-widths by numbers of labels")
    picture: str | None = Field(default=None, description="URI of the picture; null if none was requested")


FIRST_ROUND = 0.1
"""Share of the forecast labels for the first round."""

POINTS, REACH = 16, 4
"""Number of forecasts, and the least multiple of the present labels that they reach."""


def label_budget(run: Run, half_width: float, *, level: float = 0.95, method: str | None = None) -> LabelBudget:
    """Forecast the labels for an interval of ± ``half_width``, also by ``method`` if given; writes nothing.

    Raises LabelError if ``half_width`` is not positive; SpecError if the method is unknown, draws no random sample,
    or lacks its features.
    """
    whole = _whole(run)
    if whole:
        found = _by_labels(run, half_width, level)
    else:
        with _open_view(run) as view:
            found = _by_forecast(view, run.uri, half_width, level, read_history(run, keep=False))
    own = None
    if method is not None:
        own = found.srs_labels if method == "srs" else _by_method(run, whole, method, half_width, level)
    course = width_course(run, level=level, reach=found.total_labels)
    return found.model_copy(update={"method": method, "method_labels": own, "course": course})


def label_budget_of_table(uri: str, half_width: float, *, level: float = 0.95) -> LabelBudget:
    """Return the labels that an interval of ± ``half_width`` takes for a file of predictions, before there is a run."""
    table = read_predictions(uri)
    warn_without_confidence(table)
    view = view_of(table.pool)
    found = _by_forecast(view, uri, half_width, level, NO_HISTORY)
    course = _widths_by_confidences(view, level, found.total_labels, NO_HISTORY)
    return found.model_copy(update={"course": course})


def width_course(run: Run, *, level: float = 0.95, reach: int = 0) -> WidthCourse:
    """Return half-widths by numbers of labels: after the rounds so far, and forecasts beyond ``reach`` labels."""
    whole = _whole(run)
    if whole:
        return _widths_by_labels(run, whole, level, reach)
    with _open_view(run) as view:
        return _widths_by_confidences(view, level, reach, read_history(run, keep=False))


def _whole(run: Run) -> list[LabelledRound]:
    """Return the complete rounds."""
    return whole_rounds(having_labels(read_rounds(run))) if run.rounds() else []


def _open_view(run: Run) -> AbstractContextManager[View]:
    return feature_store.open_view(run, (), Parameters().optional_features)


def _by_forecast(view: View, uri: str, half_width: float, level: float, history: History) -> LabelBudget:
    found = forecast_labels(view, half_width, level, Parameters(), history)
    first = min(max(round(FIRST_ROUND * found.neyman), 10), view.size)
    sizes = [first] if first >= found.neyman else [first, *planned_rounds(first, found.neyman, view.size)]
    basis: Literal["confidence", "guess"] = "confidence" if "confidence" in view.fields else "guess"
    return LabelBudget(
        run=uri,
        half_width=half_width,
        level=level,
        labels=0,
        accuracy=found.foreseen_accuracy,
        basis="history" if history.labelled else basis,
        reached=False,
        total_labels=found.neyman,
        worthless_labels=found.worthless,
        most_labels=found.at_worst,
        srs_labels=found.srs,
        sizes=_summing_to(found.neyman, sizes),
        advice=None,
    )


def _summing_to(total: int, sizes: Sequence[int]) -> list[int]:
    """Return sizes of rounds without their margin: the last ones are cut, so that the sum is ``total``."""
    left = [max(total - sum(sizes[:number]), 0) for number in range(len(sizes))]
    return [min(size, most) for size, most in zip(sizes, left, strict=True) if most]


def _by_labels(run: Run, half_width: float, level: float) -> LabelBudget:
    goal = look_for_goal(run, half_width, level=level)
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
        previous = NO_PREVIOUS
        if whole:
            index = np.concatenate([item.known.index for item in whole])
            previous = Previous.of(index, np.concatenate([item.outcome for item in whole]))
        history = read_history(run, keep=False)
        return forecast_method(view, method, half_width, level, parameters=own, previous=previous, history=history)


def _widths_by_confidences(view: View, level: float, reach: int, history: History) -> WidthCourse:
    least = 20  # labels
    labels = _grid(least, max(reach, REACH * least), view.size)
    found = forecast_widths(view, labels, level, Parameters(), history)
    points = [
        WidthPoint(labels=n, half_width=own, srs_half_width=srs, seen=False)
        for n, own, srs in zip(labels, *found, strict=True)
    ]
    return WidthCourse(level=level, labels=0, points=points)


def _widths_by_labels(run: Run, whole: Sequence[LabelledRound], level: float, reach: int) -> WidthCourse:
    _, looks, _, plain = look_at(run, whole, level)
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


def look_for_goal(run: Run, half_width: float, *, level: float = 0.95, close: bool = False) -> Goal:
    """Decide whether the labels suffice for an interval of ``± half_width``, and forecast how many more it needs.

    Only complete or closed rounds count; with ``close`` also a round that is about to be closed. Writes nothing. The
    same labels and earlier goals give the same answer. Raises LabelError if there is no label or no complete round, or
    ``half_width`` is not positive.
    """
    rounds = read_rounds(run)
    known = with_labels(run, rounds, partial=True)
    whole, looks, estimate, plain = look_at(run, known, level, close=close)
    pool_size = whole[0].selection.pool_size
    ahead = forecast(looks, half_width, pool_size)
    by_srs = labels_for(half_width, plain.labels, plain.half_width, pool_size)
    there = sum(len(item.outcome) for item in known[len(whole) :])
    said = circumstances_of(run, whole, level)._replace(goal=None).statement(estimate)
    return Goal(
        half_width=half_width,
        level=level,
        look_level=estimate.level,
        reached=ahead.reached,
        value=estimate.value,
        low=said.estimate.low,
        high=said.estimate.high,
        reason=joined_reasons([reason_of(estimate.reason, rounds), *said.notes]),
        looks=[
            RoundLook(
                round=item.number,
                labels=one.labels,
                half_width=one.half_width,
                cautious_half_width=one.cautious_half_width,
            )
            for item, one in zip(whole, looks, strict=True)
        ],
        total_labels=ahead.total,
        labels_to_go=0 if ahead.reached else max(1, ahead.total - looks[-1].labels - there),
        sizes=list(ahead.sizes),
        srs_labels=max(1, math.ceil(by_srs)),
        advice=advice(ahead, by_srs, looks[-1], pool_size),
        earlier_goals=[width for width in dict.fromkeys(_goals(run)) if width != half_width],
    )


class Looked(NamedTuple):
    """Interim analyses of complete rounds."""

    whole: list[LabelledRound]
    looks: list[InterimAnalysis]  # after each of them
    estimate: Estimate  # after the last one, at the level of interim analyses
    plain: InterimAnalysis  # a simple random sample with as many labels


def look_at(run: Run, known: Sequence[LabelledRound], level: float, *, close: bool = False) -> Looked:
    """Analyse the labels after every complete round; raises LabelError without one. ``close`` counts all of them."""
    whole = list(known) if close else whole_rounds(known)
    if not whole:
        raise LabelError(
            f"round {known[0].number} of {run.title} needs {len(known[0].missing)} labels, and only complete "
            "rounds count; import them, or give --close to continue without them"
        )
    own = partial(accuracy_of, run)  # the estimate that the run reports
    found = [analyse(*sample_of(whole[:k]), level, own) for k in range(1, len(whole) + 1)]
    estimate = found[-1][1]
    plain = baseline(*sample_of(whole), replace(estimate, level=level))
    by_srs = InterimAnalysis(plain.n, max(plain.high - plain.low, 1e-9) / 2, found[-1][0].met)
    return Looked(whole, [item for item, _ in found], estimate, by_srs)


def _goals(run: Run) -> Iterator[float]:
    """Yield the half-widths of the goals so far."""
    for number in run.rounds():
        goal = run.read_goal(number)
        yield from (*goal.earlier_goals, goal.half_width) if goal else ()
