"""All numbers that an estimate states, as rows: the accuracy, metrics, slices and classes."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self

from pydantic import Field

from opacc_ray.documents import Part
from opacc_ray.errors import SpecError, shown
from opacc_ray.estimators.intervals import clipped
from opacc_ray.estimators.metrics import ACCURACY, parse_metric
from opacc_ray.runs.estimate_documents import AccuracyEstimate, SliceEstimate, SliceTable, StatedEstimate
from opacc_ray.slices import BY_PREDICTION, BY_TRUTH

RECALL = "recall"

_STATED = {"low", "high", "low_together", "high_together", "tells", "standard_error", "interval", "reason", "level"}
_STATED |= {"n", "design_based"}
"""Fields of a row that are those of the estimate."""


class NumberRow(Part):
    """A number of the pool, of a slice or of a class."""

    metric: str = Field(description="what is estimated: accuracy, or a metric such as f1@defect")
    by: str | None = Field(description="the slices, or prediction or truth for classes; null: the whole pool")
    slice: str | None = Field(description="the slice or class; null: the whole pool")
    value: float = Field(description="the estimate, inside its interval")
    low: float = Field(description="lower end of the interval")
    high: float = Field(description="upper end of the interval")
    low_together: float | None = Field(
        description="lower end of the interval that holds for all slices at once; null: no slice"
    )
    high_together: float | None = Field(description="its upper end")
    level: float = Field(gt=0, lt=1, description="confidence level of the interval")
    n: int = Field(ge=0, description="draws that it is computed from")
    size: int | None = Field(ge=0, description="examples of the pool, the slice or the predicted class; null: unknown")
    design_based: bool = Field(description="whether the interval holds by the sampling design alone")
    unclipped: float | None = Field(
        default=None, description="the estimate as computed, which may be outside its interval"
    )
    standard_error: float | None = Field(default=None, description="its estimated standard error")
    interval: str | None = Field(default=None, description="name of the interval")
    reason: str | None = Field(
        default=None, description="assumptions of the interval; null if it holds by the sampling design alone"
    )
    tells: bool | None = Field(
        default=None,
        description="whether the slice has enough labels for its interval to say something; null: no slice",
    )


class NumberName(NamedTuple):
    """Which number: a metric of the pool, or of one slice."""

    metric: str = ACCURACY
    by: str | None = None
    slice: str | None = None

    @classmethod
    def parse(cls, metric: str | None, part: str | None) -> Self:
        """Read a metric, and a slice as ``camera=north``; raise SpecError for something else."""
        by, equal, name = (part or "").partition("=")
        if part is not None and not (by and equal and name):
            raise SpecError(f"slice {shown(part)} is not written SLICES=SLICE, as in camera=north")
        return cls(str(parse_metric(metric or ACCURACY)), by or None, name or None)

    def __str__(self) -> str:
        return self.metric if self.by is None else f"{self.metric} in {self.by}={self.slice}"

    def find(self, rows: Iterable[NumberRow]) -> NumberRow | None:
        """Return the row of this number; None if there is none."""
        return next((row for row in rows if (row.metric, row.by, row.slice) == self), None)


RESULT = NumberName()
"""The accuracy of the pool, or the score of a regression."""


def number_rows(estimate: AccuracyEstimate) -> Iterator[NumberRow]:
    """Yield a row for each number of an estimate: the accuracy, metrics, slices, then classes."""
    size, sizes = estimate.pool_size, estimate.pool_by_predicted_class or {}
    yield _row(estimate, ACCURACY, size)
    for metric, own in estimate.metrics.items():
        yield _row(own, metric, size)
    for table in estimate.by_slice:
        for name, part in table.slices.items():
            yield slice_row(part, table, name)
    for name, accuracy in (estimate.by_predicted_class or {}).items():
        yield _row(accuracy, ACCURACY, sizes.get(name), BY_PREDICTION, name)
    for name, recall in (estimate.by_true_class or {}).items():
        yield _row(recall, f"{RECALL}@{name}", None, BY_TRUTH, name)


def slice_row(part: SliceEstimate, table: SliceTable, name: str) -> NumberRow:
    """Return the row of a slice of a table."""
    return _row(part, table.metric, part.size, table.by, name)


def _row(
    own: StatedEstimate, metric: str, size: int | None, by: str | None = None, name: str | None = None
) -> NumberRow:
    joint: dict[str, Any] = dict.fromkeys(("low_together", "high_together"))
    stated = joint | own.model_dump(include=_STATED)
    return NumberRow(metric=metric, by=by, slice=name, value=clipped(own), unclipped=own.value, size=size, **stated)
