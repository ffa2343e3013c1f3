"""Sums over a pool that do not depend on how it is cut in parts: exact ones.

The sum of floating-point numbers depends on the order in which they are added, and a selection must not depend on the
number of actors. Every float64 is a whole number times a power of two; whole numbers add up exactly. So each part adds
the 53 bits of its values, power by power, to one whole number in units of 2^-1126, and the driver adds these. The mean
is rounded once, at the end: it is the one that ``math.fsum`` would give.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_BITS = 53  # of a float64
_LOW_BITS = 27
_LEAST_EXPONENT = -1073  # of np.frexp
_UNIT = 1 << (_BITS - _LEAST_EXPONENT)  # units in 1
_BLOCK = 1 << 15


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
