"""Draw the numbers of classes and slices: one row each, over one axis."""

from collections.abc import Mapping, Sequence
from functools import partial

from markupsafe import Markup

from opacc_ray.estimators.intervals import Value, clipped
from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.report.facts import ends, number
from opacc_ray.report.figures import Row, interval_chart, labels_text
from opacc_ray.report.report_documents import RunReport
from opacc_ray.report.stated_numbers import (
    TOO_FEW,
    lowest_first,
    measure_of,
    part_tells,
    slices_title,
    whole_pool,
)
from opacc_ray.runs.estimate_documents import SliceTable, StatedEstimate
from opacc_ray.slices import BY_PREDICTION
from opacc_ray.svg import both_widths

MOST_PARTS = 15
"""Most rows of a figure; the table has more."""


def part_rows(
    parts: Sequence[tuple[str, StatedEstimate]], whole: Value | None = None, expected: Mapping[str, float] | None = None
) -> list[Row]:
    """Return a row for each class or slice, with the number of the whole pool as a dashed line.

    An interval that says little is not drawn. ``expected`` are the accuracies that the confidence predicts.
    """
    limit, rows = None if whole is None else clipped(whole), []
    for name, part in parts:
        belief = (expected or {}).get(name)
        if part_tells(part):
            note = labels_text(part.n)
            rows.append(Row(name, part.low, clipped(part), part.high, "own", belief, note, limit))
        else:
            rows.append(Row(name, None, None, None, "own", belief, TOO_FEW, limit))
    return rows


def part_chart(name: str, title: str, rows: Sequence[Row], measure: str, width: float) -> Markup:
    """Draw the numbers of classes or slices as intervals over one axis."""
    texts = []
    for row in rows:
        expected = "" if row.expected is None else f"expected {number(row.expected, measure)}"
        found = row.note
        if row.value is not None:
            found = f"{number(row.value, measure)} ({ends(row.low or 0, row.high or 0, measure)}, {row.note})"
        texts.append(f"{row.name}: {', found '.join(filter(None, (expected, found)))}")
    return interval_chart(name, title, "; ".join(texts), rows, width, measure)


def expected_figure(report: RunReport) -> Markup | None:
    """Return the accuracy by predicted class that the confidence predicts; None without a confidence."""
    classes = report.reliability.classes[:MOST_PARTS] if report.reliability else []
    rows = [Row(item.name, None, None, None, "own", 1 - item.expected, labels_text(0)) for item in classes]
    title = "Expected accuracy by predicted class"
    return both_widths(partial(part_chart, "expected", title, rows, ACCURACY)) if rows else None


def slice_figure(report: RunReport, table: SliceTable, name: str) -> Markup | None:
    """Return the figure of a table of slices or classes, the lowest first; None where no label tells anything.

    ``name`` is unique on the page. Predicted classes have the accuracy that the confidence predicts, as a diamond.
    """
    ordered = lowest_first(table)
    if report.estimate is None or not any(part.tells for _, part in ordered):
        return None
    expected = None
    if table.by == BY_PREDICTION and report.reliability:
        expected = {item.name: 1 - item.expected for item in report.reliability.classes}
    rows = part_rows(ordered[:MOST_PARTS], whole_pool(report.estimate, table.metric), expected)
    measure = measure_of(table.metric, report.measure)
    return both_widths(partial(part_chart, name, slices_title(table, report.measure), rows, measure))
