"""What designs exchange with estimators: predicted failures, and draws one by one."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class PredictedFailures(NamedTuple):
    """Failure probabilities that were predicted before the labels were known."""

    labelled: Array  # (n,) of the labelled examples
    share: float  # mean over all examples that the sample was drawn from


class LabelledBefore(NamedTuple):
    """Labels that were known when a round was drawn."""

    num: int  # labelled examples
    failures: float  # their sum
    pool_size: int


class DrawSequence(NamedTuple):
    """Draws in their order, each with what was known before it.

    With m the share of failures in the pool, E[value | all before] = pool_size · m - drawn, and 0 <= value <= bound.
    """

    value: Array  # (n,)
    drawn: Array  # (n,) failures drawn before
    bound: Array  # (n,)
    pool_size: int

    def mirrored(self) -> "DrawSequence":
        """Return the sequence of bound - value, which bounds 1 - m from below."""
        # E[b - g] = b - N·m + D = N·(1 - m) - (N - b - D)
        return self._replace(value=self.bound - self.value, drawn=self.pool_size - self.bound - self.drawn)
