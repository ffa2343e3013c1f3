"""Intervals of simple random samples, and of samples that are made to resemble the pool.

Legend: N pool, n labels, y outcome in [0, 1] (1 correct).
"""

import math
from dataclasses import replace

from opacc_ray.designs.purposive import Purposive
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.estimators import intervals
from opacc_ray.estimators.base import Estimate, Outcome, is_binary
from opacc_ray.estimators.weighted import NAME, failure_bounds


def simple_random(design: SimpleRandom, outcome: Outcome, level: float) -> Estimate:
    """Accuracy from a simple random sample: the mean outcome.

    0/1 outcomes: the exact hypergeometric interval, or Wilson's with replacement. Scores: the weighted Clopper-Pearson
    interval, since Student's misses rare, large losses.
    """
    n, value, name = len(outcome), float(design.mean(outcome)), design.interval
    variance = design.failure_variance(1 - outcome)
    if not is_binary(outcome):
        few, many = failure_bounds(1 - value, variance, design.weight_bound, level)
        low, high, name = 1 - many, 1 - few, NAME
    elif design.replacement:
        low, high = intervals.wilson(value, n, level)
    else:
        low, high = intervals.hypergeometric(round(outcome.sum()), n, design.population, level)
    return Estimate(value, math.sqrt(variance), low, high, level, name, n, True)


def representative(design: Purposive, outcome: Outcome, level: float) -> Estimate:
    """Accuracy from a sample chosen to resemble the pool, with the interval a simple random sample would have."""
    plain = simple_random(design.stand_in, outcome, level)
    return replace(plain, interval=f"{plain.interval} ({design.interval})", design_based=False, reason=design.reason)
