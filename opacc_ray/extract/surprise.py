"""Surprise: the distance of an example from the training data in the last hidden layer.

Kim, Feldt, Yoo, "Guiding Deep Learning System Testing Using Surprise Adequacy", ICSE 2019,
https://doi.org/10.1109/ICSE.2019.00108.

The *trace* h(x) of an example is the output of the hidden layer. With T_c the training examples that the model
predicts as class c, and c the class that it predicts for x:

    dist_a = min |h(x) - h(t)|   over t in T_c, reached at t*
    dist_b = min |h(t*) - h(t)|  over the training examples t of all other classes
    DSA(x) = dist_a / dist_b                                                            distance-based surprise
    LSA(x) = -log (1/n) Σ_t φ(h(x) - h(t))  over the n examples t in T_c                likelihood-based surprise

φ is the Gaussian density with covariance n^(-2/(d+4)) · Σ_c: Scott's factor times the covariance of T_c over the d
neurons that count. A neuron counts if its variance is at least 1e-5 in every class.

Deviations, only where the paper gives no value. T_c may be too small for a covariance: such a class is ignored in the
choice of neurons, and its kernel uses the covariance within classes, pooled over all of them. An example of a predicted
class without training examples is infinitely surprising.

Legend: M training examples, m neurons, B examples of a batch, n training examples of a class, d neurons that count.
"""

from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract.neighbours import HOST, Arrays, Neighbours, squares

MIN_VARIANCE = 1e-5  # neurons that vary less do not count
_SINGULAR = 1e-12  # least share of a neuron's variance that the others do not explain
_LARGEST = 1e15  # squared distances between larger values would overflow in float32
_KERNEL_ROWS = 48  # examples whose kernel values are in memory at a time


