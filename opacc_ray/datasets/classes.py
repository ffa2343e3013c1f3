"""Examples grouped by class, and the cluster of each class in the last hidden layer.

The class of an example is the predicted one, or the label in a labelled set. A cluster has a centroid, and the largest
distance of an example from it. One pass over the features sums them by class; a second one measures the distances, 8
bytes an example.

Legend: N examples, C classes, m neurons.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.parts.cache import key_of
from opacc_ray.parts.view import View
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
    check_width(width_of(data), centroid.shape[1])
    key = key_of(centroid, "predicted" if data.label is None else data.label)
    return data.view.once("centroid distances", key, lambda: np.concatenate(data.map(part_distances, centroid)))


def part_nums(part: Pool, classes: NDArray[np.int64], num_classes: int) -> NDArray[np.int64]:
    """Count the examples of each class, (C,)."""
    return np.bincount(classes, minlength=num_classes)


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
