"""How many labels a goal takes, for a run: from the model's own word before any label, and after every whole round."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from opacc_ray.audit import label_budget as goals
from opacc_ray.audit.accuracy import accuracy_of, circumstances_of, reason_of, sample_of, whole_rounds, with_labels
from opacc_ray.audit.prior_knowledge import read_history
from opacc_ray.documents import Document, Part
from opacc_ray.errors import LabelError
from opacc_ray.estimators.base import Estimate, joined_reasons
from opacc_ray.estimators.baseline import baseline
from opacc_ray.estimators.intervals import inside
from opacc_ray.estimators.looks import (
    Look,
    advice,
    expected_half_width,
    forecast,
    labels_for,
    look,
    planned_rounds,
    shrinkage_rate,
)
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Goal, RoundLook
from opacc_ray.samplers.base import NO_PREVIOUS, Previous
from opacc_ray.samplers.label_forecast import forecast_labels, forecast_method, forecast_widths
from opacc_ray.samplers.neyman import Parameters
from opacc_ray.samplers.select import find_method, parse_parameters


class WidthPoint(Part):
    """How narrow the interval is with so many labels."""

    labels: int = Field(ge=1, description="labels in all")
    half_width: float = Field(ge=0, description="half the width of the interval")
    srs_half_width: float = Field(ge=0, description="that of a simple random sample of as many labels")
    seen: bool = Field(description="whether the labels are there; else it is forecast")


class WidthCourse(Part):
    """Half-widths against labels: those of the rounds so far, then forecast ones."""

    level: float = Field(gt=0, lt=1, description="confidence level of the intervals")
    labels: int = Field(ge=0, description="labels that the forecast rests on, of whole rounds; 0: the model's own word")
    points: list[WidthPoint] = Field(description="by numbers of labels")


class LabelBudget(Document):
    """How many labels an interval of ±W takes: before any label by the model's own word, then by the labels so far."""

    format: Literal["opacc-budget/1"] = Field(default="opacc-budget/1", description="name and version of this form")
    run: str = Field(description="URI of the run")
    half_width: float = Field(gt=0, description="the goal: half the width of the interval")
    level: float = Field(gt=0, lt=1, description="confidence level of that interval")
    labels: int = Field(ge=0, description="labels that the forecast rests on, of whole rounds; 0: the model's own word")
    accuracy: float = Field(description="accuracy foreseen, or estimated by the labels so far and cut to its interval")
    reached: bool = Field(description="whether the interval is as narrow already")
    total_labels: int = Field(ge=1, description="labels in all, as forecast")
    worthless_labels: int | None = Field(
        description="labels in all if the model's word says nothing of where failures are; null once there are labels"
    )
    most_labels: int | None = Field(description="labels in all whatever is true; null once there are labels")
    srs_labels: int = Field(ge=1, description="labels that a simple random sample takes in all")
    sizes: list[int] = Field(description="labels of the next rounds, if all goes as forecast; empty if it is reached")
    advice: str | None = Field(description="one sentence if the goal is not to be had at a sensible price")
    method: str | None = Field(default=None, description="the method asked for; null if none was")
    method_labels: int | None = Field(
        default=None, description="labels that it takes in one round, from the beginning; null if none was asked for"
    )
    course: WidthCourse | None = Field(default=None, description="half-widths against labels")
    picture: str | None = Field(default=None, description="URI of the picture; null: none was asked for")


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


def look_for_goal(run: Run, half_width: float, *, level: float = 0.95, close: bool = False) -> Goal:
    """Whether the labels are enough for an interval of ``± half_width``, and how many more it takes.

    Rounds are looked at that have all their labels, or were closed; with ``close`` also one that is to be closed now.
    Nothing is written. The same labels, and goals asked for before, give the same answer.

    Raises
    ------
    LabelError
        No label is there, or no whole round; or ``half_width`` is not above 0.
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
        looks=[_round_look(item.number, one) for item, one in zip(whole, looks, strict=True)],
        total_labels=ahead.total,
        labels_to_go=0 if ahead.reached else max(1, ahead.total - looks[-1].labels - there),
        sizes=list(ahead.sizes),
        srs_labels=max(1, math.ceil(by_srs)),
        advice=advice(ahead, by_srs, looks[-1], pool_size),
        earlier_goals=_earlier_goals(run, half_width),
    )


class Looked(NamedTuple):
    """What whole rounds say."""

    whole: list[LabelledRound]
    looks: list[Look]  # after each of them
    estimate: Estimate  # after the last one, at the level of looks
    plain: Look  # a simple random sample of as many labels


def look_at(run: Run, known: Sequence[LabelledRound], level: float, *, close: bool = False) -> Looked:
    """Look after every whole round among those that have labels; with ``close`` all of them count as whole.

    Raises
    ------
    LabelError
        No round is whole.
    """
    whole = list(known) if close else whole_rounds(known)
    if not whole:
        raise LabelError(
            f"round {known[0].number} of {run.title} waits for {len(known[0].missing)} labels, and only whole rounds "
            "are looked at; import them, or give --close to go on without them"
        )
    own = partial(accuracy_of, run)  # the estimate that the run states
    found = [look(*sample_of(whole[:k]), level, own) for k in range(1, len(whole) + 1)]
    estimate = found[-1][1]
    plain = baseline(*sample_of(whole), replace(estimate, level=level))
    by_srs = Look(plain.n, max(plain.high - plain.low, 1e-9) / 2, found[-1][0].met)
    return Looked(whole, [item for item, _ in found], estimate, by_srs)


def _round_look(number: int, found: Look) -> RoundLook:
    return RoundLook(
        round=number,
        labels=found.labels,
        half_width=found.half_width,
        cautious_half_width=found.cautious_half_width,
    )


def record_goal(run: Run, goal: Goal) -> None:
    """Keep what was found beside the last round that it looked at."""
    run.write_goal(goal.looks[-1].round, goal)


def _earlier_goals(run: Run, half_width: float) -> list[float]:
    """Half-widths of the goals before this one."""
    kept = [goal for number in run.rounds() if (goal := run.read_goal(number)) is not None]
    asked = [width for goal in kept for width in (*goal.earlier_goals, goal.half_width)]
    return [width for width in dict.fromkeys(asked) if width != half_width]
