"""Draw the figures of a report, for a wide and a narrow page. Series differ by shape as well as colour.

| shape | means |
|---|---|
| filled dot, solid interval | this audit |
| ring, thin interval | a simple random sample of as many labels |
| dashed interval or band | valid at any time |
| diamond | what the model's confidence predicts |
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from markupsafe import Markup

from opacc_ray import svg
from opacc_ray.errors import counted
from opacc_ray.estimation.intervals import Value, clipped
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.pool import BY_PREDICTION
from opacc_ray.report import facts
from opacc_ray.report.report_documents import RunReport
from opacc_ray.runs.run_documents import SliceTable

LEAST_SPAN = 0.01
"""Least span of an axis of estimates."""

HISTOGRAM = 70.0
"""Pixels of the highest column of a histogram below a chart."""

COLUMN = 460.0
"""Pixels across a figure in one of two columns."""

LINE_HEIGHT = 250.0
"""Pixels of the height of a line chart."""

MOST_PARTS = 15
"""Most classes or slices of a figure; the table has more."""

NOTE_ROOM, CHARACTER = 128.0, 7.5
"""Least pixels to the right of a chart of intervals, and pixels of a character of a longer note."""


class Row(NamedTuple):
    """A line of a chart of intervals."""

    name: str
    low: float | None
    value: float | None
    high: float | None
    kind: str  # own, srs or any: a style
    expected: float | None = None
    note: str = ""
    limit: float | None = None  # a dashed line across the row


def figures_of(report: RunReport) -> dict[str, Markup]:
    """Return the figures of the whole pool for which a report has numbers, by name."""
    made: dict[str, Callable[[float], Markup]] = {}
    if report.estimate is not None:
        made["intervals"] = partial(intervals, report)
    if len(report.course) > 1:
        made["course"] = partial(course, report)
    if report.reliability is not None and len(report.reliability.bins) > 1:
        made["reliability"] = partial(reliability, report)
    if report.values:
        made["values"] = partial(values, report)
    return {name: svg.both_widths(draw, COLUMN if name == "intervals" else svg.WIDE) for name, draw in made.items()}


def intervals(report: RunReport, width: float) -> Markup:
    """Draw the interval of an audit above the other ones."""
    estimate = report.estimate
    assert estimate is not None
    digits, verdict = facts.digits_for(estimate.low, estimate.high), report.verdict
    goal = verdict.goal if verdict and verdict.metric == ACCURACY else None
    rows = []
    for item in facts.intervals_of(estimate):
        name, note = f"{item.name[:1].upper()}{item.name[1:]}", facts.ends(item.low, item.high, report.measure, digits)
        rows.append(Row(name, item.low, item.value, item.high, item.kind, note=note, limit=goal))
    description = "; ".join(f"{row.name}: {row.note}" for row in rows)
    title = "The interval of this audit and others"
    return interval_chart("intervals", title, description, rows, width, report.measure)


def interval_chart(name: str, title: str, description: str, rows: Sequence[Row], width: float, measure: str) -> Markup:
    """Draw intervals as rows over one axis."""
    known = [v for row in rows for v in (row.low, row.value, row.high, row.expected, row.limit) if v is not None]
    marks = enclosing_ticks(known, 6 if width == svg.WIDE else 4)
    room = max(NOTE_ROOM, CHARACTER * max(len(row.note) for row in rows) + 24)  # of notes, and of a mark before them
    named = [(row.name, row.note) for row in rows]

    def draw(place: int, x: svg.Scale, y: float) -> list[Markup]:
        row, parts = rows[place], []
        if row.limit is not None:
            reach = 17 if width == svg.WIDE else 10  # not through the texts above
            parts.append(svg.line(x(row.limit), y - reach, x(row.limit), y + reach, "edge claim"))
        if row.low is not None and row.high is not None:
            parts.append(svg.whisker((x(row.low), y), (x(row.high), y), f"bar {row.kind}", 5))
        if row.value is not None:
            parts.append(svg.dot(x(row.value), y, 5.5, f"mark {row.kind}"))
        if row.expected is not None:
            parts.append(svg.diamond(x(row.expected), y, 5.5, "mark claim"))
        return parts

    return row_chart((name, title, description), width, marks, tick_labels(marks, measure), named, draw, room)


def row_chart(
    texts: tuple[str, str, str],
    width: float,
    marks: Sequence[float],
    labels: Sequence[str],
    rows: Sequence[tuple[str, str]],
    draw: Callable[[int, svg.Scale, float], list[Markup]],
    room: float = 20.0,
) -> Markup:
    """Draw rows over one axis; names are on the left, or above on a narrow page.

    Parameters
    ----------
    texts : name, title and description of the figure
    marks, labels : of the axis
    rows : name of each row, and a note on its right
    draw : returns the marks of a row, from its place, the axis and the height of its middle
    room : pixels to the right of the axis on a wide page
    """
    name, title, description = texts
    is_wide = width == svg.WIDE
    left, right = (200.0, width - room) if is_wide else (18.0, width - 20.0)
    step, top = (34.0, 6.0) if is_wide else (46.0, 2.0)
    x, bottom = svg.Scale(marks[0], marks[-1], left, right), top + step * len(rows)
    parts = [svg.line(x(mark), top, x(mark), bottom, "grid") for mark in marks]
    parts += [
        svg.text(x(mark), bottom + 18, label, "tick", "middle") for mark, label in zip(marks, labels, strict=True)
    ]
    for place, (row_name, note) in enumerate(rows):
        y = top + step * place + (step / 2 if is_wide else step - 14)
        label_y = y + 4 if is_wide else y - 15
        parts += draw(place, x, y)
        most = 26 if is_wide else int((width - CHARACTER * len(note)) / CHARACTER) - 2  # the note is beside the name
        parts.append(svg.text(0, label_y, svg.shortened_to(row_name, most), "name"))
        parts.append(svg.text(width, label_y, note, "value", "end"))
    return svg.figure(svg.name_at(name, width), title, description, (width, bottom + 26), parts)


def enclosing_ticks(known: Sequence[float], most: int) -> list[float]:
    """Return ticks that enclose estimates; the span is at least :data:`LEAST_SPAN`."""
    low, high = min(known), max(known)
    spare = max(LEAST_SPAN - (high - low), 0.0)
    return svg.ticks(low - spare, high, most) if high > 0.5 else svg.ticks(low, high + spare, most)


def tick_labels(marks: Sequence[float], measure: str) -> list[str]:
    """Format the numbers of an axis, with enough decimals to differ."""
    if not facts.in_percent(measure):
        return [f"{mark:.{svg.decimals(marks)}f}" for mark in marks]
    digits = svg.decimals([100 * mark for mark in marks])
    return [f"{100 * mark:.{digits}f} %" for mark in marks]


def labels_text(count: int) -> str:
    return counted(count, "label") if count else "no label"


class Axes(NamedTuple):
    """The axes of a line chart, and what is drawn of them."""

    x: svg.Scale
    y: svg.Scale
    parts: list[Markup]


def axes(
    size: tuple[float, float],
    along: tuple[float, float],
    ticks_along: Sequence[tuple[float, str]],
    marks: Sequence[float],
    labels: Sequence[str],
    name: str = "",
    top: float = 10.0,
) -> Axes:
    """Return the axes of a line chart.

    Parameters
    ----------
    size : width and height in pixels
    along : what the horizontal axis spans
    ticks_along : values of the horizontal axis with their labels
    marks, labels : of the vertical axis, from its lower end to its upper one
    name : of the horizontal axis
    top : pixels above the vertical axis
    """
    width, height = size
    left, right, bottom = 58.0, width - 20.0, height - (46.0 if name else 30.0)
    x, y = svg.Scale(*along, left, right), svg.Scale(marks[0], marks[-1], bottom, top)
    parts = [svg.line(left, y(mark), right, y(mark), "grid") for mark in marks]
    parts += [svg.text(left - 8, y(mark) + 4, label, "tick", "end") for mark, label in zip(marks, labels, strict=True)]
    parts += [svg.text(x(mark), bottom + 18, label, "tick", "middle") for mark, label in ticks_along]
    parts += [svg.text((left + right) / 2, height - 6, name, "axis", "middle")] if name else []
    return Axes(x, y, parts)


def trend(points: Sequence[tuple[float, Value]], y: svg.Scale, size: float) -> list[Markup]:
    """Draw numbers from left to right: a line through them, and an interval and a dot for each."""
    known = [(across, y(clipped(own)), own) for across, own in points]
    parts = [svg.path([(across, up) for across, up, _ in known], "trend")]
    for across, up, own in known:
        parts.append(svg.whisker((across, y(own.low)), (across, y(own.high)), "bar own", size))
        parts.append(svg.dot(across, up, size, "mark own"))
    return parts


def course(report: RunReport, width: float) -> Markup:
    """Draw the estimate against labels: one interval per round, and the band that is valid at any time."""
    points, measure = report.course, report.measure
    known = [v for p in points for v in (p.low, p.high, p.anytime_low, p.anytime_high) if v is not None]
    marks = enclosing_ticks(known, 6)
    size, along = (width, LINE_HEIGHT), svg.ticks(0, points[-1].labels, 7 if width == svg.WIDE else 5)
    labels = [(mark, facts.thousands(mark)) for mark in along]
    x, y, parts = axes(size, (along[0], along[-1]), labels, marks, tick_labels(marks, measure), "labels used")
    lows = [(x(p.labels), y(p.anytime_low)) for p in points if p.anytime_low is not None]
    highs = [(x(p.labels), y(p.anytime_high)) for p in points if p.anytime_high is not None]
    if len(lows) > 1:
        parts += [svg.path(lows, "edge any"), svg.path(highs, "edge any")]
    elif lows:
        parts.append(svg.whisker((lows[0][0] + 10, lows[0][1]), (highs[0][0] + 10, highs[0][1]), "bar any", 4))
    parts += trend([(x(point.labels), point) for point in points], y, 5)
    description = "; ".join(
        f"after round {point.round}, {labels_text(point.labels)}: {', '.join(facts.stated(point, measure))}"
        for point in points
    )
    title = "The estimate against the labels used"
    return svg.figure(svg.name_at("course", width), title, description, size, parts)


def reliability(report: RunReport, width: float) -> Markup:
    """Draw accuracy against confidence, bin by bin; on the diagonal the model is calibrated."""
    assert report.reliability is not None
    table = next(table for table in report.tables if table.by == facts.CONFIDENCE)
    bins = [(mean, part) for name, mean in report.reliability.bins.items() if (part := table.slices[name]).n]
    least = min([mean for mean, _ in bins] + [part.low for _, part in bins])
    marks = svg.ticks(least, 1.0, 6)
    names = "mean confidence of the bin", "accuracy"
    (x, y, parts), size = _square(width, marks, tick_labels(marks, "accuracy"), names, crossed=True)
    counts, largest = report.reliability.histogram, max(part.size for _, part in bins)
    for place, count in enumerate(counts):
        left, right = place / len(counts), (place + 1) / len(counts)
        if count and right > marks[0]:
            top = y.start - HISTOGRAM * count / max(counts)
            corners = [(x(left) + 1, y.start), (x(left) + 1, top), (x(right) - 1, top), (x(right) - 1, y.start)]
            parts.append(svg.path(corners, "column", closed=True))
    for mean, part in bins:
        here = x(mean)
        parts.append(svg.whisker((here, y(part.low)), (here, y(part.high)), "bar own", 4))
        parts.append(svg.dot(here, y(part.value), 3 + 5 * (part.size / largest) ** 0.5, "mark own"))
    description = "; ".join(
        f"confidence {facts.percent(mean)}: accuracy {facts.percent(part.value)}, "
        f"{facts.ends(part.low, part.high)}, {labels_text(part.n)}"
        for mean, part in bins
    )
    return svg.figure(svg.name_at("reliability", width), "Accuracy against confidence", description, size, parts)


def values(report: RunReport, width: float) -> Markup:
    """Draw predictions of a regression against labels; on the diagonal they agree."""
    found = report.values or []
    known = [number for item in found for number in (item.label, item.prediction)]
    marks = svg.ticks(min(known), max(known), 6)
    labels = [f"{mark:.{svg.decimals(marks)}f}" for mark in marks]
    (x, y, parts), size = _square(width, marks, labels, ("label", "prediction"))
    for item in found:
        parts.append(svg.dot(x(item.label), y(item.prediction), 3.5, "mark own" if item.outcome >= 0.5 else "mark srs"))
    description = f"{len(found)} labelled examples: their labels from left to right, predictions from bottom to top"
    return svg.figure(svg.name_at("values", width), "Predictions against labels", description, size, parts)


def _square(
    width: float, marks: Sequence[float], labels: Sequence[str], names: tuple[str, str], *, crossed: bool = False
) -> tuple[Axes, tuple[float, float]]:
    """Return a square chart of two quantities that are equal on its diagonal, and its size in pixels.

    Parameters
    ----------
    marks, labels : of both axes
    names : of the horizontal axis and of the vertical one
    crossed : whether the horizontal axis has grid lines as well
    """
    side = min(width - 82, 400.0)
    size, along = (side + 78, side + 74), list(zip(marks, labels, strict=True))
    x, y, parts = axes(size, (marks[0], marks[-1]), along, marks, labels, names[0], top=28.0)
    parts += [svg.line(x(mark), y.stop, x(mark), y.start, "grid") for mark in marks if crossed]
    parts += [svg.path([(x.start, y.start), (x.stop, y.stop)], "edge claim"), svg.text(0, 11, names[1], "axis")]
    return Axes(x, y, parts), size


# -- classes and slices: one row each, over one axis ----------------------------------------------------------------


def part_chart(name: str, title: str, rows: Sequence[Row], measure: str, width: float) -> Markup:
    """Draw the numbers of classes or slices as intervals over one axis."""
    texts = []
    for row in rows:
        expected = "" if row.expected is None else f"expected {facts.number(row.expected, measure)}"
        found = row.note
        if row.value is not None:
            found = (
                f"{facts.number(row.value, measure)} ({facts.ends(row.low or 0, row.high or 0, measure)}, {row.note})"
            )
        texts.append(f"{row.name}: {', found '.join(filter(None, (expected, found)))}")
    return interval_chart(name, title, "; ".join(texts), rows, width, measure)


def expected_figure(report: RunReport) -> Markup | None:
    """Return the accuracy by predicted class that the confidence predicts; None without a confidence."""
    expected = report.reliability.expected if report.reliability else {}
    rows = [
        Row(name, None, None, None, "own", accuracy, labels_text(0))
        for name, accuracy in [*expected.items()][:MOST_PARTS]
    ]
    title = "Expected accuracy by predicted class"
    return svg.both_widths(partial(part_chart, "expected", title, rows, ACCURACY)) if rows else None


def slice_figure(report: RunReport, table: SliceTable, name: str) -> Markup | None:
    """Return the figure of a table of slices or classes, the lowest first; None where no label tells anything.

    ``name`` is unique on the page. Predicted classes have the accuracy that the confidence predicts, as a diamond.
    """
    ordered = facts.lowest_first(table)
    if report.estimate is None or not any(part.tells for _, part in ordered):
        return None
    expected = report.reliability.expected if table.by == BY_PREDICTION and report.reliability else {}
    whole, rows = facts.stated_number(report.estimate, table.metric), []
    limit = None if whole is None else clipped(whole)
    for part_name, part in ordered[:MOST_PARTS]:
        row = Row(part_name, None, None, None, "own", expected.get(part_name), facts.TOO_FEW, limit)
        if facts.part_tells(part):  # else its interval says little
            row = row._replace(low=part.low, value=clipped(part), high=part.high, note=labels_text(part.n))
        rows.append(row)
    measure = facts.measure_of(table.metric, report.measure)
    return svg.both_widths(partial(part_chart, name, facts.slices_title(table, report.measure), rows, measure))
