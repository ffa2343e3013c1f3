"""Sections of neurons: each neuron's range over the pool, cut in K parts, and how the pool fills them.

Legend: N pool, m neurons, K sections; P_S (m, K) the share of the pool in each section.
Source: Li et al., "Boosting Operational DNN Testing Efficiency through Conditioning" (ESEC/FSE 2019), 3.2.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.pool import Pool
from opacc_ray.view import View

MAX_SECTIONS = 255
"""Codes fit uint8."""

_BLOCK_VALUES = 1 << 20
"""Values coded at a time, so that temporaries stay in cache whatever the pool's size."""


class Sections(NamedTuple):
    """K sections of equal width per neuron, cut on the whole pool."""

    layer: str
    low: NDArray[np.float32]  # (m,)
    high: NDArray[np.float32]  # (m,)
    num: int

    def codes(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Section of each value: ceil((v - low) / (high - low) * K) - 1, and 0 for v = low.

        Computed in float64. A constant neuron has one section. values: (n, m) -> (n, m) uint8.
        """
        low = self.low.astype(np.float64)
        width = self.high.astype(np.float64) - low
        width[width == 0] = np.inf
        part = np.ceil((values - low) / width * self.num) - 1
        return np.maximum(part, 0).astype(np.uint8)


class Histogram(NamedTuple):
    """Sections with the pool's counts in them."""

    sections: Sections
    counts: NDArray[np.int64]  # (m, K)

    @property
    def share(self) -> NDArray[np.float64]:
        """P_S (m, K): every row sums to 1."""
        return self.counts / self.counts.sum(axis=1, keepdims=True)


def equal_width(view: View, layer: str, num: int) -> Histogram:
    """Cut every neuron of ``layer`` in ``num`` sections of equal width and count the pool in them."""
    if not 2 <= num <= MAX_SECTIONS:
        raise SpecError(f"sections={num}: give 2 to {MAX_SECTIONS} sections per neuron")
    bounds = view.map(_bounds, layer)
    low = np.min([low for low, _ in bounds], axis=0)  # (m,)
    high = np.max([high for _, high in bounds], axis=0)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        _name_bad_example(view, layer)
    if (low == high).all():
        raise DataError(f"every neuron of {layer} is constant over the pool, so no sections can be cut")
    sections = Sections(layer, low, high, num)
    return Histogram(sections, sum(view.map(_counts, sections)))


def codes_of(part: Pool, rows: NDArray[np.int64], sections: Sections) -> NDArray[np.uint8]:
    """Section codes of some rows of a part: (len(rows), m) uint8."""
    return sections.codes(getattr(part, sections.layer)[rows])


def _bounds(part: Pool, layer: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    values = getattr(part, layer)
    return values.min(axis=0), values.max(axis=0)  # a NaN survives both


def _counts(part: Pool, sections: Sections) -> NDArray[np.int64]:
    values = getattr(part, sections.layer)
    m, K = values.shape[1], sections.num
    offset = np.arange(m) * K
    counts = np.zeros(m * K, dtype=np.int64)
    step = max(1, _BLOCK_VALUES // m)
    for start in range(0, len(values), step):
        block = sections.codes(values[start : start + step]) + offset  # (step, m)
        counts += np.bincount(block.ravel(), minlength=m * K)
    return counts.reshape(m, K)


def _name_bad_example(view: View, layer: str) -> None:
    rows = view.map(_first_not_finite, layer)
    part = next(i for i, row in enumerate(rows) if row is not None)
    name = view.identify(np.array([view.starts[part] + rows[part]]))[0]
    raise DataError(f"{layer} of example {name!r} holds NaN or infinity; exclude it or mend the model")


def _first_not_finite(part: Pool, layer: str) -> int | None:
    rows = np.flatnonzero(~np.isfinite(getattr(part, layer)).all(axis=1))
    return int(rows[0]) if len(rows) else None
