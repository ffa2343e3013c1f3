"""Loops over rows: compiled with Numba, spread over the cores of this process, or in blocks that fit in a cache.

Besides, sorts of keys with their places, examples end to end on a line, and iterators that are one item ahead.

A kernel is compiled when its module is first imported, for one signature, so that no later call waits; it releases the
GIL. The machine code is cached next to the module, or in NUMBA_CACHE_DIR, for later processes.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import Segments

Keys = NDArray[np.int64]
Kernel = TypeVar("Kernel", bound=Callable[..., Any])
Result = TypeVar("Result")
Item = TypeVar("Item")

_SILENT_SECONDS = 1.0
"""Total time of compiling after which a person at a terminal or notebook is told."""

_VALUES_PER_THREAD = 1 << 20
"""Below this many values a thread costs more than it saves."""

_AT_ONCE, _BIN_BITS = 1 << 16, 20
"""Rows of a block, and digits of the bins of a line."""

_seconds = 0.0


def compiled(signature: Any) -> Callable[[Kernel], Kernel]:
    """Decorate a kernel: compile it for ``signature``."""
    from numba import njit  # modules of plain loops import this one as well

    def decorate(function: Kernel) -> Kernel:
        start = time.perf_counter()
        try:
            return njit(signature, nogil=True, cache=True)(function)
        except RuntimeError:  # no folder to keep the code in, as in a read-only container without a home
            return njit(signature, nogil=True)(function)
        finally:
            _report(time.perf_counter() - start)

    return decorate


def _report(seconds: float) -> None:
    """Print one line as soon as compiling takes long, if a person is there to read it."""
    global _seconds
    before, _seconds = _seconds, _seconds + seconds
    if before < _SILENT_SECONDS <= _seconds and (sys.stderr.isatty() or "IPython" in sys.modules):
        print("opacc: compiling for this machine, about ten seconds, once per installation", file=sys.stderr)


def read(dtype: Any, ndim: int) -> Any:
    """Return the type of an argument that is only read: a C-contiguous array, which may be read-only."""
    from numba import types

    return types.Array(dtype, ndim, "C", readonly=True)


def num_threads() -> int:
    """Return OMP_NUM_THREADS where it is set, as Ray does for its actors, else the cores this process may use."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(function: Callable[[int, int], Result], num_rows: int, values_per_row: int) -> list[Result]:
    """Return ``function(start, stop)`` for consecutive ranges that cover ``num_rows`` rows, in their order.

    The ranges depend on the number of threads, so a result must not depend on where it is cut: whole numbers that are
    summed, or rows that are computed one by one. The function runs in parallel where it releases the GIL.
    """
    num = max(1, min(num_threads(), num_rows * values_per_row // _VALUES_PER_THREAD, num_rows))
    if num == 1:
        return [function(0, num_rows)]
    edges = np.linspace(0, num_rows, num + 1).astype(int).tolist()
    with ThreadPoolExecutor(num) as executor:
        return list(executor.map(lambda edge: function(*edge), pairwise(edges)))


def blocks(size: int) -> Iterator[slice]:
    """Yield the rows of ``size`` in blocks that fit in a processor's cache."""
    return (slice(start, min(start + _AT_ONCE, size)) for start in range(0, size, _AT_ONCE))


def sums_by(codes: NDArray[np.integer], num: int, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the sums (num,) of ``weights`` (N,), else the numbers, of each of the ``codes`` (N,), block by block."""
    found = np.zeros(num)
    for rows in blocks(len(codes)):
        found += np.bincount(codes[rows], None if weights is None else weights[rows], num)
    return found


def key_bits(size: int) -> int:
    """Return how many bits each of ``size`` keys may have for :func:`sort_keys`."""
    return 63 - max((size - 1).bit_length(), 1)


def sort_keys(keys: Keys) -> NDArray[np.unsignedinteger]:
    """Sort ``keys`` (N,) >= 0, in place, and return their places (N,) before; equal ones keep their order.

    Each is sorted as one number with its place, which is much faster than a sort of places.
    """
    size, bits = len(keys), 63 - key_bits(len(keys))
    keys <<= bits
    for rows in blocks(size):
        keys[rows] |= np.arange(rows.start, rows.stop)
    keys.sort()
    order = np.empty(size, np.min_scalar_type(size))
    for rows in blocks(size):
        order[rows] = keys[rows] & ((1 << bits) - 1)
    keys >>= bits
    return order


class Line:
    """``size`` >= 8 examples end to end, by keys below 2^(key_bits - 1), or that; of equal ones by index.

    ``keys`` and ``lengths`` return those of some rows. Lengths are added up in bins, and only a bin that is hit is
    sorted.
    """

    def __init__(self, size: int, keys: Callable[[Any], Keys], lengths: Callable[[Any], Keys]) -> None:
        self._size, self._keys, self._lengths = size, keys, lengths
        bins = min(size.bit_length() - 3, _BIN_BITS)
        self._bin, self._sums = np.empty(size, np.int32), np.zeros((1 << bins) + 1, np.int64)
        for rows in blocks(size):
            self._bin[rows] = keys(rows) >> (key_bits(size) - 1 - bins)
            np.add.at(self._sums, self._bin[rows], lengths(rows))
        self._ends = np.cumsum(self._sums)
        self.total = int(self._ends[-1])

    def find(self, at: Keys) -> Segments:
        """Return the examples at some units of the line, (k,)."""
        wanted = np.zeros(len(self._sums), bool)
        wanted[np.searchsorted(self._ends, at, side="right")] = True
        places = np.concatenate([rows.start + np.flatnonzero(wanted[self._bin[rows]]) for rows in blocks(self._size)])
        places = places[sort_keys(self._keys(places))]
        lengths = self._lengths(places)
        ends = np.cumsum(lengths) + np.cumsum(np.where(wanted, 0, self._sums))[self._bin[places]]
        found = np.searchsorted(ends, at, side="right")
        return Segments(places[found], ends[found] - lengths[found], ends[found])


class NextAhead(Generic[Item]):
    """An iterator whose next item is taken on a thread of its own, one ahead of the caller; no item is None.

    Use it in a ``with``, which ends the thread.
    """

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="opacc-ahead")
        self._coming = self._pool.submit(next, items, None)

    @property
    def is_there(self) -> bool:
        """Whether :meth:`take` returns without waiting."""
        return self._coming.done()

    def take(self) -> Item | None:
        """Return the next item, or None after the last; raises what taking the item raised."""
        item = self._coming.result()
        if item is not None:
            self._coming = self._pool.submit(next, self._items, None)
        return item

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
