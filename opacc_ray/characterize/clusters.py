"""The cluster of each class in the last hidden layer: its centroid, and how far its examples reach.

One sweep over the features sums them by class; a second one measures distances to the centroids. The second is made
where the rows live and kept there, 8 bytes an example, so that any number of radii are counted without another.

Legend: N examples, C classes, m neurons.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from opacc_ray.characterize.classes import Grouped, blocks, other_width, part_classes
from opacc_ray.errors import DataError
from opacc_ray.parts.cache import Kept, key_of, part_recall
from opacc_ray.pool import Pool

Distances = tuple[NDArray[np.float64], NDArray[np.int64]]
"""The distance of each example of a part from the centroid of its class, and its class: (n,) each."""


SUMS_AT_ONCE = 1 << 25
"""Numbers of the parts' sums: 256 MiB."""

_KEPT = "centroid distances"


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

    @property
    def width(self) -> int:
        """m."""
        return int(self.centroid.shape[1])


class CentroidDistances:
    """Distances of a data set's examples from centroids, kept where the rows live.

    Parameters
    ----------
    data : the examples; hidden (N, m) is needed
    centroid : (C, m)

    Attributes
    ----------
    key : of what the parts keep from the first call on

    Raises
    ------
    DataError
        The features are not as wide as the centroids.
    """

    def __init__(self, data: Grouped, centroid: NDArray[np.float64]) -> None:
        width = width_of(data)
        if width != centroid.shape[1]:
            raise other_width(width, centroid.shape[1])
        self._num_classes, self._num_parts = data.num_classes, len(data.view.parts.sizes)
        self.key = key_of(centroid, "predicted" if data.label is None else data.label)
        recipes = [(own, data.num_classes, centroid) for own in data.labels_by_part]
        self._kept = Kept(data.view.parts, _KEPT, self.key, part_distances, recipes)

    def reach(self) -> NDArray[np.float64]:
        """The largest distance of each class, (C,); NaN for a class without examples."""
        found = self._kept.map(part_reach, [(self._num_classes,)] * self._num_parts)
        largest = np.max(found, axis=0)
        return np.where(largest < 0, np.nan, largest)

    def count_within(self, radius: NDArray[np.float64]) -> NDArray[np.int64]:
        """Examples of each class (C,) not farther than ``radius`` (C,) from its centroid; none where it is NaN."""
        found = self._kept.map(part_count_within, [(radius,)] * self._num_parts)
        return np.sum(found, axis=0, dtype=np.int64)


def find_clusters(data: Grouped, at_once: int = SUMS_AT_ONCE) -> Clusters:
    """The clusters of all classes, from sums over the parts, of which the caller holds ``at_once`` numbers at a time.

    Raises
    ------
    DataError
        A feature is not finite.
    """
    num = np.sum(data.map(part_nums), axis=0)
    total = np.empty((data.num_classes, width_of(data)))
    step = max(at_once // (len(data.view.parts.sizes) * data.num_classes), 1)
    for start in range(0, total.shape[1], step):
        neurons = slice(start, start + step)
        total[:, neurons] = reduce(np.add, data.map(part_sums, neurons))
    if not np.isfinite(total).all():
        wrong = int(np.flatnonzero(~np.isfinite(total).all(axis=1))[0])
        raise DataError(f"the hidden layer of an example of class {wrong} is not finite; extract it again")
    centroid = np.where(num[:, None] > 0, total / np.maximum(num, 1)[:, None], np.nan)
    return Clusters(num, centroid, CentroidDistances(data, centroid).reach())


def part_nums(part: Pool, label: NDArray[np.int64] | None, num_classes: int) -> NDArray[np.int64]:
    """Examples of each class, (C,)."""
    return np.bincount(part_classes(part, label, num_classes), minlength=num_classes)


def part_sums(part: Pool, label: NDArray[np.int64] | None, num_classes: int, neurons: slice) -> NDArray[np.float64]:
    """Summed features (C, m) of each class, of some ``neurons``."""
    assert part.hidden is not None
    classes, hidden = part_classes(part, label, num_classes), part.hidden[:, neurons]
    total = np.zeros((num_classes, hidden.shape[1]))
    for rows in blocks(part.size):
        order = np.argsort(classes[rows], kind="stable")
        present, first = np.unique(classes[rows][order], return_index=True)
        total[present] += np.add.reduceat(hidden[rows][order], first, axis=0, dtype=np.float64)
    return total


def part_distances(
    part: Pool, label: NDArray[np.int64] | None, num_classes: int, centroid: NDArray[np.float64]
) -> Distances:
    assert part.hidden is not None
    classes = part_classes(part, label, num_classes)
    distance = np.empty(part.size)
    for rows in blocks(part.size):
        away = part.hidden[rows] - centroid[classes[rows]]  # (rows, m)
        distance[rows] = np.sqrt(np.einsum("ij,ij->i", away, away))
    return distance, classes


def part_reach(distances: Distances, num_classes: int) -> NDArray[np.float64]:
    """The largest distance of each class (C,), or -1."""
    distance, classes = distances
    largest = np.full(num_classes, -1.0)
    np.maximum.at(largest, classes, distance)
    return largest


def part_count_within(distances: Distances, radius: NDArray[np.float64]) -> NDArray[np.int64]:
    distance, classes = distances
    return np.bincount(classes[distance <= radius[classes]], minlength=len(radius))


def part_kept_distances(part: Pool, key: str) -> Distances:
    """What a part keeps of its examples; raises Forgotten if it does not."""
    found: Distances = part_recall(part, _KEPT, key)
    return found


def part_width(part: Pool) -> int:
    assert part.hidden is not None
    return int(part.hidden.shape[1])


def width_of(data: Grouped) -> int:
    """Neurons of the hidden layer, m."""
    return int(data.view.parts.call([(0, part_width, ())])[0])
