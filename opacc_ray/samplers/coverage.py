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

The parts of a pool keep the cells of their examples, and the line; the driver counts cells, each of which has one π.
One number says where an example lies on the line: a whole one for region, class and other class, below 3C², and half
the confidence as a share of the pool's range. So confidences that differ by less than about C²·10^-15 of that range go
as listed, which is a matter of neighbours on the line and of no π. The counts are exact; the centroids are means of
doubles, whose last bits depend on how the pool is cut, and so may the region of an example whose distance is the radius
to 15 digits.

The estimate is the difference estimator with these π and 1 - confidence as the prediction of failure
(:mod:`opacc_ray.designs.inclusion_probability`): unbiased whatever coverage is worth, since every example can be drawn.

Deviations. (1) The paper has no design: it measures accuracy on the covered set itself, which is an accuracy of no
population. (2) Examples between the two regions are asked for by nobody, and without them no estimate could be made:
``between`` is their share, by default 0.1, and can be small but not 0. (3) What an empty region would get goes to the
others. (4) The dimensions are those of the whole pool, so that later rounds see the same cells, of which labelled
examples are not drawn again.

Is it worth it? As much as its regions have to do with failures: docs/results/methods.md. For the accuracy alone take
``neyman``; take this one to test certain regions as well.

Legend: N examples not labelled yet, n budget, C classes, C_region those with examples in a region, s shares, π
inclusion probability.
"""

import secrets
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.characterize.classes import Grouped, blocks
from opacc_ray.characterize.clusters import CentroidDistances, find_clusters, part_kept_distances
from opacc_ray.characterize.metrics import Regions, is_near, strongest_other
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.designs.unequal import SURE, draw_along, inclusion_probabilities, lengths
from opacc_ray.errors import SpecError
from opacc_ray.parts.cache import part_keep, part_recall
from opacc_ray.parts.order import Line, part_lay
from opacc_ray.parts.sums import as_float, exact_sum
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.base import Draw, MethodParameters, Task, parameter

BOUNDARY, CENTROID, BETWEEN = 0, 1, 2
REGIONS = ("near_boundary", "near_centroid", "between")

_CELLS, _LINE = "cells", "line"  # what the parts keep under these names


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
    """What is settled before chance decides. The parts keep the cells, region · C + class, of their examples."""

    view: View
    key: str  # of the cells
    size: NDArray[np.int64]  # (3 C,) examples of each cell that are not labelled yet
    probability: NDArray[np.float64]  # (3 C,) π of each of them
    expected: float  # Σ (1 - confidence) of all of them
    bounds: tuple[float, float]  # the least and the greatest confidence
    labelled: NDArray[np.int64]  # (k,) sorted

    def lay(self, budget: int) -> tuple[NDArray[np.int64], Line, int]:
        """Examples that are sure, a line of the others, both by cells and pairs, and how many to draw from the line."""
        sure = self.probability >= SURE
        num = budget - int(self.size[sure].sum())
        rows = self.view.rows_of(self.labelled)
        arguments = [(self.key, self.probability, num, self.bounds, own) for own in rows]
        found, along = zip(*self.view.map_each(part_lay_cells, arguments), strict=True)
        always = np.concatenate([start + own for start, own in zip(self.view.starts, found, strict=False)])
        return always[np.argsort(np.concatenate(along), kind="stable")], Line(self.view, _LINE, self.key), num

    def cells(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """The cells of the examples ``index`` (n,)."""
        return self.view.take(part_cells, index, self.key)

    def draw(self, index: NDArray[np.int64]) -> Draw:
        """The batch of the examples ``index`` (n,)."""
        cell = self.cells(index)
        design = InclusionProbability(
            inclusion_probability=self.probability[cell],
            predicted_failure=self.view.take(part_expected, index),
            predicted_failures=self.expected,
            population=self.view.size - len(self.labelled),
            num_drawn=len(index),
            labelled_before=self.labelled,
        )
        counts = np.bincount(cell // (len(self.size) // 3), minlength=3).tolist()
        return Draw(index, design, dict(zip(REGIONS, counts, strict=True)))


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Draw the whole batch, and put it in random order."""
    assert task.budget is not None
    ready = plan(view, task)
    always, line, num = ready.lay(task.budget)
    return ready.draw(rng.permutation(np.concatenate([always, draw_along(rng, line, num)])))


