"""The cluster of each class in the last hidden layer: its centroid, and the largest distance from it.

One pass over the features sums them by class; a second one measures the distances to the centroids, 8 bytes an example.

Legend: N examples, C classes, m neurons.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from opacc_ray.characterize.classes import Grouped, blocks, other_width, part_classes
from opacc_ray.errors import DataError
from opacc_ray.parts.cache import key_of
from opacc_ray.pool import Pool

SUMS_AT_ONCE = 1 << 25
"""Numbers of the parts' sums that are held at a time: 256 MiB."""


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


def find_clusters(data: Grouped, at_once: int = SUMS_AT_ONCE) -> Clusters:
    """Return the clusters of all classes, from sums over the parts; ``at_once`` numbers of them are held at a time.

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
    reach = np.full(data.num_classes, -1.0)
    np.maximum.at(reach, data.classes(), centroid_distances(data, centroid))
    return Clusters(num, centroid, np.where(reach < 0, np.nan, reach))


def centroid_distances(data: Grouped, centroid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance of each example of ``data`` from the centroid of its class, (N,); centroid (C, m).

    They are measured once per data set: characterisation and the sampler `coverage` ask for them after `find_clusters`.

    Raises
    ------
    DataError
        The features are not as wide as the centroids.
    """
    width = width_of(data)
    if width != centroid.shape[1]:
        raise other_width(width, centroid.shape[1])
    key = key_of(centroid, "predicted" if data.label is None else data.label)
    return data.view.once("centroid distances", key, lambda: np.concatenate(data.map(part_distances, centroid)))


def part_nums(part: Pool, label: NDArray[np.int64] | None, num_classes: int) -> NDArray[np.int64]:
    """Count the examples of each class, (C,)."""
    return np.bincount(part_classes(part, label, num_classes), minlength=num_classes)


def part_sums(part: Pool, label: NDArray[np.int64] | None, num_classes: int, neurons: slice) -> NDArray[np.float64]:
    """Sum the features of each class over some ``neurons``: (C, neurons)."""
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
) -> NDArray[np.float64]:
    """Return the distance of each example of a part from the centroid of its class, (n,)."""
    assert part.hidden is not None
    classes, distance = part_classes(part, label, num_classes), np.empty(part.size)
    for rows in blocks(part.size):
        away = part.hidden[rows] - centroid[classes[rows]]  # (rows, m)
        distance[rows] = np.sqrt(np.einsum("ij,ij->i", away, away))
    return distance


def part_width(part: Pool) -> int:
    assert part.hidden is not None
    return int(part.hidden.shape[1])


def width_of(data: Grouped) -> int:
    """Return the number of neurons of the hidden layer, m."""
    return int(data.view.parts.call([(0, part_width, ())])[0])
