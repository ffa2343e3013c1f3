"""RHC-S: Rao-Hartley-Cochran sampling, unequal probabilities without replacement.

Guerriero, Pietrantuono, Russo, "DeepSample: DNN sampling-based testing for operational accuracy assessment", ICSE 2024,
https://doi.org/10.1145/3597503.3639584; the design is that of Rao, Hartley and Cochran (1962).

The pool is split at random into n groups of equal size (or one apart), and from group g one example is drawn with
probability p_i / Q_g, p proportional to the belief that it fails (:mod:`opacc_ray.failure.auxiliary`) and Q_g = Σ_{i
in g} p_i. The share of failures is estimated by Σ_g (f_g / N) · Q_g / p_g: unbiased, never more variable than SUPS,
and no example comes twice.

Corrected. Examples of belief 0 could not be drawn: beliefs below ``floor`` times their mean are lifted to it, as in
SUPS. The original cuts an estimate above 1 to 1, which biases it: the value is left as it is and the interval cut. A
later round splits the examples not labelled so far.

Legend: N pool, n budget and groups, p draw probability, Q probability of a group.
"""

from dataclasses import dataclass

import numpy as np

from opacc_ray.designs.rao_hartley_cochran import RaoHartleyCochran
from opacc_ray.failure import auxiliary
from opacc_ray.failure.proportional import find_lifted, part_probability
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import Draw, MethodParameters, Task, parameter


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
    """Split into groups and draw one example of each."""
    assert task.budget is not None
    parameters, labelled = task.parameters, task.previous.chosen
    lifted = find_lifted(view, parameters.auxiliary, parameters.floor, labelled)
    probability = np.concatenate(view.map_each(part_probability, [(lifted, own) for own in view.rows_of(labelled)]))
    order = rng.permutation(np.flatnonzero(probability))  # (free,) group after group
    size = np.full(task.budget, len(order) // task.budget)
    size[: len(order) % task.budget] += 1
    starts = np.cumsum(size) - size
    sums = np.cumsum(probability[order])
    total = np.add.reduceat(probability[order], starts)  # (n,) Q
    before = sums[starts] - probability[order[starts]]
    place = np.searchsorted(sums, before + rng.random(task.budget) * total, side="right")
    chosen = order[np.clip(place, starts, starts + size - 1)]  # rounding may lead just outside of the group
    least = float(probability.min(where=probability > 0, initial=1.0))
    return Draw(chosen, RaoHartleyCochran(probability[chosen], total, size, least), {})
