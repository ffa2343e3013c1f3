"""Auxiliary variables: how likely each example is to be mispredicted, before anyone labels it; and strata along them.

DeepEST and the unequal-probability designs start from one. A variable has *raw values*, in the units in which users
know it and give thresholds, and a *score* of failure, at least 0 and larger for the examples more likely to fail:

    auxiliary     raw value v       score P              active
    confidence    c                 1 - c                c < 0.7
    dsa           DSA               DSA / max DSA        DSA > mean + 2 · standard deviation
    lsa           LSA               LSA - min(LSA, 0)    LSA > mean + variance
    combined      c · (1 - d)       1 - c · (1 - d)      c · (1 - d) < 0.7          with d = DSA / max DSA

**Strata** are formed by k-means in one dimension. Clusters of numbers are intervals, so dynamic programming finds the
best ones without a random start (W. D. Fisher, "On grouping for maximum homogeneity", JASA 53, 1958). The values are
first counted in narrow cells, so the cost does not depend on the size of the pool; clusters end where cells end.

Legend: N pool, c confidence, DSA and LSA distance- and likelihood-based surprise, B cells, K clusters, H strata, n
labels.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.simple_random import Stratified
from opacc_ray.errors import SpecError
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import Draw, MethodParameters, parameter

NEEDS = {"confidence": ("confidence",), "dsa": ("dsa",), "lsa": ("lsa",), "combined": ("confidence", "dsa")}
"""The features that each auxiliary variable is made of."""

LOW_CONFIDENCE = 0.7
"""Below it, confidence (alone or combined with DSA) is active."""

_LEAST_FLOOR = 1e-100
"""Weights beyond its inverse have no squares."""


@dataclass(frozen=True)
class Scored(MethodParameters):
    """The auxiliary variable, which the parameters of every method along one begin with."""

    auxiliary: str = parameter("confidence", "what predicts failures: confidence, dsa, lsa or combined")

    def __post_init__(self) -> None:
        if self.auxiliary not in NEEDS:
            raise SpecError(f"auxiliary={self.auxiliary!r}: choose one of {', '.join(NEEDS)}")


def needs(parameters: Scored) -> tuple[str, ...]:
    """Return the features that the auxiliary variable is made of."""
    return NEEDS[parameters.auxiliary]


def check_floor(floor: float) -> None:
    """Raise SpecError unless every example can be drawn."""
    if not _LEAST_FLOOR <= floor <= 1:
        raise SpecError(
            f"floor={floor}: give a number above 0, because examples that cannot be drawn would bias the estimate, "
            "and at most 1, the mean score"
        )


class Variable(NamedTuple):
    """An auxiliary variable of a whole pool."""

    name: str
    values: NDArray[np.float64]  # (N,) raw

    def score(self) -> NDArray[np.float64]:
        """Return P >= 0 of every example, (N,), in the memory of the raw values, which are gone."""
        if self.name == "dsa":
            return _share_of_largest(self.values)
        if self.name == "lsa":
            return np.subtract(self.values, min(float(self.values.min()), 0.0), out=self.values)
        return np.subtract(1, self.values, out=self.values)

    def active(self, threshold: float | None = None) -> NDArray[np.bool_]:
        """Return which raw values pass the threshold, by default that of the table above: (N,)."""
        if self.name not in ("dsa", "lsa"):
            return self.values < (LOW_CONFIDENCE if threshold is None else threshold)
        if threshold is None:
            spread = 2 * self.values.std() if self.name == "dsa" else self.values.var()
            threshold = float(self.values.mean() + spread)
        return self.values > threshold


def read(view: View, name: str) -> Variable:
    """Return the auxiliary variable ``name`` of a pool; raises DataError as :meth:`View.column_in_range`."""
    values = view.column_in_range(NEEDS[name][0])
    if name == "combined":
        values *= 1 - _share_of_largest(view.column_in_range("dsa"))
    return Variable(name, values)


def _share_of_largest(surprise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return surprise in [0, 1], in the same memory; a pool without surprise stays at 0."""
    largest = surprise.max()
    return np.divide(surprise, largest, out=surprise) if largest > 0 else surprise


# -- strata -----------------------------------------------------------------------------------------------------


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
