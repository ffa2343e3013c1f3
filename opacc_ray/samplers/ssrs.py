"""SSRS: stratified simple random sampling along the auxiliary variable.

Guerriero, Pietrantuono, Russo, "DeepSample: DNN sampling-based testing for operational accuracy assessment", ICSE 2024,
https://doi.org/10.1145/3597503.3639584.

The pool is cut in ten strata by 1-D k-means of the failure score (:mod:`opacc_ray.samplers.auxiliary`). The budget is
shared by Neyman's rule with the spread of the score in place of the unknown spread of the outcomes,

    n_h = n · N_h · S_h / Σ_h N_h · S_h,

and examples are drawn at random without replacement in each stratum. The estimator Σ_h (N_h / N) · mean(y | stratum h)
is unbiased as long as every stratum is seen.

Corrected. The original rounds each n_h separately: a stratum may get none and then counts as free of failures, and the
sum may exceed the budget. Here every stratum gets at least one example and the budget is kept. The clusters are optimal
instead of those of a random start. A later round samples the examples not labelled so far.

Legend: N pool, N_h stratum, n budget, S_h standard deviation of the score in stratum h.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import SpecError
from opacc_ray.parts.view import View
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.base import Draw, Task, parameter

needs = auxiliary.needs


@dataclass(frozen=True)
class Parameters(auxiliary.Scored):
    """The strata."""

    strata: int = parameter(10, "maximum number of strata; not above the budget")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strata < 1:
            raise SpecError(f"strata={self.strata}: give at least 1")


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Cut the strata, share the budget, and draw."""
    free = task.free(view.size)
    score = auxiliary.read(view, task.parameters.auxiliary).score()[free]
    stratum = auxiliary.kmeans_1d(score, task.parameters.strata)
    sizes = np.bincount(stratum)
    spread = sizes * _deviations(score, stratum)  # N_h · S_h
    shares = spread / spread.sum() if spread.sum() > 0 else sizes / sizes.sum()
    return auxiliary.draw_strata(rng, free, stratum, auxiliary.allocate(task.budget, shares, sizes))


def _deviations(score: NDArray[np.float64], stratum: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return S_h (H,), which is 0 where all scores are equal."""
    members = [score[stratum == h] for h in range(stratum.max() + 1)]
    return np.array([own.std() if np.ptp(own) else 0.0 for own in members])
