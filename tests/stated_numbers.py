"""Metrics and slices of an estimate, written by hand."""

from collections.abc import Mapping, Sequence

from opacc_ray.runs.run_documents import AccuracyEstimate, IfPredicted, SliceEstimate, SliceTable, StatedMetric


def metric(value: float, low: float, high: float, n: int = 100, second: IfPredicted | None = None) -> StatedMetric:
    """A metric with a 95 % interval."""
    return StatedMetric(
        **{"value": value, "low": low, "high": high, "n": n},
        **{"standard_error": (high - low) / 4, "level": 0.95, "method": "two totals"},
        **{"design_based": True, "reason": None, "if_predicted": second},
    )


def slice_of(
    value: float, low: float, high: float, n: int = 40, *, size: int = 50, tells: bool = True
) -> SliceEstimate:
    """A slice whose joint interval is wider by a tenth on each side."""
    joint = {"low_together": max(low - 0.1, 0.0), "high_together": min(high + 0.1, 1.0)}
    return SliceEstimate(**metric(value, low, high, n).model_dump(), **joint, size=size, tells=tells)


def table(by: str, slices: Mapping[str, SliceEstimate], name: str = "accuracy") -> SliceTable:
    return SliceTable(metric=name, by=by, level_together=0.95, slices=dict(slices))


HIDDEN = IfPredicted(value=0.9, low=0.84, high=0.93, factor=3.0, labels=400)
METRICS = {"f1@dog": metric(0.7, 0.6, 0.8), "recall@dog": metric(0.8, 0.2, 0.93, second=HIDDEN)}
CAMERAS = {
    "north": slice_of(0.9, 0.8, 0.95),
    "south": slice_of(0.6, 0.45, 0.7),
    "roof": slice_of(0.1, 0.0, 0.9, 1, size=3, tells=False),
}


def with_numbers(
    estimate: AccuracyEstimate,
    metrics: Mapping[str, StatedMetric] = METRICS,
    tables: Sequence[SliceTable] = (table("camera", CAMERAS),),
) -> AccuracyEstimate:
    """The estimate with metrics and tables of slices."""
    return estimate.model_copy(update={"metrics": dict(metrics), "by_slice": list(tables)})