class Reference:
    """Traces of training examples, by predicted class.

    Values that the two measures derive from them are computed once, when they are first needed.

    Parameters
    ----------
    traces : (M, m) float32
    predicted : (M,) int, predicted classes; None for a regression, which is one class
    arrays : library that searches neighbours, without effect on the result

    Raises DataError for no traces, a trace that is not finite, or another number of classes than of traces.
    """

    def __init__(self, traces: ArrayLike, predicted: ArrayLike | None = None, arrays: Arrays = HOST) -> None:
        rows = np.asarray(traces, dtype=np.float32)
        if rows.ndim != 2 or rows.size == 0:
            raise DataError(
                f"the reference traces have shape {rows.shape}; give one row of neurons per training example"
            )
        if not (finite := _are_finite(rows)).all():
            raise DataError(f"reference trace {finite.argmin()} is not finite; remove that example or repair the model")
        labels = _checked_classes(predicted, len(rows))
        order = np.argsort(labels, kind="stable")
        self.traces = rows[order]  # (M, m) float32, class after class
        self.classes, starts = np.unique(labels[order], return_index=True)
        self._bounds = np.append(starts, len(rows))  # (classes + 1,) where each class begins
        self._arrays = arrays
        self._kernels: dict[int, _Kernel] = {}  # by number of the class
        self._gaps = np.full(len(rows), np.nan)  # (M,) dist_b of each trace; NaN: not needed so far

    def dsa(self, hidden: ArrayLike, predicted: ArrayLike | None = None) -> NDArray[np.float32]:
        """Return the distance-based surprise of each example: hidden (B, m), predicted (B,) -> (B,) float32.

        Infinity for a class without traces or where ``dist_b`` is 0, NaN where ``hidden`` is not finite. Independent of
        the batches. Raises DataError if the traces have one class only, or another number of neurons.
        """
        if len(self.classes) < 2:
            raise DataError(
                f"DSA compares classes, and all {len(self.traces)} reference traces are predicted as class "
                f"{self.classes[0]}; give reference data with more predicted classes, or use lsa"
            )
        rows, group, place, surprise = self._prepare(hidden, predicted)
        nearest, dist_a = np.empty(len(rows), dtype=np.int64), np.empty(len(rows))
        for number in np.unique(group):
            part = group == number
            own = self._bounds[number], self._bounds[number + 1]
            nearest[part], dist_a[part] = self._neighbours.nearest(rows[part], *own)
        dist_b = self._gaps_of(nearest)
        surprise[place] = np.divide(dist_a, dist_b, out=np.full(len(rows), np.inf), where=dist_b > 0)
        return surprise.astype(np.float32)

    def lsa(self, hidden: ArrayLike, predicted: ArrayLike | None = None) -> NDArray[np.float32]:
        """Return the likelihood-based surprise of each example: hidden (B, m), predicted (B,) -> (B,) float32.

        ``-scipy.stats.gaussian_kde(traces).logpdf(hidden)``, also where the density underflows. Infinity for a class
        without traces, NaN where ``hidden`` is not finite. Rounded from float64, since the last bits of a matrix
        product may depend on a row's place in the batch. Raises DataError if the traces are too few or too degenerate
        for a covariance, or have another number of neurons.
        """
        rows, group, place, surprise = self._prepare(hidden, predicted)
        for number in np.unique(group):
            part = group == number
            if number not in self._kernels:
                self._kernels[number] = self._spread.kernel(number)
            surprise[place[part]] = self._kernels[number].surprise(rows[part])
        return surprise.astype(np.float32)

    def _prepare(
        self, hidden: ArrayLike, predicted: ArrayLike | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return the k measurable examples: rows (k, m), number of the class (k,), place in the batch (k,).

        The last item has values (B,) for all, final for the others.
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
        """Return dist_b of some traces, (k,) -> (k,), which is searched once for each."""
        new = np.unique(index[np.isnan(self._gaps[index])])
        group = np.searchsorted(self._bounds, new, side="right") - 1
        own = np.stack([self._bounds[group], self._bounds[group + 1]], axis=1)
        _, self._gaps[new] = self._neighbours.nearest(self.traces[new], 0, len(self.traces), own)
        return self._gaps[index]

    @cached_property
    def _neighbours(self) -> Neighbours:
        return Neighbours(self.traces, self._arrays)

    @cached_property
    def _spread(self) -> "_Spread":
        return _Spread([self.traces[start:stop] for start, stop in pairwise(self._bounds)])


class _Whitening(NamedTuple):
    """Linear map to coordinates in which a covariance is the identity."""

    neurons: NDArray[np.int64]  # (d,) those that count
    matrix: NDArray[np.float64]  # (d, d): rows @ matrix
    log_volume: float  # half the log of the covariance's determinant

    @classmethod
    def of(cls, neurons: NDArray[np.int64], covariance: NDArray[np.float64]) -> "_Whitening | None":
        """Return the map; None if the covariance (d, d) is empty or (nearly) singular."""
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return None
        pivots = np.diag(factor)
        if len(neurons) == 0 or (pivots**2 <= _SINGULAR * np.diag(covariance)).any():
            return None
        return cls(neurons, np.linalg.inv(factor).T, float(np.log(pivots).sum()))


class _Kernel:
    """Kernel density of one class, in coordinates in which its kernel is the standard normal density."""

    def __init__(self, traces: NDArray[np.float32], whitening: _Whitening) -> None:
        n, d = len(traces), len(whitening.neurons)
        self.whitening, self.bandwidth = whitening, n ** (-1 / (d + 4))
        values = traces[:, whitening.neurons].astype(np.float64)
        self.mean = values.mean(axis=0)  # (d,)
        self.points = (values - self.mean) @ whitening.matrix / self.bandwidth  # (n, d)
        self.half_squares = squares(self.points) / 2  # (n,)
        scale = np.log(n) + d * np.log(2 * np.pi) / 2 + d * np.log(self.bandwidth) + whitening.log_volume
        self.log_scale = float(scale)  # log of n over the kernel's height

    def surprise(self, hidden: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return -log density, (k, m) -> (k,)."""
        result = np.empty(len(hidden))
        for first in range(0, len(hidden), _KERNEL_ROWS):
            values = hidden[first : first + _KERNEL_ROWS, self.whitening.neurons] - self.mean
            rows = values @ self.whitening.matrix / self.bandwidth
            exponent = rows @ self.points.T  # (b, n): -|row - point|² / 2, up to -|row|² / 2
            exponent -= self.half_squares
            top = exponent.max(axis=1)
            exponent -= top[:, None]  # so that not all terms underflow
            sums = np.exp(exponent).sum(axis=1)
            result[first : first + _KERNEL_ROWS] = self.log_scale - (np.log(sums) + top - squares(rows) / 2)
        return result


class _Spread:
    """How traces vary within classes: which neurons count, and a covariance for classes that have none of their own."""

    def __init__(self, parts: list[NDArray[np.float32]]) -> None:
        self.parts = parts  # the traces of each class
        m, sizes = parts[0].shape[1], np.array([len(part) for part in parts])
        total = np.zeros((m, m))
        varying = np.empty((len(parts), m), dtype=bool)
        for group, part in enumerate(parts):
            scatter = _scatter(part)
            total += scatter
            varying[group] = np.diag(scatter) / len(part) >= MIN_VARIANCE
        self.enough = (sizes > varying.sum(axis=1)) & varying.any(axis=1)  # (classes,) more traces than varying neurons
        within = total / max(sizes.sum() - len(parts), 1)  # (m, m) covariance within classes
        self.neurons = np.flatnonzero(varying[self.enough].all(axis=0) & (np.diag(within) >= MIN_VARIANCE))  # (d,)
        self.pooled = _Whitening.of(self.neurons, within[np.ix_(self.neurons, self.neurons)])  # None if singular

    def kernel(self, group: int) -> _Kernel:
        """Return the kernel of one class: with its own covariance if it has one, else with the pooled one."""
        traces = self.parts[group]
        if self.enough[group]:
            own = _Whitening.of(self.neurons, _scatter(traces[:, self.neurons]) / (len(traces) - 1))
            if own is not None:
                return _Kernel(traces, own)
        if self.pooled is None:
            raise DataError(
                f"LSA: the covariance of the {len(self.neurons)} neurons that vary is singular, for lack of reference "
                "data or because neurons depend on one another; give more data, record another layer, or use dsa"
            )
        return _Kernel(traces, self.pooled)


def _checked_classes(predicted: ArrayLike | None, size: int) -> NDArray[np.int64]:
    labels = np.zeros(size, dtype=np.int64) if predicted is None else np.asarray(predicted)
    if labels.shape != (size,) or labels.dtype.kind not in "iu":
        raise DataError(
            f"predicted classes have shape {labels.shape} and type {labels.dtype}; give {size} whole numbers"
        )
    return labels.astype(np.int64)


def _are_finite(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return whether rows are finite, with finite squares: (k, m) -> (k,)."""
    return np.asarray((np.abs(rows) <= _LARGEST).all(axis=1))


def _scatter(traces: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return Σ (t - mean)(t - mean)ᵀ over traces t: (n, m) -> (m, m)."""
    centred = traces - traces.mean(axis=0, dtype=np.float64)
    return np.asarray(centred.T @ centred)
