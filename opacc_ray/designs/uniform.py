"""Drawing at random among the examples of a pool that are not taken yet."""

import numpy as np
from numpy.typing import NDArray


def untaken(rank: NDArray[np.int64], taken: NDArray[np.int64]) -> NDArray[np.int64]:
    """The pool's index of the rank-th example that is not taken; any shape in, the same shape out.

    Needs memory for ``taken`` (sorted) only, so a pool of 10^9 costs nothing: below the r-th free example lie
    r free ones and as many taken ones as have fewer than r + 1 free ones before them.
    """
    free_before = taken - np.arange(len(taken))  # (k,), not decreasing
    return rank + np.searchsorted(free_before, rank, side="right")


def draw_uniform(rng: np.random.Generator, size: int, taken: NDArray[np.int64], num: int) -> NDArray[np.int64]:
    """Simple random sample without replacement of ``num`` of the ``size`` examples, none of them taken (sorted)."""
    rank = rng.choice(size - len(taken), size=num, replace=False, shuffle=True)
    return untaken(rank.astype(np.int64), taken)
