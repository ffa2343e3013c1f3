"""Stratified sampling by predicted class, with proportional allocation.

W. G. Cochran, "Sampling Techniques", 3rd edition, 1977, chapter 5.

    n_h = n · N_h / N,   acc = Σ_h (N_h / N) · mean(y | class h)

Unbiased, and more precise than simple random sampling by the variance of the accuracy between classes.

Deviation. The n_h are rounded by largest remainder, and every class gets at least one label. A later round draws from
the examples that no earlier round has labelled.

Legend: N pool, N_h examples of predicted class h, n budget, n_h labels of class h.
"""

from dataclasses import dataclass

import numpy as np

from opacc_ray.parts.view import View
from opacc_ray.samplers.auxiliary import allocate, draw_strata
from opacc_ray.samplers.base import Draw, MethodParameters, Task


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """It has none."""

    supports_regression = False


def needs(parameters: Parameters) -> tuple[str, ...]:
    return ("prediction",)


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Share the budget among the predicted classes, and draw each one's share."""
    free = task.free(view.size)
    _, stratum, sizes = np.unique(view.column("prediction")[free], return_inverse=True, return_counts=True)
    return draw_strata(rng, free, stratum, allocate(task.budget, sizes / len(free), sizes))
