"""The console of a fleet: models by pools, each audit as one cell with its verdict, number, course and links."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from markupsafe import Markup

from opacc_ray.fleet.fleet_documents import AuditSummary, FleetSummary, HistoryPoint
from opacc_ray.report.facts import duration, ends, in_percent, stated, thousands
from opacc_ray.report.figures import trend
from opacc_ray.report.stated_numbers import metric_name
from opacc_ray.svg import Scale, figure, line

State = Literal["failed", "alert", "missed", "open", "met", "quiet", "stated", "waiting", "none"]

WORDS: dict[State, tuple[str, str]] = {
    "failed": ("▼", "failed"),
    "alert": ("✗", "alert"),
    "missed": ("✗", "below the limit"),
    "open": ("?", "not decided"),
    "met": ("✓", "above the limit"),
    "quiet": ("✓", "no alert"),
    "stated": ("●", "no limit"),
    "waiting": ("…", "waits for labels"),
    "none": ("–", "nothing yet"),
}
"""Sign and words of each state, the most urgent first."""

CELL, HEIGHT = 132.0, 44.0
"""Pixels of the course of an audit in its cell."""


class Frame(NamedTuple):
    """The axes that the courses of all audits share."""

    x: Scale  # seconds
    y: Scale  # accuracies


class Ends(NamedTuple):
    """The interval that is compared with a limit."""

    low: float
    high: float


def states_of(item: AuditSummary) -> list[State]:
    """Return the states of an audit, the most urgent first: it may have failed while an alert is raised."""
    urgent: list[State] = ["failed"] * (item.failure is not None)
    if any(check.raised for check in item.alerts):
        urgent.append("alert")
    return urgent or [_stated_state(item)]


def _stated_state(item: AuditSummary) -> State:
    if item.last is None:
        return "waiting" if item.waiting else "none"
    limit, own = limit_of(item), Ends(item.last.low, item.last.high)
    if limit is None and item.metric_goal and item.metric_goal.number:
        number = item.metric_goal.number
        limit, own = item.metric_goal.least, Ends(number.low, number.high)
    if any(check.value is None for check in item.alerts):
        return "open"
    if limit is None:  # drops, slices, metrics or a watch may be limited
        return "quiet" if item.alerts else "stated"
    if own.low < limit <= own.high:
        return "open"
    return "met" if own.low >= limit else "missed"


def limit_of(item: AuditSummary) -> float | None:
    """Return the least accuracy allowed: that of the alerts, or the goal of the spec."""
    return next((check.limit for check in item.alerts if check.kind == "min_accuracy"), item.goal)


def console(summary: FleetSummary) -> dict[str, Any]:
    """Return the rows and columns of the matrix, or all cells in one list, and how many audits have each state."""
    frame = _frame(summary.audits)
    cells = {item.name: _cell(item, frame, f"course-{place}") for place, item in enumerate(summary.audits)}
    states = [state for item in summary.audits for state in states_of(item)]
    counts = [(state, *WORDS[state], states.count(state)) for state in WORDS if state in states]
    found: dict[str, Any] = {"counts": counts, "cells": list(cells.values()), "pools": [], "models": []}
    found["axes"] = _axes_text(summary.audits, frame)
    if all(item.model is not None for item in summary.audits):
        pools = list(dict.fromkeys(item.pool or "" for item in summary.audits))
        models = list(dict.fromkeys(item.model or "" for item in summary.audits))
        known = {(item.model, item.pool): cells[item.name] for item in summary.audits}
        rows = [(model, [known.get((model, pool)) for pool in pools]) for model in models]
        found |= {"pools": pools, "models": rows}
    return found


def _cell(item: AuditSummary, frame: Frame | None, name: str) -> dict[str, Any]:
    states, texts = states_of(item), stated(item.last, item.last.measure) if item.last else None
    goal = item.metric_goal
    if limit_of(item) is None and goal and goal.number:
        own = stated(goal.number, goal.metric)
        texts = own._replace(interval=f"{own.interval} {metric_name(goal.metric)}")
    missing = sum(part.missing for part in item.waiting)
    oldest = max((part.days for part in item.waiting), default=0.0)
    return {
        "name": item.name,
        "pool": item.pool,
        "states": states,
        "mark": WORDS[states[0]][0],
        "words": ", ".join(WORDS[state][1] for state in states),
        "value": texts.value if texts else "–",
        "interval": texts.interval if texts else "",
        "course": None if frame is None or not item.history else _course(item, frame, name),
        "report": item.report,
        "waits": f"{thousands(missing)} to label" if missing else "",
        "oldest": f"for {duration(oldest)}",
        "label": f"opacc label {item.waiting[0].run}" if item.waiting else "",
    }


def _frame(audits: Sequence[AuditSummary]) -> Frame | None:
    """Return axes that hold the courses and limits of all audits; None without two points, or with several measures."""
    points = [point for item in audits for point in item.history]
    times = [_time(point) for point in points]
    known = [time for time in times if time is not None]
    if len(points) < 2 or len(known) < len(points) or len({point.measure for point in points}) > 1:
        return None
    limits = [limit for item in audits if (limit := limit_of(item)) is not None]
    low, high = (
        min(*(point.low for point in points), *limits, 1.0),
        max(*(point.high for point in points), *limits, 0.0),
    )
    first, last = min(known), max(known)
    return Frame(Scale(first, max(last, first + 1), 5, CELL - 5), Scale(low, max(high, low + 0.01), HEIGHT - 3, 3))


def _axes_text(audits: Sequence[AuditSummary], frame: Frame | None) -> str:
    """Return what all courses show, and their limits."""
    if frame is None:
        return ""
    measure = next(point.measure for item in audits for point in item.history)
    first, last = (datetime.fromtimestamp(time, UTC).date() for time in (frame.x.low, frame.x.high))
    values = ends(frame.y.low, frame.y.high, measure) + " %" * in_percent(measure)
    limits = sorted({limit for item in audits if (limit := limit_of(item)) is not None})
    dashed = f" Dashed: the least allowed, {', '.join(f'{100 * limit:g} %' for limit in limits)}." if limits else ""
    return f"Each course shows {values} from {first} to {last}.{dashed}"


def _time(point: HistoryPoint) -> float | None:
    return None if point.made is None else datetime.fromisoformat(point.made).timestamp()


def _course(item: AuditSummary, frame: Frame, name: str) -> Markup:
    """Draw the accuracy of an audit over time on the shared axes, with its limit."""
    x, y = frame
    drawn = [(x(_time(point) or 0.0), point) for point in item.history]
    limit, parts = limit_of(item), list[Markup]()
    if limit is not None:
        parts.append(line(0, y(limit), CELL, y(limit), "edge"))
    parts += trend(drawn, y, 2.5)
    said = "; ".join(f"{(point.made or '')[:10]}: {', '.join(stated(point, point.measure))}" for _, point in drawn)
    return figure(name, f"{item.name} over time", said, (CELL, HEIGHT), parts)
