"""Active statistical inference: T. Zrnic, E. J. Candès, "Active Statistical Inference", ICML 2024, arXiv 2403.03208.

    π_i = τ · n/N + (1 - τ) · n · u_i/Σu,  τ = ½         u_i = √(c_i(1 - c_i))
    θ̂ = (1/N) Σ_i [ c_i + ξ_i (y_i - c_i)/π_i ]           ξ_i ~ Bernoulli(π_i), independent
    v = Var_i[ c_i + ξ_i (y_i - c_i)/π_i ] / N            θ̂ ± z√v

u is the standard deviation of an outcome that is right with probability c; π is cut at 1. The number of labels is
random, with mean n at most.

Legend: N pool, n labels, y outcome, c confidence, u uncertainty, π probability to be labelled.
"""

import numpy as np

from opacc_ray.study.peers.peer import Array, PeerEstimate, Question, normal

MIX = 0.5  # τ


def estimate(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Draw each example with its own probability, and correct the confidence."""
    confidence, outcome = asked.confidence, asked.outcome
    return inverse_weighted(confidence, outcome, mixed(active(confidence, budget), budget, MIX), rng, level)


def active(confidence: Array, budget: float) -> Array:
    """n · u/Σu, (N,)."""
    uncertainty = np.sqrt(np.clip(confidence * (1 - confidence), 0, None)) + 1e-9
    return np.asarray(budget * uncertainty / uncertainty.sum(), dtype=np.float64)


def mixed(probability: Array, budget: float, mix: float) -> Array:
    """Probabilities with a share ``mix`` that is uniform, cut at 1."""
    return np.minimum(mix * budget / len(probability) + (1 - mix) * probability, 1.0)


def inverse_weighted(
    confidence: Array, outcome: Array, probability: Array, rng: np.random.Generator, level: float
) -> PeerEstimate:
    drawn = rng.random(len(outcome)) < probability
    term = confidence + np.where(drawn, (outcome - confidence) / probability, 0.0)
    return normal(float(term.mean()), float(term.var()) / len(term), np.flatnonzero(drawn), level)
