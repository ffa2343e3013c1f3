"""Stratified Neyman on a proxy: R. Fogliato, P. Patil, M. Monfort, P. Perona, "A Framework for Efficient Model
Evaluation through Stratification, Sampling, and Estimation", ECCV 2024, arXiv 2406.07320.

    strata by k-means of the confidence;  n_h ∝ N_h √(c̄_h(1 - c̄_h));  θ̂ = Σ_h (N_h/N) ȳ_h

with the variance Σ_h (N_h/N)² (1 - n_h/N_h) s_h²/n_h, s_h² that of a stratum's outcomes, and 10 strata. No stratum gets
fewer than two labels, or more than it has.

Legend: N pool, n labels, N_h and n_h those of stratum h, c confidence, y outcome.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from opacc_ray.samplers.strata import kmeans_1d
from opacc_ray.study.peers.peer import Array, PeerEstimate, Question, normal

NUM_STRATA = 10


def estimate(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Draw at random in strata of like confidence."""
    confidence, outcome = asked.confidence, asked.outcome
    stratum = strata_of(confidence, min(NUM_STRATA, budget // 2))
    size = np.bincount(stratum)
    mean = np.bincount(stratum, weights=confidence) / size
    sizes = allocate(size, np.sqrt(np.clip(mean * (1 - mean), 0, None)), budget)
    index = np.concatenate(
        [rng.choice(np.flatnonzero(stratum == h), num, replace=False) for h, num in enumerate(sizes)]
    )
    return normal(*combined(size, stratum[index], outcome[index]), index, level)


def strata_of(confidence: Array, num: int) -> NDArray[np.int64]:
    """Return at most ``num`` strata (N,) of like confidence."""
    return _strata(np.asarray(confidence, np.float64).tobytes(), num)


@lru_cache(maxsize=4)
def _strata(confidence: bytes, num: int) -> NDArray[np.int64]:
    """Strata of the numbers in memory, which a study gives again and again."""
    return kmeans_1d(np.frombuffer(confidence), num)


def combined(size: NDArray[np.int64], stratum: NDArray[np.int64], y: Array) -> tuple[float, float]:
    """θ̂ and its variance, from N_h (strata,) and the stratum and outcome of each label (n,)."""
    value = variance = 0.0
    for h, num in enumerate(np.bincount(stratum, minlength=len(size))):
        share, own = size[h] / size.sum(), y[stratum == h]
        value += share * float(own.mean())
        variance += share**2 * (1 - num / size[h]) * float(own.var(ddof=1 if num > 1 else 0)) / num
    return float(value), float(variance)


def allocate(
    size: NDArray[np.int64], deviation: Array, budget: int, least: NDArray[np.int64] | int = 2
) -> NDArray[np.int64]:
    """n_h (strata,), ``budget`` in sum: the ``least`` as far as there are, then one by one where it helps most."""
    num = np.minimum(size, least)
    wanted = size * (deviation + 1e-9)
    while num.sum() < budget and (num < size).any():
        gain = np.where(num < size, wanted / np.sqrt(num * (num + 1.0)), -1.0)  # of one more label
        num[int(gain.argmax())] += 1
    return num
