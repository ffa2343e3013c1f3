"""The principal directions of the hidden layer, found and applied where its rows are, exactly.

Sums of floating-point numbers depend on how they are split, and a selection must not. So everything that crosses parts
is whole: each neuron's values are coded as steps of 1/4095 of its range over the pool, and the directions as
multiples of 2^-20. Sums and products of such numbers are exact in float64 up to 2^53, in any order: for pools of up to
5·10^8 examples and layers of up to 2^21 neurons.

What travels is each part's range (m,) and each actor's sums (m,) and products (m, m); the projections (n, d) stay where
the rows are. These depend on the pool alone, so where features are stored they are kept beside them, and later rounds
read them instead of the layer: then they come through the driver, part by part.

Legend: N pool, n examples of a part, m neurons, d directions, u codes in 0 .. 4095.
"""

import secrets
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.parts.cache import kept_name, part_keep, part_recall
from opacc_ray.parts.sums import exact_sum, mean_of
from opacc_ray.parts.view import Memory, View
from opacc_ray.pool import Pool

_KEPT = "projection"
_STEPS = 4095
_GRAIN = 2.0**20
_BLOCK_VALUES = 1 << 16
_ROWS = 1 << 12
"""Rows whose whole numbers add up in 64 bits, whatever the layer."""


