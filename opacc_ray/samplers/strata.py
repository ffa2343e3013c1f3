"""Form strata by k-means in one dimension, share a budget among them, and draw from each.

Clusters of numbers are intervals, so dynamic programming finds the best ones without a random start (W. D. Fisher, "On
grouping for maximum homogeneity", JASA 53, 1958). The values are first counted in narrow cells, so the cost does not
depend on the size of the pool; clusters end where cells end.

Legend: N values, B cells, K clusters, H strata, n labels.
"""

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.stratified import Stratified
from opacc_ray.errors import SpecError
from opacc_ray.samplers.base import Draw

CELLS = 1000
"""Number of cells of equal width over the range of the values."""


def kmeans_1d(values: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """Return the cluster of each value (N,), numbered by increasing value: at most ``num`` clusters, none empty.

    The sum of squared distances to the clusters' means is minimal, up to the width of a cell.
    """
    low, high = float(values.min()), float(values.max())
    cell = np.minimum((values - low) / ((high - low) or 1.0) * CELLS, CELLS - 1).astype(np.int64)  # (N,)
    centred = values - values.mean()  # squares of large values would cancel
    count = np.bincount(cell)
    used = np.flatnonzero(count)  # (B,)
    total, squares = (np.bincount(cell, weights=own)[used].astype(np.float64) for own in (centred, centred**2))
    starts = _best_starts(_costs(count[used], total, squares), min(num, len(used)))
    found: NDArray[np.int64] = np.searchsorted(used[starts], cell, side="right") - 1
    return found


def _costs(count: NDArray[np.int64], total: NDArray[np.float64], squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances to the mean of the cells i .. j as one cluster, at [i, j]: (B, B), infinite below."""
    n, t, s = (np.concatenate([[0.0], np.cumsum(x)]) for x in (count, total, squares))
    sums = [x[None, 1:] - x[:-1, None] for x in (n, t, s)]
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = sums[2] - sums[1] ** 2 / sums[0]
    return np.where(np.tri(len(count), k=-1, dtype=bool), np.inf, np.maximum(cost, 0.0))


def _best_starts(cost: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """Return the first cell of each of the ``num`` clusters of least total cost."""
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


def allocate(budget: int, shares: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return whole numbers (H,) near budget · shares, between 1 and the size of each stratum, with sum ``budget``.

    Raises SpecError if the budget is smaller than the number of strata, or a stratum is empty.
    """
    check_budget(budget, sizes)
    given = np.ones(len(sizes), dtype=np.int64)
    while (left := budget - given.sum()) > 0:
        want = np.maximum(budget * shares - given, 0) * (given < sizes)
        if want.sum() == 0:  # every share is reached or full: the rest goes where examples are left
            want = shares * (given < sizes)
        if want.sum() == 0:  # which is only in strata without a share
            want = (sizes - given).astype(np.float64)
        ideal = left * want / want.sum()
        add = np.minimum(np.floor(ideal).astype(np.int64), sizes - given)
        if add.sum() == 0:
            add[np.argmax(ideal)] = 1
        given += add
    return given


def check_budget(budget: int, sizes: NDArray[np.int64]) -> None:
    """Raise SpecError unless every stratum can get an example from the budget."""
    if budget < len(sizes) or min(sizes) < 1:
        few, many = min(sizes), max(sizes)
        examples = f"{few} to {many}" if few < many else f"{few}"
        raise SpecError(
            f"budget={budget} over {len(sizes)} strata of {examples} examples: every stratum needs "
            f"at least one; give a budget of at least {len(sizes)}, or use fewer strata"
        )


def draw_strata(
    rng: np.random.Generator, examples: NDArray[np.int64], stratum: NDArray[np.int64], allocation: NDArray[np.int64]
) -> Draw:
    """Draw simple random samples of ``allocation`` (H,) of the ``examples`` (N,), ``stratum`` (N,) that of each.

    One example of each stratum comes first, so that no stratum is without a label if labelling stops early; the rest is
    in random order. The first labels of a stratum are a simple random sample of it.
    """
    sizes, ordered = np.bincount(stratum), np.argsort(stratum, kind="stable")  # those of a stratum in the order given
    starts = np.cumsum(sizes) - sizes
    rows = zip(starts, sizes, allocation, strict=True)
    drawn = [start + rng.choice(size, size=num, replace=False) for start, size, num in rows]
    place, is_later = np.concatenate(drawn), np.ones(allocation.sum(), dtype=bool)
    is_later[np.cumsum(allocation) - allocation] = False
    place = ordered[place[np.lexsort((rng.random(len(place)), is_later))]]
    return Draw(examples[place], Stratified(stratum[place], sizes), {})
