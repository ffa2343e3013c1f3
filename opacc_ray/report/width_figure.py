"""The picture of half the width of the interval against labels: what is there, what is forecast, and what SRS gives."""

from markupsafe import Markup

from opacc_ray.audit.label_budget import LabelBudget, WidthCourse
from opacc_ray.report.alone import write_alone
from opacc_ray.report.sentences import thousands
from opacc_ray.svg import WIDE, Scale, decimals, dot, figure, line, path, text, ticks


def widths(course: WidthCourse, width: float, name: str, goal: float | None = None) -> Markup:
    """Half-widths against labels: dots are rounds, the line goes on as forecast, dashed is a simple random sample.

    Parameters
    ----------
    name : of the figure, unique on the page
    goal : half-width that is marked
    """
    points, height = course.points, 250.0
    left, right, top, bottom = 58.0, width - 20.0, 10.0, height - 46.0
    marks = ticks(0, max(max(p.half_width, p.srs_half_width) for p in points), 6)
    along = ticks(0, points[-1].labels, 7 if width == WIDE else 5)
    x, y = Scale(along[0], along[-1], left, right), Scale(marks[0], marks[-1], bottom, top)
    digits = decimals([100 * mark for mark in marks])
    parts = [line(left, y(mark), right, y(mark), "grid") for mark in marks]
    parts += [text(left - 8, y(mark) + 4, f"±{100 * mark:.{digits}f}%", "tick", "end") for mark in marks]
    parts += [text(x(mark), bottom + 18, thousands(mark), "tick", "middle") for mark in along]
    parts.append(text((left + right) / 2, height - 6, "labels", "axis", "middle"))
    if len(points) > 1:
        parts.append(path([(x(p.labels), y(p.srs_half_width)) for p in points], "edge"))
        parts.append(path([(x(p.labels), y(p.half_width)) for p in points], "trend"))
    if goal is not None and goal <= marks[-1]:
        parts.append(line(left, y(goal), right, y(goal), "bar srs"))
        parts.append(text(right, y(goal) - 6, f"goal ±{goal:g}", "value", "end"))
    parts += [dot(x(p.labels), y(p.half_width), 5, "mark own") for p in points if p.seen]
    return figure(name, "Half the width of the interval against labels", _said(course), (width, height), parts)


def _said(course: WidthCourse) -> str:
    return "; ".join(
        f"{'with' if p.seen else 'forecast with'} {thousands(p.labels)} labels: ±{p.half_width:.2g}, "
        f"at random ±{p.srs_half_width:.2g}"
        for p in course.points
    )


def with_picture(document: LabelBudget, uri: str) -> LabelBudget:
    """Draw a budget to a file or object; returns it with the URI of that."""
    assert document.course is not None
    key = text(WIDE - 20, 24, "half the width of the interval; dashed: of a simple random sample", "tick", "end")
    drawn = str(widths(document.course, WIDE, "widths", document.half_width)).replace("</svg>", f"{key}</svg>")
    return document.model_copy(update={"picture": write_alone(drawn, uri)})
