"""Estimate accuracy by the sampling designs alone: of one sample, of rounds of any methods, or at all times.

**One sample** has the value of its design and the interval that belongs to it (:data:`INTERVALS`):

    simple random sample     exact hypergeometric; with replacement exact binomial
    strata                   stratified score (:mod:`opacc_ray.estimators.stratified_interval`)
    inclusion probability    adjusted Wilson (:mod:`opacc_ray.estimators.difference_estimator`)
    replicates               Wilson's at the size with their variance, with Student's quantile for R - 1
    purposive                as for a simple random sample: not design-based
    all others, and scores   weighted Clopper-Pearson: Student's interval misses rare, large losses

The weighted Clopper-Pearson interval assumes one more failure at the largest weight: for scores with certainty, for the
other designs with probability ½ (mid-P, :func:`opacc_ray.estimators.intervals.weighted_clopper_pearson`). No interval
can do with much less unless it trusts the failure score: if all failures are where draws are unlikely, none is met too
often.

Replicates measure the variance of methods that choose by optimisation, such as CES and DeepReduce: the pool is split
at random in R parts, and the method spends its share of the budget in each. Few replicates make the interval wide, and
many leave little budget for each. CES first draws 30 examples at random, so give it ``initial=5``.

**Rounds** are combined as in :mod:`opacc_ray.estimators.rounds`, and their interval is

    simple random samples      that of the one simple random sample which they form
    strata, 0/1 outcomes       the stratified score interval over the strata of all rounds, stratum j of round t with
                               the share w_t · (1 - N_t/N) · P_tj
    other designs              the interval of the difference estimator, each label of a round with the same effect; if
                               some labels weigh more than others, on each side the wider end of that and the weighted
                               Clopper-Pearson one, with the largest weight w_t · (1 - N_t/N) · weight of any round

The wider end matters where a few labels move the estimate far more than the rest: in the confident stratum of CSS, or
for examples that DeepEST, SUPS, RHC-S or 2-UPS were unlikely to draw. A sample that found few failures among those has
too high an estimate and too narrow an interval.

**At all times** (:func:`confidence_sequence`): intervals that hold together, for any reason to stop.

Stopping at one of many intervals because it pleases gives a coverage below the level. The intervals here hold all at
once: P(some of them excludes the truth) <= 1 - level. They are wider, typically by half. (To stop at a planned width,
whatever the value, ``interim_analyses.py`` needs fewer labels.)

**Label by label**, if each draw has known probabilities given the earlier draws (srs, sups, two_ups, deepest, and
rounds of them in any mix). With q_k the probability of the example in draw k, D_k the failures already drawn,

    g_k = f_k / q_k,    0 <= g_k <= b_k,    E[g_k | before] = N·m - D_k =: μ_k(m)        if m is the share of failures

A gambler bets the share c of his capital in each draw on a large g, at odds that are fair if m is true. He has

    K_n(m) = Π_k [1 + c·(g_k / μ_k(m) - 1)] >= 0,

a capital of constant expectation 1, which ever reaches 2/α with probability at most α/2 (J. Ville, 1939). So does the
mean of 24 gamblers with c from 0 to 1, which needs no guess of the variance. All m for which it was ever reached are
excluded; betting on b_k - g_k bounds m from above. Sources: I. Waudby-Smith and A. Ramdas, "Estimating means of bounded
random variables by betting", JRSS B 86 (2024), section 5 on sampling without replacement; F. Orabona and K.-S. Jun,
"Tight concentrations and confidence sequences from the regret of universal portfolio", IEEE Transactions on Information
Theory 70 (2024), on the mixture over c. K decreases in m, so bisection finds each end.

The draws must be in their order. Labels with gaps change the order at each interval, and such intervals do not hold
together: use the labels before the first gap, or whole rounds.

**Round by round**, for every other method: the interval after round k has the level 1 - α·6/(π²k²), and all intervals
are intersected. These α sum to α over all rounds, so the union bound holds. Only finished rounds count.

Legend: N pool, n labels, N_t examples labelled before round t, w_t its weight, P_tj share of a stratum, J strata, R
replicates, f = 1 - outcome, m a share of failures, α = 1 - level.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs import Design
from opacc_ray.designs.draw_sequence import DrawSequence, LabelledBefore
from opacc_ray.designs.purposive import Purposive
from opacc_ray.designs.replicates import Replicates
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.designs.stratified import Stratified
from opacc_ray.estimators import intervals
from opacc_ray.estimators.accuracy_estimate import Estimate, joined_reasons
from opacc_ray.estimators.difference_estimator import RoundEstimate, accuracy_of_rounds, difference, predicted_round
from opacc_ray.estimators.intervals import WEIGHTED, Interval, Moments, weighted_score_interval, wider
from opacc_ray.estimators.rounds import (
    Outcome,
    Outcomes,
    Rounds,
    as_lists,
    as_simple_random,
    checked_rounds,
    common_pool,
    is_binary,
    known_outcomes,
    labelled_before,
    late_labels,
    linear_estimator,
    round_weights,
    shares_left,
)
from opacc_ray.estimators.stratified_interval import Strata, stratified_interval
from opacc_ray.selection import Selection

UNEQUAL = ("stratified score", WEIGHTED)
"""Intervals, for one sample, of designs in which some labels weigh more than others."""

_SAME_VARIANCE = 1e-24
"""Replicates agree if their variance is not larger."""

BETTING = "betting confidence sequence"
SPENDING = "confidence sequence over rounds"

_STAKES = ((np.arange(24) + 0.5) / 24) ** 2
"""c of each gambler; small ones are frequent, because they win if each label contains little information."""

Array = NDArray[np.float64]


def design_based_estimate(selection: Rounds, outcome: Outcomes, level: float) -> Estimate:
    """Estimate accuracy by the design of one selection, or by those of several rounds together.

    Parameters, returns and errors are those of :func:`opacc_ray.estimate`.
    """
    rounds, outcomes = checked_rounds(selection, outcome, level)
    return known_outcomes(rounds, outcomes).clip(unclipped_estimate(rounds, outcomes, level))


def unclipped_estimate(rounds: Sequence[Selection], outcomes: Sequence[Outcome], level: float) -> Estimate:
    """Return :func:`design_based_estimate` before it is cut to what the labels prove."""
    if len(rounds) == 1:
        labelled_before(rounds)  # raises if it was drawn after other rounds
        return estimate_sample(rounds[0].design, outcomes[0], level)
    found, late = estimate_rounds(rounds, outcomes, level), late_labels(rounds)
    if late is None:
        return found
    return replace(found, design_based=False, reason=joined_reasons((found.reason, late)))


# -- one sample -------------------------------------------------------------------------------------------------


def estimate_sample(design: Design, outcome: Outcome, level: float) -> Estimate:
    """Estimate the accuracy of what one sample was drawn from: unbiased, unless ``design.reason`` states otherwise."""
    return INTERVALS[design.interval](design, outcome, level)


def simple_random(design: SimpleRandom, outcome: Outcome, level: float) -> Estimate:
    """Estimate from a simple random sample: the mean outcome, with an exact interval for 0/1 outcomes."""
    n, value, name = len(outcome), float(design.mean(outcome)), design.interval
    variance = design.failure_variance(1 - outcome)
    if not is_binary(outcome):
        low, high, name = *weighted_score_interval(value, variance, design.weight_bound, level), WEIGHTED
    elif design.replacement:
        low, high = intervals.clopper_pearson(round(outcome.sum()), n, level)
    else:
        low, high = intervals.hypergeometric(round(outcome.sum()), n, design.population, level)
    return Estimate(value, math.sqrt(variance), low, high, level, name, n, True)


def purposive(design: Purposive, outcome: Outcome, level: float) -> Estimate:
    """Estimate from a sample chosen to resemble the pool, with the interval of a simple random sample."""
    plain = simple_random(design.stand_in, outcome, level)
    return replace(plain, interval=f"{plain.interval} ({design.interval})", design_based=False, reason=design.reason)


def stratified(design: Stratified, outcome: Outcome, level: float) -> Estimate:
    """Estimate from a stratified sample; the score interval also holds where strata show no failure."""
    value, variance, name = float(design.mean(outcome)), design.failure_variance(1 - outcome), design.interval
    if is_binary(outcome):
        low, high = _strata_interval([design], [outcome], np.ones(1), variance, level)
    else:
        low, high, name = *weighted_score_interval(value, variance, design.weight_bound, level), WEIGHTED
    return Estimate(value, math.sqrt(variance), low, high, level, name, len(outcome), True)


def _strata_interval(
    designs: Sequence[Stratified], outcomes: Sequence[Outcome], scale: Array, variance: float, level: float
) -> Interval:
    """Return the interval over the strata of all samples, each of which counts with its ``scale`` (samples,)."""
    right = [
        np.bincount(design.stratum, weights=outcome, minlength=len(design.sizes)).astype(np.float64)
        for design, outcome in zip(designs, outcomes, strict=True)
    ]
    strata = Strata(
        successes=np.concatenate(right),
        num=np.concatenate([design.num for design in designs]).astype(np.float64),
        sizes=np.concatenate([design.sizes for design in designs]).astype(np.float64),
        shares=np.concatenate([own * design.shares for own, design in zip(scale, designs, strict=True)]),
    )
    return stratified_interval(strata, variance, level)


def replicated(design: Replicates, outcome: Outcome, level: float) -> Estimate:
    """Estimate from R replicates, by the method's own estimator in each.

    If all replicates agree, the variance is that of a simple random sample with half a failure.
    """
    failure, num, n, reason = 1 - outcome, len(design.parts), len(outcome), None
    value, variance = 1 - design.failure_share(failure), design.failure_variance(failure)
    half = 0.5 / (n + 1)
    used = half * (1 - half) / n if variance <= _SAME_VARIANCE else variance
    inside, widen = min(max(value, half), 1 - half), intervals.student_widening(num - 1, level)
    low, high = intervals.wilson(min(max(value, 0.0), 1.0), inside * (1 - inside) / (used * widen**2), level)
    if design.designs[0].reason is not None:
        reason = "the interval is based on the differences between replicates, which do not show a bias that they share"
    return Estimate(value, math.sqrt(variance), low, high, level, f"{num} replicates", n, True, reason)


def weighted(design: Design, outcome: Outcome, level: float) -> Estimate:
    """Estimate from any design: an unbiased value that may leave [0, 1], with an interval inside it."""
    failure = 1 - outcome
    failures = Moments(design.failure_share(failure), design.failure_variance(failure))
    successes = Moments(float(design.mean(outcome)), float(design.variance(outcome)))
    low, high = intervals.weighted_accuracy_interval(failures, successes, design.weight_bound, level)
    error, reason = math.sqrt(failures.variance), design.reason
    return Estimate(1 - failures.mean, error, low, high, level, WEIGHTED, len(outcome), reason is None, reason)


INTERVALS: dict[str, Callable[[Any, Outcome, float], Estimate]] = {
    "exact hypergeometric": simple_random,
    "exact binomial": simple_random,
    "as for a simple random sample": purposive,
    "stratified score": stratified,
    "weighted Clopper-Pearson": weighted,
    "adjusted Wilson": difference,
    "replicates": replicated,
}
"""``Design.interval`` -> the function that estimates with that interval."""


# -- several rounds ---------------------------------------------------------------------------------------------


def estimate_rounds(selections: Sequence[Selection], outcomes: Sequence[Outcome], level: float) -> Estimate:
    """Estimate accuracy from several rounds, with the interval that their designs have in one round where possible.

    Parameters, returns and errors are those of :func:`combine_rounds`.
    """
    whole, designs = as_simple_random(selections), [part.design for part in selections]
    if whole is not None:
        return simple_random(whole, np.concatenate(outcomes), level)
    found, known = combine_rounds(selections, outcomes, level), known_outcomes(selections, outcomes)
    is_equal = not any(design.prediction is None and design.interval in UNEQUAL for design in designs)
    if is_equal or known.num == known.pool_size:
        return found
    strata = [design for design in designs if isinstance(design, Stratified)]
    weights, right = round_weights(selections), np.concatenate(outcomes)
    scale = weights * shares_left(selections)
    if len(strata) == len(designs) and known.binary:
        before = [right[places].sum() / known.pool_size for places in labelled_before(selections)]
        low, high = _strata_interval(strata, outcomes, scale, found.standard_error**2, level)
        constant = float(weights @ before)
        return replace(found, low=constant + low, high=constant + high, interval="stratified score")
    weight = float((scale * [own.weight_bound for own in designs]).max())
    design = linear_estimator(selections)
    successes = Moments(float(design.mean(right)), float(design.variance(right)))
    failures = Moments(1 - found.value, found.standard_error**2)
    own = intervals.weighted_accuracy_interval(failures, successes, weight, level)
    low, high = wider((found.low, found.high), own)
    return replace(found, low=low, high=high, interval=f"{WEIGHTED}, or {found.interval}")


def combine_rounds(selections: Sequence[Selection], outcomes: Sequence[Outcome], level: float) -> Estimate:
    """Estimate accuracy on the whole pool from all rounds in their order, with the difference estimator's interval.

    It is unbiased if every round's estimator is, and ``design_based`` unless some round's is not.

    Raises
    ------
    LabelError
        The rounds are from different pools, or an earlier round is missing.
    """
    pool_size, before = common_pool(selections), labelled_before(selections)
    rounds = [_round_estimate(selection, outcome) for selection, outcome in zip(selections, outcomes, strict=True)]
    weight, left = round_weights(selections), shares_left(selections)
    failure = 1 - np.concatenate(outcomes)
    value = sum(
        w * (float(failure[places].sum()) / pool_size + share_left * part.share)
        for w, places, share_left, part in zip(weight, before, left, rounds, strict=True)
    )
    return accuracy_of_rounds(value, rounds, weight * left, known_outcomes(selections, outcomes), level)


def _round_estimate(selection: Selection, outcome: Outcome) -> RoundEstimate:
    """Estimate one round; without predictions each label has the same effect, and p is the share of failures."""
    design, n = selection.design, len(outcome)
    if design.prediction is not None:
        return predicted_round(design, design.prediction, outcome)
    found, failure = estimate_sample(design, outcome, 0.95), 1 - outcome
    left = 1 - n / selection.pool_size if design.is_distinct else 1.0
    expected = np.full(n, (float(failure.sum()) + 0.5) / (n + 1))
    return RoundEstimate(
        share=1 - found.value,
        variance=found.standard_error**2,
        effect=np.full(n, math.sqrt(max(left, 0)) / n),
        expected=expected,
        error=failure - expected,
        assisted=False,
        design_based=found.design_based,
        reason=found.reason,
        degrees=design.degrees,
    )


# -- at all times -----------------------------------------------------------------------------------------------


def confidence_sequence(rounds: Rounds, outcomes: Sequence[Any], level: float = 0.95) -> Estimate:
    """Estimate accuracy with an interval that holds at all times, for any reason to stop.

    ``rounds`` and ``outcomes`` are as for :func:`opacc_ray.estimate`; ``level`` is the probability with which *all*
    intervals of the sequence hold. More labels give an interval inside that of fewer, unless a method without
    label-by-label draws is added.
    """
    selections, given = as_lists(rounds, outcomes)
    latest = design_based_estimate(selections, given, level)
    stream = draw_sequence(selections, given)
    if stream is None:
        lows, highs = [], []
        for k in range(1, len(selections) + 1):
            spent = (1 - level) * 6 / (math.pi * k) ** 2
            after = design_based_estimate(selections[:k], given[:k], 1 - spent)
            lows.append(after.low)
            highs.append(after.high)
        low, high, name = max(lows), min(highs), SPENDING
    else:
        alpha = (1 - level) / 2
        low, high, name = lower_bound(stream.mirrored(), alpha), 1 - lower_bound(stream, alpha), BETTING
    found = replace(latest, low=min(low, high), high=max(low, high), interval=name)  # the two bounds may cross
    return known_outcomes(selections, given).clip(found)


def draw_sequence(selections: Sequence[Selection], outcomes: Sequence[Any]) -> DrawSequence | None:
    """Return the draws of all rounds in order; None if a round is not drawn label by label, or has gaps."""
    failure: dict[int, float] = {}  # of the examples drawn in the rounds before
    parts = []
    for selection, outcome in zip(selections, outcomes, strict=True):
        values = 1 - np.asarray(outcome, dtype=np.float64)
        part = selection.design.stream(values, LabelledBefore(len(failure), sum(failure.values()), selection.pool_size))
        if part is None:
            return None
        parts.append(part)
        failure |= zip(selection.index.tolist(), values.tolist(), strict=True)
    value, drawn, bound = (np.concatenate(columns) for columns in zip(*(part[:3] for part in parts), strict=True))
    return DrawSequence(value, drawn, bound, selections[0].pool_size)


def lower_bound(stream: DrawSequence, alpha: float) -> float:
    """Return the lower confidence bound of m: shares are excluded if the capital ever reached 1/α."""
    from scipy.optimize import bisect  # not Brent's: the capital is infinite where m is impossible

    def excess(share: float) -> float:
        return largest_capital(stream, share) + math.log(alpha)

    if excess(0.0) < 0:
        return 0.0
    return float(bisect(excess, 0.0, 1.0, xtol=1e-15)) if excess(1.0) < 0 else 1.0


def largest_capital(stream: DrawSequence, share: float) -> float:
    """Return the log of the largest mean capital so far at m = ``share``; infinite if m is impossible."""
    expected = stream.pool_size * share - stream.drawn  # (n,) μ
    tolerance = 1e-12 * stream.pool_size  # of rounding
    if (expected < -tolerance).any() or (stream.value[expected <= tolerance] > tolerance).any():
        return math.inf
    odds = np.divide(stream.value, expected, out=np.ones_like(expected), where=expected > tolerance)
    capital = np.log1p(_STAKES[:, None] * (odds - 1)).cumsum(axis=1)  # (gamblers, n)
    return float((np.logaddexp.reduce(capital, axis=0) - math.log(len(_STAKES))).max(initial=0.0))
