"""Bound the effect of annotators' errors on an accuracy, from examples with two opinions.

The target is θ, the mean over the pool of the outcome t by the typical answer: the median of all possible opinions of
an example, for right-or-wrong outcomes that of the majority. The estimate is of μ, the mean of the outcome y by *one*
opinion each. With two independent opinions y, y' of an example,

    |E y - t| ≤ E|y - t| ≤ E|y - y'|

since a median t minimises E|y - c| over c, so that E|y - t| ≤ E[|y - y'| given y'] for every y'. So over the pool

    μ - δ ≤ θ ≤ μ + δ,    δ the mean of |y - y'|

whichever examples and direction the errors have. For right-or-wrong outcomes δ is the gross difference rate of a
reinterview (M. H. Hansen, W. N. Hurwitz, M. A. Bershad, "Measurement errors in censuses and surveys", Bulletin of the
International Statistical Institute 38, 1961), which is twice the simple response variance. The bound is reached if
opinions are evenly split; if errors are rare and equally likely everywhere, the accuracy moves by about δ/2 at most.

The interval for θ is from the lower limit of μ - δ to the upper limit of μ + δ. Each combines the intervals of its two
terms by the method of variance estimates recovery (G. Y. Zou, A. Donner, Statistics in Medicine 27, 2008):

    low = μ̂ - δ̂ - √((μ̂ - low_μ)² + (high_δ - δ̂)²),    high = μ̂ + δ̂ + √((high_μ - μ̂)² + (high_δ - δ̂)²)

δ̂ is estimated from the examples with two opinions, which must be a random part of the sample. Designs in which all
labels, or all of a stratum, have equal weights estimate it. Other designs search for failures and have heavy weights
elsewhere, and a part without examples of some stratum has no design; then the weights w of the whole sample make J.
Hájek's estimator, with the weighted Clopper-Pearson interval:

    δ̂ = Σ w d / Σ w        v = m/(m - 1) · Σ (w (d - δ̂))² / (Σ w)²        d = |y - y'| of m examples

Another number, such as F1 or a ratio of totals, is to first order a mean of what each example adds to it, so its δ is
the mean difference of that between two opinions; for rankings that is the difference of outcomes times the influence
of the example. Other numbers that judge the confidence take the δ of the accuracy. Numbers of slices and classes are
not widened: too few examples with two opinions are in each.

Opinions must be independent. Errors that all annotators share remain invisible.
"""

import math
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.design_based import design_based_estimate
from opacc_ray.estimators.intervals import WEIGHTED, weighted_clopper_pearson
from opacc_ray.estimators.rounds import Outcome, linear_estimator
from opacc_ray.selection import Selection

_BY_RISK = (WEIGHTED, "adjusted Wilson")
"""Intervals of designs whose weights depend on predicted failures."""


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
    if parts := parts_with_a_design(rounds, twice):
        return design_based_estimate(parts, [own for own in differences if len(own)], level)
    weight, difference = linear_estimator(rounds).weights[np.concatenate(twice)], np.concatenate(differences)
    num, weight = len(weight), weight / weight.sum()
    mean = float(weight @ difference)
    variance = num / max(num - 1, 1) * float(((weight * (difference - mean)) ** 2).sum())
    low, high = weighted_clopper_pearson(mean, variance, float(weight.max()), level)
    return Estimate(mean, math.sqrt(variance), low, high, level, WEIGHTED, num, True)


def parts_with_a_design(rounds: Sequence[Selection], twice: Sequence[NDArray[np.bool_]]) -> list[Selection]:
    """Return the parts of the rounds that have two opinions; empty if they have no design of their own."""
    parts = [part.restrict(has) for part, has in zip(rounds, twice, strict=True) if has.any()]
    with suppress(LabelError):
        if not any(part.design.interval in _BY_RISK for part in rounds):
            design_based_estimate(parts, [np.zeros(len(part)) for part in parts], 0.95)
            return parts
    return []


def widen(accuracy: Estimate, disagreement: Estimate) -> tuple[float, float]:
    """Return the interval of θ, the accuracy by the typical answers, from estimates of μ and δ at the same level.

    It is in [0, 1], unless the interval of ``accuracy`` is not, and never inside that. It covers θ at least as often as
    both intervals cover.
    """
    mean, by = accuracy.value, max(disagreement.value, 0.0)
    spread = max(disagreement.high - by, 0.0)
    low = mean - by - math.hypot(max(mean - accuracy.low, 0.0), spread)
    high = mean + by + math.hypot(max(accuracy.high - mean, 0.0), spread)
    least, most = min(accuracy.low, 0.0), max(accuracy.high, 1.0)
    return max(least, min(low, accuracy.low)), min(most, max(high, accuracy.high))
