"""Strata of a pool by how strongly one believes in failure, which stay with its parts.

The driver knows how many examples of each part lie in each stratum. The strata are those of
:func:`opacc_ray.designs.kmeans.kmeans_1d`, to the last bit of its sums, however the pool is cut.

Legend: N pool, H strata.
"""

import secrets
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.kmeans import CELLS, Cells, best_clusters, tally
from opacc_ray.parts.cache import kept_name, key_of, part_keep, part_recall
from opacc_ray.parts.sums import sum_as_one
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.auxiliary import Variable

Array = NDArray[np.int64]

_KEPT = "strata"


class Some(NamedTuple):
    """The beliefs of a part's examples, without the rows ``taken``."""

    variable: Variable
    taken: Array

    def read(self, part: Pool) -> NDArray[np.float64]:
        """(n,) in the order of the pool."""
        beliefs = self.variable.belief(self.variable.read(part))
        return np.delete(beliefs, self.taken) if len(self.taken) else beliefs


class Strata(NamedTuple):
    """Strata of a pool; its parts keep the stratum of each example."""

    view: View
    key: str
    taken: list[Array]  # rows of each part that are in none
    counts: Array  # (parts, H) examples
    number: Array  # (H,) what the parts call each

    @property
    def sizes(self) -> Array:
        """Examples of each stratum, (H,)."""
        found: Array = self.counts.sum(axis=0)
        return found

    def of(self, index: Array) -> Array:
        """The strata of examples ``index`` (k,)."""
        if not len(index):
            return np.empty(0, dtype=np.int64)
        return self.view.take(part_strata, index, self.key).astype(np.int64)

    def only(self, chosen: Array) -> "Strata":
        """Some of the strata, (h,)."""
        return self._replace(counts=self.counts[:, chosen], number=self.number[chosen])

    def without(self, index: Array) -> "Strata":
        """The same strata, all of whose examples are there, without ``index`` (k,), sorted."""
        counts = self.counts.copy()
        home = np.searchsorted(self.view.starts, index, side="right") - 1
        np.subtract.at(counts, (home, self.of(index)), 1)
        return self._replace(taken=self.view.rows_of(index), counts=counts)

    def find(self, stratum: Array, rank: Array) -> Array:
        """The examples with some ranks (k,) in their strata (k,), as the pool lists them."""
        found = np.empty(len(rank), dtype=np.int64)
        calls, homes = [], []
        before = np.vstack([np.zeros_like(self.counts[:1]), np.cumsum(self.counts, axis=0)])  # (parts + 1, H)
        home = np.array([np.searchsorted(before[1:, h], r, side="right") for h, r in zip(stratum, rank, strict=True)])
        for part in np.unique(home).tolist():
            mine = np.flatnonzero(home == part)
            own = rank[mine] - before[part, stratum[mine]]
            calls.append((part, part_ranked, (self.key, self.taken[part], self.number[stratum[mine]], own)))
            homes.append((part, mine))
        for (part, mine), rows in zip(homes, self.view.parts.call(calls), strict=True):
            found[mine] = self.view.starts[part] + rows
        return found

    def deviations(self, variable: Variable) -> NDArray[np.float64]:
        """Standard deviations of the beliefs in each stratum, (H,): those of NumPy, and 0 where all are equal."""
        places = range(len(self.number))
        return self.view.once(
            "deviations",
            (self.key, *self.sizes.tolist()),
            lambda: np.array([self._deviation(variable, h) for h in places]),
        )

    def _deviation(self, variable: Variable, h: int) -> float:
        arguments = [(self.key, Some(variable, taken), self.number[h]) for taken in self.taken]
        ends = [own for own in self.view.map_each(part_ends, arguments) if own is not None]
        if min(low for low, _ in ends) == max(high for _, high in ends):
            return 0.0
        counts = self.counts[:, h]
        mean = sum_as_one(self.view, part_members, arguments, counts) / counts.sum()
        squares = sum_as_one(self.view, part_squares, [(*own, mean) for own in arguments], counts)
        return float(np.sqrt(squares / counts.sum()))


