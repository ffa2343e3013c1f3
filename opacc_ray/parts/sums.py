"""Sums over a pool that do not depend on how it is cut in parts: exact ones.

The sum of floating-point numbers depends on the order in which they are added, and a selection must not depend on the
number of actors. Every float64 is a whole number times a power of two; whole numbers add up exactly. So each part adds
the 53 bits of its values, power by power, to one whole number in units of 2^-1126, and the driver adds these. The mean
is rounded once, at the end: it is the one that ``math.fsum`` would give.

Where a sum must be the one that NumPy gives of all values in one array, :func:`sum_as_one` adds them as NumPy does: in
halves, and halves of these, down to leaves of at most `_LEAF` values; where these lie depends on how many values there
are. Each part adds up what lies in it, and the driver the few that lie across parts.
"""

from collections.abc import Callable, Iterable, Sequence
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


Node = tuple[int, int]
"""The first of consecutive values, and how many they are: all of them, half of those, or half of these."""


class Nodes(NamedTuple):
    """A part's share of a sum."""

    sums: dict[Node, float]  # of the largest nodes that lie in the part
    values: dict[Node, NDArray[np.float64]]  # its own of the leaves that lie in others, too


def sum_as_one(
    view: View,
    values: Callable[..., NDArray[np.float64]],
    arguments: Sequence[tuple[Any, ...]],
    sizes: Sequence[int] | NDArray[np.int64],
) -> float:
    """The sum that NumPy gives of ``values(part, *own)`` of all parts in one array, to the last bit.

    Parameters
    ----------
    values : gives the values of a part, (n,)
    arguments : its other arguments, one tuple for each part
    sizes : how many values each part gives, which may be none
    """
    starts = np.cumsum([0, *sizes]).tolist()
    shares: list[Nodes] = view.map_each(
        part_nodes, [(values, own, at, starts[-1]) for own, at in zip(arguments, starts, strict=False)]
    )
    sums = {node: total for share in shares for node, total in share.sums.items()}

    def add(node: Node) -> float:
        if node in sums:
            return sums[node]
        if node[1] <= _LEAF:
            return float(np.concatenate([share.values[node] for share in shares if node in share.values]).sum())
        first, second = _halves(node)
        return add(first) + add(second)

    return add((0, starts[-1]))


def part_nodes(
    part: Pool, values: Callable[..., NDArray[np.float64]], own: tuple[Any, ...], start: int, total: int
) -> Nodes:
    """The share of a part whose values begin at ``start`` of ``total``."""
    found = np.ascontiguousarray(values(part, *own))
    stop, share = start + len(found), Nodes({}, {})

    def visit(node: Node) -> None:
        low, high = node[0], node[0] + node[1]
        mine = found[max(low - start, 0) : max(high - start, 0)]
        if start <= low and high <= stop:
            share.sums[node] = float(mine.sum())
        elif len(mine) and node[1] <= _LEAF:
            share.values[node] = mine
        elif len(mine):
            for half in _halves(node):
                visit(half)

    visit((0, total))
    return share


def _halves(node: Node) -> tuple[Node, Node]:
    low, num = node
    half = num // 2 // _LANES * _LANES
    return (low, half), (low + half, num - half)
