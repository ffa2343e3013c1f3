"""Examples grouped by class, the cluster of each class in the last hidden layer, and what a data set covers of both.

The class of an example is the predicted one, or the label in a labelled set. A cluster has a centroid, and the largest
distance of an example from it. One pass over the features sums them by class; a second one measures the distances, 8
bytes an example.

Coverage of a data set is how evenly it covers the classes, their centres and their boundaries (EP, CP, BC, PBC):
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

Legend: N or n examples, C classes, m neurons, r radius, [θ₁, θ₂] confidence of the boundary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.parts.view import View, key_of
from opacc_ray.pool import Pool

ROWS = 8192
"""Examples processed at a time, so that their features in double precision stay in the processor's cache."""

SUMS_AT_ONCE = 1 << 25
"""Numbers of the parts' sums that are held at a time: 256 MiB."""


@dataclass(frozen=True, eq=False)
class Grouped:
    """A data set grouped by class.

    Parameters
    ----------
    view : the examples
    num_classes : C
    label : (N,) the class of each example, below C; None: the predicted class
    """

    view: View
    num_classes: int
    label: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        label = self.label
        if label is None:
            return
        if len(label) != self.view.size:
            raise DataError(f"there are {len(label)} labels for {self.view.size} examples; give one label per example")
        bad = np.flatnonzero((label < 0) | (label >= self.num_classes))
        if len(bad):
            raise DataError(
                f"the label of example {self.view.identify(bad[:1])[0]!r} is {label[bad[0]]}, and the model has "
                f"{self.num_classes} classes, 0 to {self.num_classes - 1}; correct the label"
            )

    def map(self, function: Any, *arguments: Any) -> list[Any]:
        """Return ``function(part, classes (n,) of the part, C, *arguments)`` for each part, in their order."""
        num_parts = len(self.view.parts.sizes)
        labels = [None] * num_parts if self.label is None else np.split(self.label, self.view.starts[1:-1])
        return self.view.parts.call(
            [(part, with_classes, (function, label, self.num_classes, *arguments)) for part, label in enumerate(labels)]
        )

    def classes(self) -> NDArray[np.int64]:
        """Return the class of each example, (N,)."""
        if self.label is not None:
            return self.label
        return checked_classes(self.view.column("prediction"), self.num_classes)


def with_classes(part: Pool, function: Any, label: NDArray[np.int64] | None, num_classes: int, *arguments: Any) -> Any:
    """Return the answer of a part to :meth:`Grouped.map`."""
    classes = checked_classes(part.prediction, num_classes) if label is None else label
    return function(part, classes, num_classes, *arguments)


def checked_classes(prediction: Any, num_classes: int) -> NDArray[np.int64]:
    """Return predicted classes (n,) as integers below ``num_classes``; raises DataError if one is not."""
    whole: NDArray[np.int64] = prediction.astype(np.int64)
    bad = (whole != prediction) | (whole < 0) | (whole >= num_classes)
    if bad.any():
        raise DataError(
            f"the model predicts {prediction[bad][0]:g}, which is not one of the {num_classes} classes, 0 to "
            f"{num_classes - 1}; these measures need a classifier whose predictions are class numbers"
        )
    return whole


def blocks(num_rows: int, at_once: int = ROWS) -> Iterator[slice]:
    """Return slices of consecutive rows, ``at_once`` of them each."""
    return (slice(start, min(start + at_once, num_rows)) for start in range(0, num_rows, at_once))


def width_of(data: Grouped) -> int:
    """Return the number of neurons of the hidden layer, m."""
    return int(data.view.parts.call([(0, part_width, ())])[0])


def part_width(part: Pool) -> int:
    assert part.hidden is not None
    return int(part.hidden.shape[1])


def part_rows(part: Pool, rows: NDArray[np.int64], layer: str) -> NDArray[np.float32]:
    """Return the "hidden" or "output" layer of some rows, (k, m)."""
    values: NDArray[np.float32] = getattr(part, layer)[rows]
    return values


def check_width(here: int, there: int) -> None:
    """Raise DataError if the features have another width than those of the reference."""
    if here != there:
        raise DataError(
            f"the hidden layer has {here} neurons here and {there} in the reference; give a reference with features of "
            "the same model"
        )


# -- clusters ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Clusters:
    """Classes as clusters of examples.

    Parameters
    ----------
    num : (C,) examples of each class
    centroid : (C, m) mean of their features; NaN for a class without examples
    reach : (C,) the largest distance of an example from the centroid of its class; NaN as before
    """

    num: NDArray[np.int64]
    centroid: NDArray[np.float64]
    reach: NDArray[np.float64]