class _Scale(NamedTuple):
    """Codes of a layer's values: u = (v - low) / width · 4095, rounded; 0 for a constant neuron."""

    low: NDArray[np.float64]  # (m,)
    width: NDArray[np.float64]  # (m,)

    def codes(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = values - self.low
        found *= _STEPS / self.width
        return np.rint(found, out=found)


class Projection:
    """The pool along the principal directions of its layer, and how other rows become such coordinates.

    Every part keeps the coordinates of its own examples, each of mean 0 and variance 1 over the pool: see
    :func:`part_coordinates`.

    Attributes
    ----------
    key : of what the parts keep
    num : directions that there are
    """

    def __init__(self, view: View, num: int) -> None:
        self._view, self._num = view, num
        self.key = f"{num} {secrets.token_hex(8)}"
        name = f"directions-{num}"
        if not (view.memory and self._recall(view.memory, name)):  # whole numbers, which no label changes
            view.map(part_project, self.key, *self._axes)
            if view.memory:
                view.memory.keep(name, view.size, self._codes())
        sums = view.map(part_sums, self.key)
        self.num = len(sums[0])
        self._mean = np.array([sum(own) / view.size for own in zip(*sums, strict=True)])  # (d,) over the pool
        squares = view.map(part_squares, self.key, self._mean)
        variance = [mean_of(own, view.size) for own in zip(*squares, strict=True)]
        self._deviation = np.sqrt(np.array(variance))
        view.map(part_scale, self.key, self._mean, self._deviation)

    def of(self, part: Pool) -> NDArray[np.float64]:
        """Coordinates of other examples: (k, d); raises DataError if their layer is another one, or not finite."""
        low, high = part_bounds(part)
        num = len(self._axes[0].low)
        if len(low) != num:
            raise DataError(f"hidden has {len(low)} neurons, and the pool's {num}; extract both from the same layer")
        _check_finite(low, high)
        return (_project(part, *self._axes) - self._mean) / self._deviation

    def _recall(self, memory: Memory, name: str) -> bool:
        """Whether the parts have been given what is kept of them."""
        view, held = self._view, 0
        found = memory.recall(name, view.starts)
        for part, codes in enumerate(found):
            view.parts.call([(part, part_keep, (kept_name(_KEPT, self.key), self.key, codes.astype(np.float64)))])
            held += 1
        return held == len(view.parts.sizes)

    def _codes(self) -> Iterator[NDArray[np.int64]]:
        """The whole numbers that the parts keep, one part's after the other's."""
        for part in range(len(self._view.parts.sizes)):
            yield self._view.parts.call([(part, part_coordinates, (self.key,))])[0].astype(np.int64)

    @cached_property
    def _axes(self) -> tuple[_Scale, NDArray[np.float64]]:
        return _find_axes(self._view, self._num)


def find_projection(view: View, num: int) -> Projection:
    """The first ``num`` principal directions of the hidden layer, found once per view.

    Neurons count in proportion to their range. Directions without variance are left out.

    Raises
    ------
    DataError
        If a value is not finite.
    """
    return view.once("projection", num, lambda: Projection(view, num))


def _find_axes(view: View, num: int) -> tuple[_Scale, NDArray[np.float64]]:
    """The codes of the neurons, and the directions as whole numbers (m, d)."""
    scale = _range(view)
    moments = view.total(part_moments, scale) / view.size
    mean, product = moments[0], moments[1:]  # (m,) and (m, m) of the codes
    unit = np.where(np.isinf(scale.width), 0.0, scale.width)  # back to the neurons' own units
    variance, axes = np.linalg.eigh((product - np.outer(mean, mean)) * np.outer(unit, unit))
    first = np.argsort(-variance)[:num]
    first = first[variance[first] > 1e-9 * max(float(variance.max()), 1e-300)]
    return scale, _whole(axes[:, first] * unit[:, None])


def _range(view: View) -> _Scale:
    bounds = view.map(part_bounds)
    low = np.min([low for low, _ in bounds], axis=0).astype(np.float64)
    high = np.max([high for _, high in bounds], axis=0).astype(np.float64)
    _check_finite(low, high)
    return _Scale(low, np.where(high > low, high - low, np.inf))


def _check_finite(low: NDArray[np.floating], high: NDArray[np.floating]) -> None:
    finite = np.isfinite(low) & np.isfinite(high)
    if not finite.all():
        neuron = int(np.flatnonzero(~finite)[0])
        raise DataError(f"neuron {neuron} of hidden is NaN or infinite for some example; exclude it or fix the model")


def _whole(axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """``axes`` (m, d) as whole numbers up to 2^20, each turned so that its largest entry is positive."""
    if not axes.size:
        return axes
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)  # (1, d)
    return np.rint(axes / largest * _GRAIN)


def part_bounds(part: Pool) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    assert part.hidden is not None
    return part.hidden.min(axis=0), part.hidden.max(axis=0)  # a NaN survives both


def part_moments(part: Pool, scale: _Scale) -> NDArray[np.float64]:
    """Sums (m,) and products (m, m) of a part's codes, one above the other."""
    m = len(scale.low)
    found = np.zeros((1 + m, m))
    for codes in _blocks(part, scale):
        found[0] += codes.sum(axis=0)
        found[1:] += codes.T @ codes
    return found


def part_project(part: Pool, key: str, scale: _Scale, whole: NDArray[np.float64]) -> None:
    part_keep(part, kept_name(_KEPT, key), key, _project(part, scale, whole))


def part_coordinates(part: Pool, key: str) -> NDArray[np.float64]:
    """What the part keeps under the key of a projection: (n, d)."""
    coordinates: NDArray[np.float64] = part_recall(part, kept_name(_KEPT, key), key)
    return coordinates


def part_sums(part: Pool, key: str) -> list[int]:
    """Sums of the whole numbers that the part keeps: (d,)."""
    whole = part_coordinates(part, key).astype(np.int64)
    blocks = np.add.reduceat(whole, np.arange(0, len(whole), _ROWS), axis=0)
    return [sum(own) for own in zip(*blocks.tolist(), strict=True)]


def part_squares(part: Pool, key: str, mean: NDArray[np.float64]) -> list[int]:
    """Exact sums of the squared distances to the pool's means."""
    return [exact_sum((own - middle) ** 2) for own, middle in zip(part_coordinates(part, key).T, mean, strict=True)]


def part_scale(part: Pool, key: str, mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> None:
    part_keep(part, kept_name(_KEPT, key), key, (part_coordinates(part, key) - mean) / deviation)


def _project(part: Pool, scale: _Scale, whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([codes @ whole for codes in _blocks(part, scale)])


def _blocks(part: Pool, scale: _Scale) -> Iterator[NDArray[np.float64]]:
    assert part.hidden is not None
    rows = max(1, _BLOCK_VALUES // part.hidden.shape[1])
    for start in range(0, len(part.hidden), rows):
        yield scale.codes(part.hidden[start : start + rows])
