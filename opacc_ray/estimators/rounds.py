"""Rounds of any method, combined.

Round t draws n_t examples from the N_t that were not labelled before and estimates their share of failures by r_t, each
method by its own design. For the whole pool that makes z_t = (1/N) · (Σ_labelled before f + N_t · r_t). Given the
earlier rounds z_t is unbiased, so the z_t - θ are martingale differences and

    θ̂ = Σ_t w_t z_t,   w_t ∝ ∛(n_1 + … + n_t) / u_t,   Σ_t w_t = 1,   Var(θ̂) = Σ_t w_t² Var(z_t)

    u_t = (N_t/N)² · (1/n_t - 1/N_t)

is unbiased too, for the weights do not depend on labels. u_t is the variance of z_t, but for a factor, if the round is
a simple random sample; where a round leaves little unlabelled it is small. (Draws with replacement leave all to draw
from: 1/n_t - 1/N_t is 1/n_t then.) The root is for what later rounds have learned. A. B. Owen and Y. Zhou ("The square
root rule for adaptive importance sampling", ACM TOMACS 30, 2020) show that weights growing as a fixed power are near
the best however fast rounds improve; the cube root does best here. Rounds of simple random samples and of strata learn
little, and have no root: together simple random samples then are one, with its mean. (Weights in inverse proportion to
*estimated* variances would trust the rounds that happened to miss the rare failures.)

The interval is that of ``difference.py``, with the effect of a label scaled by its round's weight; it takes every label
of a round without predictions to move the estimate equally. ``rounds_as_one.py`` says what rounds deserve where that is
not so.

Legend: N pool, n labels, f = 1 - outcome, w weight of a round.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.designs.stratified import Stratified
from opacc_ray.errors import LabelError
from opacc_ray.estimators.base import Estimate, Outcome, check_level, checked_outcome, is_binary
from opacc_ray.estimators.by_design import by_design
from opacc_ray.estimators.difference import Known, Round, accuracy, corrected
from opacc_ray.selection import Selection

_LEAST_LEFT = 0.5
"""Examples that a round is taken to leave unlabelled at least, for a weight that is finite."""


def as_lists(
    selection: Selection | Sequence[Selection], outcome: Sequence[Any] | Outcome
) -> tuple[list[Selection], list[Any]]:
    """The rounds, and the outcomes of each, in lists, also where one selection is given."""
    if isinstance(selection, Selection):
        return [selection], [outcome]
    return list(selection), list(outcome)


def checked_rounds(
    selection: Selection | Sequence[Selection], outcome: Sequence[Any] | Outcome, level: float
) -> tuple[list[Selection], list[Outcome]]:
    """Rounds and the outcomes of each; raises LabelError if these do not fit, or the level is none."""
    check_level(level)
    rounds, given = as_lists(selection, outcome)
    if not rounds or len(rounds) != len(given):
        raise LabelError(f"{len(rounds)} rounds and {len(given)} lists of outcomes: give one list per round")
    seen = set()
    for part in rounds:
        own = part.round, part.method, part.seed, part.index.tobytes()
        if not len(part):
            raise LabelError(f"round {part.round} has no label: leave it out, or label some of it")
        if own in seen:
            raise LabelError(
                f"round {part.round} is given twice, and its labels would count twice: give each round once"
            )
        seen.add(own)
    return rounds, [checked_outcome(part, values) for part, values in zip(rounds, given, strict=True)]


def combine(selections: Sequence[Selection], outcomes: Sequence[Outcome], level: float) -> Estimate:
    """Accuracy on the whole pool from all rounds, in their order, whatever their methods.

    Parameters
    ----------
    selections : rounds of one pool
    outcomes : (n_t,) each, aligned with the selection's index
    level : confidence level of the interval

    Returns
    -------
    Estimate
        Unbiased if every round's estimator is; ``design_based`` unless some round's is not.

    Raises
    ------
    LabelError
        If the rounds are of different pools, or a round was drawn when labels were there that are not given.
    """
    pool_size = common_pool(selections)
    rounds = [_round(selection, outcome) for selection, outcome in zip(selections, outcomes, strict=True)]
    before = labelled_before(selections)
    weight = round_weights(selections)
    failure = 1 - np.concatenate(outcomes)
    left = shares_left(selections)
    value = sum(
        w * (float(failure[places].sum()) / pool_size + share_left * part.share)
        for w, places, share_left, part in zip(weight, before, left, rounds, strict=True)
    )
    return accuracy(value, rounds, weight * left, known(selections, outcomes), level)


def known(selections: Sequence[Selection], outcomes: Sequence[Outcome]) -> Known:
    """What the labels of all rounds say for certain, each example counted once."""
    outcome = np.concatenate(outcomes)
    _, first = np.unique(np.concatenate([selection.index for selection in selections]), return_index=True)
    return Known(float((1 - outcome[first]).sum()), len(first), selections[0].pool_size, is_binary(outcome))


def round_weights(selections: Sequence[Selection]) -> NDArray[np.float64]:
    """w (rounds,): of each round, from the numbers of labels alone."""
    size = common_pool(selections)
    num = np.array([len(selection) for selection in selections], dtype=np.float64)
    left = shares_left(selections)
    distinct = np.array([selection.design.is_distinct for selection in selections])
    after = np.maximum(left - distinct * num / size, _LEAST_LEFT / size)
    weight = num / (np.maximum(left, _LEAST_LEFT / size) * after)
    if not all(isinstance(selection.design, SimpleRandom | Stratified) for selection in selections):
        weight *= np.cbrt(np.cumsum(num))
    return weight / weight.sum()


def shares_left(selections: Sequence[Selection]) -> NDArray[np.float64]:
    """N_t/N (rounds,): the share of the pool that was not labelled when each round was drawn."""
    size = common_pool(selections)
    return np.array([1 - len(places) / size for places in labelled_before(selections)])


def late_labels(selections: Sequence[Selection]) -> str | None:
    """Why rounds do not hold by their designs: a round was drawn when labels of earlier ones were not there yet."""
    size = common_pool(selections)
    for selection, places in zip(selections, labelled_before(selections), strict=True):
        drawn_from = getattr(selection.design, "population", size)
        late = drawn_from + len(places) - size
        if late > 0 and drawn_from < size:  # 0.1.0 wrote the size of the whole pool
            return f"{late} labels of earlier rounds came after round {selection.round} was drawn"
    return None


def simple_random_of(selections: Sequence[Selection]) -> SimpleRandom | None:
    """The one sample that rounds of simple random samples are; None if some of them is none."""
    if not all(isinstance(part.design, SimpleRandom) and part.design.is_distinct for part in selections):
        return None
    return SimpleRandom(sum(map(len, selections)), common_pool(selections), replacement=False)


def _round(selection: Selection, outcome: Outcome) -> Round:
    if selection.design.prediction is None:
        return _without_predictions(selection, outcome)
    return corrected(selection.design, selection.design.prediction, outcome)


def _without_predictions(selection: Selection, outcome: Outcome) -> Round:
    """A round of another design: its own estimate, each label with the same effect."""
    n = len(outcome)
    estimate = by_design(selection.design, outcome, 0.95)
    failure = 1 - outcome
    failures = (float(failure.sum()) + 0.5) / (n + 1)
    left = 1 - n / selection.pool_size if selection.design.is_distinct else 1.0
    effect = math.sqrt(max(left, 0)) / n
    expected = np.full(n, failures)
    variance, based = estimate.standard_error**2, estimate.design_based
    return Round(
        1 - estimate.value,
        variance,
        np.full(n, effect),
        expected,
        failure,
        failure - expected,
        False,
        based,
        estimate.reason,
        selection.design.degrees,
    )


def common_pool(selections: Sequence[Selection]) -> int:
    """N; raises LabelError if the rounds are of different pools."""
    sizes = {selection.pool_size for selection in selections}
    if len(sizes) != 1:
        raise LabelError(f"the rounds are of pools of {sorted(sizes)} examples: give rounds of one pool")
    return sizes.pop()


def labelled_before(selections: Sequence[Selection]) -> list[NDArray[np.int64]]:
    """Places, among the labels of all rounds, of those that were there when each round was drawn, each example once.

    Raises
    ------
    LabelError
        If a round was drawn when labels were there that no earlier one holds.
    """
    place: dict[int, int] = {}
    before, num = [], 0
    for selection in selections:
        after = selection.design.drawn_after
        named = list(place) if after is None else after.tolist()
        missing = [index for index in named if index not in place]
        if missing:
            raise LabelError(
                f"round {selection.round} was drawn when {len(missing)} more examples were labelled than the earlier "
                f"rounds given here hold (the first is number {missing[0]} of the pool): give all rounds, in order"
            )
        before.append(np.array([place[index] for index in named], dtype=np.int64))
        place |= {index: num + k for k, index in enumerate(selection.index.tolist()) if index not in place}
        num += len(selection)
    return before
