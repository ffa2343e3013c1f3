"""Exact nearest neighbours, fast: narrowed in float32 on NumPy or a GPU, decided in float64.

Legend: M traces (the points), m neurons (their dimensions), k queries, b queries of a block.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.extract.machine import in_halves

_QUERIES, _TRACES = 256, 4096  # shape of the largest matrix of distances in memory


class Arrays(NamedTuple):
    """The library that searches neighbours: NumPy, or one with the same functions and true float32, on a GPU."""

    library: Any
    put: Callable[[NDArray[Any]], Any]  # to the library's arrays
    get: Callable[[Any], NDArray[Any]]  # and back
    memory_errors: Callable[[], AbstractContextManager[None]] = nullcontext  # raises MemoryError when memory runs out


HOST = Arrays(np, np.asarray, np.asarray)


class Neighbours:
    """Search for the nearest trace: products in float32 narrow it, distances in float64 decide.

    |q - t|² - |q|² = |t|² - 2 q·t is one product of m + 1 terms, [-2q, 1]·[t, |t|²]. In float32 it is wrong by at most
    c·(|q|² + |t|²), c = (m + 16)·2⁻²³, in whatever order the terms are added. So the nearest trace is among those whose
    lower bound is under the least upper bound; they are few, and only these are measured in float64. Queries and
    traces are taken relative to the traces' mean, which makes the bounds tight.
    """

    def __init__(self, traces: NDArray[np.float32], arrays: Arrays) -> None:
        m = traces.shape[1]
        self._traces = traces
        self._arrays = arrays
        self._centre = traces.mean(axis=0, dtype=np.float64)
        self._rounding = (m + 16) * 2.0**-23  # c
        points = np.empty((len(traces), m + 1), dtype=np.float32)
        np.subtract(traces, self._centre, out=points[:, :m])
        square = squares(points[:, :m])
        points[:, m] = square * (1 - self._rounding)
        with arrays.memory_errors():
            self._points = arrays.put(points)  # (M, m + 1): the product with [-2q, 1] is the lower bound, but for |q|
            self._slack = arrays.put((2 * self._rounding * square).astype(np.float32))  # (M,) from lower to upper bound

    def nearest(
        self, queries: NDArray[np.float32], start: int, stop: int, unseen: ArrayLike = (0, 0)
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the index of the nearest trace in [start, stop), the first among equals, and its distance, (k,) each.

        queries (k, m); ``unseen``, one or (k, 2), is a range of traces that a query skips. If memory runs out, a block
        of queries is searched in halves, with the same result; for a single query, MemoryError is raised.
        """
        passed = np.broadcast_to(unseen, (len(queries), 2))
        index = np.empty(len(queries), dtype=np.int64)
        distance = np.empty(len(queries))

        def search(rows: slice) -> None:
            with self._arrays.memory_errors():
                pairs = self._narrow(queries[rows], start, stop, passed[rows])
            index[rows], distance[rows] = self._decide(queries[rows], *pairs)

        for first in range(0, len(queries), _QUERIES):
            block = slice(first, min(first + _QUERIES, len(queries)))
            in_halves(search, block, "%s; the nearest traces of %d examples are searched in halves")
        return index, distance

    def _narrow(
        self, queries: NDArray[np.float32], start: int, stop: int, unseen: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the pairs (query, trace) that may be nearest within float32, (pairs,) each; b queries."""
        library, put, get, _ = self._arrays
        centred = (queries - self._centre).astype(np.float32)
        factors = put(np.hstack([-2 * centred, np.ones((len(queries), 1), dtype=np.float32)]))  # (b, m + 1)
        slack = put((2 * self._rounding * squares(centred) + np.finfo(np.float32).tiny).astype(np.float32))  # (b,)
        limit = put(np.full(len(queries), np.inf, dtype=np.float32))  # (b,) least upper bound so far
        found = []
        for left in range(start, stop, _TRACES):
            right = min(left + _TRACES, stop)
            lower = factors @ self._points[left:right].T  # (b, right - left)
            for row in np.flatnonzero((unseen[:, 0] < right) & (unseen[:, 1] > left)):
                lower[row, max(unseen[row, 0] - left, 0) : unseen[row, 1] - left] = np.inf
            limit = library.minimum(limit, library.amin(lower + self._slack[left:right], 1) + slack)
            below = library.where((lower < limit[:, None]).ravel())[0]  # (pairs,); much faster than over two axes
            query, trace = np.divmod(get(below), right - left)
            found.append((query, trace + left, get(lower.ravel()[below])))
        query, trace, bound = (np.concatenate(parts) for parts in zip(*found, strict=True))
        kept = bound < get(limit)[query]
        return query[kept], trace[kept]

    def _decide(
        self, queries: NDArray[np.float32], query: NDArray[np.int64], trace: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the nearest of each query's candidates: index (b,) and distance (b,)."""
        square = np.empty(len(query))
        for first in range(0, len(query), _TRACES):
            part = slice(first, first + _TRACES)
            square[part] = squares(queries[query[part]].astype(np.float64) - self._traces[trace[part]])
        order = np.lexsort((trace, square, query))
        _, first_of_query = np.unique(query[order], return_index=True)
        best = order[first_of_query]
        return trace[best], np.sqrt(square[best])


def squares(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return the squared length of each row, in float64: (k, m) -> (k,)."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
