"""Deville's systematic sampling of examples that are in memory, where the package has them in the parts of a pool."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.drawing import SURE, draw_along, line_lengths


def draw_ordered(
    rng: np.random.Generator, probability: NDArray[np.float64], order: NDArray[np.int64]
) -> NDArray[np.int64]:
    """A sample, spread along ``order``, with inclusion probabilities ``probability`` (N,); their sum n is whole.

    Returns (n,) distinct examples: those that are sure, then one per stratum.
    """
    inside = probability[order]
    sure = inside >= SURE
    unsure, num = order[~sure], round(float(inside[~sure].sum()))
    return np.concatenate([order[sure], unsure[draw_along(rng, _Array(line_lengths(inside[~sure], num)), num)]])


@dataclass(frozen=True)
class _Places:
    index: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]


class _Array:
    """A line in memory."""

    def __init__(self, length: NDArray[np.int64]) -> None:
        self._end = np.cumsum(length)
        self._begin = self._end - length
        self.total = int(self._end[-1]) if len(length) else 0

    def find(self, places: NDArray[np.int64]) -> _Places:
        index = np.searchsorted(self._end, places, side="right")
        return _Places(index, self._begin[index], self._end[index])
