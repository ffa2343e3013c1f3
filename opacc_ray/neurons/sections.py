"""Sections of neurons: each neuron's range over the pool, cut in K parts, and how the pool fills them.

Legend: N pool, m neurons of one layer or of several side by side, K sections; P_S, P_T (m, K) the share of the pool and
of a sample T of it in each section. Sections are always the pool's.
Source: Li et al., "Boosting Operational DNN Testing Efficiency through Conditioning" (ESEC/FSE 2019), 3.2.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.parts.threads import in_threads
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool

MAX_SECTIONS = 255
"""Codes fit uint8."""

FLOOR = 1e-15
"""What stands for the share of an empty section in :func:`relative_entropy`."""

_BLOCK_VALUES = 1 << 18
"""Values coded at a time, so that temporaries stay in cache whatever the pool's size."""


class Sections(Protocol):
    """How the neurons of one layer are cut."""

    @property
    def layer(self) -> str: ...

    @property
    def num(self) -> int: ...

    def codes(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Section of each value, from 0: (n, m) -> (n, m) uint8."""


class EqualWidth(NamedTuple):
    """K sections of equal width for each neuron of a layer, cut on the whole pool."""

    layer: str
    low: NDArray[np.float32]  # (m,)
    high: NDArray[np.float32]  # (m,)
    num: int

    def codes(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Section of each value: ceil((v - low) / (high - low) * K) - 1, and 0 for v = low.

        Computed in float64, in this order. A constant neuron has one section. values: (n, m) -> (n, m) uint8.
        """
        from opacc_ray.neurons.kernels import encode  # Numba loads where it is used

        low = self.low.astype(np.float64)
        width = self.high.astype(np.float64) - low
        width[width == 0] = np.inf
        codes = np.empty(values.shape, dtype=np.uint8)
        encode(np.require(values, np.float32, ["C", "A"]), low, width, self.num, codes)
        return codes


class Histogram(NamedTuple):
    """Sections, layer by layer, with the pool's counts in them."""

    sections: tuple[Sections, ...]
    counts: NDArray[np.int64]  # (m, K)

    @property
    def share(self) -> NDArray[np.float64]:
        """P_S (m, K): every row sums to 1."""
        return self.counts / self.counts.sum(axis=1, keepdims=True)


def check_sections(num: int) -> None:
    """Raise SpecError unless a neuron can have ``num`` sections."""
    if not 2 <= num <= MAX_SECTIONS:
        raise SpecError(f"sections={num}: give 2 to {MAX_SECTIONS} sections per neuron")


def equal_width(view: View, layers: Sequence[str], num: int) -> Histogram:
    """Cut every neuron of ``layers`` in ``num`` sections of equal width and count the pool in them.

    Raises
    ------
    DataError
        If a value is NaN or infinite, or no neuron varies.
    """
    sections = tuple(_cut(view, layer, num) for layer in layers)
    if all((each.low == each.high).all() for each in sections):
        raise DataError(f"every neuron of {' and '.join(layers)} is constant over the pool, so no sections can be cut")
    return Histogram(sections, np.concatenate([view.total(part_counts, each) for each in sections]))


def relative_entropy(share: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """KL(P_S || P_T) = (1/m) Σ_i Σ_z P_S,i(z) · ln(P_S,i(z) / P_T,i(z)), an empty section of T counting as 1e-15.

    As DeepReduce defines it (Zhou et al., ISSRE 2020, Formula 1). share: P_S, counts: of T, (m, K) each. 0 if T = S.
    """
    from scipy.special import rel_entr  # actors, which have no use for it, import this module

    sample = counts / counts.sum(axis=1, keepdims=True)
    return float(rel_entr(share, np.maximum(sample, FLOOR)).sum() / len(share))


def part_codes(part: Pool, rows: NDArray[np.int64], sections: Sequence[Sections]) -> NDArray[np.uint8]:
    """Section codes of some rows of a part, the layers side by side: (len(rows), m) uint8."""
    return np.concatenate([_codes(getattr(part, each.layer), rows, each) for each in sections], axis=1)


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
    """Least and greatest value of each neuron in a part; NaN where one is NaN."""
    values = getattr(part, layer)

    def over(start: int, stop: int) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        return [(block.min(axis=0), block.max(axis=0)) for block in _blocks(values, start, stop)]

    lows, highs = zip(*chain.from_iterable(in_threads(over, *values.shape)), strict=True)
    return np.min(lows, axis=0), np.max(highs, axis=0)


def part_counts(part: Pool, sections: Sections) -> NDArray[np.int64]:
    """How many examples of a part each section holds: (m, K)."""
    from opacc_ray.neurons.kernels import tally

    values = getattr(part, sections.layer)

    def over(start: int, stop: int) -> NDArray[np.int64]:
        counts = np.zeros((values.shape[1], sections.num), dtype=np.int64)
        for block in _blocks(values, start, stop):
            tally(sections.codes(block), counts)
        return counts

    return np.sum(in_threads(over, *values.shape), axis=0)


def _blocks(values: NDArray[np.float32], start: int, stop: int) -> Iterator[NDArray[np.float32]]:
    """Views of the rows from ``start`` to ``stop``, a block at a time."""
    step = max(1, _BLOCK_VALUES // max(1, values.shape[1]))
    for row in range(start, stop, step):
        yield values[row : min(row + step, stop)]


def refuse_not_finite(view: View, layer: str) -> None:
    """Raise DataError naming the first example whose values of ``layer`` are not all finite."""
    rows = view.map(part_first_not_finite, layer)
    part = next(i for i, row in enumerate(rows) if row is not None)
    name = view.identify(np.array([view.starts[part] + rows[part]]))[0]
    raise DataError(f"{layer} of example {name!r} holds NaN or infinity; exclude it or fix the model")


def part_first_not_finite(part: Pool, layer: str) -> int | None:
    values, row = getattr(part, layer), 0
    for block in _blocks(values, 0, len(values)):
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if len(bad):
            return row + int(bad[0])
        row += len(block)
    return None
