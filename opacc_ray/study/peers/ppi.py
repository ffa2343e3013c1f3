"""PPI++: A. N. Angelopoulos, J. C. Duchi, T. Zrnic, "PPI++: Efficient Prediction-Powered Inference", arXiv 2311.01453.

    θ̂ = λ · mean_unlabelled(c) + mean_labelled(y - λc)
    λ = Cov(y, c) / ((1 + n/M) · Var(c)), cut to [0, 1]
    v = λ² Var_unlabelled(c)/M + Var_labelled(y - λc)/n        θ̂ ± z√v

The labels are a simple random sample; the M other examples of the pool are the unlabelled ones. The paper's samples are
of an infinite population, and so is v.

Legend: N pool, n labels, M = N - n, y outcome, c confidence.
"""

import numpy as np

from opacc_ray.study.peers.peer import Array, PeerEstimate, Question, normal


def estimate(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Draw at random, and assist by the tuned confidence."""
    confidence, outcome = asked.confidence, asked.outcome
    index = rng.choice(len(outcome), budget, replace=False)
    rest = np.ones(len(outcome), dtype=bool)
    rest[index] = False
    value, variance = power_tuned(outcome[index], confidence[index], confidence[rest])
    return normal(value, variance, index, level)


def power_tuned(y: Array, labelled: Array, unlabelled: Array) -> tuple[float, float]:
    """θ̂ and v; where nothing is unlabelled, those of the mean."""
    n, m = len(y), len(unlabelled)
    if m == 0:
        return float(y.mean()), float(y.var()) / n
    spread = float(np.var(np.concatenate([labelled, unlabelled]), ddof=1))
    covariance = float(np.mean((y - y.mean()) * (labelled - labelled.mean())))
    strength = min(max(covariance / ((1 + n / m) * spread), 0.0), 1.0) if spread else 0.0
    error = y - strength * labelled
    value = strength * float(unlabelled.mean()) + float(error.mean())
    return value, strength**2 * float(unlabelled.var()) / m + float(error.var()) / n
