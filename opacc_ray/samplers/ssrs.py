"""SSRS: stratified simple random sampling along the auxiliary variable.

Guerriero, Pietrantuono, Russo, "DeepSample: DNN sampling-based testing for operational accuracy assessment", ICSE 2024,
https://doi.org/10.1145/3597503.3639584.

The pool is cut in ten strata by 1-D k-means of the belief that an example fails (:mod:`opacc_ray.samplers.auxiliary`),
the budget is shared by Neyman's rule with the spread of the belief in place of the unknown spread of the outcomes,

    n_h = n · N_h · S_h / Σ_h N_h · S_h,

and examples are drawn at random without replacement in each stratum. The estimator Σ_h (N_h / N) · mean(y | stratum h)
is unbiased as long as every stratum is seen.

Corrected. The original rounds each n_h by itself: a stratum may get none and then counts as free of failures, and the
sum may exceed the budget. Here every stratum gets at least one example and the budget is kept. The clusters are the
best there are instead of those of a random start. A later round samples the examples not labelled so far.

Legend: N pool, N_h stratum, n budget, S_h standard deviation of the belief in stratum h.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.allocation import allocate, draw_strata
from opacc_ray.designs.stratified import Stratified
from opacc_ray.errors import SpecError
from opacc_ray.parts.view import View
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.base import Draw, MethodParameters, Task, parameter
from opacc_ray.samplers.strata import Strata, cut_strata


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """What the strata are cut by."""

    auxiliary: str = parameter("confidence", "what says how likely a failure is: confidence, dsa, lsa or combined")
    strata: int = parameter(10, "cut at most so many strata, and no more than the budget")

    def __post_init__(self) -> None:
        auxiliary.check(self.auxiliary)
        if self.strata < 1:
            raise SpecError(f"strata={self.strata}: give at least 1")


def needs(parameters: Parameters) -> tuple[str, ...]:
    return auxiliary.NEEDS[parameters.auxiliary]


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Cut the strata, share the budget, and draw."""
    assert task.budget is not None
    name, labelled = task.parameters.auxiliary, task.previous.chosen
    strata = cut_strata(view, name, task.parameters.strata, labelled)
    sizes = strata.sizes
    spread = sizes * strata.deviations(auxiliary.find(view, name))  # N_h · S_h
    shares = spread / spread.sum() if spread.sum() > 0 else sizes / sizes.sum()
    return draw_each(rng, strata, allocate(task.budget, shares, sizes))


def draw_each(rng: np.random.Generator, strata: Strata, allocation: NDArray[np.int64]) -> Draw:
    """Draw each stratum's share, in the order of :func:`opacc_ray.designs.allocation.draw_strata`."""
    ranks, stratum = draw_strata(rng, strata.sizes, allocation)
    return Draw(strata.find(stratum, ranks), Stratified(stratum, strata.sizes), {})
