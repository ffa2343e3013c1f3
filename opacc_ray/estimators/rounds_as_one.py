"""Rounds with the interval that their designs have in one round.

``rounds.py`` combines rounds of any designs, and takes every label of a round without predictions to move the estimate
equally. Its interval holds where that is nearly so. Else more is known:

    simple random samples      all of them are one simple random sample: its mean and its interval (``simple.py``)
    strata, 0/1 outcomes       the stratified score interval (``intervals.py``) over the strata of all rounds, stratum j
                               of round t with the share w_t · (1 - N_t/N) · P_tj
    otherwise, if some labels  the interval of ``rounds.py`` and the weighted Clopper-Pearson one (``weighted.py``) with
    weigh more than others     the largest weight of any round, w_t · (1 - N_t/N) · weight: on each side the wider end

The last two matter where a few labels move the estimate far more than the rest: the confident stratum of CSS, or an
example that DeepEST, SUPS, RHC-S or 2-UPS were unlikely to draw. An estimate that has met few failures among those is
too good, and the interval of ``rounds.py`` too narrow, by the same luck. Rounds that resemble the pool, are replicated,
or have predictions are left to ``rounds.py``.

Legend: N pool, N_t examples labelled before round t, w_t its weight in ``rounds.py``, P_tj share of a stratum.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from opacc_ray.designs.stratified import Stratified
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.intervals import Interval, stratified_score
from opacc_ray.estimators.linear import linear_estimator
from opacc_ray.estimators.rounds import combine, known, labelled_before, round_weights, shares_left, simple_random_of
from opacc_ray.estimators.simple import simple_random
from opacc_ray.estimators.stratified import corrections
from opacc_ray.estimators.weighted import NAME, Moments, accuracy_bounds
from opacc_ray.selection import Selection

UNEQUAL = ("stratified score", NAME)
"""Intervals, in one round, of designs in which some labels weigh more than others."""


def estimate_as_one(selections: Sequence[Selection], outcomes: Sequence[Outcome], level: float) -> Estimate:
    """Accuracy from several rounds, whatever their methods, with the interval above.

    Parameters, returns and errors are those of :func:`opacc_ray.estimators.rounds.combine`.
    """
    whole, designs = simple_random_of(selections), [part.design for part in selections]
    if whole is not None:
        return simple_random(whole, np.concatenate(outcomes), level)
    found, sure = combine(selections, outcomes, level), known(selections, outcomes)
    is_equal = not any(design.prediction is None and design.interval in UNEQUAL for design in designs)
    if is_equal or sure.num == sure.pool_size:
        return found
    strata = [design for design in designs if isinstance(design, Stratified)]
    if len(strata) == len(designs) and sure.binary:
        found = _over_strata(selections, strata, outcomes, found)
    else:
        low, high = _wider(selections, outcomes, found)
        found = replace(found, low=low, high=high, interval=f"{NAME}, or {found.interval}")
    return found


def _over_strata(
    selections: Sequence[Selection], designs: Sequence[Stratified], outcomes: Sequence[Outcome], found: Estimate
) -> Estimate:
    """``found`` with the interval of the strata of all rounds."""
    success = np.concatenate(outcomes)
    weight = round_weights(selections)
    scale = weight * shares_left(selections)
    before = [success[places].sum() / selections[0].pool_size for places in labelled_before(selections)]
    constant = float(weight @ before)
    right = [
        np.bincount(design.stratum, weights=outcome, minlength=len(design.sizes))
        for design, outcome in zip(designs, outcomes, strict=True)
    ]
    drawn = np.concatenate([design.num for design in designs]).astype(np.float64)  # (strata of all rounds,)
    shares = np.concatenate([part * design.shares for part, design in zip(scale, designs, strict=True)])
    factors = corrections(np.concatenate([design.left for design in designs]), drawn)
    low, high = stratified_score(np.concatenate(right), drawn, shares, factors, found.level)
    return replace(found, low=constant + low, high=constant + high, interval="stratified score")


def _wider(selections: Sequence[Selection], outcomes: Sequence[Outcome], found: Estimate) -> Interval:
    scale = round_weights(selections) * shares_left(selections)
    weight = float((scale * [part.design.weight_bound for part in selections]).max())
    right, design = np.concatenate(outcomes), linear_estimator(selections)
    successes = Moments(float(design.mean(right)), float(design.variance(right)))
    low, high = accuracy_bounds(Moments(1 - found.value, found.standard_error**2), successes, weight, found.level)
    return min(found.low, low), max(found.high, high)