def cut_strata(view: View, name: str, num: int, taken: Array) -> Strata:
    """``num`` strata at most by k-means of beliefs in the auxiliary variable ``name``, found once per view.

    ``taken`` (k,), sorted, are in none. Raises as :func:`opacc_ray.samplers.auxiliary.find`.
    """
    digest = key_of(taken)
    return view.once("strata", (name, num, digest), lambda: _cut(view, name, num, taken, digest))


def _cut(view: View, name: str, num: int, taken: Array, digest: str) -> Strata:
    variable, rows = auxiliary.find(view, name), view.rows_of(taken)
    some = [(Some(variable, own),) for own in rows]
    ends = [own for own in view.map_each(part_bounds, some) if own is not None]
    cells = Cells(min(low for low, _ in ends), max(high for _, high in ends))
    free = np.array(view.parts.sizes) - list(map(len, rows))
    mean = sum_as_one(view, part_beliefs, some, free) / free.sum()
    tallied = np.zeros((2, CELLS))
    for part, own in enumerate(some):  # one after the other: each adds to what those before it have
        [tallied] = view.parts.call([(part, part_tally, (*own, cells, mean, tallied))])
    count = view.total_each(part_count, [(*own, cells) for own in some])
    cluster, key = best_clusters(count, tallied[0], tallied[1], num), f"{name} {num} {digest} {secrets.token_hex(8)}"
    counts = view.map_each(part_cut, [(*own, cells, cluster, key) for own in some])
    return Strata(view, key, rows, np.array(counts), np.arange(len(counts[0])))


def part_bounds(part: Pool, some: Some) -> tuple[float, float] | None:
    beliefs = some.read(part)
    return (float(beliefs.min()), float(beliefs.max())) if len(beliefs) else None


def part_beliefs(part: Pool, some: Some) -> NDArray[np.float64]:
    return some.read(part)


def part_tally(part: Pool, some: Some, cells: Cells, mean: float, before: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums and sums of squares by cell, (2, cells), of the parts up to this one."""
    beliefs = some.read(part)
    cell, centred = cells.of(beliefs), beliefs - mean
    return np.stack([tally(cell, centred, before[0]), tally(cell, centred**2, before[1])])


def part_count(part: Pool, some: Some, cells: Cells) -> Array:
    return np.bincount(cells.of(some.read(part)), minlength=CELLS)


def part_cut(part: Pool, some: Some, cells: Cells, cluster: Array, key: str) -> Array:
    """Keep the stratum of each example, and return how many lie in each (H,)."""
    num = int(cluster.max()) + 1
    stratum = cluster[cells.of(some.read(part))]
    whole = np.full(part.size, num, dtype=np.min_scalar_type(num))
    whole[np.delete(np.arange(part.size), some.taken)] = stratum
    part_keep(part, kept_name(_KEPT, key), key, whole)
    return np.bincount(stratum, minlength=num)


def part_strata(part: Pool, rows: Array, key: str) -> NDArray[np.integer]:
    return part_strata_of(part, key)[rows]


def part_ranked(part: Pool, key: str, taken: Array, stratum: Array, rank: Array) -> Array:
    """The rows with some ranks (k,) in their strata (k,), without ``taken`` ones."""
    kept, rows = part_strata_of(part, key), np.empty(len(rank), dtype=np.int64)
    there = np.ones(len(kept), dtype=bool)
    there[taken] = False
    for h in np.unique(stratum):
        mine = stratum == h
        rows[mine] = np.flatnonzero((kept == h) & there)[rank[mine]]
    return rows


def part_members(part: Pool, key: str, some: Some, h: int) -> NDArray[np.float64]:
    """Beliefs of the examples of a stratum."""
    return some.read(part)[np.delete(part_strata_of(part, key), some.taken) == h]


def part_ends(part: Pool, key: str, some: Some, h: int) -> tuple[float, float] | None:
    members = part_members(part, key, some, h)
    return (float(members.min()), float(members.max())) if len(members) else None


def part_squares(part: Pool, key: str, some: Some, h: int, mean: float) -> NDArray[np.float64]:
    apart = part_members(part, key, some, h) - mean
    return apart * apart


def part_strata_of(part: Pool, key: str) -> NDArray[np.integer]:
    """The stratum of each example of a part, (n,)."""
    found: NDArray[np.integer] = part_recall(part, kept_name(_KEPT, key), key)
    return found
