"""Samples drawn with unequal probabilities that are known before the first draw.

    Hansen-Hurwitz        (1/n) Σ_k f_k / (N·p_k)           n independent draws, k with probability p_k
    Rao-Hartley-Cochran   Σ_g Q_g · f_g / (N·p_g)           one draw from each of n random groups, Q_g = Σ_{i in g} p_i

M. H. Hansen, W. N. Hurwitz, "On the theory of sampling from finite populations", Annals of Mathematical Statistics 14
(1943). J. N. K. Rao, H. O. Hartley, W. G. Cochran, "On a simple procedure of unequal probability sampling without
replacement", Journal of the Royal Statistical Society B 24 (1962). Both are unbiased, and so are their variances.

Legend: N examples to draw from, n labels, f = 1 - outcome, p the probability of an example in one draw (1 in sum).
"""

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.weighted import weighted


def hansen_hurwitz(
    outcome: Outcome, probability: NDArray[np.float64], population: int, least_probability: float, level: float
) -> Estimate:
    """Accuracy from n independent draws: unbiased.

    Parameters
    ----------
    outcome, probability : (n,) y and p of each draw
    population : N
    least_probability : the least p of the pool
    """
    n = len(outcome)
    ratio = (1 - outcome) / (population * probability)
    variance = float(ratio.var(ddof=1)) / n if n > 1 else 0.0
    return weighted(float(ratio.mean()), variance, 1 / (n * population * least_probability), n, level)


def rao_hartley_cochran(
    outcome: Outcome,
    probability: NDArray[np.float64],
    group_probability: NDArray[np.float64],
    group_size: NDArray[np.int64],
    least_probability: float,
    level: float,
) -> Estimate:
    """Accuracy from one draw in each of n random groups: unbiased.

    Parameters
    ----------
    outcome, probability : (n,) y and p of each group's example
    group_probability, group_size : (n,) Q and number of examples of each group
    least_probability : the least p of the pool

    Where labels are missing, the labelled groups are taken as the pool: together they are a random part of it.
    """
    n, population, total = len(outcome), int(group_size.sum()), float(group_probability.sum())
    share = group_probability / total  # Q_g
    ratio = (1 - outcome) / (population * probability / total)
    failures = float(share @ ratio)
    squares = float(group_size @ group_size)
    factor = (squares - population) / (population**2 - squares) if n > 1 else 0.0
    variance = factor * float(share @ (ratio - failures) ** 2)
    return weighted(failures, variance, total / (n * population * least_probability), n, level)
