"""Surprise: how far an example lies from the training data, as seen by the last hidden layer.

Kim, Feldt, Yoo, "Guiding Deep Learning System Testing Using Surprise Adequacy", ICSE 2019,
https://doi.org/10.1109/ICSE.2019.00108.

The *trace* h(x) of an example is the output of the hidden layer. With T_c the training examples that the model
predicts as class c, and c the class that it predicts for x:

    dist_a = min |h(x) - h(t)|   over t in T_c, reached at t*
    dist_b = min |h(t*) - h(t)|  over the training examples t of all other classes
    DSA(x) = dist_a / dist_b                                                            distance-based surprise
    LSA(x) = -log (1/n) Σ_t φ(h(x) - h(t))  over the n examples t in T_c                likelihood-based surprise

φ is the Gaussian density with covariance n^(-2/(d+4)) · Σ_c: Scott's factor times the covariance of T_c over the d
neurons that count. A neuron counts if its variance is at least 1e-5 in every class, or in class c with ``per_class``.

Deviations, only where the paper gives no value. T_c may be too small for a covariance: such a class has no say in
which neurons count, and its kernel takes the covariance within classes, pooled over all of them. An example predicted
as a class that no training example is predicted as is infinitely surprising.

Legend: M training examples, m neurons, B examples of a batch, n training examples of a class, d neurons that count.
"""

import io
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import DataError

FORMAT = "opacc-reference/1"
MIN_VARIANCE = 1e-5  # neurons that vary less say nothing about likelihood
_SINGULAR = 1e-12  # share of a neuron's variance that the others must leave unexplained
_LARGEST = 1e15  # squared distances between larger values would overflow in float32
_QUERIES, _TRACES = 256, 4096  # shape of the largest matrix of distances in memory
_KERNEL_ROWS = 48  # examples whose kernel values are in memory at a time


class Arrays(NamedTuple):
    """Where neighbours are searched: NumPy, or a library with the same functions, and true float32, on a GPU."""

    library: Any
    put: Callable[[NDArray[Any]], Any]  # to the library's arrays
    get: Callable[[Any], NDArray[Any]]  # and back


HOST = Arrays(np, np.asarray, np.asarray)


