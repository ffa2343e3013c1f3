"""Sections of equal count: each neuron's distinct values over the pool, sorted and cut in K parts of equal size.

Zhou, Li, Dong, Zhang, Hao, "Cost-Effective Testing of a Deep Learning Model through Input Reduction", ISSRE 2020, II-B,
https://doi.org/10.1109/ISSRE5003.2020.00035. Of U distinct values, section k holds those of rank floor(U (k - 1) / K)
+ 1 to floor(U k / K). The values 1 2 3 9 4 7 8 1 10 and K = 2 give {1, 2, 3, 4} and {7, 8, 9, 10}, with 5/9 and 4/9 of
the pool. Where U < K some sections hold nothing, and a constant neuron has the last one only.

Counts of parts do not tell how many values are distinct, so a neuron's values meet in one place. They do so a few
neurons at a time: beside the cuts, no more than some numbers per example are held at once.

Legend: N pool, n rows, m neurons, K sections, U distinct values of a neuron.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.neurons.sections import check_sections, refuse_not_finite
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool

_BLOCK_VALUES = 1 << 24
"""Values that meet at a time; one neuron's if they are more."""


class EqualCount(NamedTuple):
    """K sections for each neuron of a layer, cut on the whole pool."""

    layer: str
    starts: NDArray[np.float32]  # (m, K - 1) the least value of sections 2 to K; not decreasing
    num: int

    def codes(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Section of each value: how many sections start at it or below. values (n, m) -> (n, m) uint8."""
        codes = np.zeros(values.shape, dtype=np.uint8)
        for start in self.starts.T:  # (m,)
            codes += values >= start
        return codes


def equal_count(view: View, layer: str, num: int) -> EqualCount:
    """Cut every neuron of ``layer`` in ``num`` sections that hold equally many distinct values.

    Raises
    ------
    DataError
        If a value is NaN or infinite, or no neuron varies.
    """
    check_sections(num)
    width = view.map(part_width, layer)[0]
    step = max(1, _BLOCK_VALUES // view.size)
    cuts = [
        cut for first in range(0, width, step) for cut in _cuts(view, layer, range(width)[first : first + step], num)
    ]
    if all(constant for _, constant in cuts):
        raise DataError(f"every neuron of {layer} is constant over the pool, so no sections can be cut")
    return EqualCount(layer, np.stack([starts for starts, _ in cuts]), num)


def _cuts(view: View, layer: str, neurons: range, num: int) -> list[tuple[NDArray[np.float32], bool]]:
    """For each neuron the least values of sections 2 to K, (K - 1,), and whether it is constant."""
    parts = view.map(part_distinct, layer, neurons)  # [part][neuron] -> (distinct values there,)
    cuts = []
    for own in zip(*parts, strict=True):
        values = own[0] if len(own) == 1 else np.unique(np.concatenate(own))  # (U,)
        if not np.isfinite(values[[0, -1]]).all():  # sorted, with NaN last
            refuse_not_finite(view, layer)
        cuts.append((values[len(values) * np.arange(1, num) // num], len(values) == 1))
    return cuts


def part_width(part: Pool, layer: str) -> int:
    return int(getattr(part, layer).shape[1])


def part_distinct(part: Pool, layer: str, neurons: range) -> list[NDArray[np.float32]]:
    """The distinct values of each of some neurons in a part, sorted."""
    columns = np.ascontiguousarray(getattr(part, layer)[:, neurons.start : neurons.stop].T)
    return [np.unique(column) for column in columns]
