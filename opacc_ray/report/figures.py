"""The figures of a report, each for a wide page and for a narrow one. Shapes tell series apart, not colours alone.

| shape | means |
|---|---|
| filled dot, solid interval | this audit |
| ring, thin interval | a simple random sample of as many labels |
| dashed interval or band | holds at any time |
| diamond | what the model's own confidence says |
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from opacc_ray.estimators.intervals import clipped
from opacc_ray.report import width_figure
from opacc_ray.report.documents import CoursePoint, RunReport
from opacc_ray.report.sentences import digits_for, is_share, number, percent, thousands
from opacc_ray.svg import (
    WIDE,
    Scale,
    both_widths,
    decimals,
    diamond,
    dot,
    figure,
    line,
    name_at,
    path,
    shortened_to,
    text,
    ticks,
    whisker,
)

LEAST_SPAN = 0.01
"""What an axis of estimates spans at least."""

NOTE_ROOM, CHARACTER = 128.0, 7.5
"""Pixels to the right of a chart of intervals at least, and those of a character of a note that needs more of them."""

MOST_CLASSES = 15
"""Classes that a figure has rows for; the table has more."""


class Row(NamedTuple):
    """A line of a chart of intervals."""

    name: str
    low: float | None
    value: float | None
    high: float | None
    kind: str  # own, srs or any
    expected: float | None = None
    note: str = ""
    limit: float | None = None  # a dashed line across the row


def figures_of(report: RunReport) -> dict[str, Markup]:
    """Return the figures that a report has numbers for, by their names."""
    made: dict[str, Callable[[float], Markup]] = {}
    if report.estimate is not None:
        made["intervals"] = lambda width: intervals(report, width)
    if len(report.course) > 1:
        made["course"] = lambda width: course(report, width)
    if report.widths is not None:
        made["widths"] = lambda width: widths(report, width)
    if report.reliability is not None:
        made["failures"] = lambda width: failures(report, width)
        if len(report.reliability.bins) > 1:
            made["reliability"] = lambda width: reliability(report, width)
    if report.values:
        made["values"] = lambda width: values(report, width)
    return {name: both_widths(draw) for name, draw in made.items()}


def intervals(report: RunReport, width: float) -> Markup:
    """This audit beside a simple random sample, and the interval for any time."""
    stated = report.estimate
    assert stated is not None
    value, digits = clipped(stated), digits_for(stated.low, stated.high)
    srs, any_time, own = stated.srs, stated.sequence, stated.by_design
    rows = [
        Row("This audit", stated.low, value, stated.high, "own"),
        *([Row("By the draw alone", own.low, value, own.high, "srs")] if own and stated.allows_for else []),
        Row(f"{thousands(srs.n)} labels at random", srs.low, value, srs.high, "srs"),
        Row("However often you look", any_time.low, None, any_time.high, "any"),
    ]
    if (any_time.low, any_time.high) == (0, 1):  # it counts no round yet
        rows.pop()
    rows = [row._replace(note=_range(row, report.measure, digits)) for row in rows]
    said = "; ".join(f"{row.name}: {row.note}" for row in rows)
    return interval_chart("intervals", "The interval of this audit beside others", said, rows, width, report.measure)


def failures(report: RunReport, width: float) -> Markup:
    """Failures by predicted class: those that the confidence lets one expect, and those that labels show."""
    belief = report.reliability
    assert belief is not None
    most_labels = sorted(belief.classes, key=lambda item: -item.labels)[:MOST_CLASSES]
    rows = [
        Row(item.name, item.found_low, item.found, item.found_high, "own", item.expected, _labels(item.labels))
        for item in belief.classes
        if item in most_labels
    ]
    said = "; ".join(
        f"{row.name}: expected {percent(row.expected or 0)}"
        + (f", found {percent(row.value)} ({_range(row, 'accuracy')}, {row.note})" if row.value is not None else "")
        for row in rows
    )
    return interval_chart("failures", "Share of failures by predicted class", said, rows, width, "accuracy", zero=True)


def interval_chart(
    name: str,
    title: str,
    said: str,
    rows: Sequence[Row],
    width: float,
    measure: str,
    *,
    zero: bool = False,
) -> Markup:
    """Intervals as rows over one axis, names to the left, or above where it is narrow."""
    is_wide = width == WIDE
    left, right = (190.0, width - _note_room(rows)) if is_wide else (18.0, width - 20.0)
    step, top = (34.0, 6.0) if is_wide else (46.0, 2.0)
    known = [v for row in rows for v in (row.low, row.value, row.high, row.expected, row.limit) if v is not None]
    known += [0.0] * zero
    marks = enclosing_ticks(known, 6 if is_wide else 4)
    x, bottom = Scale(marks[0], marks[-1], left, right), top + step * len(rows)
    parts = _axis_below(x, marks, bottom, top, measure)
    for place, row in enumerate(rows):
        y = top + step * place + (step / 2 if is_wide else step - 14)
        if row.limit is not None:
            reach = step / 2 if is_wide else 10  # not through the texts above
            parts.append(line(x(row.limit), y - reach, x(row.limit), y + reach, "edge claim"))
        parts += _interval(row, x, y)
        label_y = y + 4 if is_wide else y - 15
        parts.append(text(0, label_y, shortened_to(row.name, 24), "name"))
        parts.append(text(width, label_y, row.note, "value", "end"))
    return figure(name_at(name, width), title, said, (width, bottom + 26), parts)


def _note_room(rows: Sequence[Row]) -> float:
    """Pixels for the longest note and for a mark at the end of the axis."""
    return max(NOTE_ROOM, CHARACTER * max(len(row.note) for row in rows) + 24)


def _interval(row: Row, x: Scale, y: float) -> list[Markup]:
    parts = []
    if row.low is not None and row.high is not None:
        parts.append(whisker((x(row.low), y), (x(row.high), y), f"bar {row.kind}", 5))
    if row.value is not None:
        parts.append(dot(x(row.value), y, 5.5, f"mark {row.kind}"))
    if row.expected is not None:
        parts.append(diamond(x(row.expected), y, 5.5, "mark claim"))
    return parts


def enclosing_ticks(known: Sequence[float], most: int) -> list[float]:
    """Ticks that enclose estimates, at least a hundredth apart: they may all be alike."""
    low, high = min(known), max(known)
    spare = max(LEAST_SPAN - (high - low), 0.0)
    return ticks(low - spare, high, most) if high > 0.5 else ticks(low, high + spare, most)


def _axis_below(x: Scale, marks: Sequence[float], bottom: float, top: float, measure: str) -> list[Markup]:
    labels = tick_labels(marks, measure)
    parts = [line(x(mark), top, x(mark), bottom, "grid") for mark in marks]
    parts += [text(x(mark), bottom + 18, label, "tick", "middle") for mark, label in zip(marks, labels, strict=True)]
    return parts


def tick_labels(marks: Sequence[float], measure: str) -> list[str]:
    """Shares as percentages, scores as numbers, with the decimals that tell them apart."""
    if not is_share(measure):
        return [f"{mark:.{decimals(marks)}f}" for mark in marks]
    digits = decimals([100 * mark for mark in marks])
    return [f"{100 * mark:.{digits}f}%" for mark in marks]


def _range(row: Row, measure: str, digits: int = 1) -> str:
    if row.low is None or row.high is None:
        return ""
    return f"{number(row.low, measure, digits)} – {number(row.high, measure, digits)}"


def _labels(num: int) -> str:
    return "1 label" if num == 1 else f"{thousands(num)} labels" if num else "no label"


def course(report: RunReport, width: float) -> Markup:
    """The estimate against the labels used: one interval a round, and the band that holds at any time."""
    points, measure, height = report.course, report.measure, 250.0
    left, right, top, bottom = 52.0, width - 20.0, 10.0, height - 46.0
    known = [v for p in points for v in (p.low, p.high, p.anytime_low, p.anytime_high) if v is not None]
    marks, along = enclosing_ticks(known, 6), ticks(0, points[-1].labels, 7 if width == WIDE else 5)
    x, y = Scale(along[0], along[-1], left, right), Scale(marks[0], marks[-1], bottom, top)
    parts = [line(left, y(mark), right, y(mark), "grid") for mark in marks]
    labels = zip(marks, tick_labels(marks, measure), strict=True)
    parts += [text(left - 8, y(mark) + 4, label, "tick", "end") for mark, label in labels]
    parts += [text(x(mark), bottom + 18, thousands(mark), "tick", "middle") for mark in along]
    parts.append(text((left + right) / 2, height - 6, "labels used", "axis", "middle"))
    parts += _band(points, x, y)
    parts.append(path([(x(p.labels), y(clipped(p))) for p in points], "trend"))
    for point in points:
        here = x(point.labels)
        parts += [whisker((here, y(point.low)), (here, y(point.high)), "bar own", 5)]
        parts += [dot(here, y(clipped(point)), 5, "mark own")]
    said = "; ".join(_said(point, measure) for point in points)
    return figure(name_at("course", width), "The estimate against the labels used", said, (width, height), parts)


def widths(report: RunReport, width: float) -> Markup:
    """Half the width of the interval against labels: how much more would bring how much."""
    assert report.widths is not None
    return width_figure.widths(report.widths, width, name_at("widths", width))


def _band(points: Sequence[CoursePoint], x: Scale, y: Scale) -> list[Markup]:
    """What holds at any time, as dashed lines with caps."""
    held = [(p.labels, p.anytime_low, p.anytime_high) for p in points]
    lows = [(x(labels), y(low)) for labels, low, _ in held if low is not None]
    highs = [(x(labels), y(high)) for labels, _, high in held if high is not None]
    if len(lows) == 1:
        return [whisker((lows[0][0] + 10, lows[0][1]), (highs[0][0] + 10, highs[0][1]), "bar any", 4)]
    return [path(lows, "edge any"), path(highs, "edge any")] if lows else []


def _said(point: CoursePoint, measure: str) -> str:
    digits = digits_for(point.low, point.high)
    value, low, high = (number(item, measure, digits) for item in (clipped(point), point.low, point.high))
    return f"after round {point.round}, {_labels(point.labels)}: {value}, {low} to {high}"


def reliability(report: RunReport, width: float) -> Markup:
    """Accuracy against confidence, bin by bin; on the diagonal the model knows what it does not know."""
    belief = report.reliability
    assert belief is not None
    bins = [item for item in belief.bins if item.accuracy is not None]
    least = min([item.confidence for item in bins] + [item.accuracy_low or 0.0 for item in bins])
    marks = ticks(least, 1.0, 6)
    names = "mean confidence of the bin", "accuracy"
    x, y, parts, size = _square(width, 52.0, marks, tick_labels(marks, "accuracy"), names, crossed=True)
    largest = max(item.pool for item in bins)
    for item in bins:
        here = x(item.confidence)
        parts.append(whisker((here, y(item.accuracy_low or 0)), (here, y(item.accuracy_high or 0)), "bar own", 4))
        parts.append(dot(here, y(item.accuracy or 0), 3 + 5 * (item.pool / largest) ** 0.5, "mark own"))
    said = "; ".join(
        f"confidence {percent(item.confidence)}: right in {percent(item.accuracy or 0)}, "
        f"{percent(item.accuracy_low or 0)} to {percent(item.accuracy_high or 0)}, {_labels(item.labels)}"
        for item in bins
    )
    return figure(name_at("reliability", width), "Accuracy against confidence", said, size, parts)


def values(report: RunReport, width: float) -> Markup:
    """Labels of a regression against predictions; on the diagonal they agree."""
    found = report.values or []
    known = [number for item in found for number in (item.label, item.prediction)]
    marks = ticks(min(known), max(known), 6)
    labels = [f"{mark:.{decimals(marks)}f}" for mark in marks]
    x, y, parts, size = _square(width, 62.0, marks, labels, ("label", "prediction"))
    for item in found:
        parts.append(dot(x(item.label), y(item.prediction), 3.5, "mark own" if item.outcome >= 0.5 else "mark srs"))
    said = f"{len(found)} labelled examples: their labels from left to right, predictions from bottom to top"
    return figure(name_at("values", width), "Predictions against labels", said, size, parts)


class _Square(NamedTuple):
    """A square chart of two things that agree on its diagonal."""

    x: Scale
    y: Scale
    parts: list[Markup]
    size: tuple[float, float]  # in pixels


def _square(
    width: float,
    left: float,
    marks: Sequence[float],
    labels: Sequence[str],
    names: tuple[str, str],
    *,
    crossed: bool = False,
) -> _Square:
    """The axes, with the same ``marks`` and their ``labels``, and the diagonal of a square chart.

    Parameters
    ----------
    left : pixels before the vertical axis
    names : of the horizontal axis and of the vertical one
    crossed : whether lines go up from the marks, too
    """
    top, side = 28.0, min(width - left - 24, 400.0)
    right, bottom = left + side, top + side
    x, y = Scale(marks[0], marks[-1], left, right), Scale(marks[0], marks[-1], bottom, top)
    parts = [line(left, y(mark), right, y(mark), "grid") for mark in marks]
    parts += [line(x(mark), top, x(mark), bottom, "grid") for mark in marks if crossed]
    parts.append(path([(left, bottom), (right, top)], "edge claim"))
    for mark, label in zip(marks, labels, strict=True):
        parts.append(text(left - 8, y(mark) + 4, label, "tick", "end"))
        parts.append(text(x(mark), bottom + 18, label, "tick", "middle"))
    parts.append(text((left + right) / 2, bottom + 40, names[0], "axis", "middle"))
    parts.append(text(0, 11, names[1], "axis"))
    return _Square(x, y, parts, (right + 24, bottom + 46))
