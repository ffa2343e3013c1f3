"""Importance sampling for F-measures, as far as its three methods agree (sawade, oasis, activeeval).

    F = TP / (α(TP + FP) + (1 - α)(TP + FN)) = Σ_i t_i / Σ_i d_i        t = ŷy,  d = αŷ + (1 - α)y
    q*_i ∝ √( ŷ[α²F²(1 - p) + (1 - F)²p] + (1 - ŷ)(1 - α)²F²p )          the best probabilities of a draw
    F̂ = Σ_j w_j t_j / Σ_j w_j d_j        w_j = 1/(N q_j)                  over draws with replacement
    v = Σ_j w_j w'_j (t_j - F̂ d_j)² / (Σ_j w_j d_j)²        F̂ ± z√v      w' the weight by the last q, w if q is fixed

A label is paid for once: draws go on until the budget is spent on distinct examples, or there are MOST draws for each.
Without a predicted or true positive among the draws, F̂ is the guess by the probabilities, and the interval [0, 1].

Legend: N pool, y truth, ŷ prediction, p probability of the class, q of a draw.
"""

import numpy as np
from numpy.typing import NDArray

from opacc_ray.study.peers.peer import Array, PeerEstimate, Positives, normal

Places = NDArray[np.int64]

MOST = 20
"""Draws for each label of the budget: where most of q is on labelled examples, few draws cost a label."""


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


def positives_of(asked: Positives | None) -> Positives:
    """Return what an F-measure needs, which a study gives for F-measures only."""
    assert asked is not None
    return asked
