"""Compute confidence sequences: intervals that hold at all times, for any reason to stop.

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

Legend: N pool, n labels, f = 1 - outcome, m a share of failures, α = 1 - level.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from opacc_ray.designs.draw_sequence import DrawSequence, LabelledBefore
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.design_based import design_based_estimate
from opacc_ray.estimators.rounds import Rounds, as_lists, known_outcomes
from opacc_ray.selection import Selection

BETTING = "betting confidence sequence"
SPENDING = "confidence sequence over rounds"

_STAKES = ((np.arange(24) + 0.5) / 24) ** 2
"""c of each gambler; small ones are frequent, because they win if each label contains little information."""


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
