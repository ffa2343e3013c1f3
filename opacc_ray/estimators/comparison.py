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

with ρ from v(A - B) = v(A) + v(B) - 2ρ√(v(A)·v(B)), v as in :mod:`opacc_ray.designs.design`. So it has a width even
where no label tells the models apart. With replicates [l, u] are widened by Student's quantile.

Where both models say the same, they are right or wrong together. If it is known what each says of the whole pool, the
difference surely lies within

    (Σ_labelled d - U)/N   and   (Σ_labelled d + U)/N      U: examples without a label on which they differ

and the interval is cut to that: to nothing if the models agree everywhere, and to less than labels alone could tell if
they nearly do, as a model and its compressed form.

Two models, or one model on two pools, that were each labelled by a sample of its own are compared by the same bounds
with A and B the two accuracies, each with the interval of its own design, and ρ = 0.

Legend: y outcome of one model, N pool, n labels.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError
from opacc_ray.estimators import weighted
from opacc_ray.estimators.base import Estimate, Outcome, contain, joined_reasons
from opacc_ray.estimators.intervals import inside, student_widening
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
    return contain(Estimate(value, error, max(low, -1.0), min(high, 1.0), level, INDEPENDENT, n, is_based, reason))


class Sure(NamedTuple):
    """What the predictions of the whole pool, and the labels, say for certain of the difference of two models."""

    low: float
    high: float
    num_unlike: int  # examples of the pool on which the predictions differ


def sure_difference(first: NDArray[Any], second: NDArray[Any], index: NDArray[np.int64], d: Outcome) -> Sure:
    """The least and the most that the mean of ``d`` over the pool can be.

    Parameters
    ----------
    first, second : (N,) what each model says of every example, in the same words
    index : (n,) the labelled examples, repeats included
    d : (n,) outcome of the first model less that of the second

    Raises
    ------
    LabelError
        Both say the same of a labelled example, and one is better there.
    """
    unlike = first != second  # (N,)
    labelled, place = np.unique(index, return_index=True)
    strange = labelled[~unlike[labelled] & (d[place] != 0)]
    if len(strange):
        raise LabelError(
            f"two models predict {first[strange[0]]!s} of example {strange[0]} and have different outcomes there; give "
            "predictions in the same words for all models, or none"
        )
    met, num_unlike = float(d[place].sum()), int(np.count_nonzero(unlike))
    rest = num_unlike - int(np.count_nonzero(unlike[labelled]))
    return Sure((met - rest) / len(unlike), (met + rest) / len(unlike), num_unlike)


def paired_difference(design: LinearEstimator, d: Outcome, level: float) -> Estimate:
    """The mean of ``d`` (n,), in [-1, 1], with the interval above."""
    sides = np.stack([np.maximum(d, 0), np.maximum(-d, 0)], axis=1)  # (n, 2)
    shares, rests = _moments(design, sides), _moments(design, 1 - sides)
    widen = student_widening(design.degrees, level) ** 2
    bounds_a, bounds_b = (
        weighted.share_bounds(share.widened(widen), rest.widened(widen), design.largest_weight, level)
        for share, rest in zip(shares, rests, strict=True)
    )
    (a, variance_a), (b, variance_b) = shares
    variance = float(design.variance(d))
    product = 2 * math.sqrt(variance_a * variance_b)
    correlation = (variance_a + variance_b - variance) / product if product else 0.0
    low = a - b - _distance(a - bounds_a[0], bounds_b[1] - b, correlation)
    high = a - b + _distance(bounds_a[1] - a, b - bounds_b[0], correlation)
    reason = design.reason
    return Estimate(
        a - b, math.sqrt(variance), max(low, -1.0), min(high, 1.0), level, NAME, len(d), reason is None, reason
    )


def _moments(design: LinearEstimator, x: NDArray[np.float64]) -> list[weighted.Moments]:
    """The estimated mean of each column of ``x`` (n, k), and the variance of that."""
    means, variances = design.mean(x).tolist(), design.variance(x).tolist()
    return [weighted.Moments(*own) for own in zip(means, variances, strict=True)]


def _distance(one: float, two: float, correlation: float) -> float:
    return math.sqrt(max(one**2 - 2 * correlation * one * two + two**2, 0.0))
