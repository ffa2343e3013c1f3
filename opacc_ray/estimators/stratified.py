"""Stratified samples: simple random sampling within strata whose sizes are known.

Legend: N pool, n labels, y outcome in [0, 1] (1 correct), θ the mean outcome of the pool, f = n/N.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError
from opacc_ray.estimators import intervals
from opacc_ray.estimators.base import Estimate, Outcome, is_binary
from opacc_ray.estimators.weighted import NAME, failure_bounds


def stratified(outcome: Outcome, stratum: NDArray[np.int64], sizes: Sequence[int], level: float) -> Estimate:
    """Σ_j P_j · mean(y | stratum j): unbiased if every stratum is a simple random sample with n_j >= 1.

    0/1 outcomes: the stratified score interval, which holds when strata show no failure. Scores: the weighted
    Clopper-Pearson interval, since Student's misses rare, large losses (`benchmarks/intervals_coverage.py`).
    """
    pool = np.asarray(sizes, dtype=np.float64)  # (J,) N_j
    drawn = np.bincount(stratum, minlength=len(pool)).astype(np.float64)  # n_j
    if (drawn == 0).any():
        empty = int(np.flatnonzero(drawn == 0)[0])
        raise LabelError(f"stratum {empty} has no label, so its share of the pool cannot be stated; label some of it")
    total = np.bincount(stratum, weights=outcome, minlength=len(pool)).astype(np.float64)
    share, mean, left = pool / pool.sum(), total / drawn, 1 - drawn / pool
    value = float(share @ mean)
    variance = share**2 * left / drawn * _sample_variance(outcome, stratum, mean, drawn)  # (J,)
    error = math.sqrt(float(variance.sum()))
    if is_binary(outcome):
        # fitted to few labels, p(1 - p) falls short by (n_j - 1)/n_j; Miettinen and Nurminen correct it likewise
        factors = left * drawn / np.maximum(drawn - 1, 0.5)
        low, high = intervals.stratified_score(total, drawn, share, factors, level)
        return Estimate(value, error, low, high, level, "stratified score", len(outcome), True)
    low, high = failure_bounds(1 - value, error**2, float((share * left / drawn).max()), level)
    return Estimate(value, error, 1 - high, 1 - low, level, NAME, len(outcome), True)


def _sample_variance(
    outcome: Outcome, stratum: NDArray[np.int64], mean: NDArray[np.float64], drawn: NDArray[np.float64]
) -> NDArray[np.float64]:
    """s_j² (J,); where one example was drawn, the largest variance a mean like its could have."""
    squares = np.bincount(stratum, weights=(outcome - mean[stratum]) ** 2, minlength=len(mean))
    smooth = (mean * drawn + 0.5) / (drawn + 1)
    return np.where(drawn > 1, squares / np.maximum(drawn - 1, 1), smooth * (1 - smooth))
