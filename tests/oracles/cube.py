"""Plain transcription of the cube method's walk, every way it can take: slow, and easy to check."""

import numpy as np

Way = tuple[float, frozenset[int], list[float]]


def ways(probability: list[float], variables: np.ndarray) -> list[Way]:
    """Every way of the walk: its chance, the sample that it ends with, and a random number for each step to take it.

    probability : π (M,) where it starts, in the order of the walk; variables : h/π (M, q), the last to give up first
    """
    found: list[Way] = []

    def go(p: np.ndarray, chance: float, numbers: list[float]) -> None:
        undecided = [i for i in range(len(p)) if 1e-9 < p[i] < 1 - 1e-9][: variables.shape[1] + 1]
        if not undecided:
            found.append((chance, frozenset(np.flatnonzero(p > 0.5).tolist()), numbers))
            return
        rows = min(variables.shape[1], len(undecided) - 1)
        u = null_direction(variables[undecided, :rows].T)
        forth, back = (longest(p[undecided], sign * u) for sign in (1, -1))
        share = back / (forth + back)
        for taken, length, number in ((share, forth, share / 2), (1 - share, -back, (1 + share) / 2)):
            after = p.copy()
            after[undecided] += length * u
            go(after, chance * taken, [*numbers, number])

    go(np.array(probability), 1.0, [])
    return found


def null_direction(matrix: np.ndarray) -> np.ndarray:
    """u with matrix·u = 0 that ends with a 1 as early as can be."""
    for end in range(1, matrix.shape[1] + 1):
        first = matrix[:, :end]
        _, strength, axes = np.linalg.svd(first) if len(first) else (None, np.empty(0), np.eye(end))
        if np.sum(strength > 1e-9) < end:
            u = np.zeros(matrix.shape[1])
            u[:end] = axes[-1] / axes[-1][-1]
            return u
    raise AssertionError("the columns are independent")


def longest(p: np.ndarray, direction: np.ndarray) -> float:
    """How far along ``direction`` the cube goes from ``p``."""
    return min(((1 - x) if d > 0 else x) / abs(d) for x, d in zip(p, direction, strict=True) if abs(d) > 1e-12)
