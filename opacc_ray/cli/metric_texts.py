"""What the terminal prints of metrics, classes and slices: a line for each number, a table for each partition."""

from opacc_ray.errors import counted
from opacc_ray.report.facts import Fact, Line, facts
from opacc_ray.report.numbers import level_text, stated, thousands
from opacc_ray.report.stated_numbers import (
    TOO_FEW,
    if_predicted_text,
    metric_name,
    part_tells,
    slice_table,
    slices_title,
)
from opacc_ray.runs.estimate_documents import AccuracyEstimate

GAP = "   "
"""Between the parts of a result: value, interval, labels."""

MOST_ROWS = 15
"""Slices that a table shows; JSON has them all."""


def metrics(document: AccuracyEstimate) -> list[Line]:
    """State each metric of the pool, then each table of slices, the lowest slice first."""
    lines = list[Line]()
    for name, found in document.metrics.items():
        own = stated(found, name)
        parts = [own.value, f"{level_text(found.level)} interval {own.interval}", counted(found.n, "label")]
        lines.append(Fact(metric_name(name), GAP.join(parts if part_tells(found) else [*parts, TOO_FEW]), "result"))
        lines += facts(("", if_predicted_text(name, found)))
        lines += facts(("note", found.reason if found.reason != document.reason else None))
    for table in document.by_slice:
        rows, more = slice_table(table, document.measure, MOST_ROWS)
        lines += [slices_title(table, document.measure), rows]
        lines += [f"… and {thousands(more)} more (--json has all)"] if more else []
    return lines