class Reference:
    """Traces of training examples, by the class that the model predicts for each.

    What the two measures derive from them is computed when it is first needed, and kept.

    Parameters
    ----------
    traces : (M, m) float32
    predicted : (M,) int, predicted classes; None for a regression, which is all one class
    arrays : the library that searches neighbours; the result does not depend on it

    Raises
    ------
    DataError
        No traces, a trace that is not finite, or another number of classes than of traces.
    """

    def __init__(self, traces: ArrayLike, predicted: ArrayLike | None = None, arrays: Arrays = HOST) -> None:
        rows = _checked_traces(traces)
        labels = _checked_classes(predicted, len(rows))
        order = np.argsort(labels, kind="stable")
        self.traces = rows[order]  # (M, m) float32, class after class
        self.classes, starts = np.unique(labels[order], return_index=True)
        self._bounds = np.append(starts, len(rows))  # (classes + 1,) where each class begins
        self._arrays = arrays
        self._gaps = np.full(len(rows), np.nan)  # (M,) dist_b of each trace; NaN: not needed so far
        self._kernels: dict[tuple[int, bool], _Kernel] = {}

    def dsa(self, hidden: ArrayLike, predicted: ArrayLike | None = None) -> NDArray[np.float32]:
        """Distance-based surprise of each example: hidden (B, m), predicted (B,) -> (B,).

        Returns
        -------
        (B,) float32
            Infinity for a class without traces or where ``dist_b`` is 0, NaN where ``hidden`` is not finite. The same
            however the examples are batched.

        Raises
        ------
        DataError
            The traces are of one class only, or of another number of neurons.
        """
        if len(self.classes) < 2:
            raise DataError(
                f"DSA compares classes, and all {len(self.traces)} reference traces are predicted as class "
                f"{self.classes[0]}; give reference data in which the model sees more, or use lsa"
            )
        rows, group, place, surprise = self._prepare(hidden, predicted)
        nearest = np.zeros(len(rows), dtype=np.int64)
        dist_a = np.zeros(len(rows))
        for number in np.unique(group):
            part = group == number
            own = self._bounds[number], self._bounds[number + 1]
            nearest[part], dist_a[part] = self._neighbours.nearest(rows[part], *own)
        dist_b = self._gaps_of(nearest)
        surprise[place] = np.divide(dist_a, dist_b, out=np.full(len(rows), np.inf), where=dist_b > 0)
        return surprise.astype(np.float32)

    def lsa(
        self, hidden: ArrayLike, predicted: ArrayLike | None = None, *, per_class: bool = False
    ) -> NDArray[np.float32]:
        """Likelihood-based surprise of each example: hidden (B, m), predicted (B,) -> (B,).

        Parameters
        ----------
        per_class : choose the neurons class by class; densities of two classes are then over different neurons

        Returns
        -------
        (B,) float32
            ``-scipy.stats.gaussian_kde(traces).logpdf(hidden)``, also where the density underflows. Infinity for a
            class without traces, NaN where ``hidden`` is not finite. Computed in float64 and then rounded, since the
            last bits of a matrix product may depend on a row's place in the batch.

        Raises
        ------
        DataError
            The traces are too few or too degenerate for a covariance, or of another number of neurons.
        """
        rows, group, place, surprise = self._prepare(hidden, predicted)
        for number in np.unique(group):
            part = group == number
            surprise[place[part]] = self._kernel(number, per_class).surprise(rows[part])
        return surprise.astype(np.float32)

    def encode(self) -> bytes:
        """One .npz file of the traces and their classes; the same reference gives the same bytes."""
        sink = io.BytesIO()
        predicted = np.repeat(self.classes, np.diff(self._bounds))
        np.savez(sink, format=np.array(FORMAT), traces=self.traces, predicted=predicted)
        return sink.getvalue()

    @classmethod
    def decode(cls, data: bytes, source: str, arrays: Arrays = HOST) -> "Reference":
        """Read back what :meth:`encode` wrote; raises DataError if ``source`` holds something else."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                if str(archive["format"]) != FORMAT:
                    raise ValueError(f"format {str(archive['format'])!r}, and this version reads {FORMAT!r}")
                content = archive["traces"], archive["predicted"]
        except Exception as error:  # NumPy raises several kinds on damaged files
            raise DataError(f"{source} is not a file of reference traces ({error}); delete it and run again") from None
        return cls(*content, arrays)

    def _prepare(
        self, hidden: ArrayLike, predicted: ArrayLike | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """The k examples that can be measured: rows (k, m), number of the class (k,), place in the batch (k,).

        And values (B,) for all, final for those that cannot be measured.
        """
        rows = np.asarray(hidden, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.traces.shape[1]:
            raise DataError(
                f"hidden has shape {rows.shape} and the reference traces {self.traces.shape}; take both from one layer"
            )
        labels = _checked_classes(predicted, len(rows))
        group = np.minimum(np.searchsorted(self.classes, labels), len(self.classes) - 1)
        finite = _are_finite(rows)
        place = np.flatnonzero(finite & (self.classes[group] == labels))
        return rows[place], group[place], place, np.where(finite, np.inf, np.nan)

    def _gaps_of(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """dist_b of some traces, searched for those that no example was nearest to before: (k,) -> (k,)."""
        new = np.unique(index[np.isnan(self._gaps[index])])
        group = np.searchsorted(self._bounds, new, side="right") - 1
        own = np.stack([self._bounds[group], self._bounds[group + 1]], axis=1)
        _, self._gaps[new] = self._neighbours.nearest(self.traces[new], 0, len(self.traces), own)
        return self._gaps[index]

    @cached_property
    def _neighbours(self) -> "_Neighbours":
        return _Neighbours(self.traces, self._arrays)

    @cached_property
    def _spread(self) -> "_Spread":
        return _Spread.of([self.traces[start:stop] for start, stop in pairwise(self._bounds)])

    def _kernel(self, group: int, per_class: bool) -> "_Kernel":
        if (group, per_class) not in self._kernels:
            traces = self.traces[self._bounds[group] : self._bounds[group + 1]]
            self._kernels[group, per_class] = self._spread.kernel(traces, group, per_class)
        return self._kernels[group, per_class]


class _Neighbours:
    """The exactly nearest trace: products in float32 narrow the search, distances in float64 decide.

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
        square = _squares(points[:, :m])
        points[:, m] = square * (1 - self._rounding)
        self._points = arrays.put(points)  # (M, m + 1): the product with [-2q, 1] is the lower bound, but for |q|
        self._slack = arrays.put((2 * self._rounding * square).astype(np.float32))  # (M,) from lower to upper bound

    def nearest(
        self, queries: NDArray[np.float32], start: int, stop: int, unseen: ArrayLike = (0, 0)
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Index of the trace in [start, stop) nearest to each query, the first among equals, and its distance.

        queries (k, m); ``unseen``, one or (k, 2), is a range of traces that a query passes over.
        """
        passed = np.broadcast_to(unseen, (len(queries), 2))
        index = np.empty(len(queries), dtype=np.int64)
        distance = np.empty(len(queries))
        for first in range(0, len(queries), _QUERIES):
            block = slice(first, first + _QUERIES)
            query, trace = self._narrow(queries[block], start, stop, passed[block])
            index[block], distance[block] = self._decide(queries[block], query, trace)
        return index, distance

    def _narrow(
        self, queries: NDArray[np.float32], start: int, stop: int, unseen: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs (query, trace) that float32 cannot tell from the nearest, (pairs,) each; b queries."""
        library, put, get = self._arrays
        centred = (queries - self._centre).astype(np.float32)
        factors = put(np.hstack([-2 * centred, np.ones((len(queries), 1), dtype=np.float32)]))  # (b, m + 1)
        slack = put((2 * self._rounding * _squares(centred) + np.finfo(np.float32).tiny).astype(np.float32))  # (b,)
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
        """The nearest of each query's candidates: index (b,) and distance (b,)."""
        square = np.empty(len(query))
        for first in range(0, len(query), _TRACES):
            part = slice(first, first + _TRACES)
            square[part] = _squares(queries[query[part]].astype(np.float64) - self._traces[trace[part]])
        order = np.lexsort((trace, square, query))
        _, first_of_query = np.unique(query[order], return_index=True)
        best = order[first_of_query]
        return trace[best], np.sqrt(square[best])


class _Whitening(NamedTuple):
    """Coordinates in which a covariance is the identity."""

    neurons: NDArray[np.int64]  # (d,) those that count
    matrix: NDArray[np.float64]  # (d, d): rows @ matrix
    log_volume: float  # half the log of the covariance's determinant

    @classmethod
    def of(cls, neurons: NDArray[np.int64], covariance: NDArray[np.float64]) -> "_Whitening | None":
        """None if the covariance (d, d) is empty, singular or nearly so."""
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return None
        pivots = np.diag(factor)
        if len(neurons) == 0 or (pivots**2 <= _SINGULAR * np.diag(covariance)).any():
            return None
        return cls(neurons, np.linalg.inv(factor).T, float(np.log(pivots).sum()))


class _Kernel(NamedTuple):
    """Kernel density of one class, in coordinates in which its kernel is the standard normal density."""

    whitening: _Whitening
    mean: NDArray[np.float64]  # (d,)
    bandwidth: float
    points: NDArray[np.float64]  # (n, d)
    half_squares: NDArray[np.float64]  # (n,)
    log_scale: float  # log of n over the kernel's height

    @classmethod
    def of(cls, traces: NDArray[np.float32], whitening: _Whitening) -> "_Kernel":
        n, d = len(traces), len(whitening.neurons)
        bandwidth = n ** (-1 / (d + 4))
        values = traces[:, whitening.neurons].astype(np.float64)
        mean = values.mean(axis=0)
        points = (values - mean) @ whitening.matrix / bandwidth
        log_scale = np.log(n) + d * np.log(2 * np.pi) / 2 + d * np.log(bandwidth) + whitening.log_volume
        return cls(whitening, mean, bandwidth, points, _squares(points) / 2, float(log_scale))

    def surprise(self, hidden: NDArray[np.float32]) -> NDArray[np.float64]:
        """-log density, (k, m) -> (k,)."""
        result = np.empty(len(hidden))
        for first in range(0, len(hidden), _KERNEL_ROWS):
            values = hidden[first : first + _KERNEL_ROWS, self.whitening.neurons] - self.mean
            rows = values @ self.whitening.matrix / self.bandwidth
            exponent = rows @ self.points.T  # (b, n): -|row - point|² / 2, up to -|row|² / 2
            exponent -= self.half_squares
            top = exponent.max(axis=1)
            exponent -= top[:, None]  # so that not all terms underflow
            sums = np.exp(exponent, out=exponent).sum(axis=1)
            result[first : first + _KERNEL_ROWS] = self.log_scale - (np.log(sums) + top - _squares(rows) / 2)
        return result


class _Spread(NamedTuple):
    """How traces vary within classes: which neurons count, and a covariance for classes that have none of their own."""

    lively: NDArray[np.bool_]  # (classes, m) variance of at least MIN_VARIANCE
    enough: NDArray[np.bool_]  # (classes,) more traces than lively neurons
    neurons: NDArray[np.int64]  # (d,) those that count for all classes
    pooled: _Whitening | None  # from the covariance within classes; None if it is singular

    @classmethod
    def of(cls, parts: list[NDArray[np.float32]]) -> "_Spread":
        """``parts``: the traces of each class."""
        m, sizes = parts[0].shape[1], np.array([len(part) for part in parts])
        total = np.zeros((m, m))
        lively = np.empty((len(parts), m), dtype=bool)
        for group, part in enumerate(parts):
            scatter = _scatter(part)
            total += scatter
            lively[group] = np.diag(scatter) / len(part) >= MIN_VARIANCE
        enough = (sizes > lively.sum(axis=1)) & lively.any(axis=1)
        covariance = total / max(sizes.sum() - len(parts), 1)
        neurons = np.flatnonzero(lively[enough].all(axis=0) & (np.diag(covariance) >= MIN_VARIANCE))
        return cls(lively, enough, neurons, _Whitening.of(neurons, covariance[np.ix_(neurons, neurons)]))

    def kernel(self, traces: NDArray[np.float32], group: int, per_class: bool) -> _Kernel:
        """The kernel of one class: with its own covariance if it has one, else with the pooled one."""
        if self.enough[group]:
            neurons = np.flatnonzero(self.lively[group]) if per_class else self.neurons
            own = _Whitening.of(neurons, _scatter(traces[:, neurons]) / (len(traces) - 1))
            if own is not None:
                return _Kernel.of(traces, own)
        if self.pooled is None:
            raise DataError(
                f"LSA: the covariance of the {len(self.neurons)} neurons that vary is singular, for want of reference "
                "data or since neurons depend on one another; give more data, record another layer, or use dsa"
            )
        return _Kernel.of(traces, self.pooled)


def _checked_traces(traces: ArrayLike) -> NDArray[np.float32]:
    rows = np.asarray(traces, dtype=np.float32)
    if rows.ndim != 2 or rows.size == 0:
        raise DataError(f"the reference traces have shape {rows.shape}; give one row of neurons per training example")
    if not (finite := _are_finite(rows)).all():
        raise DataError(f"reference trace {finite.argmin()} is not finite; leave that example out or mend the model")
    return rows


def _checked_classes(predicted: ArrayLike | None, size: int) -> NDArray[np.int64]:
    labels = np.zeros(size, dtype=np.int64) if predicted is None else np.asarray(predicted)
    if labels.shape != (size,) or labels.dtype.kind not in "iu":
        raise DataError(
            f"predicted classes have shape {labels.shape} and type {labels.dtype}; give {size} whole numbers"
        )
    return labels.astype(np.int64)


def _are_finite(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Rows without NaN, infinity or a value whose square would be: (k, m) -> (k,)."""
    return np.asarray((np.abs(rows) <= _LARGEST).all(axis=1))


def _squares(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Squared length of each row, in float64: (k, m) -> (k,)."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))


def _scatter(traces: NDArray[np.float32]) -> NDArray[np.float64]:
    """Σ (t - mean)(t - mean)ᵀ over traces t: (n, m) -> (m, m)."""
    centred = traces - traces.mean(axis=0, dtype=np.float64)
    return np.asarray(centred.T @ centred)
