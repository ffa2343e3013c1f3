"""Examples grouped by class: the predicted class, or the label in a labelled set."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool

ROWS = 8192
"""Examples processed at a time, so that their features in double precision stay in the processor's cache."""


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

    @property
    def labels_by_part(self) -> list[NDArray[np.int64] | None]:
        """The labels of each part; None for each part if classes are predicted."""
        starts = self.view.starts
        if self.label is None:
            return [None] * (len(starts) - 1)
        return np.split(self.label, starts[1:-1])  # type: ignore[return-value]

    def map(self, function: Any, *arguments: Any) -> list[Any]:
        """Return ``function(part, labels of the part, C, *arguments)`` for each part, in the order of the data set."""
        labels = self.labels_by_part
        return self.view.parts.call(
            [(part, function, (own, self.num_classes, *arguments)) for part, own in enumerate(labels)]
        )

    def classes(self) -> NDArray[np.int64]:
        """Return the class of each example, (N,)."""
        if self.label is not None:
            return self.label
        return checked_classes(self.view.column("prediction"), self.num_classes)


def other_width(here: int, there: int) -> DataError:
    """Return the error for features whose width differs from the reference."""
    return DataError(
        f"the hidden layer has {here} neurons here and {there} in the reference; give a reference with features of the "
        "same model"
    )


def checked_classes(prediction: NDArray[Any], num_classes: int) -> NDArray[np.int64]:
    """Return predicted classes (n,) as integers below ``num_classes``; raises DataError if one is not."""
    whole = prediction.astype(np.int64)
    bad = (whole != prediction) | (whole < 0) | (whole >= num_classes)
    if bad.any():
        raise DataError(
            f"the model predicts {prediction[bad][0]:g}, which is not one of the {num_classes} classes, 0 to "
            f"{num_classes - 1}; these measures need a classifier whose predictions are class numbers"
        )
    return whole


def part_classes(part: Pool, label: NDArray[np.int64] | None, num_classes: int) -> NDArray[np.int64]:
    """Return the class of each example of a part, (n,)."""
    if label is not None:
        return label
    assert part.prediction is not None
    return checked_classes(part.prediction, num_classes)


def blocks(num_rows: int) -> Iterator[slice]:
    """Return slices of consecutive rows, ROWS at a time."""
    return (slice(start, min(start + ROWS, num_rows)) for start in range(0, num_rows, ROWS))
