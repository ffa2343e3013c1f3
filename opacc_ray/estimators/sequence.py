"""Intervals for looking at the labels as they come, whatever makes one stop.

Whoever looks at many intervals and stops at one that pleases has one that covers the truth less often than it says. The
intervals here hold at all looks at once: P(some of them excludes the truth) <= 1 - level. They are wider, by half as a
rule. (Who stops because the interval is as narrow as planned, whatever its value, needs less: ``looks.py``.)

**Label by label**, where each draw has known probabilities given the draws before (srs, sups, two_ups, deepest, and
rounds of them in any mix). With q_k the probability with which draw k took its example, D_k the failures already drawn,

    g_k = f_k / q_k,    0 <= g_k <= b_k,    E[g_k | before] = N·m - D_k =: μ_k(m)        if m is the share of failures

A gambler who in each draw stakes the share c of his capital on a large g, at odds that are fair if m is true, has

    K_n(m) = Π_k [1 + c·(g_k / μ_k(m) - 1)] >= 0,

a capital whose expectation stays 1, and reaches 2/α with probability at most α/2 (J. Ville, 1939). So does the mean
of the capitals of 24 gamblers with c from 0 to 1, which needs no guess of the variance. The m below which it has ever
been reached are excluded; betting on b_k - g_k bounds m from above. I. Waudby-Smith and A. Ramdas, "Estimating means of
bounded random variables by betting", JRSS B 86 (2024), section 5 of which samples without replacement; F. Orabona and
K.-S. Jun, "Tight concentrations and confidence sequences from the regret of universal portfolio", IEEE Transactions on
Information Theory 70 (2024), mix over c. K falls as m grows, so each end is found by bisection.

That is for draws in their order. Whoever looks at labels with gaps between them looks at draws in another one each
time, and these looks do not hold together: count the labels before the first gap, or whole rounds.

**Round by round**, for every other method: the interval after round k is taken at 1 - α·6/(π²k²), and all of them are
intersected. These α sum to α over all rounds there may ever be, and so the union bound holds; it is as good as the
intervals that go in. It counts finished rounds: looking at half a round is a look that it does not allow for.

Legend: N pool, n labels, f = 1 - outcome, m a share of failures, α = 1 - level.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from opacc_ray.designs.design import DrawSequence, LabelledBefore
from opacc_ray.estimators.base import Estimate
from opacc_ray.estimators.intervals import Interval
from opacc_ray.estimators.plain import plain_estimate
from opacc_ray.estimators.rounds import as_lists, known
from opacc_ray.selection import Selection

BETTING = "betting confidence sequence"
SPENDING = "confidence sequence over rounds"

_STAKES = ((np.arange(24) + 0.5) / 24) ** 2
"""c of each gambler; small ones are frequent, for they win where many labels tell little each."""


def confidence_sequence(
    rounds: Selection | Sequence[Selection], outcomes: Sequence[Any], level: float = 0.95
) -> Estimate:
    """Accuracy with an interval that holds however often one looks, and whenever one stops.

    Parameters
    ----------
    rounds, outcomes : as for :func:`opacc_ray.estimate`: a selection and its outcomes, or a list of each
    level : probability with which *all* intervals of the sequence hold

    Returns
    -------
    Estimate
        Value and standard error of :func:`opacc_ray.estimate`; low and high of the sequence so far. The interval of
        more labels lies inside that of fewer, unless a method without label-by-label draws joins them.
    """
    selections, given = as_lists(rounds, outcomes)
    latest = plain_estimate(selections, given, level)
    stream = stream_of(selections, given)
    if stream is None:
        low, high = _over_rounds(selections, given, level)
    else:
        low, high = least_share(stream.mirrored(), (1 - level) / 2), 1 - least_share(stream, (1 - level) / 2)
    ends = min(low, high), max(low, high)  # each may have excluded all that the other one leaves
    name = SPENDING if stream is None else BETTING
    return known(selections, given).state(replace(latest, low=ends[0], high=ends[1], interval=name))


def stream_of(selections: Sequence[Selection], outcomes: Sequence[Any]) -> DrawSequence | None:
    """The draws of all rounds, one after the other; None if a round is not drawn label by label, or has gaps."""
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


def least_share(stream: DrawSequence, alpha: float) -> float:
    """The lower confidence bound of m: excluded are shares at which the capital has ever reached 1/α."""
    from scipy.optimize import bisect  # not Brent's: the capital is infinite where m is impossible

    def excess(share: float) -> float:
        return largest_capital(stream, share) + math.log(alpha)

    if excess(0.0) < 0:
        return 0.0
    return float(bisect(excess, 0.0, 1.0, xtol=1e-15)) if excess(1.0) < 0 else 1.0


def largest_capital(stream: DrawSequence, share: float) -> float:
    """Logarithm of the most that the gamblers, together, ever had at m = ``share``; infinite if m is impossible."""
    expected = stream.pool_size * share - stream.drawn  # (n,) μ
    tolerance = 1e-12 * stream.pool_size  # of rounding
    if (expected < -tolerance).any() or (stream.value[expected <= tolerance] > tolerance).any():
        return math.inf
    odds = np.divide(stream.value, expected, out=np.ones_like(expected), where=expected > tolerance)
    capital = np.log1p(_STAKES[:, None] * (odds - 1)).cumsum(axis=1)  # (gamblers, n)
    return float((np.logaddexp.reduce(capital, axis=0) - math.log(len(_STAKES))).max(initial=0.0))


def _over_rounds(selections: list[Selection], outcomes: list[Any], level: float) -> Interval:
    """All rounds' intervals at once."""
    bounds = []
    for k in range(1, len(selections) + 1):
        spent = (1 - level) * 6 / (math.pi * k) ** 2
        after = plain_estimate(selections[:k], outcomes[:k], 1 - spent)
        bounds.append((after.low, after.high))
    lows, highs = zip(*bounds, strict=True)
    return max(lows), min(highs)
