"""Samples drawn one by one, each draw with known probabilities that depend on the draws before.

After k - 1 draws, z_k estimates the pool's share of failures from what is known and one more draw:

    z_k = (1/N) · (Σ_{j drawn before} f_j + f_k / q_k)            (Eq. 6 of DeepEST; Hansen and Hurwitz's at k = 1)

Given the earlier draws its expectation is the truth, whatever they were. So the mean of the z_k is unbiased, the
z_k - θ are martingale differences and hence uncorrelated, and Σ(z_k - z̄)²/(n(n - 1)) estimates its variance. The tails
are heavy: a failure that was unlikely to be drawn counts for many.

Legend: N examples to draw from, n labels, f = 1 - outcome, q_k the probability with which draw k took its example.
"""

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.weighted import weighted


def martingale(
    outcome: Outcome,
    draw_probability: NDArray[np.float64],
    num_before: NDArray[np.int64],
    population: int,
    least_probability: float,
    level: float,
) -> Estimate:
    """1 - mean z, unbiased.

    Parameters
    ----------
    outcome, draw_probability, num_before : (n,) y, q and the number of draws before, in order of draw
    population : N
    least_probability : the least q that any example had at any draw

    Where labels are missing, the failures drawn before are extrapolated from the labelled ones.
    """
    n = len(outcome)
    z = _step_estimates(1 - outcome, draw_probability, num_before, population)
    failures = float(z.mean())
    variance = float(z.var(ddof=1)) / n if n > 1 else 0.0
    largest_weight = (1 / least_probability + n - 1) / population / n
    return weighted(failures, variance, largest_weight, n, level)


def _step_estimates(
    failure: Outcome, draw_probability: NDArray[np.float64], num_before: NDArray[np.int64], population: int
) -> NDArray[np.float64]:
    """z_k (n,)."""
    seen = np.cumsum(failure) - failure  # Σ of the labelled draws before
    labelled = np.arange(len(failure))
    before = seen * num_before / np.maximum(labelled, 1)
    return (before + failure / draw_probability) / population
