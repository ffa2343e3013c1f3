"""The rank of every example among all of the pool, kept where the example is.

    keep_ends(view, "dsa", key, column)       part_recall(part, "dsa", key)  ->  (n,) ends

An example's *ends* are how many of the pool have a lower value, plus how many have a lower one or the same: twice its
middle rank. Parts sort their own values. Then the range of values is cut where each piece has about `PIECE` of them;
the parts send the piece, the driver merges it and sends back the ends. So the driver never holds more than a piece.

Legend: N pool, n examples of a part.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.parts.cache import part_keep, part_recall
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool

PIECE = 1 << 16
"""Values that are merged at a time, but for what `SAMPLES` cannot tell."""

SAMPLES = 1 << 17
"""Values of all parts by which the range is cut."""


class Column(Protocol):
    """Makes one number per example of a part."""

    def read(self, part: Pool) -> NDArray[np.float64]:
        """(n,) finite numbers."""


class _Distinct(NamedTuple):
    """A part's values, each once."""

    values: NDArray[np.float64]  # sorted
    counts: NDArray[np.int64]
    place: NDArray[np.int64]  # (n,) of each example
    ends: NDArray[np.int64]  # of each value, filled piece by piece


class Piece(NamedTuple):
    """A part's values in a range."""

    values: NDArray[np.float64]  # sorted, each once
    counts: NDArray[np.int64] | None  # None: one of each


def keep_ends(view: View, name: str, key: str, column: Column) -> None:
    """Let every part keep the ends (n,) int64 of its examples under ``name`` and ``key``."""
    step = max(1, view.size // SAMPLES)
    samples = np.sort(np.concatenate(view.map(part_sort, name, key, column, step)))
    edges = np.unique(samples[:: max(1, PIECE // step)][1:]).tolist()
    below = 0
    for low, high in pairwise([-np.inf, *edges, np.inf]):
        pieces = view.map(part_piece, name, key, low, high)
        ends, below = merge(pieces, below)
        view.map_each(part_fill, [(name, key, low, own) for own in ends])
    view.map(part_spread, name, key)


def count_ends(view: View, column: Column, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """The ends that values ``x`` (k,) of other examples have among those of the pool."""
    found: NDArray[np.int64] = np.sum(view.map(part_count_ends, column, x), axis=0)
    return found


def merge(pieces: Sequence[Piece], below: int) -> tuple[list[NDArray[np.int64]], int]:
    """Ends of each part's values, and the number of the pool's up to the highest; ``below`` are lower than all."""
    values = np.concatenate([piece.values for piece in pieces])
    counts = np.concatenate([np.ones(len(p.values), np.int64) if p.counts is None else p.counts for p in pieces])
    if not len(values):
        return [np.empty(0, dtype=np.int64) for _ in pieces], below
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    num = np.add.reduceat(counts[order], starts)
    upto = below + np.cumsum(num)
    ends = np.empty(len(values), dtype=np.int64)
    ends[order] = np.repeat(2 * upto - num, np.diff(starts, append=len(values)))
    cuts = np.cumsum([len(piece.values) for piece in pieces])[:-1]
    return np.split(ends, cuts), int(upto[-1])


def part_sort(part: Pool, name: str, key: str, column: Column, step: int) -> NDArray[np.float64]:
    """Keep the part's values, each once, and return one in ``step`` of them."""
    values, place, counts = np.unique(column.read(part), return_inverse=True, return_counts=True)
    part_keep(part, name, key, _Distinct(values, counts, place, np.empty(len(values), dtype=np.int64)))
    return values[step // 2 :: step]


def part_piece(part: Pool, name: str, key: str, low: float, high: float) -> Piece:
    own: _Distinct = part_recall(part, name, key)
    start, stop = np.searchsorted(own.values, [low, high])
    counts = own.counts[start:stop]
    return Piece(own.values[start:stop], None if (counts == 1).all() else counts)


def part_fill(part: Pool, name: str, key: str, low: float, ends: NDArray[np.int64]) -> None:
    own: _Distinct = part_recall(part, name, key)
    start = int(np.searchsorted(own.values, low))
    own.ends[start : start + len(ends)] = ends


def part_spread(part: Pool, name: str, key: str) -> None:
    """Keep the ends of each example in place of the values."""
    own: _Distinct = part_recall(part, name, key)
    part_keep(part, name, key, own.ends[own.place])


def part_count_ends(part: Pool, column: Column, x: NDArray[np.float64]) -> NDArray[np.int64]:
    ordered = np.sort(column.read(part))
    return np.searchsorted(ordered, x, side="left") + np.searchsorted(ordered, x, side="right")
