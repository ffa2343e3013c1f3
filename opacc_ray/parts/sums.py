"""Sums over a pool that do not depend on how it is cut in parts: exact ones.

The sum of floating-point numbers depends on the order in which they are added, and a selection must not depend on the
number of actors. Every float64 is a whole number times a power of two; whole numbers add up exactly. So each part adds
the 53 bits of its values, power by power, to one whole number in units of 2^-1126, and the driver adds these. The mean
is rounded once, at the end: it is the one that ``math.fsum`` would give.

Where a sum must be the one that NumPy gives of all values in one array, :func:`sum_as_one` adds them as NumPy does: in
halves, down to leaves of at most `_LEAF` values, whose places depend on the number of values alone. Each part adds up
its own leaves, and the driver the ones that lie across parts, and all leaves.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.parts.view import View
from opacc_ray.pool import Pool

_BITS = 53  # of a float64
_LOW_BITS = 27
_LEAST_EXPONENT = -1073  # of np.frexp
_UNIT = 1 << (_BITS - _LEAST_EXPONENT)  # units in 1
_BLOCK = 1 << 15
_LEAF = 128  # of NumPy's pairwise sums, and the numbers of values that they add at a time
_LANES = 8


def exact_sum(values: NDArray[np.float64]) -> int:
    """The sum of finite ``values`` (n,) as a whole number of units of 2^-1126."""
    return sum(_of_block(values[start : start + _BLOCK]) for start in range(0, len(values), _BLOCK))


def as_float(total: int) -> float:
    """What exact sums add up to, rounded once."""
    return total / _UNIT


def mean_of(totals: Iterable[int], num: int) -> float:
    """The mean of ``num`` values from the exact sums of all parts, rounded once."""
    return sum(totals) / (_UNIT * num)


def _of_block(values: NDArray[np.float64]) -> int:
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, _BITS).astype(np.int64)
    exponent -= _LEAST_EXPONENT  # from 0
    least = int(exponent.min())
    exponent -= least
    high = np.bincount(exponent, weights=whole >> _LOW_BITS)  # sums of whole numbers below 2^26, exact
    low = np.bincount(exponent, weights=whole & ((1 << _LOW_BITS) - 1))
    used = np.flatnonzero((high != 0) | (low != 0)).tolist()
    return sum(((int(high[e]) << _LOW_BITS) + int(low[e])) << (e + least) for e in used)


class Leaves(NamedTuple):
    """A part's share of a sum: what its whole leaves sum to, and the values before and after these."""

    head: NDArray[np.float64]
    first: int  # number of the first whole leaf
    sums: NDArray[np.float64]
    tail: NDArray[np.float64]


def sum_as_one(view: View, values: Callable[..., NDArray[np.float64]], arguments: Sequence[tuple[Any, ...]]) -> float:
    """The sum that NumPy gives of ``values(part, *own)`` of all parts in one array, to the last bit.

    Parameters
    ----------
    values : gives the values of a part, (n,), n of any size
    arguments : its other arguments, one tuple for each part
    """
    num = view.map_each(part_number, [(values, own) for own in arguments])
    total = sum(num)
    starts = np.cumsum([0, *num])[:-1].tolist()
    shares = view.map_each(part_leaves, [(values, own, at, total) for own, at in zip(arguments, starts, strict=True)])
    edges = leaf_edges(total)
    sums = np.empty(len(edges) - 1)
    waiting: list[NDArray[np.float64]] = []
    done = 0
    for share in [*shares, Leaves(np.empty(0), len(sums), np.empty(0), np.empty(0))]:
        waiting.append(share.head)
        if share.first >= 0:
            own = np.concatenate(waiting)
            for leaf in range(done, share.first):
                sums[leaf] = own[edges[leaf] - edges[done] : edges[leaf + 1] - edges[done]].sum()
            done = share.first + len(share.sums)
            sums[share.first : done] = share.sums
            waiting = [share.tail]
    return _halves(total, iter(sums.tolist()))


def leaf_edges(num: int) -> NDArray[np.int64]:
    """Where the leaves of ``num`` values begin, and the last one ends."""
    sizes = np.array([num])
    while (large := sizes > _LEAF).any():
        place = np.arange(len(sizes)) + np.cumsum(large) - large
        half = sizes // 2 // _LANES * _LANES
        split = np.empty(len(sizes) + int(large.sum()), dtype=np.int64)
        split[place] = np.where(large, half, sizes)
        split[place[large] + 1] = (sizes - half)[large]
        sizes = split
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _halves(num: int, leaves: Iterator[float]) -> float:
    """The sum of ``num`` values from what their leaves sum to."""
    if num <= _LEAF:
        return next(leaves)
    half = num // 2 // _LANES * _LANES
    return _halves(half, leaves) + _halves(num - half, leaves)


def part_number(part: Pool, values: Callable[..., NDArray[np.float64]], own: tuple[Any, ...]) -> int:
    return len(values(part, *own))


def part_leaves(
    part: Pool, values: Callable[..., NDArray[np.float64]], own: tuple[Any, ...], start: int, total: int
) -> Leaves:
    """The share of a part whose values begin at ``start`` of ``total``; its first leaf is -1 if it has no whole one."""
    found, edges = values(part, *own), leaf_edges(total)
    first = int(np.searchsorted(edges, start))
    last = int(np.searchsorted(edges, start + len(found), side="right")) - 1
    if first >= last:
        return Leaves(found, -1, found[:0], found[:0])
    begin, size = edges[first:last] - start, np.diff(edges[first : last + 1])
    sums = np.empty(last - first)
    for own_size in np.unique(size):
        mine = size == own_size
        sums[mine] = found[begin[mine][:, None] + np.arange(own_size)].sum(axis=1)
    return Leaves(found[: begin[0]], first, sums, found[edges[last] - start :])
