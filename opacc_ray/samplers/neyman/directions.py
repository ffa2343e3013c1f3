"""The principal directions of the hidden layer, from exact sums over the parts that hold its rows.

Sums of floating numbers depend on how they are split, and a selection must not. So everything that crosses parts is
whole: each neuron's values are coded as steps of 1/4095 of its range over the pool, and the directions as multiples of
2^-20. Sums and products of such numbers are exact in float64 up to 2^53, in any order: for pools of up to 5·10^8
examples and layers of up to 2^21 neurons.

Each part returns the range (m,), sums (m,) and products (m, m) of its rows, then their projections (n, d) in whole
numbers. These depend on the pool alone. Where features are stored, they are stored next to them, and later rounds read
them instead of the layer.

Legend: N pool, n examples of a part, m neurons, d directions, u codes in 0 .. 4095.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool

_STEPS = 4095
_GRAIN = 2.0**20
_BLOCK_VALUES = 1 << 16


class _Scale(NamedTuple):
    """Codes of a layer's values: u = (v - low) / width · 4095, rounded; 0 for a constant neuron."""

    low: NDArray[np.float64]  # (m,)
    width: NDArray[np.float64]  # (m,)

    def codes(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = values - self.low
        found *= _STEPS / self.width
        return np.rint(found, out=found)


class _Axes(NamedTuple):
    """The codes of the neurons, and the directions as whole numbers (m, d)."""

    scale: _Scale
    whole: NDArray[np.float64]


class Projection(NamedTuple):
    """A pool along the principal directions of its layer."""

    coordinates: tuple[NDArray[np.float64], ...]  # d of (N,), each of mean 0 and variance 1 over the pool
    mean: NDArray[np.float64]  # (d,) of the whole numbers
    deviation: NDArray[np.float64]  # (d,)


def find_projection(view: View, num: int) -> Projection:
    """Return the pool along the first ``num`` principal directions of its hidden layer, found once per view.

    Neurons count in proportion to their range. Directions without variance are left out.

    Raises
    ------
    DataError
        If a value is not finite.
    """
    return view.once("projection", num, lambda: _standardised(_whole_numbers(view, num)))


def project_others(view: View, num: int, other: Pool) -> NDArray[np.float64]:
    """Return the coordinates (k, d) of other examples; raises DataError if their layer differs, or is not finite."""
    axes, projection = _axes(view, num), find_projection(view, num)
    low, high = part_bounds(other)
    if len(low) != len(axes.whole):
        raise DataError(
            f"hidden has {len(low)} neurons, and the pool's {len(axes.whole)}; extract both from the same layer"
        )
    _check_finite(low, high)
    return (part_project(other, axes) - projection.mean) / projection.deviation


def _whole_numbers(view: View, num: int) -> NDArray[np.float64]:
    """Return the whole numbers (N, d), which are kept in the memory of the view if it has one."""
    name = f"directions-{num}"
    blocks = list(view.memory.recall(name, view.starts)) if view.memory else []
    if sum(map(len, blocks)) == view.size:
        return np.concatenate(blocks).astype(np.float64)
    found = view.gather(part_project, _axes(view, num))
    if view.memory:
        parts = (found[start:stop].astype(np.int64) for start, stop in pairwise(view.starts))
        view.memory.keep(name, view.size, parts)
    return found


def _standardised(whole: NDArray[np.float64]) -> Projection:
    columns = [np.ascontiguousarray(own) for own in whole.T]
    mean, deviation = np.array([own.mean() for own in columns]), np.array([own.std() for own in columns])
    for own, middle, spread in zip(columns, mean, deviation, strict=True):
        own -= middle
        own /= spread
    return Projection(tuple(columns), mean, deviation)


def _axes(view: View, num: int) -> _Axes:
    return view.once("axes", num, lambda: _find_axes(view, num))


def _find_axes(view: View, num: int) -> _Axes:
    scale = _range(view)
    moments = view.total(part_moments, scale) / view.size
    mean, product = moments[0], moments[1:]  # (m,) and (m, m) of the codes
    unit = np.where(np.isinf(scale.width), 0.0, scale.width)  # back to the neurons' own units
    variance, axes = np.linalg.eigh((product - np.outer(mean, mean)) * np.outer(unit, unit))
    first = np.argsort(-variance)[:num]
    first = first[variance[first] > 1e-9 * max(float(variance.max()), 1e-300)]
    return _Axes(scale, _as_whole(axes[:, first] * unit[:, None]))


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


def _as_whole(axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``axes`` (m, d) as whole numbers up to 2^20, each turned so that its largest entry is positive."""
    if not axes.size:
        return axes
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)  # (1, d)
    return np.rint(axes / largest * _GRAIN)


def part_bounds(part: Pool) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    assert part.hidden is not None
    return part.hidden.min(axis=0), part.hidden.max(axis=0)  # a NaN survives both


def part_moments(part: Pool, scale: _Scale) -> NDArray[np.float64]:
    """Return the sums (m,) and products (m, m) of a part's codes, one above the other."""
    m = len(scale.low)
    found = np.zeros((1 + m, m))
    for codes in _blocks(part, scale):
        found[0] += codes.sum(axis=0)
        found[1:] += codes.T @ codes
    return found


def part_project(part: Pool, axes: _Axes) -> NDArray[np.float64]:
    """Return the projections of a part's rows, whole numbers (n, d)."""
    return np.concatenate([codes @ axes.whole for codes in _blocks(part, axes.scale)])


def _blocks(part: Pool, scale: _Scale) -> Iterator[NDArray[np.float64]]:
    assert part.hidden is not None
    rows = max(1, _BLOCK_VALUES // part.hidden.shape[1])
    for start in range(0, len(part.hidden), rows):
        yield scale.codes(part.hidden[start : start + rows])
