"""Principal axes of a hidden layer, from exact sums over the parts that hold it.

Sums of floating numbers depend on how they are split, and a selection must not. So everything that crosses parts is
whole: each neuron's values are coded as steps of 1/4095 of its range over the pool, and the axes as multiples of 2^-20.
Sums and products of such numbers are exact in float64 up to 2^53, in any order: for pools of up to 5·10^8 examples and
layers of up to 2^21 neurons.

Legend: d axes, m neurons, u codes 0 .. 4095.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool

Array = NDArray[np.float64]

_BLOCK_VALUES = 1 << 16
_STEPS = 4095
_GRAIN = 2.0**20


class Axes(NamedTuple):
    """Codes of a layer's values, u = (v - low) / width · 4095, and the axes as whole numbers of them."""

    low: Array  # (m,)
    width: Array  # (m,) infinite for a constant neuron, whose codes are 0
    whole: Array  # (m, d)


def axes_of(view: View, num: int) -> Axes:
    """Return the first ``num`` axes of a pool, found once per view; those without variance are left out.

    Neurons count in proportion to their range. Raises DataError if a value is not finite.
    """
    return view.once("axes", num, lambda: _find_axes(view, num))


def _find_axes(view: View, num: int) -> Axes:
    bounds = view.map(part_bounds)
    low = np.min([low for low, _ in bounds], axis=0).astype(np.float64)
    high = np.max([high for _, high in bounds], axis=0).astype(np.float64)
    _check_finite(low, high)
    unit = high - low  # back to the neurons' own units
    width = np.where(unit > 0, unit, np.inf)
    moments = view.total(part_moments, low, width) / view.size
    mean, product = moments[0], moments[1:]  # (m,) and (m, m) of the codes
    variance, axes = np.linalg.eigh((product - np.outer(mean, mean)) * np.outer(unit, unit))
    first = np.argsort(-variance)[:num]
    first = first[variance[first] > 1e-9 * max(float(variance.max()), 1e-300)]
    return Axes(low, width, _as_whole(axes[:, first] * unit[:, None]))


def project_all(other: Pool, axes: Axes) -> Array:
    """Return the projections (k, d) of other examples; raises DataError if their layer differs, or is not finite."""
    low, high = part_bounds(other)
    if len(low) != len(axes.whole):
        raise DataError(
            f"hidden has {len(low)} neurons, and the pool's {len(axes.whole)}; extract both from the same layer"
        )
    _check_finite(low, high)
    return part_project(other, axes)


def _check_finite(low: NDArray[np.floating], high: NDArray[np.floating]) -> None:
    finite = np.isfinite(low) & np.isfinite(high)
    if not finite.all():
        neuron = int(np.flatnonzero(~finite)[0])
        raise DataError(f"neuron {neuron} of hidden is NaN or infinite for some example; exclude it or fix the model")


def _as_whole(axes: Array) -> Array:
    """Return ``axes`` (m, d) as whole numbers up to 2^20, each turned so that its largest entry is positive."""
    if not axes.size:
        return axes
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)  # (1, d)
    return np.rint(axes / largest * _GRAIN)


def part_bounds(part: Pool) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    assert part.hidden is not None
    return part.hidden.min(axis=0), part.hidden.max(axis=0)  # a NaN survives both


def part_moments(part: Pool, low: Array, width: Array) -> Array:
    """Return the sums (m,) and products (m, m) of a part's codes, one above the other."""
    found = np.zeros((1 + len(low), len(low)))
    for codes in _blocks(part, low, width):
        found[0] += codes.sum(axis=0)
        found[1:] += codes.T @ codes
    return found


def part_project(part: Pool, axes: Axes) -> Array:
    """Return the projections of a part's rows, whole numbers (n, d)."""
    return np.concatenate([codes @ axes.whole for codes in _blocks(part, axes.low, axes.width)])


def _blocks(part: Pool, low: Array, width: Array) -> Iterator[Array]:
    """Yield the codes of a part, block by block: (b, m) each."""
    assert part.hidden is not None
    rows = max(1, _BLOCK_VALUES // part.hidden.shape[1])
    for start in range(0, len(part.hidden), rows):
        codes: Array = part.hidden[start : start + rows] - low
        codes *= _STEPS / width
        yield np.rint(codes, out=codes)
