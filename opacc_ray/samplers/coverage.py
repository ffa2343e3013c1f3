"""Coverage: labels in asked shares near the centroids and near the boundaries, spread over classes and pairs. Ours.

S. Mani, A. Sankaran, S. Tamilselvam, A. Sethi, "Coverage Testing of Deep Learning Models using Dataset
Characterization", 2019, https://arxiv.org/abs/1911.07309, asks of a test set that it covers classes, their centres and
the boundaries between them, and generates examples "in the ratio of 0-100, 30-70, 50-50, 70-30 and 100-0" of centroid
and boundary. Here examples of the pool are chosen in such shares, and the estimate reweights them to the pool.

An example lies *near a boundary* if its confidence is in [low, high], else *near its centroid* if it is within
``radius`` of the largest distance of its predicted class, else *between*. Of the n labels a share goes to each of the
three, and within one as many to each predicted class as to any other:

    π_i = min(1, λ · s_region / (C_region · N_cell))            cell: a region of a class; Σ π = n

Then the sample is drawn by Deville's systematic sampling (:mod:`opacc_ray.designs.unequal`) along the regions, the
classes, the strongest other class and the confidence, so that each cell, and each pair of classes near their boundary,
gets its number of labels to within one. The order of the classes does not change π, which is exact.

The estimate is the difference estimator with these π and 1 - confidence as the prediction of failure
(:mod:`opacc_ray.designs.inclusion_probability`): unbiased whatever coverage is worth, since every example can be drawn.

Deviations. (1) The paper has no design: it measures accuracy on the covered set itself, which is an accuracy of no
population. (2) Examples between the two regions are asked for by nobody, and without them no estimate could be made:
``between`` is their share, by default 0.1, and can be small but not 0. (3) What an empty region would get goes to the
others. (4) The dimensions are those of the whole pool, so that later rounds see the same cells, of which labelled
examples are not drawn again.

Is it worth it? As much as its regions have to do with failures: docs/results/methods.md. For the accuracy alone take
``neyman``; take this one to test certain regions as well.

Legend: N examples not labelled yet, n budget, C_region classes with examples in a region, s shares, π inclusion
probability.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.characterize.classes import Grouped
from opacc_ray.characterize.clusters import CentroidDistances, find_clusters
from opacc_ray.characterize.metrics import Regions, is_near, strongest_other
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.designs.unequal import draw_ordered, inclusion_probabilities
from opacc_ray.errors import SpecError
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers.base import Draw, MethodParameters, Task, parameter

BOUNDARY, CENTROID, BETWEEN = 0, 1, 2
REGIONS = ("near_boundary", "near_centroid", "between")


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """What is covered, and in which shares."""

    shares: tuple[float, ...] = parameter((0.3, 0.7), "of the labels: near the centroids, near the boundaries")
    between: float = parameter(0.1, "share of all labels for examples in neither region; the rest goes by shares")
    radius: float = parameter(0.5, "near the centroid: within this share of the largest distance of the class")
    boundary: tuple[float, ...] = parameter((0.0, 0.7), "near a boundary: a confidence from the first to the second")

    @property
    def predicts_failures(self) -> bool:
        return True

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
    """What is settled before chance decides."""

    free: NDArray[np.int64]  # (N,) examples not labelled yet
    region: NDArray[np.int64]  # (N,)
    expected: NDArray[np.float64]  # (N,) 1 - confidence
    probability: NDArray[np.float64]  # (N,) π
    order: NDArray[np.int64]  # (N,) places in ``free`` along which the sample is spread
    labelled: NDArray[np.int64]  # examples that were left out

    def draw(self, places: NDArray[np.int64]) -> Draw:
        """The batch at ``places`` (n,) of ``free``."""
        design = InclusionProbability(
            inclusion_probability=self.probability[places],
            predicted_failure=self.expected[places],
            predicted_failures=float(self.expected.sum()),
            population=len(self.free),
            num_drawn=len(places),
            labelled_before=self.labelled,
        )
        counts = np.bincount(self.region[places], minlength=3).tolist()
        return Draw(self.free[places], design, dict(zip(REGIONS, counts, strict=True)))


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Draw the whole batch, and put it in random order."""
    ready = plan(view, task)
    return ready.draw(rng.permutation(draw_ordered(rng, ready.probability, ready.order)))


def plan(view: View, task: Task) -> Plan:
    """Find the regions, and set π."""
    assert task.budget is not None
    confidence, prediction = view.column("confidence"), view.column("prediction")
    data = Grouped(view, int(prediction.max()) + 1)
    classes, region = data.classes(), regions_of(data, confidence, task.parameters.regions())
    other = np.concatenate(view.map(part_other, data.num_classes))
    free = np.delete(np.arange(view.size), task.previous.chosen)
    cell = region[free] * data.num_classes + classes[free]
    probability = probabilities(cell, data.num_classes, task.parameters, task.budget)
    order = np.lexsort([along[free] for along in (confidence, other, classes, region)])
    return Plan(free, region[free], 1 - confidence[free], probability, order, task.previous.chosen)


def regions_of(data: Grouped, confidence: NDArray[np.float64], regions: Regions) -> NDArray[np.int64]:
    """The region of each example, (N,): BOUNDARY, CENTROID or BETWEEN."""
    clusters = find_clusters(data)
    within = CentroidDistances(data, clusters.centroid).all() <= (regions.radius * clusters.reach)[data.classes()]
    found = np.where(within, CENTROID, BETWEEN)
    found[is_near(confidence, regions.low, regions.high)] = BOUNDARY
    return found


def probabilities(
    cell: NDArray[np.int64], num_classes: int, parameters: Parameters, budget: int
) -> NDArray[np.float64]:
    """π (N,) of examples whose ``cell`` (N,) is region · C + class."""
    size = np.bincount(cell, minlength=3 * num_classes)
    classes_there = (size.reshape(3, num_classes) > 0).sum(axis=1)
    centroid, boundary = parameters.shares
    share = np.array([boundary, centroid, 0]) * (1 - parameters.between) + np.array([0, 0, parameters.between])
    per_cell = np.repeat(share / np.maximum(classes_there, 1), num_classes)
    return inclusion_probabilities((per_cell / np.maximum(size, 1))[cell], budget)


def part_other(part: Pool, num_classes: int) -> NDArray[np.int64]:
    """The strongest other class of each example of a part, (n,)."""
    assert part.prediction is not None
    assert part.output is not None
    rows = np.arange(part.size)
    return strongest_other(part, rows, part.prediction.astype(np.int64), max(num_classes, part.output.shape[1]))
