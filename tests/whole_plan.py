"""A plan of neyman for a whole pool as arrays: for pools that fit in a test."""

from dataclasses import dataclass

import numpy as np

from opacc_ray.parts.view import View
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import Draw, Task


@dataclass
class WholePlan:
    """The deterministic part of a draw for each example that is not labelled, in the order of the pool."""

    plan: neyman.Plan
    free: np.ndarray  # (N_r,)
    expected: np.ndarray  # (N_r,) p
    probability: np.ndarray  # (N_r,) π
    balance: np.ndarray  # (N_r, 1 + signals)
    order: np.ndarray  # (N_r,) places in ``free`` along the line

    def draw(self, places: np.ndarray) -> Draw:
        """Return the batch at ``places`` (n,) of ``free``."""
        return self.plan.draw(places)


def whole_plan(view: View, task: Task) -> WholePlan:
    plan = neyman.plan(view, task)
    places = np.arange(len(plan.free))
    order = np.argsort(plan.line(), kind="stable")
    return WholePlan(plan, plan.free, plan.failure[0], plan.probability, plan.balance(places), order)
