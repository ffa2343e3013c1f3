"""Independent draws with probabilities proportional to a failure score.

Scores below ``floor`` times their mean are raised to it. Without that floor, an example of score 0 could never be drawn
and its failure never be found, which would bias the estimate; and a failure of an example with a tiny score would count
as thousands in the rare sample that includes it.

Legend: N pool, n draws, p draw probability.
"""

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.hansen_hurwitz import HansenHurwitz
from opacc_ray.samplers.base import Draw, Task


def draw_probabilities(score: NDArray[np.float64], floor: float, labelled: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return p (N,), proportional to ``score`` (N,): 0 for the examples ``labelled`` (k,), 1 in sum."""
    probability = score.copy()
    probability[labelled] = 0
    mean = probability.sum() / (len(score) - len(labelled))
    np.maximum(probability, floor * mean if mean > 0 else 1.0, out=probability)
    probability[labelled] = 0
    probability /= probability.sum()
    return probability


def draw_independent(rng: np.random.Generator, probability: NDArray[np.float64], task: Task) -> Draw:
    """Draw ``task.budget`` examples independently with p (N,), which is 0 for the examples labelled before."""
    assert task.budget is not None
    cumulative, possible = np.cumsum(probability), np.flatnonzero(probability)
    place = rng.random(task.budget) * cumulative[-1]
    chosen = np.minimum(np.searchsorted(cumulative, place, side="right"), possible[-1])  # rounding may lead past it
    least = min(float(probability[possible].min()), 1.0)
    free = len(probability) - len(task.previous.chosen)
    return Draw(chosen.astype(np.int64), HansenHurwitz(probability[chosen], free, least), {})
