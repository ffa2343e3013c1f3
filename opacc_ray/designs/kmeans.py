"""k-means in one dimension: strata of examples whose values are alike.

The clusters of a line are intervals, so the best ones can be found by dynamic programming (W. D. Fisher, "On grouping
for maximum homogeneity", JASA 53, 1958) and no random start is needed. The values are first counted in narrow cells,
which makes the cost independent of the size of the pool, and clusters end where cells do.

Legend: N values, B cells, K clusters.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CELLS = 1000
"""Cells of equal width over the range of the values."""


def kmeans_1d(values: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """Cluster of each value, 0 that of the least: (N,) -> (N,), at most ``num`` clusters and none of them empty.

    The sum of squared distances to the clusters' means is the least there is, up to the width of a cell.
    """
    cell = Cells(float(values.min()), float(values.max())).of(values)
    centred, nothing = values - values.mean(), np.zeros(CELLS)  # squares of large values would cancel
    total, squares = tally(cell, centred, nothing), tally(cell, centred**2, nothing)
    return best_clusters(np.bincount(cell, minlength=CELLS), total, squares, num)[cell]


class Cells(NamedTuple):
    """The cells between the least value and the greatest."""

    low: float
    high: float

    def of(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """The cell of each value, (N,) in 0 .. CELLS - 1."""
        if self.low == self.high:
            return np.zeros(len(values), dtype=np.int64)
        return np.minimum((values - self.low) / (self.high - self.low) * CELLS, CELLS - 1).astype(np.int64)


def tally(cell: NDArray[np.integer], values: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.float64]:
    """``before`` (cells,) with ``values`` (N,) added to it by their cells, one after the other."""
    cells = np.concatenate([np.arange(len(before)), cell])
    return np.bincount(cells, weights=np.concatenate([before, values])).astype(np.float64)


def best_clusters(
    count: NDArray[np.int64], total: NDArray[np.float64], squares: NDArray[np.float64], num: int
) -> NDArray[np.int64]:
    """Cluster of each cell, from the number of values in it, their sum and that of their squares: (cells,) each."""
    used = np.flatnonzero(count)  # (B,)
    starts = _best_starts(_within(count[used], total[used], squares[used]), min(num, len(used)))
    found: NDArray[np.int64] = np.searchsorted(used[starts], np.arange(len(count)), side="right") - 1
    return found


def _within(count: NDArray[np.int64], total: NDArray[np.float64], squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances to the mean of the cells i .. j taken as one cluster, at [i, j]: (B, B), infinite below."""
    n, t, s = (np.concatenate([[0.0], np.cumsum(x)]) for x in (count, total, squares))
    sums = [x[None, 1:] - x[:-1, None] for x in (n, t, s)]
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = sums[2] - sums[1] ** 2 / sums[0]
    return np.where(np.tri(len(count), k=-1, dtype=bool), np.inf, np.maximum(cost, 0.0))


def _best_starts(cost: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """First cell of each of the ``num`` clusters of least total cost."""
    best = cost[0]  # (B,) least cost of the cells 0 .. j in the clusters so far
    choices = []
    for _ in range(num - 1):
        through = best[:-1, None] + cost[1:]  # [i - 1, j]: the last cluster starts at cell i
        choice = np.argmin(through, axis=0) + 1
        best = through[choice - 1, np.arange(len(best))]
        choices.append(choice)
    starts, last = [], len(cost) - 1
    for choice in reversed(choices):
        starts.append(int(choice[last]))
        last = starts[-1] - 1
    return np.array([0, *reversed(starts)], dtype=np.int64)
