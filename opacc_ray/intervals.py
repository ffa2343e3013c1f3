"""Confidence intervals for a mean in [0, 1]: the building blocks of the estimators.

Legend: N pool, n labels, x successes, f = n/N, z the normal quantile of the level.
"""

import math
from collections.abc import Callable

Interval = tuple[float, float]


def normal_quantile(level: float) -> float:
    """z with P(|Z| <= z) = level."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2))


def wilson(mean: float, size: float, level: float) -> Interval:
    """Wilson's score interval for ``mean`` of an (effective) sample of ``size``.

    E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22 (1927).
    It never leaves [0, 1] and has a width at 0 and at 1, where the normal interval has none.
    """
    z2 = normal_quantile(level) ** 2
    centre = (mean + z2 / (2 * size)) / (1 + z2 / size)
    half = math.sqrt(z2 * (mean * (1 - mean) / size + z2 / (4 * size * size))) / (1 + z2 / size)
    return max(0.0, centre - half), min(1.0, centre + half)


def hypergeometric(successes: int, size: int, pool: int, level: float) -> Interval:
    """Exact interval for the share of successes in a pool, from a sample without replacement.

    The shares M/N not rejected by either one-sided test at (1 - level)/2. Coverage is at least ``level`` for every M.
    """
    from scipy.stats import hypergeom

    tail = (1 - level) / 2
    low_most, high_most = successes, pool - (size - successes)
    low = _first(lambda M: hypergeom.sf(successes - 1, pool, M, size) > tail, low_most, high_most)
    high = _first(lambda M: hypergeom.cdf(successes, pool, M, size) <= tail, low_most, high_most + 1) - 1
    return low / pool, high / pool


def student(mean: float, standard_error: float, degrees: float, level: float) -> Interval:
    """Student's interval, cut at [0, 1]."""
    from scipy.stats import t

    half = float(t.ppf(0.5 + level / 2, degrees)) * standard_error
    return max(0.0, mean - half), min(1.0, mean + half)


def _first(true_from: Callable[[int], bool], low: int, high: int) -> int:
    """The least number in [low, high] for which a monotone condition holds; ``high`` if none does before."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if true_from(middle) else (middle + 1, high)
    return low