def plan(view: View, task: Task) -> Plan:
    """Find the cells, and set π."""
    assert task.budget is not None
    key, labelled, regions = secrets.token_hex(8), task.previous.chosen, task.parameters.regions()
    confidence = auxiliary.find(view, "confidence")
    data = Grouped(view, int(view.bounds("prediction")[1]) + 1)
    clusters = find_clusters(data)
    distances = CentroidDistances(data, clusters.centroid).key
    rows = view.rows_of(labelled)
    size = view.total_each(part_mark, [(key, distances, regions, clusters.reach, own) for own in rows])
    expected = as_float(sum(view.map_each(part_expected_sum, [(own,) for own in rows])))
    bounds, probability = (confidence.low, confidence.high), probabilities(size, task.parameters, task.budget)
    return Plan(view, key, size, probability, expected, bounds, labelled)


def probabilities(size: NDArray[np.int64], parameters: Parameters, budget: int) -> NDArray[np.float64]:
    """π (3 C,) of an example in each cell of ``size`` (3 C,) examples."""
    classes_there = (size.reshape(3, -1) > 0).sum(axis=1)
    centroid, boundary = parameters.shares
    share = np.array([boundary, centroid, 0]) * (1 - parameters.between) + np.array([0, 0, parameters.between])
    per_cell = np.repeat(share / np.maximum(classes_there, 1), len(size) // 3)
    return inclusion_probabilities(per_cell / np.maximum(size, 1), budget, size)


def part_mark(
    part: Pool, key: str, distances: str, regions: Regions, reach: NDArray[np.float64], labelled: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Keep the cells of a part's examples, and count those without the ``labelled`` rows, (3 C,)."""
    distance, classes = part_kept_distances(part, distances)
    region = np.where(distance <= (regions.radius * reach)[classes], CENTROID, BETWEEN)
    region[is_near(_confidence(part), regions)] = BOUNDARY
    cell = region * len(reach) + classes
    part_keep(part, _CELLS, key, cell.astype(np.min_scalar_type(3 * len(reach))))
    return np.bincount(np.delete(cell, labelled), minlength=3 * len(reach))


def part_cells(part: Pool, rows: NDArray[np.int64], key: str) -> NDArray[np.int64]:
    """The cells of some rows, (k,)."""
    found: NDArray[np.int64] = part_recall(part, _CELLS, key)[rows].astype(np.int64)
    return found


def part_expected(part: Pool, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 - confidence of some rows, (k,)."""
    return 1 - _confidence(part)[rows]


def part_expected_sum(part: Pool, labelled: NDArray[np.int64]) -> int:
    """The exact sum of 1 - confidence without the ``labelled`` rows."""
    return exact_sum(1 - np.delete(_confidence(part), labelled))


def part_lay_cells(
    part: Pool,
    key: str,
    probability: NDArray[np.float64],
    num: int,
    bounds: tuple[float, float],
    labelled: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Lay the examples that are not ``labelled`` on the line of ``num`` strata.

    Returns rows and places of those that are sure, which are not on the line.
    """
    row = np.delete(np.arange(part.size), labelled)
    cell = part_cells(part, row, key)
    along, chance = _along(part, row, cell, len(probability) // 3, *bounds), probability[cell]
    sure = chance >= SURE
    part_lay(part, _LINE, key, along[~sure], row[~sure], lengths(chance[~sure], num))
    return row[sure], along[sure]


def _along(
    part: Pool, row: NDArray[np.int64], cell: NDArray[np.int64], num_classes: int, low: float, high: float
) -> NDArray[np.float64]:
    """Numbers (n,) that rise by cell, strongest other class and confidence of some rows."""
    assert part.output is not None
    num_others = max(num_classes, part.output.shape[1])
    along = (_confidence(part)[row] - low) / (2 * (high - low) or 1.0)  # from 0 to 1/2
    for some in blocks(len(row)):
        along[some] += cell[some] * num_others + strongest_other(part, row[some], cell[some] % num_classes, num_others)
    return along


def _confidence(part: Pool) -> NDArray[np.float64]:
    return auxiliary.read_column(part, "confidence")
