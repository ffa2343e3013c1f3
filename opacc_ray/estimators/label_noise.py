"""How far annotators' errors may have moved an accuracy, from examples on which two of them gave their opinion.

What is wanted is θ, the mean over the pool of the outcome t by what annotators typically say: the median of all the
opinions that they could give of an example, for a right-or-wrong outcome what more than half of them say. What is
estimated is μ, the mean of the outcome y by *one* opinion each. With two independent opinions y, y' of an example,

    |E y - t| ≤ E|y - t| ≤ E|y - y'|

since a median t minimises E|y - c| over c, so that E|y - t| ≤ E[|y - y'| given y'] for every y'. So over the pool

    μ - δ ≤ θ ≤ μ + δ,    δ the mean of |y - y'|

whichever examples the errors fall on, and whichever way. For right-or-wrong outcomes δ is the gross difference rate of
a reinterview (M. H. Hansen, W. N. Hurwitz, M. A. Bershad, "Measurement errors in censuses and surveys", Bulletin of the
International Statistical Institute 38, 1961), which is twice the simple response variance. The bound is attained where
opinions are split evenly; where errors are rare and alike everywhere, the accuracy moves by about δ/2 at most.

The interval for θ goes from the lower limit of μ - δ to the upper limit of μ + δ, each put together from the intervals
of both parts as the method of variance estimates recovery does (G. Y. Zou, A. Donner, Statistics in Medicine 27, 2008):

    low = μ̂ - δ̂ - √((μ̂ - low_μ)² + (high_δ - δ̂)²),    high = μ̂ + δ̂ + √((high_μ - μ̂)² + (high_δ - δ̂)²)

δ̂ is estimated from the examples with two opinions, which must be a random part of the sample: by the design, where this
gives all labels, or all of a stratum, equal weights. A design that looks for failures tells them well and a difference
of opinions badly, for that is elsewhere; and the part has no design of its own where a stratum has none of it. There
the weights w of the whole sample make J. Hájek's estimator:

    δ̂ = Σ w d / Σ w        v = m/(m - 1) · Σ (w (d - δ̂))² / (Σ w)²        d = |y - y'| of m examples

with the interval of ``weighted.py``. The opinions must be given independently. Errors that all annotators share are not
seen by any of this.
"""

import math
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.linear import linear_estimator
from opacc_ray.estimators.plain import plain_estimate
from opacc_ray.estimators.weighted import NAME, failure_bounds
from opacc_ray.selection import Selection

_FORESEEN = (NAME, "adjusted Wilson")
"""Intervals of designs in which labels weigh as failures are foreseen."""


def disagreement(
    rounds: Sequence[Selection], twice: Sequence[NDArray[np.bool_]], differences: Sequence[Outcome], level: float
) -> Estimate:
    """Estimate δ over the pool.

    Parameters
    ----------
    rounds : with all their labels
    twice : (n_t,) which labels of each round have two opinions; at least one has
    differences : (m_t,) their |y - y'|, of each round
    """
    if not any(part.design.interval in _FORESEEN for part in rounds):
        parts = [part.restrict(has) for part, has in zip(rounds, twice, strict=True) if has.any()]
        with suppress(LabelError):  # raised where the part has no design of its own
            return plain_estimate(parts, [own for own in differences if len(own)], level)
    return _by_weights(linear_estimator(rounds).weights[np.concatenate(twice)], np.concatenate(differences), level)


def _by_weights(weight: NDArray[np.float64], difference: Outcome, level: float) -> Estimate:
    """δ from weights (m,) and differences (m,)."""
    num, weight = len(weight), weight / weight.sum()
    mean = float(weight @ difference)
    variance = num / max(num - 1, 1) * float(((weight * (difference - mean)) ** 2).sum())
    low, high = failure_bounds(mean, variance, float(weight.max()), level)
    return Estimate(mean, math.sqrt(variance), low, high, level, NAME, num, True)


def widen(accuracy: Estimate, disagreement: Estimate) -> tuple[float, float]:
    """Return the interval of the accuracy by what annotators typically say.

    Parameters
    ----------
    accuracy : of the labels as they are, μ.
    disagreement : the mean of |y - y'|, δ; at the same level.

    Returns
    -------
    (float, float)
        In [0, 1]; never inside the interval of ``accuracy``. Covers θ as often as both intervals cover, or more.
    """
    mean, by = accuracy.value, max(disagreement.value, 0.0)
    spread = max(disagreement.high - by, 0.0)
    low = mean - by - math.hypot(max(mean - accuracy.low, 0.0), spread)
    high = mean + by + math.hypot(max(accuracy.high - mean, 0.0), spread)
    return max(0.0, min(low, accuracy.low)), min(1.0, max(high, accuracy.high))
