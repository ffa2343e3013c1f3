"""Two models on one pool with one set of labels; or two accuracies from two samples.

The labels say of every example whether each of the models is right, so the difference of their accuracies is the mean
of d = y_first - y_second in [-1, 1], estimated by the design that drew the sample, whichever model it was drawn for.
Where both are right or both are wrong d = 0: two models that err alike are compared far better than each is estimated.

The interval is built from the two sides of d: A = mean of max(d, 0), what the first does better, and B = mean of
max(-d, 0). Both are shares that may be rare, each with the interval [l, u] of `weighted.py`, and the difference of two
such estimates with correlation ρ has the bounds of G. Y. Zou and A. Donner, "Construction of confidence limits about
effect measures", Statistics in Medicine 27 (2008), after R. G. Newcombe (ibid. 17, 1998) for paired shares:

    low   A - B - √((A - l_A)² - 2ρ(A - l_A)(u_B - B) + (u_B - B)²)
    high  A - B + √((u_A - A)² - 2ρ(u_A - A)(B - l_B) + (B - l_B)²)

with ρ from v(A - B) = v(A) + v(B) - 2ρ√(v(A)·v(B)), v as in :mod:`opacc_ray.designs.base`. So it has a width even
where no label tells the models apart.

Two models, or one model on two pools, that were each labelled by a sample of its own are compared by the same bounds
with A and B the two accuracies, each with the interval of its own design, and ρ = 0.

Legend: y outcome of one model, n labels.
"""

import math

import numpy as np

from opacc_ray.estimators import weighted
from opacc_ray.estimators.base import Estimate, Outcome, joined_reasons
from opacc_ray.estimators.intervals import inside
from opacc_ray.estimators.linear import LinearEstimator

NAME, INDEPENDENT = "paired difference", "difference of independent estimates"


def independent(first: Estimate, second: Estimate) -> Estimate:
    """The first accuracy less the second one, of two samples that were drawn apart.

    Parameters
    ----------
    first, second : with intervals of one level

    Returns
    -------
    Estimate
        In [-1, 1]; ``n`` counts the labels of both.
    """
    a, b = inside(first), inside(second)
    low = a - b - _distance(a - first.low, second.high - b, 0.0)
    high = a - b + _distance(first.high - a, b - second.low, 0.0)
    error = math.hypot(first.standard_error, second.standard_error)
    reason = joined_reasons((first.reason, second.reason))
    n, is_based = first.n + second.n, first.design_based and second.design_based
    value, level = first.value - second.value, first.level
    return Estimate(value, error, max(low, -1.0), min(high, 1.0), level, INDEPENDENT, n, is_based, reason)


def paired_difference(design: LinearEstimator, d: Outcome, level: float) -> Estimate:
    """The mean of ``d`` (n,), in [-1, 1], with the interval above."""
    sides = np.stack([np.maximum(d, 0), np.maximum(-d, 0)], axis=1)  # (n, 2)
    a, b = (float(share) for share in design.mean(sides))
    variance_a, variance_b = (float(variance) for variance in design.variance(sides))
    variance = float(design.variance(d))
    bounds_a = weighted.failure_bounds(a, variance_a, design.largest_weight, level)
    bounds_b = weighted.failure_bounds(b, variance_b, design.largest_weight, level)
    product = 2 * math.sqrt(variance_a * variance_b)
    correlation = (variance_a + variance_b - variance) / product if product else 0.0
    low = a - b - _distance(a - bounds_a[0], bounds_b[1] - b, correlation)
    high = a - b + _distance(bounds_a[1] - a, b - bounds_b[0], correlation)
    reason = design.reason
    return Estimate(
        a - b, math.sqrt(variance), max(low, -1.0), min(high, 1.0), level, NAME, len(d), reason is None, reason
    )


def _distance(one: float, two: float, correlation: float) -> float:
    return math.sqrt(max(one**2 - 2 * correlation * one * two + two**2, 0.0))
