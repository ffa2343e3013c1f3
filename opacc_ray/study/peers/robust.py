"""Robust active inference: P. Li, T. Zrnic, E. J. Candès, "Robust Sampling for Active Statistical Inference", NeurIPS
2025, arXiv 2511.08991.

    π^(ρ) = ρ · n/N + (1 - ρ) · n · u/Σu         ρ = argmin over [0, 1] of  Σ_i ê_i²/π_i^(ρ)

so the draw goes from the uniform one to that of :mod:`opacc_ray.study.peers.active` as far as the errors ê of the
confidence support it. Deviations: of the paths that the paper offers this is the straight one; ê² is a line in u²
through the squared errors of a burn-in, a fifth of the labels drawn at random, and not below half their mean (the paper
guards against the worst errors near the estimated ones); the estimate is that of the burn-in and that of the draw,
weighted by their numbers of labels.

Legend: N pool, n labels, c confidence, u uncertainty, π probability to be labelled.
"""

import numpy as np
from numpy.typing import NDArray

from opacc_ray.study.peers.active import active, inverse_weighted, mixed
from opacc_ray.study.peers.peer import Array, PeerEstimate, Question, normal
from opacc_ray.study.peers.ppi import power_tuned

BURN_IN = 0.2


def estimate(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Learn from a burn-in how far to go from the uniform draw, and draw the rest so."""
    confidence, outcome = asked.confidence, asked.outcome
    first = rng.choice(len(outcome), max(round(BURN_IN * budget), 2), replace=False)
    rest = np.setdiff1d(np.arange(len(outcome)), first)
    probability = _mixed_best(confidence, outcome, first, rest, budget - len(first))
    drawn = inverse_weighted(confidence[rest], outcome[rest], probability, rng, level)
    known = float(outcome[first].sum()) / len(outcome)
    share = len(rest) / len(outcome)
    term = (outcome[rest] - confidence[rest])[drawn.chosen] / probability[drawn.chosen]
    variance = float((term**2 * (1 - probability[drawn.chosen])).sum()) / len(outcome) ** 2
    value, own = power_tuned(outcome[first], confidence[first], confidence[rest])
    weight = len(first) / budget
    total = weight * value + (1 - weight) * (known + share * drawn.value)
    spread = weight**2 * own + (1 - weight) ** 2 * variance
    return normal(total, spread, np.concatenate([first, rest[drawn.chosen]]), level)


def _mixed_best(
    confidence: Array, outcome: Array, first: NDArray[np.int64], rest: NDArray[np.int64], budget: int
) -> Array:
    """π^(ρ) of the ``rest``, for the best ρ on a grid."""
    error = (outcome[first] - confidence[first]) ** 2
    doubt = confidence * (1 - confidence)
    spread = float(doubt[first].var())
    slope = float(np.mean((error - error.mean()) * (doubt[first] - doubt[first].mean()))) / spread if spread else 0.0
    expected = np.maximum(error.mean() + max(slope, 0.0) * (doubt[rest] - doubt[first].mean()), error.mean() / 2)
    paths = [mixed(active(confidence[rest], budget), budget, mix) for mix in np.linspace(0.05, 1, 20)]
    return min(paths, key=lambda probability: float((expected / probability).sum()))
