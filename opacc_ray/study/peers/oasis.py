"""OASIS: N. G. Marchant, B. I. P. Rubinstein, "In Search of an Entity Resolution OASIS: Optimal Asymptotic Sequential
Importance Sampling", PVLDB 10(11), 2017, arXiv 1703.00617.

    K strata of like probability, by the cumulative square root of frequencies of the scores (Dalenius, Hodges 1959)
    θ_k = (positives_k + η p̄_k/m_k) / (m_k + η/m_k)        η = 2, m_k draws of stratum k, at least 1 in η/m_k
    v_k = (1 - ε) ω_k q*(ŷ̄_k, θ_k, F̂)/Σ + ε ω_k           ω_k = N_k/N, ε = 0.001, q* of importance.py with means

Each draw takes a stratum by v and an example of it at random, and updates θ, F̂ and v. The prior counts for fewer labels
the more draws a stratum has. The paper has no interval; here it is that of :mod:`opacc_ray.study.peers.importance`.
Scores are the log odds of p, and K is 30, as in its experiments.

Legend: N_k examples of stratum k, p̄_k and ŷ̄_k its mean probability and prediction.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from opacc_ray.study.peers import importance
from opacc_ray.study.peers.peer import Array, PeerEstimate, Question

NUM_STRATA, UNIFORM, PRIOR = 30, 1e-3, 2.0
"""K, ε and η."""

CELLS = 40
"""Cells of the histogram of scores for each stratum."""


def estimate(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Draw stratum by stratum, and learn from each label."""
    own = importance.positives_of(asked.positives)
    order, starts, size = _members(own.probability.tobytes(), NUM_STRATA)
    share, most = size / size.sum(), importance.MOST * budget
    predicted, expected = (np.add.reduceat(x[order], starts) / size for x in (own.predicted, own.probability))
    draws, positives = np.zeros(len(size)), np.zeros(len(size))
    known = set[int]()
    index, weight = np.empty(most, dtype=np.int64), np.empty(most)
    f, top, bottom, num = importance.guess(predicted, expected, own.alpha, share), 0.0, 0.0, 0
    while len(known) < budget and num < most:
        prior = PRIOR / np.maximum(draws, 1)
        best = share * importance.best_draw(predicted, (positives + prior * expected) / (draws + prior), own.alpha, f)
        v = (1 - UNIFORM) * best / best.sum() + UNIFORM * share
        k = min(int(np.searchsorted(np.cumsum(v), rng.random())), len(v) - 1)
        i = int(order[starts[k] + rng.integers(size[k])])
        index[num], weight[num] = i, share[k] / v[k]
        draws[k] += 1
        positives[k] += own.truth[i]
        top += weight[num] * own.predicted[i] * own.truth[i]
        bottom += weight[num] * (own.alpha * own.predicted[i] + (1 - own.alpha) * own.truth[i])
        f = top / bottom if bottom else f
        known.add(i)
        num += 1
    return importance.estimate_f(own, index[:num], weight[:num], level)


@lru_cache(maxsize=4)
def _members(probability: bytes, num: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the examples by stratum (N,), where each stratum starts (K,), and its size (K,)."""
    stratum = strata(np.frombuffer(probability), num)
    size = np.bincount(stratum)
    return np.argsort(stratum, kind="stable"), np.cumsum(size) - size, size


def strata(probability: Array, num: int) -> NDArray[np.int64]:
    """Return strata (N,) of equal shares of the cumulative √frequency of the log odds: at most ``num``, none empty."""
    inside = np.clip(probability, 1e-9, 1 - 1e-9)
    score = np.log(inside / (1 - inside))
    count, ends = np.histogram(score, bins=CELLS * num)
    root = np.sqrt(count)
    of_cell = np.minimum((np.cumsum(root) - root / 2) / root.sum() * num, num - 1).astype(np.int64)
    cell = np.clip(np.searchsorted(ends, score, side="right") - 1, 0, len(count) - 1)
    found: NDArray[np.int64] = np.unique(of_cell[cell], return_inverse=True)[1]
    return found
