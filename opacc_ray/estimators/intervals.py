"""Confidence intervals for a mean in [0, 1]: the building blocks of the estimators.

Legend: N pool, n labels, x successes, f = n/N, z the normal quantile of the level.
"""

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = tuple[float, float]

_ROUNDING = 1e-14
_OF_AN_EXAMPLE = 1e-6  # what rounding is taken to change in a number of examples


class Value(Protocol):
    """A value with its interval, as estimates and their documents have it."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def inside(stated: Value) -> float:
    """The estimate cut to its interval, which an unbiased one may leave where few labels fail or few succeed."""
    return min(max(stated.value, stated.low), stated.high)


def cut(bounds: Interval, least: float, most: float) -> Interval:
    """The part of an interval that lies in [least, most]; if none does, the end of that which is nearer."""
    low, high = bounds
    return min(max(low, least), most), max(min(high, most), least)


def outward(bounds: Interval, size: int) -> Interval:
    """The nearest multiples of 1/``size`` that enclose an interval; ends that are one but for rounding stay.

    A share of a pool of N examples is one of 0, 1/N, ... 1. An interval whose ends lie between two of them excludes the
    outer one, which it could not tell from its end.
    """
    low, high = bounds
    return math.floor(low * size + _OF_AN_EXAMPLE) / size, math.ceil(high * size - _OF_AN_EXAMPLE) / size


def normal_quantile(level: float) -> float:
    """z with P(|Z| <= z) = level."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2))


def student_widening(degrees: int | None, level: float) -> float:
    """Student's quantile by the normal one: how much wider an interval is whose variance has few degrees of freedom.

    None stands for so many that it is 1.
    """
    from scipy.special import stdtrit

    if degrees is None:
        return 1.0
    return float(stdtrit(degrees, 0.5 + level / 2)) / normal_quantile(level)


def effective_number(terms: Array) -> float:
    """(Σr)²/Σr² of terms (n,), none below 0: how many alike would make their sum; 0 if all are 0."""
    return float(terms.sum()) ** 2 / max(float(terms @ terms), 1e-300)


def wilson(mean: float, size: float, level: float) -> Interval:
    """Wilson's score interval for ``mean`` of an (effective) sample of ``size``.

    E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22 (1927).
    It never leaves [0, 1] and has a width at 0 and at 1, where the normal interval has none.
    """
    z2 = normal_quantile(level) ** 2
    centre = (mean + z2 / (2 * size)) / (1 + z2 / size)
    half = math.sqrt(z2 * (mean * (1 - mean) / size + z2 / (4 * size * size))) / (1 + z2 / size)
    return max(0.0, centre - half), min(1.0, centre + half)


def mid_p_low(count: float, size: float, level: float) -> float:
    """Lower end of the mid-P interval for a share, from ``count`` > 0 events, whole or not, among ``size`` labels.

    The share θ at which ½·P(X >= count) + ½·P(X > count) is (1 - level)/2, with X binomial (H. O. Lancaster,
    "Significance tests in discrete distributions", JASA 56, 1961). With few events it is far below Wilson's end, which
    a single event would lift above most of the shares that are likely to show one; with many the two agree.
    """
    from scipy.optimize import brentq
    from scipy.special import betainc

    most = min(count / size, 1.0)
    tail, left = (1 - level) / 2, max(size - count, 0.0)

    def excess(share: float) -> float:
        at_least = betainc(count, left + 1, share)
        more = betainc(count + 1, left, share) if left else 0.0
        return float(at_least + more) / 2 - tail

    return float(brentq(excess, 0.0, most, xtol=1e-9)) if excess(most) > 0 else most


def zero_failure_bound(num: int, level: float) -> float:
    """Upper end of the exact interval for the share of failures if none of ``num`` labels fails."""
    return float(1 - ((1 - level) / 2) ** (1 / num))


def hypergeometric(successes: int, size: int, pool: int, level: float) -> Interval:
    """Exact interval for the share of successes in a pool, from a sample without replacement.

    The shares M/N not rejected by either one-sided test at (1 - level)/2. Coverage is at least ``level`` for every M.
    """
    tail, failures = (1 - level) / 2, size - successes
    low_most, high_most = successes, pool - failures
    low = _first(lambda M: _at_most(failures, size, pool - M, pool) > tail, low_most, high_most)
    high = _first(lambda M: _at_most(successes, size, M, pool) <= tail, low_most, high_most + 1) - 1
    return low / pool, high / pool


