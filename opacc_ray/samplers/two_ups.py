"""2-UPS: two-stage unequal probability sampling.

Guerriero, Pietrantuono, Russo, "DeepSample: DNN sampling-based testing for operational accuracy assessment", ICSE 2024,
https://doi.org/10.1145/3597503.3639584, with the estimator of Hansen and Hurwitz (1943).

The pool is cut in strata by 1-D k-means of the belief that an example fails (:mod:`opacc_ray.samplers.auxiliary`). Each
of n independent draws takes a stratum with probability proportional to its total belief, then an example of it at
random: p_i = A_h / (A · N_h) for every i of stratum h. The estimator Σ_k f_k / (n·N·p_k) runs over the *draws*; it is
unbiased.

Corrected. The original averages over the strata that happened to be drawn, without regard to how often, and draws
without replacement as if it were with, which biases it. Beliefs below ``floor`` times their mean are lifted to it, as
in SUPS, for a stratum of belief 0 would never be drawn. An example may come more than once and is then labelled once.
A later round draws among the examples not labelled so far.

Legend: N pool, N_h stratum, A total belief, A_h that of a stratum, n budget, p draw probability.
"""

from dataclasses import dataclass

import numpy as np

from opacc_ray.designs.kmeans import tally
from opacc_ray.errors import SpecError
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.base import NO_PREVIOUS, Draw, MethodParameters, Task, parameter
from opacc_ray.samplers.proportional import Array, Lifted, Numbers, find_lifted
from opacc_ray.samplers.strata import cut_strata, part_strata_of
from opacc_ray.samplers.sups import draw_independent


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """The belief in failure, and the strata."""

    auxiliary: str = parameter("confidence", "what says how likely a failure is: confidence, dsa, lsa or combined")
    strata: int = parameter(10, "cut at most so many strata")
    floor: float = parameter(0.1, "least belief in failure, as a share of the mean")

    def __post_init__(self) -> None:
        auxiliary.check(self.auxiliary)
        auxiliary.check_floor(self.floor)
        if self.strata < 1:
            raise SpecError(f"strata={self.strata}: give at least 1")


def needs(parameters: Parameters) -> tuple[str, ...]:
    return auxiliary.NEEDS[parameters.auxiliary]


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """n independent draws in two stages, which are those of SUPS with the mean belief of the stratum."""
    parameters, labelled = task.parameters, task.previous.chosen
    strata = cut_strata(view, parameters.auxiliary, parameters.strata, NO_PREVIOUS.chosen)
    lifted = find_lifted(view, parameters.auxiliary, parameters.floor, labelled)
    rows, total = view.rows_of(labelled), np.zeros(len(strata.sizes))
    for part, own in enumerate(rows):  # one after the other: each adds to what those before it have
        [total] = view.parts.call([(part, part_totals, (strata.key, lifted, own, total))])
    mean = total / np.maximum(strata.without(labelled).sizes, 1)  # of the beliefs in each stratum
    return draw_independent(rng, view, part_means, [(strata.key, mean, own) for own in rows], task)


def part_totals(part: Pool, key: str, lifted: Lifted, labelled: Array, before: Numbers) -> Numbers:
    """A_h of the parts up to this one, (H,)."""
    return tally(part_strata_of(part, key), lifted.of(part, labelled), before)


def part_means(part: Pool, key: str, mean: Numbers, labelled: Array) -> Numbers:
    """p of a part's examples, (n,)."""
    probability: Numbers = mean[part_strata_of(part, key)]
    probability[labelled] = 0
    return probability
