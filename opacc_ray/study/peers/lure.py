"""LURE: S. Farquhar, Y. Gal, T. Rainforth, "On statistical bias in active learning", ICLR 2021; J. Kossen, S. Farquhar,
Y. Gal, T. Rainforth, "Active Testing: Sample-Efficient Model Evaluation", ICML 2021.

    θ̂ = (1/n) Σ_m v_m f_m        v_m = 1 + (N - n)/(N - m) · [ 1/((N - m + 1) q_m) - 1 ],  m = 1, …, n

The m-th example is drawn from those that are left, with q proportional to its expected loss 1 - c; a tenth of the mean
is the least, for q = 0 would be biased. The papers give no interval; here it is normal, with the variance of the v_m
f_m as if they were independent.

Legend: N pool, n labels, f = 1 - outcome, c confidence, q probability of a draw.
"""

import numpy as np

from opacc_ray.study.peers.peer import Array, PeerEstimate, Question, normal

FLOOR = 0.1


def estimate(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Draw by expected loss, one after the other, and weight what was drawn."""
    confidence, outcome = asked.confidence, asked.outcome
    size = np.maximum(1 - confidence, FLOOR * float((1 - confidence).mean()) + 1e-12)
    index = np.argsort(rng.exponential(size=len(size)) / size)[:budget]  # draws without replacement, in their order
    chosen = size[index]
    left = size.sum() - np.concatenate([[0.0], np.cumsum(chosen)[:-1]])
    weight = weights(chosen / left, len(size))
    loss = weight * (1 - outcome[index])
    return normal(1 - float(loss.mean()), float(loss.var(ddof=1)) / budget, index, level)


def weights(probability: Array, pool_size: int) -> Array:
    """v (n,), from the q of the draws (n,)."""
    n, m = len(probability), np.arange(1, len(probability) + 1)
    return np.asarray(
        1 + (pool_size - n) / np.maximum(pool_size - m, 1) * (1 / ((pool_size - m + 1) * probability) - 1)
    )
