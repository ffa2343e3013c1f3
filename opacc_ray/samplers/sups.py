"""SUPS: simple unequal probability sampling.

Guerriero, Pietrantuono, Russo, "DeepSample: DNN sampling-based testing for operational accuracy assessment", ICSE 2024,
https://doi.org/10.1145/3597503.3639584, with the estimator of Hansen and Hurwitz (1943).

n independent draws, each of example i with probability p_i proportional to the belief that it fails
(:mod:`opacc_ray.samplers.auxiliary`), so that an example may come more than once and is then labelled once. The
estimator Σ_k f_k / (n·N·p_k) of the share of failures f = 1 - outcome is unbiased, and so is its variance.

Corrected. Where the belief of an example is 0 (a confidence that was rounded to 1) the original never draws it and
misses its failure for good; where it is nearly 0, one such failure counts as thousands. Beliefs below ``floor`` times
their mean are therefore lifted to it. A later round draws among the examples not labelled so far.

Legend: N pool, n budget, p draw probability.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.hansen_hurwitz import HansenHurwitz
from opacc_ray.parts.view import View
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.base import Draw, MethodParameters, Task, parameter
from opacc_ray.samplers.proportional import draw_in_parts, find_lifted, part_probability


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """The belief in failure."""

    auxiliary: str = parameter("confidence", "what says how likely a failure is: confidence, dsa, lsa or combined")
    floor: float = parameter(0.1, "least belief in failure, as a share of the mean")

    def __post_init__(self) -> None:
        auxiliary.check(self.auxiliary)
        auxiliary.check_floor(self.floor)


def needs(parameters: Parameters) -> tuple[str, ...]:
    return auxiliary.NEEDS[parameters.auxiliary]


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """n independent draws by belief."""
    parameters, labelled = task.parameters, task.previous.chosen
    lifted = find_lifted(view, parameters.auxiliary, parameters.floor, labelled)
    return draw_independent(rng, view, part_probability, [(lifted, own) for own in view.rows_of(labelled)], task)


def draw_independent(
    rng: np.random.Generator,
    view: View,
    probability: Callable[..., NDArray[np.float64]],
    arguments: Sequence[tuple[Any, ...]],
    task: Task,
) -> Draw:
    """n draws with ``probability(part, *own)`` (n,), which is 0 for the examples labelled before."""
    assert task.budget is not None
    drawn = draw_in_parts(rng, view, probability, arguments, task.budget)
    free = view.size - len(task.previous.chosen)
    return Draw(drawn.chosen, HansenHurwitz(drawn.probability, free, min(drawn.least, 1.0)), {})
