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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.hansen_hurwitz import rao_hartley_cochran
from opacc_ray.failure import auxiliary
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import Draw, MethodParameters, Task
from opacc_ray.selection import Selection


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """auxiliary variable; floor: the least belief, as a share of the mean."""

    auxiliary: str = "confidence"
    floor: float = 0.1

    def __post_init__(self) -> None:
        auxiliary.check(self.auxiliary)
        auxiliary.check_floor(self.floor)


class State(NamedTuple):
    probability: NDArray[np.float64]  # (N,) p; 0 for the examples labelled before
    chosen: NDArray[np.int64]  # (n,) one of each group
    group_probability: NDArray[np.float64]  # (n,) Q
    group_size: NDArray[np.int64]  # (n,)


class Info(NamedTuple):
    num_groups: int


def needs(parameters: Parameters) -> tuple[str, ...]:
    return auxiliary.NEEDS[parameters.auxiliary]


def init(view: View, task: Task, rng: np.random.Generator) -> State:
    """p of every example."""
    name = task.parameters.auxiliary
    beliefs = auxiliary.belief(auxiliary.read(view, name), name)
    probability = auxiliary.draw_probabilities(beliefs, task.parameters.floor, task.previous.chosen)
    nothing = np.empty(0, dtype=np.int64)
    return State(probability, nothing, np.empty(0), nothing)


def step(view: View, task: Task, state: State, rng: np.random.Generator) -> tuple[State, Info]:
    """Split into groups and draw one example of each."""
    assert task.budget is not None
    order = rng.permutation(np.flatnonzero(state.probability))  # (free,) group after group
    size = np.full(task.budget, len(order) // task.budget)
    size[: len(order) % task.budget] += 1
    starts = np.cumsum(size) - size
    sums = np.cumsum(state.probability[order])
    total = np.add.reduceat(state.probability[order], starts)  # (n,) Q
    before = sums[starts] - state.probability[order[starts]]
    place = np.searchsorted(sums, before + rng.random(task.budget) * total, side="right")
    chosen = order[np.clip(place, starts, starts + size - 1)]  # rounding may lead just outside of the group
    return State(state.probability, chosen, total, size), Info(len(size))


def finished(task: Task, state: State) -> bool:
    return len(state.chosen) == task.budget


def draw(state: State) -> Draw:
    design = {
        "draw_probability": state.probability[state.chosen],
        "group_probability": state.group_probability,
        "group_size": state.group_size,
    }
    least = float(state.probability.min(where=state.probability > 0, initial=1.0))
    return Draw(state.chosen, design, {"least_probability": least})


def estimate(selection: Selection, outcome: Outcome, level: float) -> Estimate:
    """Rao, Hartley and Cochran's: unbiased."""
    design, least = selection.design, selection.facts["least_probability"]
    return rao_hartley_cochran(
        outcome, design["draw_probability"], design["group_probability"], design["group_size"], least, level
    )
