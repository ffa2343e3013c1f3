"""Coverage of a data set: how evenly it covers the classes, their centres and their boundaries (EP, CP, BC, PBC).

S. Mani, A. Sankaran, S. Tamilselvam, A. Sethi, "Coverage Testing of Deep Learning Models using Dataset
Characterization", 2019, https://arxiv.org/abs/1911.07309, section 4.2. Of class i, with n_i of n examples:

    equivalence partitioning    EP_i = n_i · C / n                                              ideal: 1      (Eq. 3)
    centroid positioning        CP_i = share of i within r of its centroid                                    (Eq. 4)
    boundary conditioning       BC_i = share of i with a confidence in [θ₁, θ₂]                               (Eq. 5)
    pairwise                    PBC_ij = share of i with such a confidence and j the runner-up

Deviations and decisions. (1) The paper has labels; an unlabelled pool is grouped by predicted class, a labelled set by
its labels. (2) The paper "normalises" distances without saying how, and gives no value of r, θ₁, θ₂. Here a distance
is a share of the class's largest one, so r is in [0, 1]. By default r = 0.5 and [θ₁, θ₂] = [0, 0.7]: on six labelled
models the first holds half to four fifths of the examples, of which fewer fail than outside, except by a model that
errs with confidence, and the second holds up to a quarter of the examples with half to two thirds of the failures of
a model that is not trained on false labels. (3) The largest distance is that of one example and grows with their
number; so centroids and reach are those of the reference where there is one, the paper's "trained class cluster", and
then sets of any size are measured alike. (4) j is the strongest other class: the runner-up where i is the prediction,
and the prediction where it is not the label. So Σ_j PBC_ij = BC_i always. (5) That EP should be 1, CP near 1 and BC
large is the paper's wish; no estimate of accuracy follows from it (docs/characterize.md).

Legend: n examples, C classes, m neurons, r radius, [θ₁, θ₂] confidence of the boundary.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.datasets.classes import Clusters, Grouped, centroid_distances, find_clusters
from opacc_ray.errors import DataError, SpecError
from opacc_ray.pool import Pool


@dataclass(frozen=True)
class Regions:
    """Definition of near the centroid and near the boundary.

    Parameters
    ----------
    radius : r, as a share of the class's largest distance, above 0 and at most 1
    low, high : θ₁ <= θ₂, in [0, 1]
    """

    radius: float = 0.5
    low: float = 0.0
    high: float = 0.7

    def __post_init__(self) -> None:
        if not 0 < self.radius <= 1:
            raise SpecError(f"radius={self.radius}: give a share of the largest distance, above 0 and at most 1")
        if not 0 <= self.low <= self.high <= 1:
            raise SpecError(f"boundary={self.low}-{self.high}: give two confidences from 0 to 1, the lower one first")


class Metrics(NamedTuple):
    """The four dimensions by class; NaN where a class has no example, None where a feature is missing."""

    num: NDArray[np.int64]  # (C,)
    ep: NDArray[np.float64]  # (C,)
    cp: NDArray[np.float64] | None  # (C,)
    bc: NDArray[np.float64] | None  # (C,)
    pbc: NDArray[np.float64] | None  # (C, C)


def measure(data: Grouped, regions: Regions, clusters: Clusters | None = None) -> Metrics:
    """Measure EP, and those of CP, BC and PBC that the features allow.

    Parameters
    ----------
    data : hidden is needed for CP, confidence for BC, output as well for PBC
    regions : r, θ₁, θ₂
    clusters : of the reference; None: of ``data`` itself

    Raises
    ------
    DataError
        The reference has features of another width, or a feature is not finite.
    """
    fields = data.view.fields
    answers = data.map(part_counts, regions)
    num, near = (np.stack(counts).sum(axis=0) for counts in zip(*answers, strict=True))
    cp = pbc = None
    if "hidden" in fields:
        known = find_clusters(data) if clusters is None else clusters
        classes, radius = data.classes(), regions.radius * known.reach
        central = classes[centroid_distances(data, known.centroid) <= radius[classes]]
        within = _share(np.bincount(central, minlength=data.num_classes), num)
        cp = np.where(known.num > 1, within, np.nan)  # of one example there is no largest distance
    if {"confidence", "output"} <= fields:
        pairs = np.zeros((data.num_classes, data.num_classes), dtype=np.int64)
        for code, counts in data.map(part_pairs, regions):
            pairs.flat[code] += counts
        pbc = _share(pairs, num[:, None])
    bc = _share(near, num) if "confidence" in fields else None
    return Metrics(num, num * data.num_classes / num.sum(), cp, bc, pbc)


def part_counts(
    part: Pool, classes: NDArray[np.int64], num_classes: int, regions: Regions
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the examples of each class, and those near a boundary, (C,) each; 0 near one without a confidence."""
    near = np.zeros(part.size, dtype=bool) if part.confidence is None else is_near(part.confidence, regions)
    return np.bincount(classes, minlength=num_classes), np.bincount(classes[near], minlength=num_classes)


def is_near(confidence: NDArray[np.float64], regions: Regions) -> NDArray[np.bool_]:
    """Return which examples (n,) are near a boundary; raises DataError if a confidence is not finite."""
    if not np.isfinite(confidence).all():
        raise DataError(f"a confidence is {confidence[~np.isfinite(confidence)][0]}; it must be in [0, 1]")
    return (confidence >= regions.low) & (confidence <= regions.high)


def part_pairs(
    part: Pool, classes: NDArray[np.int64], num_classes: int, regions: Regions
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of classes with examples near their boundary, as i · C + j, and how many."""
    assert part.confidence is not None
    near = np.flatnonzero(is_near(part.confidence, regions))
    own = classes[near]
    return np.unique(own * num_classes + strongest_other(part, near, own, num_classes), return_counts=True)


def strongest_other(
    part: Pool, rows: NDArray[np.int64], classes: NDArray[np.int64], num_classes: int
) -> NDArray[np.int64]:
    """Return the class (k,) with the largest output in ``rows`` (k,) besides ``classes`` (k,), the first of ties."""
    assert part.output is not None
    if num_classes == 2:  # also where one output serves for both
        return 1 - classes
    if part.output.shape[1] != num_classes:
        raise DataError(f"the output layer has {part.output.shape[1]} neurons, and there are {num_classes} classes")
    output = part.output[rows].astype(np.float64)  # (k, C)
    output[np.arange(len(rows)), classes] = -np.inf
    return output.argmax(axis=1)


def _share(counted: NDArray[np.int64], num: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return ``counted`` / ``num``, NaN where ``num`` is 0."""
    return np.where(num > 0, counted / np.maximum(num, 1), np.nan)
