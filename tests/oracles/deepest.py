"""DeepEST by the letter: an N x N matrix of weights, and one draw after the other."""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np


def weights(belief: Any, active: Any, rule: str) -> np.ndarray:
    """w (N, N): w[i, j] from example i towards example j."""
    N = len(belief)
    w = np.zeros((N, N))
    for i in range(N):
        for j in range(N):
            if active[j] if rule == "released" else active[i]:
                w[i, j] = belief[j]
    return w


def draw_probability(w: np.ndarray, drawn: list[int], r: float, free: list[int]) -> dict[int, float]:
    """q (Eq. 5) of every example of ``free`` that is not drawn yet."""
    rest = [i for i in free if i not in drawn]
    if not drawn:
        return {i: 1 / len(rest) for i in rest}
    total = sum(w[j, h] for h in rest for j in drawn)
    if total == 0:
        return {i: 1 / len(rest) for i in rest}
    return {i: r * sum(w[j, i] for j in drawn) / total + (1 - r) / len(rest) for i in rest}


def sequences(w: np.ndarray, n: int, r: float, free: list[int]) -> Iterator[tuple[tuple[int, ...], list[float]]]:
    """Every ordered sample of n with the q of each of its draws; the sample's probability is their product."""
    for sample in itertools.permutations(free, n):
        q = [draw_probability(w, list(sample[:k]), r, free)[sample[k]] for k in range(n)]
        yield sample, q


def estimate(failure: Any, q: list[float], N: int) -> float:
    """One minus the mean of the z_k (Eq. 6 and 7); ``failure`` in order of draw."""
    z = [Fraction(float(failure[0]))]
    for k in range(1, len(q)):
        z.append((sum(Fraction(float(f)) for f in failure[:k]) + Fraction(float(failure[k])) / Fraction(q[k])) / N)
    return float(1 - sum(z) / len(z))
