"""The figures of a summary and of a history: where each audit stands, and accuracy over time."""

from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup

from opacc_ray.estimators.intervals import clipped
from opacc_ray.fleet.documents import AuditSummary, FleetSummary, HistoryPoint
from opacc_ray.fleet.sentences import label_of, stated_text
from opacc_ray.report.figures import Row, enclosing_ticks, interval_chart, tick_labels
from opacc_ray.svg import NARROW, WIDE, Scale, both_widths, dot, figure, line, name_at, path, text, whisker

HEIGHT, DATES = 230.0, {WIDE: 5, NARROW: 3}
"""Height of an accuracy over time in pixels, and dates below it."""


def standings(summary: FleetSummary) -> Markup | None:
    """The last accuracy of each audit with its interval; None if there is none, or they are of several measures."""
    known = [(item, item.last) for item in summary.audits if item.last is not None]
    if len({point.measure for _, point in known}) != 1:
        return None
    rows = [_row(item, point) for item, point in known]
    said = "; ".join(f"{label_of(item)}: {', '.join(stated_text(point))}" for item, point in known)
    measure = known[0][1].measure
    title = "The last accuracy of each audit"
    return both_widths(lambda width: interval_chart("standings", title, said, rows, width, measure))


def _row(item: AuditSummary, point: HistoryPoint) -> Row:
    """An audit with its last accuracy, and the least that it is allowed."""
    limit = next((check.limit for check in item.alerts if check.kind == "min_accuracy"), None)
    ends = stated_text(point)[1]
    return Row(label_of(item), point.low, clipped(point), point.high, "own", note=ends, limit=limit)


def over_time(points: Sequence[HistoryPoint], name: str) -> Markup | None:
    """Accuracy over time, for both widths of a page; None for fewer than two runs, or several measures."""
    if len(points) < 2 or len({point.measure for point in points}) != 1:
        return None
    return both_widths(lambda width: course(points, name, width))


def course(points: Sequence[HistoryPoint], name: str, width: float) -> Markup:
    """Accuracy over time: an interval a run, at the time at which it was made, and a line for each population.

    ``name`` is unique on the page. Of several populations the first point has a number.
    """
    left, right, top, bottom = 52.0, width - 42.0, 10.0, HEIGHT - 30.0
    times = _times(points)
    measure = points[0].measure
    marks = enclosing_ticks([v for point in points for v in (point.low, point.high)], 5)
    first, last = times[0], max(times[-1], times[0] + 1)
    x, y = Scale(first, last, left + 14, right), Scale(marks[0], marks[-1], bottom, top)
    parts = [line(left, y(mark), right + 14, y(mark), "grid") for mark in marks]
    labels = zip(marks, tick_labels(marks, measure), strict=True)
    parts += [text(left - 8, y(mark) + 4, label, "tick", "end") for mark, label in labels]
    parts += [text(x(time), bottom + 20, label, "tick", "middle") for time, label in _dates(times, DATES[width])]
    places = [x(time) for time in times]
    drawn = [(point, here, y(clipped(point))) for here, point in zip(places, points, strict=True)]
    populations = list(dict.fromkeys(point.population for point in points))
    for number, population in enumerate(populations, start=1):
        own = [(across, up) for point, across, up in drawn if point.population == population]
        parts.append(path(own, "trend"))
        if len(populations) > 1:
            parts.append(text(own[0][0] - 10, own[0][1] + 4, str(number), "tick", "end"))
    for here, point in zip(places, points, strict=True):
        parts.append(whisker((here, y(point.low)), (here, y(point.high)), "bar own", 4))
        parts.append(dot(here, y(clipped(point)), 4.5, "mark own"))
    said = "; ".join(f"{(point.made or '')[:10]}: {', '.join(stated_text(point))}" for point in points)
    return figure(name_at(name, width), "Accuracy over time", said, (width, HEIGHT), parts)


def _times(points: Sequence[HistoryPoint]) -> list[float]:
    """Seconds of each run; where one does not say, their order."""
    if any(point.made is None for point in points):
        return [float(place) for place in range(len(points))]
    return [datetime.fromisoformat(point.made or "").timestamp() for point in points]


def _dates(times: Sequence[float], most: int) -> list[tuple[float, str]]:
    """At most so many places along the axis, with what they are called."""
    first, last = times[0], times[-1]
    if last < 1e6:  # no times, but an order
        return []
    num = max(2, min(most, len(set(times)))) if last > first else 1
    places = [first + (last - first) * place / max(num - 1, 1) for place in range(num)]
    form = "%Y-%m-%d" if last - first >= 2 * 86400 or num == 1 else "%m-%d %H:%M"
    return [(time, datetime.fromtimestamp(time, UTC).strftime(form)) for time in places]
