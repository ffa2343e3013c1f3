"""The interval of independent replicates: a variance for methods that have none.

CES and DeepReduce choose by optimisation, and no formula says how far their estimate is from the truth. Repetition
does: the pool is split at random in R parts of equal size, the method chooses its share of the budget in each part as
if that were the pool, and the R estimates are of one kind and differ by chance alone
(:mod:`opacc_ray.designs.replicates`).

The interval is Wilson's at the sample size with that variance, with Student's quantile for R - 1 degrees of freedom,
2.8 for R = 5 and 2.3 for R = 10. If all estimates agree, the variance is taken as that of a simple random sample that
met half a failure.

What it costs. Few replicates make the interval wide, and many leave little budget for each: CES begins with 30 examples
at random and does nothing else if its share of the budget is no more, so give it ``initial=5``. Replicates answer
whether the interval holds, and do not shorten it.

Legend: R replicates, n labels.
"""

import math

from opacc_ray.designs.replicates import Replicates
from opacc_ray.estimators import intervals
from opacc_ray.estimators.base import Estimate, Outcome

NAME = "replicates"

_ROUNDING = 1e-24
"""Estimates agree whose variance is no more."""

_CAUTION = "the interval rests on how much the replicates differ, which would not show a bias that they share"


def replicated(design: Replicates, outcome: Outcome, level: float) -> Estimate:
    """Accuracy from R replicates, by the method's own estimator in each."""
    failure, num = 1 - outcome, len(design.parts)
    value, variance = 1 - design.failure_share(failure), design.failure_variance(failure)
    low, high = _interval(value, variance, num - 1, len(outcome), level)
    reason = None if design.designs[0].reason is None else _CAUTION
    return Estimate(value, math.sqrt(variance), low, high, level, f"{num} {NAME}", len(outcome), True, reason)


def _interval(value: float, variance: float, degrees: int, n: int, level: float) -> intervals.Interval:
    widen = intervals.student_widening(degrees, level)
    if variance <= _ROUNDING:
        half = 0.5 / (n + 1)
        variance = half * (1 - half) / n
    inside = min(max(value, 0.5 / (n + 1)), 1 - 0.5 / (n + 1))
    return intervals.wilson(min(max(value, 0.0), 1.0), inside * (1 - inside) / (variance * widen**2), level)
