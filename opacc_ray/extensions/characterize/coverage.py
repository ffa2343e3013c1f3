"""Coverage: labels in requested shares near centroids and boundaries, spread over classes and pairs. Ours.

S. Mani, A. Sankaran, S. Tamilselvam, A. Sethi, "Coverage Testing of Deep Learning Models using Dataset
Characterization", 2019, https://arxiv.org/abs/1911.07309, asks of a test set that it covers classes, their centres and
the boundaries between them, and generates examples "in the ratio of 0-100, 30-70, 50-50, 70-30 and 100-0" of centroid
and boundary. Here examples of the pool are chosen in such shares, and the estimate reweights them to the pool.

An example is *near a boundary* if its confidence is in [low, high], else *near its centroid* if it is within ``radius``
of the largest distance of its predicted class, else *between*. Each of these three regions gets a share of the n
labels, which is divided equally among the predicted classes:

    π_i = min(1, λ · s_region / (C_region · N_cell))            cell: a region of a class; Σ π = n

Then the sample is drawn by Deville's systematic sampling (:mod:`opacc_ray.designs.inclusion_probability`) along the
regions, the classes, the strongest other class and the confidence. So each cell, and each pair of classes near their
boundary, gets its number of labels to within one. The order of the classes does not change π.

The centroids are means over shards, whose last bits depend on how the pool is cut. So may the region of an example
whose distance equals the radius to 15 digits.

The estimate is the difference estimator with these π and 1 - confidence as the prediction of failure
(:mod:`opacc_ray.designs.inclusion_probability`). It is unbiased for any regions, because every example can be drawn.

Deviations. (1) The paper has no design: it measures accuracy on the covered set itself, which is the accuracy of no
population. (2) The paper does not ask for examples between the two regions, but without them no estimate could be made:
``between`` is their share, by default 0.1, and may be small but not 0. (3) The share of an empty region goes to the
others. (4) Regions are those of the whole pool, so that later rounds use the same cells; labelled examples are not
drawn again.

It lowers the error as far as its regions are related to failures: docs/results/methods.md. To estimate accuracy only,
use ``neyman``; use this method to test certain regions as well.

Legend: N examples not labelled yet, n budget, C classes, C_region those with examples in a region, s shares, π
inclusion probability.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import SURE, InclusionProbability, draw_along, inclusion_probabilities
from opacc_ray.errors import SpecError
from opacc_ray.extensions.characterize.classes import (
    Grouped,
    Regions,
    centroid_distances,
    find_clusters,
    is_near,
    part_strongest_other,
)
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import Draw, MethodParameters, Task, parameter

BOUNDARY, CENTROID, BETWEEN = 0, 1, 2
REGIONS = ("near_boundary", "near_centroid", "between")


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """The regions and their shares."""

    shares: tuple[float, ...] = parameter((0.3, 0.7), "of the labels: near the centroids, near the boundaries")
    between: float = parameter(0.1, "share of all labels for examples in neither region; the rest goes by shares")
    radius: float = parameter(0.5, "near the centroid: within this share of the largest distance of the class")
    boundary: tuple[float, ...] = parameter((0.0, 0.7), "near a boundary: a confidence from the first to the second")
    predicts_failures = True

    def __post_init__(self) -> None:
        for name in ("shares", "boundary"):
            values = tuple(float(value) for value in getattr(self, name))
            object.__setattr__(self, name, values)
            if len(values) != 2:
                raise SpecError(f"{name}={list(values)}: give two numbers")
        if min(self.shares) <= 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise SpecError(
                f"shares={list(self.shares)}: give two positive shares that sum to 1, centroid first; examples of a "
                "region with share 0 could not be drawn, and no estimate be made"
            )
        if not 0 < self.between < 1:
            raise SpecError(
                f"between={self.between}: give a share above 0, so that every example can be drawn, below 1"
            )
        self.regions()

    def regions(self) -> Regions:
        return Regions(self.radius, *self.boundary)


def needs(parameters: Parameters) -> tuple[str, ...]:
    return ("hidden", "output", "prediction", "confidence")


class Plan(NamedTuple):
    """The deterministic part of a draw: cells, inclusion probabilities, and the order along which it is spread."""

    labelled: NDArray[np.int64]  # (k,) sorted
    cell: NDArray[np.int64]  # (N,) region · C + class
    score: NDArray[np.float64]  # (N,) 1 - confidence
    size: NDArray[np.int64]  # (3 C,) examples of each cell that are not labelled yet
    probability: NDArray[np.float64]  # (3 C,) π of each of them
    ordered: NDArray[np.int64]  # (N - k,) those that are not labelled, by cell, strongest other class and confidence

    def split(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the examples that are sure to be drawn and the others, in the plan's order."""
        sure = self.probability[self.cell[self.ordered]] >= SURE
        return self.ordered[sure], self.ordered[~sure]

    def draw(self, index: NDArray[np.int64]) -> Draw:
        """Return the batch of the examples ``index`` (n,)."""
        cell = self.cell[index]
        design = InclusionProbability(
            inclusion_probability=self.probability[cell],
            predicted_failure=self.score[index],
            predicted_failures=float(np.delete(self.score, self.labelled).sum()),
            population=len(self.ordered),
            num_drawn=len(index),
            labelled_before=self.labelled,
        )
        counts = np.bincount(cell // (len(self.size) // 3), minlength=3).tolist()
        return Draw(index, design, dict(zip(REGIONS, counts, strict=True)))


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Draw the whole batch, and put it in random order."""
    ready = plan(view, task)
    sure, others = ready.split()
    num = task.budget - len(sure)
    others = others[draw_along(rng, ready.probability[ready.cell[others]], num)]
    return ready.draw(rng.permutation(np.concatenate([sure, others])))


def plan(view: View, task: Task) -> Plan:
    """Find the cells, and set π."""
    labelled, regions = task.previous.chosen, task.parameters.regions()
    confidence = view.column_in_range("confidence")
    data = Grouped(view, int(view.column("prediction").max()) + 1)
    clusters, classes = find_clusters(data), data.classes()
    near = centroid_distances(data, clusters.centroid) <= (regions.radius * clusters.reach)[classes]
    region = np.where(is_near(confidence, regions), BOUNDARY, np.where(near, CENTROID, BETWEEN))
    cell = region * data.num_classes + classes
    free = task.free(view.size)
    size = np.bincount(cell[free], minlength=3 * data.num_classes)
    other = np.concatenate(data.map(part_strongest_other))
    ordered = free[np.lexsort((confidence[free], other[free], cell[free]))]
    return Plan(labelled, cell, 1 - confidence, size, probabilities(size, task.parameters, task.budget), ordered)


def probabilities(size: NDArray[np.int64], parameters: Parameters, budget: int) -> NDArray[np.float64]:
    """Return π (3 C,) of an example in each cell of ``size`` (3 C,) examples."""
    classes_present = (size.reshape(3, -1) > 0).sum(axis=1)
    centroid, boundary = parameters.shares
    share = np.array([boundary, centroid, 0]) * (1 - parameters.between) + np.array([0, 0, parameters.between])
    per_cell = np.repeat(share / np.maximum(classes_present, 1), len(size) // 3)
    return inclusion_probabilities(per_cell / np.maximum(size, 1), budget, size)