def find_clusters(data: Grouped, at_once: int = SUMS_AT_ONCE) -> Clusters:
    """Return the clusters of all classes, from sums over the parts; ``at_once`` numbers of them are held at a time.

    Raises
    ------
    DataError
        A feature is not finite.
    """
    classes = data.classes()
    num = np.bincount(classes, minlength=data.num_classes)
    total = np.empty((data.num_classes, width_of(data)))
    step = max(at_once // (len(data.view.parts.sizes) * data.num_classes), 1)
    for start in range(0, total.shape[1], step):
        neurons = slice(start, start + step)
        total[:, neurons] = reduce(np.add, data.map(part_sums, neurons))
    if not np.isfinite(total).all():
        wrong = int(np.flatnonzero(~np.isfinite(total).all(axis=1))[0])
        raise DataError(f"the hidden layer of an example of class {wrong} is not finite; extract it again")
    centroid = np.where(num[:, None] > 0, total / np.maximum(num, 1)[:, None], np.nan)
    reach = np.full(data.num_classes, -1.0)
    np.maximum.at(reach, classes, centroid_distances(data, centroid))
    return Clusters(num, centroid, np.where(reach < 0, np.nan, reach))


def centroid_distances(data: Grouped, centroid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance of each example of ``data`` from the centroid of its class, (N,); centroid (C, m).

    They are measured once per data set: characterisation and the sampler `coverage` ask for them after `find_clusters`.

    Raises
    ------
    DataError
        The features are not as wide as the centroids.
    """
    check_width(width_of(data), centroid.shape[1])
    key = key_of(centroid, "predicted" if data.label is None else data.label)
    return data.view.once("centroid distances", key, lambda: np.concatenate(data.map(part_distances, centroid)))


def part_sums(part: Pool, classes: NDArray[np.int64], num_classes: int, neurons: slice) -> NDArray[np.float64]:
    """Sum the features of each class over some ``neurons``: (C, neurons)."""
    assert part.hidden is not None
    hidden = part.hidden[:, neurons]
    total = np.zeros((num_classes, hidden.shape[1]))
    for rows in blocks(part.size):
        order = np.argsort(classes[rows], kind="stable")
        present, first = np.unique(classes[rows][order], return_index=True)
        total[present] += np.add.reduceat(hidden[rows][order], first, dtype=np.float64)
    return total


def part_distances(
    part: Pool, classes: NDArray[np.int64], num_classes: int, centroid: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the distance of each example of a part from the centroid of its class, (n,)."""
    assert part.hidden is not None
    distance = np.empty(part.size)
    for rows in blocks(part.size):
        away = part.hidden[rows] - centroid[classes[rows]]  # (rows, m)
        distance[rows] = np.sqrt(np.einsum("ij,ij->i", away, away))
    return distance


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
    fields, classes = data.view.fields, data.classes()
    cp = bc = pbc = None
    num = np.bincount(classes, minlength=data.num_classes)
    if "hidden" in fields:
        base = find_clusters(data) if clusters is None else clusters
        radius = regions.radius * base.reach
        central = classes[centroid_distances(data, base.centroid) <= radius[classes]]
        within = _share(np.bincount(central, minlength=data.num_classes), num)
        cp = np.where(base.num > 1, within, np.nan)  # of one example there is no largest distance
    if "confidence" in fields:
        near = np.flatnonzero(is_near(data.view.column("confidence"), regions))
        bc = _share(np.bincount(classes[near], minlength=data.num_classes), num)
        if "output" in fields:
            other = np.concatenate(data.map(part_strongest_other, data.num_classes))
            pairs = classes[near] * data.num_classes + other[near]
            counts = np.bincount(pairs, minlength=data.num_classes**2).reshape(data.num_classes, -1)
            pbc = _share(counts, num[:, None])
    return Metrics(num, num * data.num_classes / num.sum(), cp, bc, pbc)


def is_near(confidence: NDArray[np.float64], regions: Regions) -> NDArray[np.bool_]:
    """Return which examples (n,) are near a boundary; raises DataError if a confidence is not finite."""
    if not np.isfinite(confidence).all():
        raise DataError(f"a confidence is {confidence[~np.isfinite(confidence)][0]}; it must be in [0, 1]")
    return (confidence >= regions.low) & (confidence <= regions.high)


def part_strongest_other(
    part: Pool, classes: NDArray[np.int64], num_classes: int, num_outputs: int | None = None
) -> NDArray[np.int64]:
    """Return the class with the largest output of each example, other than its own, the first of ties, (n,).

    ``num_outputs`` is how many outputs there must be; None: as many as there are, which may be more than classes.
    """
    assert part.output is not None
    width = part.output.shape[1]
    wanted = max(num_classes, width) if num_outputs is None else num_outputs
    if wanted == 2:  # also where one output serves for both
        return 1 - classes
    if width != wanted:
        raise DataError(f"the output layer has {width} neurons, and there are {wanted} classes")
    other = np.empty(part.size, dtype=np.int64)
    for rows in blocks(part.size):
        output = part.output[rows].astype(np.float64)  # (rows, C)
        output[np.arange(len(output)), classes[rows]] = -np.inf
        other[rows] = output.argmax(axis=1)
    return other


def _share(counted: NDArray[np.int64], num: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return ``counted`` / ``num``, NaN where ``num`` is 0."""
    return np.where(num > 0, counted / np.maximum(num, 1), np.nan)
