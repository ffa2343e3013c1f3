"""Rounds of one kind of design, with the interval that the design has in one round.

``rounds.py`` combines rounds of any designs, and takes every label of a round without predictions to move the estimate
equally. For rounds of one kind more can be said:

    simple random samples      all of them are one simple random sample: its mean and its interval (``simple.py``)
    strata, 0/1 outcomes       the stratified score interval (``intervals.py``) over the strata of all rounds, stratum j
                               of round t with the share w_t · (1 - N_t/N) · P_tj
    otherwise, if some labels  the interval of ``rounds.py`` and the weighted Clopper-Pearson one (``weighted.py``) with
    weigh more than others     the largest weight of any round, w_t · (1 - N_t/N) · weight: on each side the wider end

The last two matter where a few labels move the estimate far more than the rest: the confident stratum of CSS, or an
example that DeepEST, SUPS, RHC-S or 2-UPS were unlikely to draw. An estimate that has met few failures among those is
too good, and its interval too narrow, by the same luck. One that is stated because it is narrow would be stated when it
is wrong. Rounds that resemble the pool, are replicated, or have predictions are left to ``rounds.py``.

Legend: N pool, N_t examples labelled before round t, w_t weight of a round, P_tj share of a stratum.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.designs.stratified import Stratified
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.difference import Known
from opacc_ray.estimators.intervals import Interval, stratified_score
from opacc_ray.estimators.rounds import common_pool, known, labelled_before, plain_estimate, round_weights
from opacc_ray.estimators.simple import simple_random
from opacc_ray.estimators.weighted import NAME, failure_bounds
from opacc_ray.selection import Selection

UNEQUAL = ("stratified score", NAME)
"""Intervals, in one round, of designs in which some labels weigh more than others."""


def estimate_as_one(selections: Sequence[Selection], outcomes: Sequence[Outcome], level: float) -> Estimate:
    """Accuracy from one round or several, as :func:`opacc_ray.estimate` takes them.

    Value and standard error are those of :func:`opacc_ray.estimate`, but for rounds of simple random samples.
    """
    found = plain_estimate(selections, outcomes, level)
    designs = [part.design for part in selections]
    if len(designs) == 1:
        return found
    if all(isinstance(design, SimpleRandom) and design.is_distinct for design in designs):
        whole = SimpleRandom(sum(map(len, designs)), common_pool(selections), replacement=False)
        return simple_random(whole, np.concatenate(outcomes), level)
    if not any(design.prediction is None and design.interval in UNEQUAL for design in designs):
        return found
    sure = known(selections, outcomes)
    strata = [design for design in designs if isinstance(design, Stratified)]
    if len(strata) == len(designs) and sure.binary:
        bounds, name = _score(selections, strata, outcomes, level), "stratified score"
    else:
        bounds, name = _wider(selections, found), f"{NAME}, or {found.interval}"
    low, high = _cut(bounds, sure)
    return replace(found, low=low, high=high, interval=name)


def _scale(selections: Sequence[Selection]) -> NDArray[np.float64]:
    """w_t · (1 - N_t/N), (rounds,)."""
    left = [1 - len(places) / selections[0].pool_size for places in labelled_before(selections)]
    return round_weights([len(part) for part in selections]) * np.array(left)


def _score(
    selections: Sequence[Selection], designs: Sequence[Stratified], outcomes: Sequence[Outcome], level: float
) -> Interval:
    success = np.concatenate(outcomes)
    before = [success[places].sum() / selections[0].pool_size for places in labelled_before(selections)]
    constant = float(round_weights([len(part) for part in selections]) @ before)
    right = [
        np.bincount(design.stratum, weights=outcome, minlength=len(design.sizes))
        for design, outcome in zip(designs, outcomes, strict=True)
    ]
    drawn = np.concatenate([design.num for design in designs]).astype(np.float64)  # (strata of all rounds,)
    shares = [scale * design.shares for scale, design in zip(_scale(selections), designs, strict=True)]
    left = np.concatenate([design.left for design in designs])
    factors = left * drawn / np.maximum(drawn - 1, 0.5)  # as in ``stratified.py``
    low, high = stratified_score(np.concatenate(right), drawn, np.concatenate(shares), factors, level)
    return constant + low, constant + high


def _wider(selections: Sequence[Selection], found: Estimate) -> Interval:
    weight = float((_scale(selections) * [part.design.weight_bound for part in selections]).max())
    few, many = failure_bounds(1 - found.value, found.standard_error**2, weight, found.level)
    return min(found.low, 1 - many), max(found.high, 1 - few)


def _cut(bounds: Interval, sure: Known) -> Interval:
    """The interval without what the labels exclude for certain."""
    least = (sure.num - sure.failures) / sure.pool_size
    most = 1 - sure.failures / sure.pool_size
    low, high = bounds
    return min(max(low, least), most), max(min(high, most), least)
