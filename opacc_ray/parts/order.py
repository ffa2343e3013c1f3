"""All examples of a pool in one order, laid end to end on a line, wherever they live.

Each part keeps its own examples in order (:class:`Ordered`), by a number and, where that is equal, as the pool lists
them. Each takes a length of the line, a whole number, so that lengths add up exactly. :class:`Line` finds the examples
at given places: pivots cut the line in buckets, all parts say what lies below each pivot, and only the buckets in which
a place lies come to the driver, `GROUP` examples at a time. So it holds little, whatever the size of the pool, and what
it finds does not depend on how the pool is cut.

Legend: N pool, n examples of a part, t places.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.parts.cache import part_keep, part_recall
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool

GROUP = 1 << 16
"""Examples that come to the driver at a time; of a line with fewer, all come at once."""

PIVOTS = 1 << 16
"""Examples of a longer line by which it is cut."""

_SLICE = 1 << 13  # pivots that all parts are asked about at a time

Array = NDArray[np.int64]


class Ordered(NamedTuple):
    """A part's examples in order."""

    key: NDArray[np.float64]  # (n,) rising
    row: NDArray[np.uint32]  # (n,) rising where the key is equal
    end: Array  # (n,) where each ends if the part is alone on the line

    def length_before(self, place: Array) -> Array:
        """How long the first ``place`` (p,) examples are together."""
        before: Array = np.where(place > 0, self.end[np.maximum(place, 1) - 1] if len(self.end) else 0, 0)
        return before

    def place(self, key: NDArray[np.float64], row: Array) -> Array:
        """How many examples are before each pair (p,) of a key and a row."""
        low, high = np.searchsorted(self.key, key, side="left"), np.searchsorted(self.key, key, side="right")
        while (open_ := low < high).any():
            middle = (low + high) // 2
            less = open_ & (self.row[np.minimum(middle, len(self.row) - 1)] < row)
            low, high = np.where(less, middle + 1, low), np.where(open_ & ~less, middle, high)
        return low


@dataclass(frozen=True)
class Found:
    """The examples at some places, (t,) each."""

    index: Array
    number: Array  # how many others lie before
    begin: Array
    end: Array

    def take(self, at: Array) -> "Found":
        return Found(self.index[at], self.number[at], self.begin[at], self.end[at])


def part_lay(
    part: Pool, name: str, key: str, along: NDArray[np.float64], row: NDArray[np.integer], length: Array
) -> None:
    """Keep the examples ``row`` (n,) of a part, rising, in the order of the numbers ``along`` (n,)."""
    order, ordered = rising(along)
    part_keep(part, name, key, Ordered(ordered, row.astype(np.uint32, copy=False)[order], np.cumsum(length[order])))


def rising(values: NDArray[np.float64]) -> tuple[Array, NDArray[np.float64]]:
    """Places (n,) of finite ``values`` (n,) in their order, those of equal ones rising, and the values in that order.

    An unstable sort with the places of equal values sorted afterwards takes a third of the time of NumPy's stable one.
    """
    order = np.argsort(values)
    ordered = values[order]
    first = ordered[1:] != ordered[:-1]  # of its run of equal values
    if first.all():
        return order, ordered
    run = len(values) * np.concatenate([[0], np.cumsum(first)])
    return np.sort(run + order) - run, ordered


