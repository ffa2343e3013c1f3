"""The reference: features of training data that pools are compared with, shared by the runs of an output.

    references/DIGEST/part-000000.parquet      id, uri, hidden (the trace) and prediction of a shard's examples
    references/DIGEST/part-000000.ranges.npz   ranges of the covered neurons over them
    references/DIGEST/ranges.npz               over all shards
    references/DIGEST/index.json               written last: its presence means that it is complete

DSA and LSA need traces, some coverage needs ranges, and a labelled reference needs confidence. DIGEST covers all that
decides the content (:mod:`opacc_ray.extract.feature_set`). Without weights in the spec, the factory may return
another model each time; then the reference is in the run's own prefix, and no other run uses it.

Surprise is the distance of an example from the training data in the last hidden layer. That of the examples of a set is
computed from the hidden layer in it, shard by shard; no model runs.

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
class without training examples is infinitely surprising. The search for nearest neighbours is exact
and fast: narrowed in float32 on NumPy or a GPU, decided in float64.

Legend: M training examples, whose traces are the points, m neurons, their dimensions, B examples of a batch, k queries,
b queries of a block, n training examples of a class, d neurons that count.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.feature_files import Features
from opacc_ray.extract.feature_set import Index, decided_by, read_index, read_other
from opacc_ray.extract.machine import HOST, Arrays, in_halves
from opacc_ray.extract.model_code import Code, json_digest
from opacc_ray.extract.shards import FeatureShard, read_shard
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.lake.parquet_io import to_numpy
from opacc_ray.lake.store_uris import Store, join, open_store
from opacc_ray.neurons.requirements import Ranges
from opacc_ray.spec import Spec, plan_pool

RANGES = "ranges.npz"


def plan(spec: Spec) -> Plan | None:
    """Return the shards of the reference, or None if the spec does not use it; raises as :func:`plan_pool`."""
    source = spec.reference
    if source is None or not spec.reads_reference:
        return None
    return plan_pool(source, spec.extract, "reference")


def names(spec: Spec) -> tuple[str, ...]:
    """Return the features of the reference's examples."""
    for_labels = () if spec.reference is None or spec.reference.labels is None else ("hidden", "confidence")
    compared = ("hidden",) if "traces" in spec.compares_with() else ()
    needed = {*compared, *(name for name in for_labels if name in spec.features())}
    return (*(name for name in ("hidden", "confidence") if name in needed), "prediction")


def digest(spec: Spec, planned: Plan, code: Code | None = None) -> str:
    """Return the digest of all that determines the content."""
    content = decided_by(spec, spec.reference, planned, code) | {
        "names": names(spec),
        "ranges": spec.extract.coverage.model_dump(include={"layers", "channels"})
        if "ranges" in spec.compares_with()
        else None,
    }
    return json_digest(content)


def folder_of(spec: Spec, digest: str, run: Store) -> Store:
    """Return the folder of the reference with a digest."""
    if spec.model.weights is None:
        return run.store("reference")
    return open_store(join(spec.output, "references", digest[:16]))


def read_traces(folder: Store, spec: Spec, arrays: Arrays) -> "Reference":
    """Read the traces of a complete reference."""
    tables = list(Features.of(folder, complete_index(folder).files).tables(["hidden", "prediction"]))
    hidden, predicted = (np.concatenate([to_numpy(own[name]) for own in tables]) for name in tables[0].column_names)
    return Reference(hidden, predicted if spec.model.has_classes else None, arrays)


def read_ranges(folder: Store) -> Ranges:
    """Return the ranges over all shards; raises DataError if the file is not the one of the index."""
    return Ranges.decode(read_other(folder, RANGES), folder.uri_of(RANGES))


def check_ranges(folder: Store, shard: Shard) -> None:
    """Raise DataError if the ranges over a shard are missing or damaged."""
    key = f"{shard.name}.{RANGES}"
    if not folder.exists(key):
        raise DataError(f"{folder.uri_of(key)} is lost; run the spec again")
    Ranges.decode(folder.read(key), folder.uri_of(key))


def complete_index(folder: Store) -> Index:
    """Return the index of a reference; raises DataError while its extraction is not complete."""
    index = read_index(folder)
    if index is None:
        raise DataError(f"the reference {folder.uri} is not complete; run the spec again, finished shards are kept")
    return index


def write_ranges(folder: Store, shard: Shard, parts: Sequence[Ranges]) -> None:
    """Write the ranges over a shard, before its features, whose presence means that the shard is finished."""
    folder.write(f"{shard.name}.{RANGES}", Ranges.merge(parts).encode())


def merge_ranges(folder: Store) -> dict[str, bytes]:
    """Merge the ranges over all shards; return their file by its name, for the index."""
    keys = [entry.key for entry in folder.list() if entry.key.endswith(f".{RANGES}")]
    parts = [Ranges.decode(data, folder.uri_of(key)) for key, data in zip(keys, folder.read_many(keys), strict=True)]
    data = Ranges.merge(parts).encode()
    folder.write(RANGES, data)
    return {RANGES: data}


class StoredSurprise:
    """One measure of surprise of stored examples; raises DataError if the reference is not complete."""

    def __init__(self, job: Extraction, folder: Store, arrays: Arrays) -> None:
        assert job.reference is not None
        [self.name] = job.names
        self._source, self._folder, self._has_classes = job.source, folder, job.spec.model.has_classes
        self._traces = read_traces(job.reference, job.spec, arrays)

    def read(self, shard: Shard) -> FeatureShard:
        """Return the hidden layer and the predictions of a shard's examples."""
        return read_shard(self._folder, shard.file, ["hidden", "prediction"])._replace(own_ids=False, turned={})

    def compute(self, stored: FeatureShard) -> FeatureShard:
        """Return the surprise of these examples; raises DataError, with an id, if it is undefined."""
        if not stored.ids:
            return stored
        predicted = stored.columns["prediction"]
        values = getattr(self._traces, self.name)(stored.columns["hidden"], predicted if self._has_classes else None)
        for row in np.flatnonzero(~np.isfinite(values))[:1].tolist():
            why = "the nearest reference trace of its predicted class is also one of another class"
            if np.isnan(values[row]):
                why = "its hidden layer has too large a value"
            elif self._has_classes and predicted[row] not in self._traces.classes:
                why = f"no example of the reference is predicted as its class, {predicted[row]}"
            raise DataError(
                f"example {stored.ids[row]!r} of {self._source.uri}: {why}, so it has no {self.name}; add examples to "
                "the reference, or choose a method without it"
            )
        return stored._replace(columns={self.name: values})


# -- surprise --------------------------------------------------------------------------------------------------

_QUERIES, _TRACES = 256, 4096  # shape of the largest matrix of distances in memory


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
