"""Sections of neurons: the range of each neuron over the pool, cut in K parts, and the pool's counts in them.

Sections have equal width (CES), or hold equally many distinct values of the pool (DeepReduce; Zhou, Li, Dong, Zhang,
Hao, "Cost-Effective Testing of a Deep Learning Model through Input Reduction", ISSRE 2020, II-B,
https://doi.org/10.1109/ISSRE5003.2020.00035). Of U distinct values, section k then holds those of rank floor(U (k - 1)
/ K) + 1 to floor(U k / K). The values 1 2 3 9 4 7 8 1 10 and K = 2 give {1, 2, 3, 4} and {7, 8, 9, 10}, with 5/9 and
4/9 of the pool. If U < K some sections are empty, and a constant neuron has the last one only. Distinct values of all
parts are merged on the driver, some neurons at a time, so that only some numbers per example are held at once.

Legend: N pool, n rows, m neurons of one or several layers, K sections, U distinct values of a neuron; P_S, P_T (m, K)
the share of the pool S and of a sample T in each section. Sections are always those of the pool.
Source: Li et al., "Boosting Operational DNN Testing Efficiency through Conditioning" (ESEC/FSE 2019), 3.2.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.parts.loops import in_threads
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool

MAX_SECTIONS = 255
"""Codes fit uint8."""

SECTIONS = 20
"""K of a divergence that no method has parameters for."""

FLOOR = 1e-15
"""The share of an empty section in :func:`relative_entropy`."""

_BLOCK_VALUES = 1 << 18
"""Values coded at a time, so that temporaries stay in the processor's cache."""

_DISTINCT_VALUES = 1 << 24
"""Values that are sorted at a time; those of one neuron if they are more."""


