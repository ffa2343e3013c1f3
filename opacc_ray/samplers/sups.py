"""SUPS: simple unequal probability sampling.

Guerriero, Pietrantuono, Russo, "DeepSample: DNN sampling-based testing for operational accuracy assessment", ICSE 2024,
https://doi.org/10.1145/3597503.3639584, with the estimator of Hansen and Hurwitz (1943).

n independent draws, each of example i with probability p_i proportional to its failure score
(:mod:`opacc_ray.samplers.auxiliary`). An example may be drawn more than once and is then labelled once. The estimator
Σ_k f_k / (n·N·p_k) of the share of failures f = 1 - outcome is unbiased, and so is its variance.

Corrected. The original never draws an example of score 0 (a confidence that was rounded to 1), so it always misses its
failure; where the score is nearly 0, one such failure counts as thousands. Scores below ``floor`` times their mean are
therefore raised to it. A later round draws from the examples not labelled so far.

Legend: N pool, n budget, p draw probability.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.draw_probability import HansenHurwitz
from opacc_ray.parts.view import View
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.base import Draw, Task, parameter

needs = auxiliary.needs


@dataclass(frozen=True)
class Parameters(auxiliary.Scored):
    """The failure score."""

    floor: float = parameter(0.1, "least failure score, as a share of the mean")

    def __post_init__(self) -> None:
        super().__post_init__()
        auxiliary.check_floor(self.floor)


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Draw n examples independently, in proportion to their scores."""
    score = auxiliary.read(view, task.parameters.auxiliary).score()
    return draw_independent(rng, draw_probabilities(score, task.parameters.floor, task.previous.chosen), task)


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
    cumulative, possible = np.cumsum(probability), np.flatnonzero(probability)
    place = rng.random(task.budget) * cumulative[-1]
    chosen = np.minimum(np.searchsorted(cumulative, place, side="right"), possible[-1])  # rounding may lead past it
    least = min(float(probability[possible].min()), 1.0)
    free = len(probability) - len(task.previous.chosen)
    return Draw(chosen.astype(np.int64), HansenHurwitz(probability[chosen], free, least), {})