class Line:
    """The line of what the parts have laid under a name and a key.

    Attributes
    ----------
    total : its length
    """

    def __init__(self, view: View, name: str, key: str) -> None:
        self._view, self._label = view, (name, key)
        extent = view.map(part_extent, name, key)
        self._num, self.total = (sum(own) for own in zip(*extent, strict=True))
        self._edge_key, self._edge_index = np.array([-np.inf, np.inf]), np.array([0, view.size])
        self._num_below, self._length_below = np.array([0, self._num]), np.array([0, self.total])
        if self._num > GROUP:
            self._cut()
        self._all = self._members(np.array([0])) if self._num <= GROUP else None

    def find(self, places: Array) -> Found:
        """The example that each of ``places`` (t,), from 0 to below the total, lies in."""
        return self._find(places, self._length_below, lambda near: near.end)

    def find_numbers(self, numbers: Array) -> Found:
        """The examples before which ``numbers`` (t,) others lie, from 0 to below how many there are."""
        return self._find(numbers, self._num_below, lambda near: near.number + 1)

    def _find(self, places: Array, below: Array, ends: Callable[[Found], Array]) -> Found:
        """Examples by what the line measures: ``below`` each bucket, and at their ``ends``."""
        if self._all is not None:
            return self._all.take(np.searchsorted(ends(self._all), places, side="right"))
        bucket = np.searchsorted(below, places, side="right") - 1
        found = Found(*(np.empty(len(places), dtype=np.int64) for _ in range(4)))
        for buckets in self._groups(np.unique(bucket)):
            mine = np.flatnonzero((bucket >= buckets[0]) & (bucket <= buckets[-1]))
            near = self._members(buckets)
            own = near.take(np.searchsorted(ends(near), places[mine], side="right"))
            found.index[mine], found.number[mine] = own.index, own.number
            found.begin[mine], found.end[mine] = own.begin, own.end
        return found

    def _cut(self) -> None:
        """Cut the line in buckets, by pairs of a key and an index."""
        step = -(-self._num // PIVOTS)
        pivots = self._view.map_each(
            part_pivots, [(*self._label, int(start), step) for start in self._view.starts[:-1]]
        )
        key, index = (np.concatenate(own) for own in zip(*pivots, strict=True))
        order, key = rising(key)  # parts, and examples in a part, are as listed: of equal keys the index rises
        index = index[order]
        below = [self._below(key[at : at + _SLICE], index[at : at + _SLICE]) for at in range(0, len(key), _SLICE)]
        num, length = np.concatenate(below, axis=1)
        self._edge_key = np.concatenate([[-np.inf], key, [np.inf]])
        self._edge_index = np.concatenate([[0], index, [self._view.size]])
        self._num_below = np.concatenate([[0], num, [self._num]])
        self._length_below = np.concatenate([[0], length, [self.total]])

    def _below(self, key: NDArray[np.float64], index: Array) -> Array:
        """Number and length (2, p) of the examples before pivots."""
        starts = self._view.starts[:-1]
        found: Array = self._view.total_each(part_below, [(*self._label, int(start), key, index) for start in starts])
        return found

    def _groups(self, buckets: Array) -> Iterator[Array]:
        """Consecutive ``buckets`` that hold about `GROUP` examples together."""
        held = np.cumsum(self._num_below[buckets + 1] - self._num_below[buckets])
        number = (held - 1) // GROUP
        if not len(buckets):
            return
        yield from np.split(buckets, np.flatnonzero(np.diff(number)) + 1)

    def _members(self, buckets: Array) -> Found:
        """All examples of some buckets, in order."""
        edges = [self._edge_key[buckets], self._edge_index[buckets]]
        edges += [self._edge_key[buckets + 1], self._edge_index[buckets + 1]]
        arguments = [(*self._label, int(start), *edges) for start in self._view.starts[:-1]]
        found = self._view.map_each(part_members, arguments)
        key, index, length = map(np.concatenate, zip(*found, strict=True))
        if len(found) > 1:
            order, _ = rising(key)
            index, length = index[order], length[order]
        end = np.cumsum(length)
        num = self._num_below[buckets + 1] - self._num_below[buckets]
        last = np.cumsum(num)
        missing = self._length_below[buckets] - np.concatenate([[0], end])[last - num]  # what lies in other buckets
        end += np.repeat(missing, num)
        number = np.repeat(self._num_below[buckets] - last + num, num) + np.arange(len(index))
        return Found(index, number, end - length, end)


def part_extent(part: Pool, name: str, key: str) -> tuple[int, int]:
    own: Ordered = part_recall(part, name, key)
    return len(own.end), int(own.end[-1]) if len(own.end) else 0


def part_pivots(part: Pool, name: str, key: str, start: int, step: int) -> tuple[NDArray[np.float64], Array]:
    own: Ordered = part_recall(part, name, key)
    return own.key[step // 2 :: step], start + own.row[step // 2 :: step].astype(np.int64)


def part_below(
    part: Pool, name: str, key: str, start: int, pivot_key: NDArray[np.float64], pivot_index: Array
) -> Array:
    own: Ordered = part_recall(part, name, key)
    place = own.place(pivot_key, pivot_index - start)
    return np.stack([place, own.length_before(place)])


def part_members(
    part: Pool,
    name: str,
    key: str,
    start: int,
    low_key: NDArray[np.float64],
    low_index: Array,
    high_key: NDArray[np.float64],
    high_index: Array,
) -> tuple[NDArray[np.float64], Array, Array]:
    """Key, index and length of the part's examples between pairs of edges."""
    own: Ordered = part_recall(part, name, key)
    first, last = own.place(low_key, low_index - start), own.place(high_key, high_index - start)
    num = last - first
    at = np.repeat(first - np.cumsum(num) + num, num) + np.arange(num.sum())
    return own.key[at], start + own.row[at].astype(np.int64), own.end[at] - own.length_before(at)
