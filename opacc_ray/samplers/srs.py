"""SRS: simple random sampling, the yardstick of every other method.

With or without replacement. The estimator is the mean of the outcomes; it is unbiased under both. Without
replacement its variance is (N - n)/(N - 1) · θ(1 - θ)/n for 0/1 outcomes, and the exact interval comes from the
hypergeometric law. Round r draws among the examples that no earlier round has labelled.

Legend: N pool, n budget.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.simple import simple_random
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import Draw, MethodParameters, Task, draw_uniform
from opacc_ray.selection import Selection


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """replacement: draw with replacement, so that an example may come more than once."""

    replacement: bool = False

    @property
    def sequential(self) -> bool:
        return True


class State(NamedTuple):
    chosen: NDArray[np.int64]  # (n,) drawn so far


class Info(NamedTuple):
    num_drawn: int


def needs(parameters: Parameters) -> tuple[str, ...]:
    return ()


def init(view: View, task: Task, rng: np.random.Generator) -> State:
    return State(np.empty(0, dtype=np.int64))


def step(view: View, task: Task, state: State, rng: np.random.Generator) -> tuple[State, Info]:
    """Draw the whole sample at once."""
    assert task.budget is not None
    if task.parameters.replacement:
        index = rng.integers(view.size, size=task.budget)
    else:
        index = draw_uniform(rng, view.size, task.previous.chosen, task.budget)
    return State(index), Info(len(index))


def finished(task: Task, state: State) -> bool:
    return len(state.chosen) == task.budget


def draw(state: State) -> Draw:
    return Draw(state.chosen, {}, {})


def estimate(selection: Selection, outcome: Outcome, level: float) -> Estimate:
    """The sample mean: unbiased, with an exact interval for 0/1 outcomes without replacement."""
    return simple_random(outcome, selection.pool_size, level, replacement=selection.parameters["replacement"])
