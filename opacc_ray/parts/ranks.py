"""The rank of every example among all of the pool, kept where the example is.

    keep_ends(view, "dsa", key, column)       part_recall(part, "dsa", key)  ->  (n,) ends

An example's *ends* are how many of the pool have a lower value, plus how many have a lower one or the same: twice its
middle rank. Parts sort their own values. Then the range of values is cut where each piece has about `PIECE` of them;
the parts send the piece, the driver merges it and sends back the ends. So the driver never holds more than a piece.

Legend: N pool, n examples of a part.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.parts.cache import part_keep, part_recall
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool

PIECE = 1 << 17
"""Values that are merged at a time, but for what `SAMPLES` cannot tell."""

Ends = NDArray[np.unsignedinteger]
"""Ends of pieces, of the smallest type that holds twice the size of the pool."""

SAMPLES = 1 << 17
"""Values of all parts by which the range is cut."""


class Column(Protocol):
    """Makes one number per example of a part."""

    def read(self, part: Pool) -> NDArray[np.float64]:
        """(n,) finite numbers."""


class Piece(NamedTuple):
    """A part's values in a range."""

    values: NDArray[np.float64]  # sorted, each once
    counts: NDArray[np.int64] | None  # None: one of each


class _Distinct(NamedTuple):
    """A part's values, each once."""

    values: NDArray[np.float64]  # sorted
    counts: NDArray[np.int64] | None  # None: one of each
    row: NDArray[np.uint32]  # (n,) the examples in the order of their values
    ends: Ends  # of each value, filled piece by piece

    def fill(self, low: float, ends: Ends) -> None:
        """Take the ends of the values from ``low`` on."""
        start = int(np.searchsorted(self.values, low))
        self.ends[start : start + len(ends)] = ends


def keep_ends(view: View, name: str, key: str, column: Column) -> None:
    """Let every part keep the ends (n,), whole numbers of at least 0, of its examples under ``name`` and ``key``."""
    step, kind = max(1, view.size // SAMPLES), np.min_scalar_type(2 * view.size)
    samples = np.sort(np.concatenate(view.map(part_sort, name, key, column, step, kind)))
    edges = np.unique(samples[:: max(1, PIECE // step)][1:]).tolist()
    ends, before, below = [np.empty(0, dtype=kind)] * len(view.parts.sizes), -np.inf, 0
    for low, high in pairwise([-np.inf, *edges, np.inf]):
        pieces = view.map_each(part_piece, [(name, key, before, own, low, high) for own in ends])
        found, below = merge(pieces, below)
        ends, before = [own.astype(kind) for own in found], low
    view.map_each(part_spread, [(name, key, before, own) for own in ends])


def count_ends(view: View, column: Column, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """The ends that values ``x`` (k,) of other examples have among those of the pool."""
    found: NDArray[np.int64] = view.total(part_count_ends, column, x)
    return found


def merge(pieces: Sequence[Piece], below: int) -> tuple[list[NDArray[np.int64]], int]:
    """Ends of each part's values, and the number of the pool's up to the highest; ``below`` are lower than all."""
    values = np.concatenate([piece.values for piece in pieces])
    counts = np.concatenate([np.ones(len(p.values), np.int64) if p.counts is None else p.counts for p in pieces])
    if not len(values):
        return [np.empty(0, dtype=np.int64) for _ in pieces], below
    order: Any = slice(None) if len(pieces) == 1 else np.argsort(values)
    ordered = values[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    num = np.add.reduceat(counts[order], starts)
    upto = below + np.cumsum(num)
    ends = np.empty(len(values), dtype=np.int64)
    ends[order] = np.repeat(2 * upto - num, np.diff(starts, append=len(values)))
    cuts = np.cumsum([len(piece.values) for piece in pieces])[:-1]
    return np.split(ends, cuts), int(upto[-1])


def part_sort(part: Pool, name: str, key: str, column: Column, step: int, kind: np.dtype[Any]) -> NDArray[np.float64]:
    """Keep the part's values, each once, with room for ends of some ``kind``, and return one value in ``step``."""
    values = column.read(part)
    row, counts = np.argsort(values), None
    values = values[row]
    start = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    if len(start) < len(values):
        values, counts = values[start], np.diff(start, append=len(values))
    ends = np.empty(len(values), dtype=kind)
    part_keep(part, name, key, _Distinct(values, counts, row.astype(np.uint32), ends))
    return values[step // 2 :: step]


def part_piece(part: Pool, name: str, key: str, before: float, ends: Ends, low: float, high: float) -> Piece:
    """Take the ends of the piece that begins at ``before``, and return the one from ``low`` to below ``high``."""
    own: _Distinct = part_recall(part, name, key)
    own.fill(before, ends)
    start, stop = np.searchsorted(own.values, [low, high])
    counts = None if own.counts is None else own.counts[start:stop]
    return Piece(own.values[start:stop], None if counts is None or (counts == 1).all() else counts)


def part_spread(part: Pool, name: str, key: str, before: float, ends: Ends) -> None:
    """Take the last ends, and keep those of each example in place of the values."""
    own: _Distinct = part_recall(part, name, key)
    own.fill(before, ends)
    spread = np.empty(len(own.row), dtype=own.ends.dtype)
    spread[own.row] = own.ends if own.counts is None else np.repeat(own.ends, own.counts)
    part_keep(part, name, key, spread)


def part_count_ends(part: Pool, column: Column, x: NDArray[np.float64]) -> NDArray[np.int64]:
    ordered = np.sort(column.read(part))
    return np.searchsorted(ordered, x, side="left") + np.searchsorted(ordered, x, side="right")
