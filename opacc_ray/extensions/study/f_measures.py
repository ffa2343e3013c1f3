"""Importance sampling for F-measures, by three methods of others: what they share, then each.

    F = TP / (α(TP + FP) + (1 - α)(TP + FN)) = Σ_i t_i / Σ_i d_i        t = ŷy,  d = αŷ + (1 - α)y
    q*_i ∝ √( ŷ[α²F²(1 - p) + (1 - F)²p] + (1 - ŷ)(1 - α)²F²p )          the best probabilities of a draw
    F̂ = Σ_j w_j t_j / Σ_j w_j d_j        w_j = 1/(N q_j)                  over draws with replacement
    v = Σ_j w_j w'_j (t_j - F̂ d_j)² / (Σ_j w_j d_j)²        F̂ ± z√v      w' the weight by the last q, w if q is fixed

A label is paid for once: draws go on until the budget is spent on distinct examples, or there are MOST draws for each.
Without a predicted or true positive among the draws, F̂ is the guess by the probabilities, and the interval [0, 1].

Legend: N pool, y truth, ŷ prediction, p probability of the class, q of a draw.
"""

import math
import re
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimation.intervals import normal_quantile

Array = NDArray[np.float64]
Places = NDArray[np.int64]


class PeerEstimate(NamedTuple):
    """A number, or one for each slice (S,), estimated by a method of others."""

    value: Any
    low: Any
    high: Any
    chosen: Places  # labelled examples


def normal(value: float, variance: float, index: Places, level: float) -> PeerEstimate:
    """Return the estimate with the interval value ± z · √variance, not cut at 0 and 1."""
    half = normal_quantile(level) * math.sqrt(max(variance, 0.0))
    return PeerEstimate(value, value - half, value + half, index)


class Positives(NamedTuple):
    """One class against the rest."""

    predicted: Array  # (N,) 1 where the model predicts the class
    probability: Array  # (N,) of the class, as far as the confidence says
    truth: Array  # (N,) 1 for the class; a peer reads only those that it draws
    alpha: float  # 1 for precision, 0 for recall, 1/(1 + β²) for F_β


def weight_of(metric: str) -> float | None:
    """Return α of a metric such as ``f1@CLASS``; None if it is no F-measure."""
    name = metric.partition("@")[0]
    f_beta = re.fullmatch(r"f(\d+(?:\.\d+)?)", name)
    return 1 / (1 + float(f_beta[1]) ** 2) if f_beta else {"precision": 1.0, "recall": 0.0}.get(name)


MOST = 20
"""Draws for each label of the budget: where most of q is on labelled examples, few draws cost a label."""

UNIFORM = 1e-3
"""ε."""


def best_draw(predicted: Array, probability: Array, alpha: float, f: float) -> Array:
    """Return q*, not normalised."""
    hit = predicted * (alpha**2 * f**2 * (1 - probability) + (1 - f) ** 2 * probability)
    return np.asarray(np.sqrt(hit + (1 - predicted) * (1 - alpha) ** 2 * f**2 * probability))


def guess(predicted: Array, probability: Array, alpha: float, share: Array | float = 1.0) -> float:
    """Return F if every example is of the class with its probability; ``share`` weights them."""
    bottom = float(np.sum(share * (alpha * predicted + (1 - alpha) * probability)))
    return float(np.sum(share * predicted * probability)) / bottom if bottom else 0.5


def draw(q: Array, num: int, known: NDArray[np.bool_], rng: np.random.Generator, most: int) -> Places:
    """Draw with replacement until ``num`` examples are new, at most ``most`` times; q (N,) adds up to 1.

    ``known`` (N,) marks labelled examples, and is kept up to date.
    """
    ends, found = np.cumsum(q), np.empty(0, dtype=np.int64)
    while num and len(found) < most:
        more = np.minimum(np.searchsorted(ends, rng.random(min(2 * num, most - len(found))) * ends[-1]), len(q) - 1)
        new = np.flatnonzero(~known[more])
        first = np.sort(new[np.unique(more[new], return_index=True)[1]])[:num]  # places of the new examples
        more = more[: first[-1] + 1] if len(first) == num else more
        known[more] = True
        found, num = np.concatenate([found, more]), num - len(first)
    return found


