"""2-UPS: two-stage unequal probability sampling.

Guerriero, Pietrantuono, Russo, "DeepSample: DNN sampling-based testing for operational accuracy assessment", ICSE 2024,
https://doi.org/10.1145/3597503.3639584, with the estimator of Hansen and Hurwitz (1943).

The pool is cut in strata by 1-D k-means of the failure score (:mod:`opacc_ray.samplers.auxiliary`). Each of n
independent draws takes a stratum with probability proportional to its total score, then an example of it at random:
p_i = A_h / (A · N_h) for every i of stratum h. The estimator Σ_k f_k / (n·N·p_k) runs over the *draws*; it is unbiased.

Corrected. The original averages over the strata that were drawn, however often, and draws without replacement as if it
were with, which biases it. Scores below ``floor`` times their mean are raised to it, as in SUPS, because a stratum of
score 0 would never be drawn. An example may be drawn more than once and is then labelled once. A later round draws from
the examples not labelled so far.

Legend: N pool, N_h stratum, A total score, A_h that of a stratum, n budget, p draw probability.
"""

from dataclasses import dataclass

import numpy as np

from opacc_ray.errors import SpecError
from opacc_ray.parts.view import View
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.base import Draw, Task, parameter
from opacc_ray.samplers.sups import draw_independent, draw_probabilities

needs = auxiliary.needs


@dataclass(frozen=True)
class Parameters(auxiliary.Scored):
    """The failure score, and the strata."""

    strata: int = parameter(10, "maximum number of strata")
    floor: float = parameter(0.1, "least failure score, as a share of the mean")

    def __post_init__(self) -> None:
        super().__post_init__()
        auxiliary.check_floor(self.floor)
        if self.strata < 1:
            raise SpecError(f"strata={self.strata}: give at least 1")


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Draw n examples independently in two stages: those of SUPS, with the mean score of the stratum."""
    parameters, labelled = task.parameters, task.previous.chosen
    score = auxiliary.read(view, parameters.auxiliary).score()
    stratum = auxiliary.kmeans_1d(score, parameters.strata)  # (N,)
    sizes = np.bincount(stratum) - np.bincount(stratum[labelled], minlength=int(stratum.max()) + 1)
    total = np.bincount(stratum, weights=draw_probabilities(score, parameters.floor, labelled))  # A_h / A
    mean = total / np.maximum(sizes, 1)
    probability = mean[stratum]
    probability[labelled] = 0
    return draw_independent(rng, probability, task)
