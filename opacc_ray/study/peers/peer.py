"""Define the arguments and the result of every peer."""

import math
from typing import NamedTuple, Protocol

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


class Peer(Protocol):
    def __call__(
        self, confidence: Array, outcome: Array, budget: int, rng: np.random.Generator, level: float
    ) -> PeerEstimate:
        """Draw ``budget`` examples, and estimate.

        Parameters
        ----------
        confidence : (N,) in [0, 1], the prediction of the outcome
        outcome : (N,); a peer reads only those that it draws
        """


def normal(value: float, variance: float, index: NDArray[np.int64], level: float) -> PeerEstimate:
    """Return the estimate with the interval value ± z · √variance, not cut at 0 and 1."""
    half = normal_quantile(level) * math.sqrt(max(variance, 0.0))
    return PeerEstimate(value, value - half, value + half, index)
