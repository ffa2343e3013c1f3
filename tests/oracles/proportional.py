"""Draws in proportion to belief, with the beliefs of the whole pool in one array.

Written from the text of `opacc_ray/samplers/proportional.py`, which does the same part by part.
"""

import numpy as np
from numpy.typing import NDArray


def draw_probabilities(beliefs: NDArray[np.float64], floor: float, taken: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probabilities proportional to belief, (N,): 0 for the ``taken``, positive for all others, 1 in sum."""
    lifted = beliefs.copy()
    lifted[taken] = 0
    mean = lifted.sum() / (len(lifted) - len(taken))
    np.maximum(lifted, floor * mean if mean > 0 else 1.0, out=lifted)
    lifted[taken] = 0
    return lifted / lifted.sum()


def draw_proportional(rng: np.random.Generator, weight: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """``num`` independent draws from the range of ``weight``, each proportional to it."""
    cumulative = np.cumsum(weight)
    last = int(np.flatnonzero(weight)[-1])  # should rounding lead past the end
    place = np.searchsorted(cumulative, rng.random(num) * cumulative[-1], side="right")
    return np.minimum(place, last).astype(np.int64)
