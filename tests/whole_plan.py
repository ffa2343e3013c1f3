"""A plan of neyman for a whole pool as arrays, and lines of given lengths: for pools that fit in a test."""

from dataclasses import dataclass

import numpy as np

from opacc_ray.designs import unequal
from opacc_ray.parts.order import Line, part_lay
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import Draw, Task
from opacc_ray.samplers.neyman.inclusion import part_free


@dataclass
class WholePlan:
    """What is settled of each example that is not labelled, in the order of the pool, before chance decides."""

    plan: neyman.Plan
    free: np.ndarray  # (N_r,)
    expected: np.ndarray  # (N_r,) p
    probability: np.ndarray  # (N_r,) π
    balance: np.ndarray  # (N_r, 1 + signals)
    order: np.ndarray  # (N_r,) places in ``free`` along the line

    def draw(self, places: np.ndarray) -> Draw:
        """The batch at ``places`` (n,) of ``free``."""
        return self.plan.draw(self.free[places])


def whole_plan(view: View, task: Task) -> WholePlan:
    plan = neyman.plan(view, task)
    rows = [own.row for own in view.map(part_free, plan.unlabelled.key)]
    free = np.concatenate([start + own for start, own in zip(view.starts, rows, strict=False)])
    found = plan.candidates(free)
    order = np.searchsorted(free, found.index)
    back = np.argsort(order)
    return WholePlan(plan, free, found.foreseen.p[back], found.probability[back], found.balance[back], order)


def draw_along(rng: np.random.Generator, probability: np.ndarray, order: np.ndarray) -> np.ndarray:
    """A sample with given inclusion probabilities (N,), whose sum is whole, spread along ``order`` (N,)."""
    place, unsure = np.argsort(order).astype(float), np.flatnonzero(probability < unequal.SURE)
    num = round(float(probability[unsure].sum()))
    view = view_of(Pool(confidence=probability))
    view.map(part_lay, "line", "test", place[unsure], unsure, unequal.lengths(probability[unsure], num))
    return np.concatenate(
        [np.flatnonzero(probability >= unequal.SURE), unequal.draw_along(rng, Line(view, "line", "test"), num)]
    )
