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

δ̂ is estimated by the design of the sample from the examples with two opinions, which must be a random part of it. The
opinions must be given independently. Errors that all annotators share are not seen by any of this.
"""

import math

from opacc_ray.estimators.base import Estimate


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
