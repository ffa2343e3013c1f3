"""SRS: simple random sampling, the baseline for every other method.

With or without replacement. The estimator is the mean of the outcomes; it is unbiased in both cases. Without
replacement its variance is (N - n)/(N - 1) · θ(1 - θ)/n for 0/1 outcomes, and the exact interval comes from the
hypergeometric distribution. A later round draws from the examples that no earlier round has labelled; with replacement,
from all.

Legend: N pool, n budget.
"""

from dataclasses import dataclass

import numpy as np

from opacc_ray.designs.simple_random import SimpleRandom, draw_uniform
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import Draw, MethodParameters, Task, parameter


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """With or without replacement."""

    replacement: bool = parameter(False, "draw with replacement: an example may be drawn more than once")


def needs(parameters: Parameters) -> tuple[str, ...]:
    return ()


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Draw the whole sample at once."""
    if task.parameters.replacement:
        chosen = rng.integers(view.size, size=task.budget)
        return Draw(chosen, SimpleRandom(task.budget, view.size, replacement=True), {})
    chosen = draw_uniform(rng, view.size, task.previous.chosen, task.budget)
    left = view.size - len(task.previous.chosen)
    return Draw(chosen, SimpleRandom(task.budget, left, replacement=False), {})
