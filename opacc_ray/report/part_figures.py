"""Draw the numbers of classes and slices: one row each, over one axis."""

from collections.abc import Sequence
from functools import partial

from markupsafe import Markup

from opacc_ray.estimators.intervals import Value, clipped
from opacc_ray.estimators.metrics import ACCURACY, tells
from opacc_ray.report.facts import ends, number
from opacc_ray.report.figures import Row, interval_chart, labels_text
from opacc_ray.report.report_documents import ClassFailures, RunReport
from opacc_ray.report.stated_numbers import (
    TOO_FEW,
    lowest_first,
    measure_of,
    part_tells,
    slices_title,
    whole_pool,
)
from opacc_ray.runs.estimate_documents import AccuracyEstimate, SliceTable, StatedEstimate
from opacc_ray.svg import both_widths

MOST_PARTS = 15
"""Most rows of a figure; the table has more."""


def failure_figure(report: RunReport) -> dict[str, Markup]:
    """Return the figure of failures by predicted class; none without a confidence."""
    return {} if report.reliability is None else {"failures": both_widths(partial(failures, report))}


def failures(report: RunReport, width: float) -> Markup:
    """Draw the expected and the observed share of failures of each predicted class."""
    assert report.reliability is not None
    classes = report.reliability.classes
    most_labels = sorted(classes, key=lambda item: -item.labels)[:MOST_PARTS]
    rows = [_failure_row(item) for item in classes if item in most_labels]
    return part_chart("failures", "Share of failures by predicted class", rows, width, "accuracy", zero=True)


def _failure_row(item: ClassFailures) -> Row:
    found, low, high = item.found, item.found_low, item.found_high
    if found is None or low is None or high is None:
        return Row(item.name, None, None, None, "own", item.expected, labels_text(0))
    if not tells(low, high, item.labels):
        return Row(item.name, None, None, None, "own", item.expected, TOO_FEW)
    return Row(item.name, low, found, high, "own", item.expected, labels_text(item.labels))


def part_rows(parts: Sequence[tuple[str, StatedEstimate]], whole: Value | None = None) -> list[Row]:
    """Return a row for each class or slice, with the number of the whole pool as a dashed line.

    An interval that says little is not drawn.
    """
    limit, rows = None if whole is None else clipped(whole), []
    for name, part in parts:
        if part_tells(part):
            rows.append(Row(name, part.low, clipped(part), part.high, "own", None, labels_text(part.n), limit))
        else:
            rows.append(Row(name, None, None, None, "own", None, TOO_FEW, limit))
    return rows


def part_chart(name: str, title: str, rows: Sequence[Row], width: float, measure: str, *, zero: bool = False) -> Markup:
    """Draw the numbers of classes or slices as intervals over one axis, with ``zero`` from 0 on."""
    texts = []
    for row in rows:
        expected = "" if row.expected is None else f"expected {number(row.expected, measure)}"
        found = row.note
        if row.value is not None:
            found = f"{number(row.value, measure)} ({ends(row.low or 0, row.high or 0, measure)}, {row.note})"
        texts.append(f"{row.name}: {', found '.join(filter(None, (expected, found)))}")
    return interval_chart(name, title, "; ".join(texts), rows, width, measure, zero=zero)


def class_figures(estimate: AccuracyEstimate) -> dict[str, Markup]:
    """Return the figures of precision and recall by class, the lowest first; none where no label tells anything."""
    found = {}
    kinds = (("precision", "Precision by predicted class", estimate.by_predicted_class),
             ("recall", "Recall by true class", estimate.by_true_class))  # fmt: skip
    for name, title, parts in kinds:
        ordered = sorted((parts or {}).items(), key=lambda item: (not part_tells(item[1]), clipped(item[1])))
        if ordered and part_tells(ordered[0][1]):
            rows = part_rows(ordered[:MOST_PARTS])
            found[name] = both_widths(partial(_parts_at, name, title, rows, ACCURACY))
    return found


def slice_figure(report: RunReport, table: SliceTable, name: str) -> Markup | None:
    """Return the figure of a table of slices, the lowest first; None where no label tells anything.

    ``name`` is unique on the page.
    """
    ordered = lowest_first(table)
    if report.estimate is None or not any(part.tells for _, part in ordered):
        return None
    rows = part_rows(ordered[:MOST_PARTS], whole_pool(report.estimate, table.metric))
    measure = measure_of(table.metric, report.measure)
    return both_widths(partial(_parts_at, name, slices_title(table, report.measure), rows, measure))


def _parts_at(name: str, title: str, rows: Sequence[Row], measure: str, width: float) -> Markup:
    return part_chart(name, title, rows, width, measure)
