"""activeeval: N. G. Marchant, B. I. P. Rubinstein, "Needle in a Haystack: Label-Efficient Evaluation under Extreme
Class Imbalance", KDD 2021, arXiv 2006.06963: adaptive importance sampling with a Dirichlet tree.

    K = 2⁸ strata of like score, the leaves of a binary tree
    class y ~ θ;  stratum k | y: at each node of the tree, one of its two children with the probability ψ_y
    θ and ψ at the mode of their posterior by expectation-maximisation: the classes of unlabelled examples are latent
    π_i = p(y = 1 | k_i) ∝ θ_1 ψ_1(k_i), and the known class of a labelled example
    q_i ∝ π_i · max(|∂_i1|, ε) + (1 - π_i) · max(|∂_i0|, ε)·1{ŷ_i = 1}        ∂_iy = (ŷ_i y - F(αŷ_i + (1 - α)y))

with F by π, so every q_i that can matter is positive. After each batch of labels, π and q are new; draws, estimate
and interval, with the weight by the last q, are those of :mod:`opacc_ray.study.peers.importance`.

The prior, as in the authors' experiments, is one label in each stratum, shared by its mean probability. A child at
depth t has the further prior count t², which makes the distribution over leaves smooth. Batches have 50 labels as
there, or a quarter of the budget. Strata and scores are those of :mod:`opacc_ray.study.peers.oasis`.

Legend: p probability of the class, ŷ prediction, α of the F-measure.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from opacc_ray.study.peers import importance
from opacc_ray.study.peers.oasis import strata
from opacc_ray.study.peers.peer import Array, PeerEstimate, Positives, Question

DEPTH, BATCH, LEAST = 8, 50, 1e-9
"""Levels of the tree, labels of a batch, and ε."""

_STEPS, _CLOSE = 500, 1e-5


def estimate(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Draw in batches, and learn the classes of all strata from each."""
    own = importance.positives_of(asked.positives)
    stratum, size = _leaves(own.probability.tobytes())
    prior = np.bincount(stratum, weights=own.probability, minlength=len(size)) / np.maximum(size, 1)
    classes = np.column_stack([np.where(size > 0, 1 - prior, 0.0), prior])  # (K, 2) one label each
    known = np.zeros(len(stratum), dtype=bool)
    index, weight = np.empty(0, dtype=np.int64), np.empty(0)
    q, batch, joint = np.empty(0), min(BATCH, max(budget // 4, 1)), classes * size[:, None].astype(np.float64)
    for num in np.diff([*range(0, budget, batch), budget]).tolist():
        joint = _mode(classes, stratum, size, np.unique(index), own.truth, joint)
        share = joint[stratum, 1] / joint[stratum].sum(axis=1)
        q = best_draw(own, np.where(known, own.truth, share))
        more = importance.draw(q, num, known, rng, importance.MOST * num)
        index, weight = np.concatenate([index, more]), np.concatenate([weight, 1 / (len(q) * q[more])])
    last = np.divide(1 / len(q), q[index], out=np.zeros(len(index)), where=q[index] > 0)
    return importance.estimate_f(own, index, weight, level, last)


def best_draw(own: Positives, share: Array) -> Array:
    """Return q (N,) from the probabilities π (N,)."""
    f = importance.guess(own.predicted, share, own.alpha)
    positive = np.maximum(np.abs(own.predicted - f * (own.alpha * own.predicted + (1 - own.alpha))), LEAST)
    negative = own.predicted * np.maximum(f * own.alpha, LEAST)
    q = share * positive + (1 - share) * negative
    return np.asarray(q / q.sum())


@lru_cache(maxsize=4)
def _leaves(probability: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the stratum of each example (N,), and the sizes of all leaves (K,)."""
    stratum = strata(np.frombuffer(probability), 2**DEPTH)
    return stratum, np.bincount(stratum, minlength=2**DEPTH)


def _mode(
    prior: Array,
    stratum: NDArray[np.int64],
    size: NDArray[np.int64],
    labelled: NDArray[np.int64],
    truth: Array,
    joint: Array,
) -> Array:
    """Return θ_y ψ_y(k) at the mode, (K, 2), from that of the batch before."""
    counts = [
        np.bincount(stratum[labelled], weights=x, minlength=len(size)) for x in (1 - truth[labelled], truth[labelled])
    ]
    seen = prior + np.column_stack(counts)
    free = (size - sum(counts))[:, None]
    share = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
    for _ in range(_STEPS):
        before, joint = share, spread(seen + free * share)
        share = joint / joint.sum(axis=1, keepdims=True)
        if float(np.abs(share - before).max()) < _CLOSE:
            break
    return joint


def spread(counts: Array) -> Array:
    """Return θ_y ψ_y(k), (K, 2), from the counts of each class in each leaf, (K, 2)."""
    joint = (counts.sum(axis=0) / counts.sum())[None, :]
    for depth in range(1, DEPTH + 1):
        child = counts.reshape(2**depth, -1, 2).sum(axis=1) + depth**2
        pair = child.reshape(-1, 2, 2)
        joint = np.repeat(joint, 2, axis=0) * (pair / pair.sum(axis=1, keepdims=True)).reshape(-1, 2)
    return joint