class EqualWidth(NamedTuple):
    """K sections of equal width for each neuron of a layer, cut on the whole pool."""

    layer: str
    low: NDArray[np.float32]  # (m,)
    high: NDArray[np.float32]  # (m,)
    num: int

    def codes(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the section of each value: ceil((v - low) / (high - low) * K) - 1, and 0 for v = low.

        Computed in float64, in this order. A constant neuron has one section. values: (n, m) -> (n, m) uint8.
        """
        from opacc_ray.neurons.kernels import encode  # Numba loads where it is used

        low = self.low.astype(np.float64)
        width = self.high.astype(np.float64) - low
        width[width == 0] = np.inf
        codes = np.empty(values.shape, dtype=np.uint8)
        encode(np.require(values, np.float32, ["C", "A"]), low, width, self.num, codes)
        return codes


class EqualCount(NamedTuple):
    """K sections for each neuron of a layer, cut on the whole pool."""

    layer: str
    starts: NDArray[np.float32]  # (m, K - 1) the least value of sections 2 to K; not decreasing
    num: int

    def codes(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the section of each value, the number of starts at or below it: (n, m) -> (n, m) uint8."""
        codes = np.zeros(values.shape, dtype=np.uint8)
        for start in self.starts.T:  # (m,)
            codes += values >= start
        return codes


Sections = EqualWidth | EqualCount


class Histogram(NamedTuple):
    """Sections, layer by layer, with the pool's counts in them."""

    sections: tuple[Sections, ...]
    counts: NDArray[np.int64]  # (m, K)

    @property
    def share(self) -> NDArray[np.float64]:
        """P_S (m, K): every row sums to 1."""
        return self.counts / self.counts.sum(axis=1, keepdims=True)

    def divergence(self, values: NDArray[np.float32]) -> float:
        """Return KL(P_S || P_T) of some examples, of one layer, by their values (n, m)."""
        [sections] = self.sections
        num = self.counts.shape[1]
        return relative_entropy(
            self.share, np.stack([np.bincount(neuron, minlength=num) for neuron in sections.codes(values).T])
        )


def check_sections(num: int) -> None:
    """Raise SpecError unless a neuron can have ``num`` sections."""
    if not 2 <= num <= MAX_SECTIONS:
        raise SpecError(f"sections={num}: give 2 to {MAX_SECTIONS} sections per neuron")


def equal_width(view: View, layers: Sequence[str], num: int) -> Histogram:
    """Cut every neuron of ``layers`` in ``num`` sections of equal width and count the pool in them.

    Raises DataError if a value is NaN or infinite, or no neuron varies.
    """
    sections = tuple(_cut(view, layer, num) for layer in layers)
    if all((each.low == each.high).all() for each in sections):
        raise DataError(f"every neuron of {' and '.join(layers)} is constant over the pool, so no sections can be cut")
    return Histogram(sections, np.concatenate([view.total(part_counts, each) for each in sections]))


def relative_entropy(share: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """KL(P_S || P_T) = (1/m) Σ_i Σ_z P_S,i(z) · ln(P_S,i(z) / P_T,i(z)), an empty section of T counting as 1e-15.

    As DeepReduce defines it (Zhou et al., ISSRE 2020, Formula 1). share: P_S, counts: of T, (m, K) each. 0 if T = S.
    """
    from scipy.special import rel_entr  # actors import this module and do not need it

    sample = counts / counts.sum(axis=1, keepdims=True)
    return float(rel_entr(share, np.maximum(sample, FLOOR)).sum() / len(share))


def values_of(part: Pool, layer: str) -> NDArray[np.float32]:
    """Return the values of a layer, (n, m), or of one number per example as a layer of one neuron, (n, 1)."""
    values: NDArray[np.float32] = getattr(part, layer)
    return values if values.ndim == 2 else values[:, None].astype(np.float32)


def part_codes(part: Pool, rows: NDArray[np.int64], sections: Sequence[Sections]) -> NDArray[np.uint8]:
    """Return the sections of some rows of a part, layer after layer: (len(rows), m) uint8."""
    return np.concatenate([_codes(values_of(part, each.layer), rows, each) for each in sections], axis=1)


def _codes(values: NDArray[np.float32], rows: NDArray[np.int64], sections: Sections) -> NDArray[np.uint8]:
    def over(start: int, stop: int) -> NDArray[np.uint8]:
        return sections.codes(values[rows[start:stop]])

    return np.concatenate(in_threads(over, len(rows), values.shape[1]))


def _cut(view: View, layer: str, num: int) -> EqualWidth:
    bounds = view.map(part_bounds, layer)
    low = np.min([low for low, _ in bounds], axis=0)  # (m,)
    high = np.max([high for _, high in bounds], axis=0)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        refuse_not_finite(view, layer)
    return EqualWidth(layer, low, high, num)


def part_bounds(part: Pool, layer: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the least and greatest value of each neuron in a part, (m,) each; NaN if one is NaN."""
    values = values_of(part, layer)

    def over(start: int, stop: int) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        return [(block.min(axis=0), block.max(axis=0)) for block in _blocks(values, start, stop)]

    lows, highs = zip(*chain.from_iterable(in_threads(over, *values.shape)), strict=True)
    return np.min(lows, axis=0), np.max(highs, axis=0)


def part_counts(part: Pool, sections: Sections) -> NDArray[np.int64]:
    """Count the examples of a part in each section: (m, K)."""
    from opacc_ray.neurons.kernels import tally

    values = values_of(part, sections.layer)

    def over(start: int, stop: int) -> NDArray[np.int64]:
        counts = np.zeros((values.shape[1], sections.num), dtype=np.int64)
        for block in _blocks(values, start, stop):
            tally(sections.codes(block), counts)
        return counts

    return np.sum(in_threads(over, *values.shape), axis=0)


def _blocks(values: NDArray[np.float32], start: int, stop: int) -> Iterator[NDArray[np.float32]]:
    """Yield views of the rows from ``start`` to ``stop``, a block at a time."""
    step = max(1, _BLOCK_VALUES // max(1, values.shape[1]))
    for row in range(start, stop, step):
        yield values[row : min(row + step, stop)]


def refuse_not_finite(view: View, layer: str) -> None:
    """Raise DataError with the first example whose values of ``layer`` are not all finite."""
    rows = view.map(part_first_not_finite, layer)
    part = next(i for i, row in enumerate(rows) if row is not None)
    name = view.identify(np.array([view.starts[part] + rows[part]]))[0]
    raise DataError(f"{layer} of example {name!r} holds NaN or infinity; exclude it or fix the model")


def part_first_not_finite(part: Pool, layer: str) -> int | None:
    bad = np.flatnonzero(~np.isfinite(values_of(part, layer)).all(axis=1))
    return int(bad[0]) if len(bad) else None


def equal_count(view: View, layer: str, num: int) -> EqualCount:
    """Cut every neuron of ``layer`` in ``num`` sections that hold equally many distinct values.

    Raises DataError if a value is NaN or infinite, or no neuron varies.
    """
    starts, varies = [], False
    width, step = view.map(part_width, layer)[0], max(1, _DISTINCT_VALUES // view.size)
    for first in range(0, width, step):
        parts = view.map(part_distinct, layer, first, first + step)  # [part][neuron] -> (distinct values there,)
        for own in zip(*parts, strict=True):
            values = own[0] if len(own) == 1 else np.unique(np.concatenate(own))  # (U,)
            if not np.isfinite(values[[0, -1]]).all():  # sorted, with NaN last
                refuse_not_finite(view, layer)
            starts.append(values[len(values) * np.arange(1, num) // num])  # (K - 1,)
            varies |= len(values) > 1
    if not varies:
        raise DataError(f"every neuron of {layer} is constant over the pool, so no sections can be cut")
    return EqualCount(layer, np.stack(starts), num)


def histogram(view: View, layer: str) -> Histogram:
    """Return DeepReduce's sections of a layer, with the pool's counts; raises DataError as :func:`equal_count`."""
    sections = equal_count(view, layer, SECTIONS)
    return Histogram((sections,), view.total(part_counts, sections))


def part_values(part: Pool, rows: NDArray[np.int64], layer: str) -> NDArray[np.float32]:
    return values_of(part, layer)[rows]


def part_width(part: Pool, layer: str) -> int:
    return int(getattr(part, layer).shape[1])


def part_distinct(part: Pool, layer: str, first: int, stop: int) -> list[NDArray[np.float32]]:
    """Return the sorted distinct values of each of some neurons in a part."""
    columns = np.ascontiguousarray(getattr(part, layer)[:, first:stop].T)
    return [np.unique(column) for column in columns]