def _at_most(count: int, size: int, events: int, pool: int) -> float:
    """P(X <= count), X being how many of the ``events`` in a pool are among ``size`` drawn without replacement.

    Sums of the probabilities as multiples of that of the mode, by the ratios of neighbours: they need no factorial, and
    nothing cancels.
    """
    rest = pool - events - size  # P(k + 1) / P(k) = (events - k)(size - k) / ((k + 1)(rest + k + 1))
    mode = (size + 1) * (events + 1) // (pool + 2)
    up = np.arange(mode, min(size, events), dtype=np.float64)
    down = np.arange(mode, max(0, -rest), -1, dtype=np.float64)
    above = np.cumprod((events - up) * (size - up) / ((up + 1) * (rest + up + 1)))  # of mode + 1, mode + 2, ...
    below = np.cumprod(down * (rest + down) / ((events - down + 1) * (size - down + 1)))  # of mode - 1, mode - 2, ...
    share = below[max(mode - count - 1, 0) :].sum()
    if count >= mode:
        share += 1 + above[: count - mode].sum()
    return float(share / (1 + below.sum() + above.sum()))


def stratified_score(successes: Array, sizes: Array, shares: Array, factors: Array, level: float) -> Interval:
    """Score interval for Σ_j P_j p_j from independent binomial strata: Wilson's interval, generalised.

    θ is kept if |θ̂ - θ| <= z √(Σ_j P_j² g_j p̃_j(1 - p̃_j) / n_j), where p̃ are the shares of success that make the
    data most likely among those with Σ_j P_j p̃_j = θ (as Miettinen and Nurminen, Statistics in Medicine 4, 1985, do
    for two strata). A stratum without failures keeps a variance that way, which an interval from sample variances
    denies it.

    Parameters
    ----------
    successes, sizes : (J,) x_j and n_j
    shares : (J,) P_j, sums to 1
    factors : (J,) g_j, finite population corrections
    """
    from scipy.optimize import brentq

    doubtful = factors > 0
    known = float(shares[~doubtful] @ (successes / sizes)[~doubtful])  # of strata that are labelled in full
    if not doubtful.any():
        return known, known
    successes, sizes, shares, factors = (part[doubtful] for part in (successes, sizes, shares, factors))
    estimate, weights = float(shares @ (successes / sizes)), shares**2 * factors / sizes
    z = normal_quantile(level)

    def end(sign: int) -> float:
        pulled = successes if sign > 0 else sizes - successes  # a pull down is a pull up on the failures

        def likely(strength: float) -> Array:
            share = _constrained(pulled, sizes, math.exp(strength) * shares)
            return share if sign > 0 else 1 - share

        def beyond(strength: float) -> float:
            p = likely(strength)
            error = z * math.sqrt(float(weights @ (p * (1 - p))))
            excess = sign * (float(shares @ p) - estimate) - error
            return excess if abs(excess) > _ROUNDING else -1.0  # a weak pull may move nothing: not beyond

        weak, strong = math.log(1e-9), math.log(1e12 * float(sizes.sum()))
        if beyond(strong) > 0:
            strong = brentq(beyond, weak, strong, xtol=1e-15)
        return known + float(shares @ likely(strong))

    return end(-1), end(+1)


def _constrained(successes: Array, sizes: Array, pull: Array) -> Array:
    """Most likely shares of success under a pull up: the root in [0, 1] of a·p² + (n - a)·p - x = 0."""
    rest = sizes - pull
    apart = np.sqrt(rest * rest + 4 * pull * successes)
    falls = rest > 0
    # two forms of one root: neither subtracts nearly equal numbers on its side
    share: Array = np.where(falls, 2 * successes, apart - rest) / np.where(falls, rest + apart, 2 * pull)
    return np.minimum(np.maximum(share, 0, out=share), 1, out=share)


def _first(true_from: Callable[[int], bool], low: int, high: int) -> int:
    """The least number in [low, high] for which a monotone condition holds; ``high`` if none does before."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if true_from(middle) else (middle + 1, high)
    return low
