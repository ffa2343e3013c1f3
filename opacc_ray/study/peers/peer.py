"""Define the arguments and the result of every peer."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.intervals import normal_quantile

Array = NDArray[np.float64]


class PeerEstimate(NamedTuple):
    """Accuracy estimated by a peer."""

    value: float
    low: float
    high: float
    chosen: NDArray[np.int64]  # labelled examples


Peer = Callable[[Array, Array, int, np.random.Generator, float], PeerEstimate]
"""Function of the confidences (N,) in [0, 1], the outcomes (N,), of which it reads only those that it draws, the
budget, a generator and the level of the interval: draws that many examples, and estimates."""


def normal(value: float, variance: float, index: NDArray[np.int64], level: float) -> PeerEstimate:
    """Return the estimate with the interval value ± z · √variance, not cut at 0 and 1."""
    half = normal_quantile(level) * math.sqrt(max(variance, 0.0))
    return PeerEstimate(value, value - half, value + half, index)
