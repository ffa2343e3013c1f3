"""Goals of `opacc next --until`: whether the labels are enough for an interval so narrow, and what it takes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from opacc_ray.audit.results import (
    accuracy_of,
    circumstances_of,
    reason_of,
    sample_of,
    whole_rounds,
    with_labels,
)
from opacc_ray.errors import LabelError
from opacc_ray.estimators.base import Estimate, joined_reasons
from opacc_ray.estimators.baseline import baseline
from opacc_ray.estimators.looks import Look, advice, forecast, labels_for, look
from opacc_ray.labels.labelled_rounds import LabelledRound, read_rounds
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Goal, RoundLook


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
