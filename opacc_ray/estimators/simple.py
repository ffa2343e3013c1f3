"""Simple random samples, and samples that are made to resemble the pool.

Legend: N pool, n labels, y outcome in [0, 1] (1 correct), θ the mean outcome of the pool, f = n/N.
"""

import math

from opacc_ray.estimators import intervals
from opacc_ray.estimators.base import Estimate, Outcome, is_binary
from opacc_ray.estimators.weighted import NAME, failure_bounds


def simple_random(outcome: Outcome, pool_size: int, level: float, *, replacement: bool = False) -> Estimate:
    """Mean of a simple random sample.

    0/1 outcomes: the exact hypergeometric interval, or Wilson's with replacement. Scores: the weighted Clopper-Pearson
    interval, since Student's covers rare, large losses in as little as 82 % of samples
    (`benchmarks/intervals_coverage.py`).
    """
    n, value = len(outcome), float(outcome.mean())
    fraction = 0.0 if replacement else n / pool_size
    variance = float(outcome.var(ddof=1)) if n > 1 else value * (1 - value)
    error = math.sqrt((1 - fraction) * variance / n)
    if not is_binary(outcome):
        low, high = failure_bounds(1 - value, error**2, (1 - fraction) / n, level)
        return Estimate(value, error, 1 - high, 1 - low, level, NAME, n, True)
    if replacement:
        low, high = intervals.wilson(value, n, level)
        return Estimate(value, error, low, high, level, "wilson", n, True)
    low, high = intervals.hypergeometric(round(outcome.sum()), n, pool_size, level)
    return Estimate(value, error, low, high, level, "exact hypergeometric", n, True)


def representative(outcome: Outcome, pool_size: int, level: float, reason: str) -> Estimate:
    """Mean of a sample chosen to resemble the pool, with the interval a simple random sample would have."""
    plain = simple_random(outcome, pool_size, level)
    return Estimate(
        plain.value,
        plain.standard_error,
        plain.low,
        plain.high,
        level,
        f"{plain.interval} (as for a simple random sample)",
        plain.n,
        design_based=False,
        reason=f"{reason}; the interval is that of a simple random sample of the same size",
    )
