"""Draw a fixed number of distinct examples: at random, or with unequal probabilities (π-ps designs).

J.-C. Deville, "Une nouvelle (encore une!) méthode de tirage à probabilités inégales", INSEE 9804 (1998), known as
Deville's systematic sampling; G. Chauvet, "On a characterization of ordered pivotal sampling", Bernoulli 18 (2012),
shows that it equals Deville and Tillé's pivotal method in a fixed order.

The inclusion probabilities are laid end to end, in a given order, on a line of length n. The line is cut in n intervals
of length 1, and one example is drawn from each. An example across a cut belongs to two intervals: the second draw
depends on whether the first one took it, so that it is included with exactly π and never twice. The sample has exactly
n examples, spread along the order as evenly as a stratified sample.

Legend: N examples, n to draw, π inclusion probability, σ size.
"""

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 16


def unlabelled_index(rank: NDArray[np.int64], taken: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the pool's index of the rank-th example that is not ``taken`` (sorted); any shape, same shape returned.

    Memory is needed for ``taken`` only, whatever the size of the pool. Below the r-th free example there are r free
    examples, and as many taken ones as have fewer than r + 1 free ones before them.
    """
    free_before = taken - np.arange(len(taken))  # (k,), not decreasing
    return rank + np.searchsorted(free_before, rank, side="right")


def draw_uniform(rng: np.random.Generator, size: int, taken: NDArray[np.int64], num: int) -> NDArray[np.int64]:
    """Draw ``num`` of the ``size`` examples that are not ``taken`` (sorted), at random without replacement."""
    rank = rng.choice(size - len(taken), size=num, replace=False, shuffle=True)
    return unlabelled_index(rank.astype(np.int64), taken)


def line_lengths(probability: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """Return lengths (N,) on a line of ``num`` intervals, in units so small that their sum fits in 2^61."""
    length = probability * 2.0 ** (61 - int(num).bit_length())
    np.rint(length, out=length)
    np.maximum(length, 1, out=length)
    whole = length.view(np.int64)  # in the same memory
    for start in range(0, len(length), _BLOCK):
        whole[start : start + _BLOCK] = length[start : start + _BLOCK]
    return whole


def draw_along(rng: np.random.Generator, probability: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """Draw ``num`` distinct places of a line, one per interval, each with its ``probability`` (N,); ``num`` in sum.

    In interval k the example across its lower cut has the probability after / (1 - before) if interval k - 1 did not
    take it, else 0. The other examples share the rest by their lengths. Nearly all intervals are in the first case,
    which is computed for all of them at once; the second case is then followed from the first interval on.
    """
    if num == 0:
        return np.empty(0, dtype=np.int64)
    end = line_lengths(probability, num)
    np.cumsum(end, out=end)
    total = int(end[-1])
    unit = total / num  # the lengths sum to a whole number of intervals, but for rounding
    cut = np.arange(num)
    across = np.searchsorted(end, np.minimum(np.floor(cut * unit).astype(np.int64), total - 1), side="right")
    begin = np.where(across > 0, end[across - 1], 0)
    before = np.maximum(cut - begin / unit, 0.0)  # (n,) in the interval below, of the example across each cut
    after = np.maximum(end[across] / unit - cut, 0.0)  # and above
    uniform, chance = rng.random(num), np.minimum(after / (1 - before), 1.0)
    left = (uniform - chance) / np.maximum(1 - chance, 1e-300)  # uniform again, given uniform >= chance

    def other(intervals: NDArray[np.int64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """(s,) places at ``uniform`` of the way from the end of the one across the cut to the next cut."""
        way = after[intervals] + np.maximum(uniform[intervals], 0.0) * (1 - after[intervals])
        at = np.floor((intervals + way) * unit).astype(np.int64)
        return np.searchsorted(end, np.clip(at, end[across[intervals]], total - 1), side="right")

    chosen = across.copy()
    rest = np.flatnonzero(uniform >= chance)
    chosen[rest] = other(rest, left)
    if_taken = other(cut, uniform)  # where the interval before took the one across
    for k in range(1, num):
        if chosen[k - 1] == across[k]:
            chosen[k] = if_taken[k]
    return chosen
