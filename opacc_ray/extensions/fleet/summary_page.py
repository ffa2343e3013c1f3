"""The summary of a fleet for people: its rows and sentences, drawn as Markdown, as a page and in figures.

The page is one HTML file that needs no network and runs no script. Every text of others is escaped.

Its console shows models by pools, each audit as one cell with its verdict, number, course and links.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from shlex import quote
from typing import Any, Literal, NamedTuple

from markupsafe import Markup

from opacc_ray.extensions.fleet.accuracy_history import texts_of
from opacc_ray.extensions.fleet.fleet_spec import Limit
from opacc_ray.extensions.fleet.fleet_summary import AuditSummary, FleetSummary, percent_text
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.report.facts import (
    Cell,
    Column,
    Fact,
    Table,
    change,
    duration,
    ends,
    in_percent,
    level_text,
    minute,
    noun,
    number,
    sentence,
    stated,
    stopped,
    thousands,
)
from opacc_ray.report.figures import trend
from opacc_ray.report.page import escaped, markdown_table, style, template
from opacc_ray.report.sentences import measure_of, metric_name, parts_name, stated_together
from opacc_ray.svg import Scale, figure, line, shortened_to

TEMPLATES = files("opacc_ray.extensions.fleet") / "templates"


def page(summary: FleetSummary) -> str:
    """Return the HTML of a summary."""
    return str(
        template("summary.html", TEMPLATES).render(
            summary=summary,
            console=console(summary),
            inbox=quote(summary.folder.rpartition("/fleets/")[0] or summary.folder),
            problems=[(fact.label, shortened_to(fact.text, 600), fact.tone) for fact in problems(summary)],
            notes=notes_of(summary),
            audits=audit_table(summary),
            worst=worst_table(summary),
            waiting=waiting_table(summary),
            watched=watch_table(summary),
            rule=rule_texts(summary),
            apart=[stopped(shortened_to(text, 600)) for text in apart_texts(summary)],
            style=style("figure.css", "page.css", "console.css"),
        )
    )


def summary_text(summary: FleetSummary) -> str:
    """Return the Markdown of a summary, for a pull request or a chat."""
    lines = [f"## {escaped(summary.name)}: {len(summary.audits)} audits", "", f"**{escaped(summary.answer)}**", ""]
    lines += [f"> **{escaped(fact.label)}:** {escaped(fact.text)}\n" for fact in problems(summary)]
    lines += [f"> **{escaped(name)}:** {escaped(note)}\n" for name, note in notes_of(summary)]
    for table in (audit_table(summary), *further_tables(summary)):
        lines += [*markdown_table(table), ""]
    lines += [f"{escaped(stopped(text))}\n" for text in apart_texts(summary)]
    lines += [f"{escaped(text)}\n" for text in rule_texts(summary)]
    return "\n".join([*lines, f"Made at {escaped(summary.made)} with opacc_ray {escaped(summary.made_with)}."]) + "\n"


# -- rows ------------------------------------------------------------------------------------------------


def further_tables(summary: FleetSummary) -> list[Table]:
    """Return the tables next to that of the audits that have rows: lowest slices, waiting runs, watched audits."""
    tables = worst_table(summary), waiting_table(summary), watch_table(summary)
    return [table for table in tables if table.rows]


def audit_table(summary: FleetSummary) -> Table:
    """Return one row per audit: its last accuracy, the change since the audit before, and its alerts."""
    columns = [
        Column("audit"),
        Column("accuracy", "n"),
        Column("labels", "n", optional=True),
        Column("change", "n"),
        Column("significance", optional=True),
    ]
    has_alerts = summary.rule is not None or any(item.failure for item in summary.audits)
    rows = [_audit_row(item)[: 6 if has_alerts else 5] for item in summary.audits]
    return Table([*columns, Column("alert")] if has_alerts else columns, rows)


def _audit_row(item: AuditSummary) -> tuple[Cell, ...]:
    value: Cell = "–"
    changed: Cell = "–"
    labels, significance = "–", ""
    if item.last:
        texts = stated(item.last, item.last.measure)
        value, labels = (texts.value, texts.interval), thousands(item.last.n)
    if item.last and item.change:
        texts = change(item.change, item.last.measure)
        changed = (texts.value, texts.interval)
        direction = "higher" if item.change.value > 0 else "lower"
        significance = f"{direction if item.change.significant else 'none'}, {item.change.how}"
    raised = ["FAILED"] * (item.failure is not None) + ["ALERT"] * any(check.raised for check in item.alerts)
    quiet = "not decided" if any(check.value is None for check in item.alerts) else "no alert" if item.alerts else ""
    return label_of(item), value, labels, changed, significance, ", ".join(raised) or quiet


def worst_table(summary: FleetSummary) -> Table:
    """Return the lowest slice of each audit and table, with the interval that holds for all its slices at once."""
    numbers = (
        Column("labels", "n", optional=True),
        Column("in the pool", "n", optional=True),
        Column("all at once", "n"),
    )
    columns = (Column("lowest slice"), Column("of", optional=True), Column("audit"), Column("estimate", "n"), *numbers)
    rows = []
    for item in summary.audits:
        for row in item.worst:
            measure = measure_of(row.metric, item.last.measure if item.last else row.metric)
            of = f"{noun(measure) if row.metric == ACCURACY else metric_name(row.metric)} by {parts_name(row.by or '')}"
            size = "–" if row.size is None else thousands(row.size)
            cells = (row.slice or "", of, label_of(item), stated(row, measure).value, thousands(row.n), size)
            rows.append((*cells, stated_together(row, measure).interval))
    return Table(columns, rows)


def waiting_table(summary: FleetSummary) -> Table:
    """Return one row per run that waits for labels."""
    numbers = (Column("labels", "n"), Column("round", "n"))
    columns = (Column("waits for labels"), *numbers, Column("for"), Column("run", "code", True))
    rows = [
        (label_of(item), thousands(part.missing), str(part.round), duration(part.days), part.run)
        for item in summary.audits
        for part in item.waiting
    ]
    return Table(columns, rows)


def watch_table(summary: FleetSummary) -> Table:
    """Return one row per watched audit: its windows, and the evidence of a drop so far."""
    numbers = (Column("windows", "n"), Column("labelled", "n", optional=True), Column("evidence", "n"))
    columns = (
        Column("watched"),
        Column("reference"),
        *numbers,
        Column("alarm at", "n"),
        Column("newest", optional=True),
    )
    rows = []
    for item in summary.audits:
        if own := item.watch:
            newest, labelled = own.windows[-1:], own.labelled
            guesses = [pair for window in newest if not window.estimate for pair in window.without_labels.items()]
            said = ", ".join(f"{number(value, ACCURACY, 1)} ({name})" for name, value in guesses)
            said = said and f"{said}, if confidence means what it meant in the reference"
            counts = thousands(len(own.windows)), thousands(len(labelled))
            evidence = f"{labelled[-1].evidence:.3g}" if labelled else "–"
            rows.append((label_of(item), own.reference, *counts, evidence, f"{1 / own.false_alarms:.3g}", said))
    return Table(columns, rows)


def problems(summary: FleetSummary) -> list[Fact]:
    """Return the alerts, then the failures, then the audits that run or were interrupted."""
    found = [Fact("Alert", item.text, "error") for item in summary.problems if item.check]
    for item in summary.problems:
        if item.failure:
            head = f"Failed at {minute(item.failure.at)}"
            found.append(Fact(head, f"{item.audit}: {item.failure.error}", "error"))
    for audit in summary.audits:
        if audit.attempt and audit.attempt.state in ("running", "interrupted"):
            text = f"{audit.name}, since {minute(audit.attempt.began)}"
            found.append(Fact(audit.attempt.state.capitalize(), text, "warning"))
    return found


def label_of(audit: AuditSummary) -> str:
    """Return the name of an audit within its fleet."""
    return audit.name if audit.model is None else f"{audit.model} × {audit.pool}"


def notes_of(summary: FleetSummary) -> list[tuple[str, str]]:
    """Return what a reader must know of the accuracies, each with its audit."""
    return [(label_of(item), " ".join(item.notes)) for item in summary.audits if item.notes]


def apart_texts(summary: FleetSummary) -> list[str]:
    """Return which audits have runs of another population, and what differs."""
    return [f"{label_of(item)}: {item.apart}" for item in summary.audits if item.apart]


def rule_texts(summary: FleetSummary) -> list[str]:
    """Return when alerts are raised, and how often falsely, in sentences; none without a rule."""
    rule, watched = summary.rule, [item.watch for item in summary.audits if item.watch]
    promise = [
        "A watched audit whose accuracy never drops by more than the tolerance raises its alarm with probability "
        f"{own.false_alarms:.2g} at most in its whole life, {own.guarantee}."
        for own in sorted(watched, key=lambda own: own.exact)[:1]  # all have one rate
    ]
    if rule is None:
        return promise
    found = [f"An alert is raised for {_limits_text(rule.limits)}."] if rule.limits else []
    usual = [(limit.name, limit.limit) for limit in rule.limits]
    for item in summary.audits:
        own = [check for check in item.alerts if check.kind != "watch"]
        if [(check.name, check.limit) for check in own] != usual:
            found.append(f"{label_of(item)} has its own limits: {_limits_text(own)}.")
    wider = ", which are wider than those above" * (rule.level > 0.95 or rule.decided_by == "sequence")
    return [
        *found,
        sentence(rule.guarantee),
        f"Alerts are decided by {level_text(rule.level)} intervals{wider}.",
        *promise,
    ]


def _limits_text(limits: Sequence[Limit]) -> str:
    return " or ".join(map(_limit_text, limits)) or "no alert"


def _limit_text(limit: Limit) -> str:
    if limit.kind == "max_drop":
        of = "" if limit.of == ACCURACY else f" of {metric_name(limit.of)}"
        return f"an interval of the drop{of} above {percent_text(limit.limit)}"
    if limit.kind == "min_slices":
        name = f"the accuracy of any {parts_name(limit.of)}"
    else:
        name = "the accuracy" if limit.of == ACCURACY else metric_name(limit.of)
    return f"an interval of {name} below {percent_text(limit.limit)}"


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

_SEVERAL = {"alert": "alerts", "waits for labels": "wait for labels"}
"""Words that are others for several audits."""

CELL, HEIGHT = 132.0, 44.0
"""Pixels of the course of an audit in its cell."""


class Frame(NamedTuple):
    """The axes that the courses of all audits share."""

    x: Scale  # seconds
    y: Scale  # accuracies


def states_of(item: AuditSummary) -> list[State]:
    """Return the states of an audit, the most urgent first: it may have failed while an alert is raised."""
    urgent: list[State] = ["failed"] * (item.failure is not None)
    if any(check.raised for check in item.alerts):
        urgent.append("alert")
    return urgent or [_stated_state(item)]


def _stated_state(item: AuditSummary) -> State:
    if item.last is None:
        return "waiting" if item.waiting else "none"
    limit, low, high = limit_of(item), item.last.low, item.last.high
    if limit is None and item.goal and item.goal.number:
        limit, (low, high) = item.goal.least, item.goal.number.interval
    if any(check.value is None for check in item.alerts):
        return "open"
    if limit is None:  # drops, slices, metrics or a watch may be limited
        return "quiet" if item.alerts else "stated"
    if low < limit <= high:
        return "open"
    return "met" if low >= limit else "missed"


def limit_of(item: AuditSummary) -> float | None:
    """Return the least accuracy allowed: that of the alerts, or the goal of the spec."""
    goal = item.goal.least if item.goal and item.goal.metric == ACCURACY else None
    return next((check.limit for check in item.alerts if check.name == f"min {ACCURACY}"), goal)


def console(summary: FleetSummary) -> dict[str, Any]:
    """Return the rows and columns of the matrix, or all cells in one list, and how many audits have each state."""
    frame = _frame(summary.audits)
    cells = {item.name: _cell(item, frame, f"course-{place}") for place, item in enumerate(summary.audits)}
    states = [state for item in summary.audits for state in states_of(item)]
    counts = [
        (state, mark, words if (num := states.count(state)) == 1 else _SEVERAL.get(words, words), num)
        for state, (mark, words) in WORDS.items()
        if state in states
    ]
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
    goal = item.goal
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
    if len(points) < 2 or len({point.measure for point in points}) > 1:
        return None
    limits, times = _limits(audits), [point.time for point in points]
    low = min(*(point.low for point in points), *limits, 1.0)
    high = max(*(point.high for point in points), *limits, 0.0)
    first, last = min(times), max(times)
    return Frame(Scale(first, max(last, first + 1), 5, CELL - 5), Scale(low, max(high, low + 0.01), HEIGHT - 3, 3))


def _limits(audits: Sequence[AuditSummary]) -> list[float]:
    return sorted({limit for item in audits if (limit := limit_of(item)) is not None})


def _axes_text(audits: Sequence[AuditSummary], frame: Frame | None) -> str:
    """Return what all courses show, and their limits."""
    if frame is None:
        return ""
    measure = next(point.measure for item in audits for point in item.history)
    first, last = (datetime.fromtimestamp(time, UTC).date() for time in (frame.x.low, frame.x.high))
    values = ends(frame.y.low, frame.y.high, measure) + " %" * in_percent(measure)
    limits = ", ".join(map(percent_text, _limits(audits)))
    dashed = f" Dashed: the least allowed, {limits}." if limits else ""
    return f"Each course shows {values} from {first} to {last}.{dashed}"


def _course(item: AuditSummary, frame: Frame, name: str) -> Markup:
    """Draw the accuracy of an audit over time on the shared axes, with its limit."""
    x, y = frame
    limit, parts = limit_of(item), list[Markup]()
    if limit is not None:
        parts.append(line(0, y(limit), CELL, y(limit), "edge"))
    parts += trend([(x(point.time), point) for point in item.history], y, 2.5)
    return figure(name, f"{item.name} over time", texts_of(item.history), (CELL, HEIGHT), parts)
