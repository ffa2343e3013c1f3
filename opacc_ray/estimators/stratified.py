"""Stratified samples: simple random sampling within strata whose sizes are known.

Legend: N pool, n labels, y outcome in [0, 1] (1 correct), θ the mean outcome of the pool, f = n/N.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from opacc_ray import intervals
from opacc_ray.estimators.base import Estimate, Outcome, is_binary


def stratified(outcome: Outcome, stratum: NDArray[np.int64], sizes: Sequence[int], level: float) -> Estimate:
    """Σ_j P_j · mean(y | stratum j), with a Wilson interval for the effective sample size.

    A stratum in which all outcomes agree shows no variance, though it has some. For the interval's width its share is
    therefore taken as (Σy + 1/2)/(n_j + 1), which is that of Jeffreys' prior.
    """
    drawn = np.bincount(stratum, minlength=len(sizes))  # (J,) n_j
    total = np.bincount(stratum, weights=outcome, minlength=len(sizes))
    share = np.asarray(sizes) / np.sum(sizes)  # P_j
    mean = total / drawn
    thin = share**2 * (1 - drawn / np.asarray(sizes)) / drawn  # factor of each stratum's variance
    value = float(share @ mean)
    smooth = (total + 0.5) / (drawn + 1)
    squares = np.bincount(stratum, weights=(outcome - mean[stratum]) ** 2, minlength=len(sizes))
    sample_variance = np.where(drawn > 1, squares / np.maximum(drawn - 1, 1), smooth * (1 - smooth))
    error = math.sqrt(float(thin @ sample_variance))
    cautious = np.maximum(sample_variance, smooth * (1 - smooth) if is_binary(outcome) else 0)
    low, high = _wilson_from_variance(value, float(share @ smooth), float(thin @ cautious), level)
    return Estimate(value, error, low, high, level, "stratified wilson", len(outcome), True)


def _wilson_from_variance(value: float, smooth: float, variance: float, level: float) -> intervals.Interval:
    """Wilson's interval with the sample size at which a simple random sample would have ``variance``."""
    if variance == 0:  # every example of the pool is labelled
        return value, value
    return intervals.wilson(value, smooth * (1 - smooth) / variance, level)