def estimate_f(asked: Positives, index: Places, weight: Array, level: float, last: Array | None = None) -> PeerEstimate:
    """Return F̂ with its interval from draws (J,) with their weights (J,), and those by the last q (J,)."""
    labelled, predicted, truth = np.unique(index), asked.predicted[index], asked.truth[index]
    hit, part = predicted * truth, asked.alpha * predicted + (1 - asked.alpha) * truth
    bottom = float(weight @ part)
    if not bottom:
        return PeerEstimate(guess(asked.predicted, asked.probability, asked.alpha), 0.0, 1.0, labelled)
    value = float(weight @ hit) / bottom
    spread = weight * (weight if last is None else last) * (hit - value * part) ** 2
    return normal(value, float(spread.sum()) / bottom**2, labelled, level)


def sawade(asked: Positives, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Static importance sampling: C. Sawade, N. Landwehr, T. Scheffer, "Active Estimation of F-Measures", NIPS 2010.

        q = (1 - ε) q*/Σq* + ε/N        by the p of the confidence and the F that they predict, ε = 0.001

    with the common draws, estimate and interval. The uniform share ε is that of the
    implementation in the package of OASIS; the paper has none, and needs p > 0.
    """
    f = guess(asked.predicted, asked.probability, asked.alpha)
    q = best_draw(asked.predicted, asked.probability, asked.alpha, f)
    q = (1 - UNIFORM) * q / q.sum() + UNIFORM / len(q)
    index = draw(q, budget, np.zeros(len(q), dtype=bool), rng, MOST * budget)
    return estimate_f(asked, index, 1 / (len(q) * q[index]), level)


NUM_STRATA, PRIOR = 30, 2.0
"""K and η."""

CELLS = 40
"""Cells of the histogram of scores for each stratum."""


def oasis(asked: Positives, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """OASIS: N. G. Marchant, B. I. P. Rubinstein, "In Search of an Entity Resolution OASIS: Optimal Asymptotic
    Sequential Importance Sampling", PVLDB 10(11), 2017, arXiv 1703.00617.

        K strata of like probability, by the cumulative square root of frequencies of the scores (Dalenius, Hodges 1959)
        θ_k = (positives_k + η p̄_k/m_k) / (m_k + η/m_k)        η = 2, m_k draws of stratum k, at least 1 in η/m_k
        v_k = (1 - ε) ω_k q*(ŷ̄_k, θ_k, F̂)/Σ + ε ω_k           ω_k = N_k/N, ε = 0.001, q* with means

    Each draw takes a stratum by v and an example of it at random, and updates θ, F̂ and v. The prior counts for fewer
    labels the more draws a stratum has. The paper has no interval; here it is the common one. Scores
    are the log odds of p, and K is 30, as in its experiments.

    Legend: N_k examples of stratum k, p̄_k and ŷ̄_k its mean probability and prediction.
    """
    order, starts, size = _members(asked.probability.tobytes(), NUM_STRATA)
    share, most = size / size.sum(), MOST * budget
    predicted, expected = (np.add.reduceat(x[order], starts) / size for x in (asked.predicted, asked.probability))
    draws, positives = np.zeros(len(size)), np.zeros(len(size))
    known = set[int]()
    index, weight = np.empty(most, dtype=np.int64), np.empty(most)
    f, top, bottom, num = guess(predicted, expected, asked.alpha, share), 0.0, 0.0, 0
    while len(known) < budget and num < most:
        prior = PRIOR / np.maximum(draws, 1)
        best = share * best_draw(predicted, (positives + prior * expected) / (draws + prior), asked.alpha, f)
        v = (1 - UNIFORM) * best / best.sum() + UNIFORM * share
        k = min(int(np.searchsorted(np.cumsum(v), rng.random())), len(v) - 1)
        i = int(order[starts[k] + rng.integers(size[k])])
        index[num], weight[num] = i, share[k] / v[k]
        draws[k] += 1
        positives[k] += asked.truth[i]
        top += weight[num] * asked.predicted[i] * asked.truth[i]
        bottom += weight[num] * (asked.alpha * asked.predicted[i] + (1 - asked.alpha) * asked.truth[i])
        f = top / bottom if bottom else f
        known.add(i)
        num += 1
    return estimate_f(asked, index[:num], weight[:num], level)


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


DEPTH, BATCH, LEAST = 8, 50, 1e-9
"""Levels of the tree, labels of a batch, and ε."""

_STEPS, _CLOSE = 500, 1e-5


def activeeval(asked: Positives, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """activeeval: N. G. Marchant, B. I. P. Rubinstein, "Needle in a Haystack: Label-Efficient Evaluation under Extreme
    Class Imbalance", KDD 2021, arXiv 2006.06963: adaptive importance sampling with a Dirichlet tree.

        K = 2⁸ strata of like score, the leaves of a binary tree
        class y ~ θ;  stratum k | y: at each node of the tree, one of its two children with the probability ψ_y
        θ and ψ at the mode of their posterior, by EM: the classes of unlabelled examples are latent
        π_i = p(y = 1 | k_i) ∝ θ_1 ψ_1(k_i), and the known class of a labelled example
        q_i ∝ π_i · max(|∂_i1|, ε) + (1 - π_i) · max(|∂_i0|, ε)·1{ŷ_i = 1}        ∂_iy = (ŷ_i y - F(αŷ_i + (1 - α)y))

    with F by π, so every q_i that can matter is positive. After each batch of labels, π and q are new; draws, estimate
    and interval, with the weight by the last q, are the common ones.

    The prior, as in the authors' experiments, is one label in each stratum, shared by its mean probability. A child at
    depth t has the further prior count t², which makes the distribution over leaves smooth. Batches have 50 labels as
    there, or a quarter of the budget. Strata and scores are those of :func:`oasis`.

    Legend: p probability of the class, ŷ prediction, α of the F-measure.
    """
    stratum, size = _leaves(asked.probability.tobytes())
    prior = np.bincount(stratum, weights=asked.probability, minlength=len(size)) / np.maximum(size, 1)
    classes = np.column_stack([np.where(size > 0, 1 - prior, 0.0), prior])  # (K, 2) one label each
    known = np.zeros(len(stratum), dtype=bool)
    index, weight = np.empty(0, dtype=np.int64), np.empty(0)
    q, batch, joint = np.empty(0), min(BATCH, max(budget // 4, 1)), classes * size[:, None].astype(np.float64)
    for num in np.diff([*range(0, budget, batch), budget]).tolist():
        joint = _mode(classes, stratum, size, np.unique(index), asked.truth, joint)
        share = joint[stratum, 1] / joint[stratum].sum(axis=1)
        q = _adaptive_draw(asked, np.where(known, asked.truth, share))
        more = draw(q, num, known, rng, MOST * num)
        index, weight = np.concatenate([index, more]), np.concatenate([weight, 1 / (len(q) * q[more])])
    last = np.divide(1 / len(q), q[index], out=np.zeros(len(index)), where=q[index] > 0)
    return estimate_f(asked, index, weight, level, last)


def _adaptive_draw(asked: Positives, share: Array) -> Array:
    """Return q (N,) from the probabilities π (N,)."""
    f = guess(asked.predicted, share, asked.alpha)
    positive = np.maximum(np.abs(asked.predicted - f * (asked.alpha * asked.predicted + (1 - asked.alpha))), LEAST)
    negative = asked.predicted * np.maximum(f * asked.alpha, LEAST)
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
