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
from opacc_ray.report import facts
from opacc_ray.report.facts import Cell, Column, Fact, Table, metric_name, parts_name, thousands
from opacc_ray.report.figures import trend
from opacc_ray.report.page import escaped, markdown_table, style, template
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
            waiting=waiting_table(summary),
            watched=watch_table(summary),
            rule=rule_texts(summary),
            apart=[facts.stopped(shortened_to(text, 600)) for text in apart_texts(summary)],
            style=style("figure.css", "page.css", "console.css"),
        )
    )


def summary_text(summary: FleetSummary) -> str:
    """Return the Markdown of a summary, for a pull request or a chat."""
    notes = [*((fact.label, fact.text) for fact in problems(summary)), *notes_of(summary)]
    lines = [f"## {escaped(summary.name)}: {len(summary.audits)} audits", "", f"**{escaped(summary.answer)}**", ""]
    lines += [f"> **{escaped(label)}:** {escaped(text)}\n" for label, text in notes]
    for table in (audit_table(summary), *further_tables(summary)):
        lines += [*markdown_table(table), ""]
    lines += [f"{escaped(text)}\n" for text in [*map(facts.stopped, apart_texts(summary)), *rule_texts(summary)]]
    return "\n".join([*lines, f"Made at {escaped(summary.made)} with opacc_ray {escaped(summary.made_with)}."]) + "\n"


# -- rows ------------------------------------------------------------------------------------------------


def further_tables(summary: FleetSummary) -> list[Table]:
    """Return the tables next to that of the audits that have rows: waiting runs, watched audits."""
    return [table for table in (waiting_table(summary), watch_table(summary)) if table.rows]


def audit_table(summary: FleetSummary) -> Table:
    """Return one row per audit: its last accuracy, the change since the audit before, and its alerts."""
    columns = [
        Column("audit"),
        Column("accuracy", "n"),
        Column("labels", "n", optional=True),
        Column("change", "n"),
        Column("significance", optional=True),
        Column("alert"),
    ]
    num = 6 if summary.rule is not None or any(audit.failure for audit in summary.audits) else 5
    return Table(columns[:num], [_audit_row(audit)[:num] for audit in summary.audits])


def _audit_row(audit: AuditSummary) -> tuple[Cell, ...]:
    value: Cell = "–"
    changed: Cell = "–"
    labels, significance = "–", ""
    if audit.last:
        value, labels = facts.stated(audit.last, audit.last.measure), thousands(audit.last.n)
    if audit.last and audit.change:
        changed = facts.change(audit.change, audit.last.measure)
        direction = "higher" if audit.change.value > 0 else "lower"
        significance = f"{direction if audit.change.significant else 'none'}, {audit.change.how}"
    raised = ["FAILED"] * (audit.failure is not None) + ["ALERT"] * any(check.raised for check in audit.alerts)
    quiet = "not decided" if any(check.value is None for check in audit.alerts) else "no alert" if audit.alerts else ""
    return label_of(audit), value, labels, changed, significance, ", ".join(raised) or quiet


def waiting_table(summary: FleetSummary) -> Table:
    """Return one row per run that waits for labels."""
    numbers = (Column("labels", "n"), Column("round", "n"))
    columns = (Column("waits for labels"), *numbers, Column("for"), Column("run", "code", True))
    rows = [
        (label_of(audit), thousands(run.missing), str(run.round), facts.duration(run.days), run.run)
        for audit in summary.audits
        for run in audit.waiting
    ]
    return Table(columns, rows)


def watch_table(summary: FleetSummary) -> Table:
    """Return one row per watched audit: its windows, and the evidence of a drop so far."""
    columns = [
        Column("watched"),
        Column("reference"),
        Column("windows", "n"),
        Column("labelled", "n", optional=True),
        Column("evidence", "n"),
        Column("alarm at", "n"),
        Column("newest", optional=True),
    ]
    rows = []
    for audit, watch in [(audit, audit.watch) for audit in summary.audits if audit.watch]:
        labelled = watch.labelled
        newest, last = "", watch.windows[-1] if watch.windows else None
        if last is not None and last.estimate is None and last.without_labels is not None:
            value = facts.number(last.without_labels, ACCURACY, 1)
            newest = f"{value}, if confidence means what it meant in the reference"
        counts = thousands(len(watch.windows)), thousands(len(labelled))
        evidence = f"{labelled[-1].evidence:.3g}" if labelled else "–"
        rows.append((label_of(audit), watch.reference, *counts, evidence, f"{1 / watch.false_alarms:.3g}", newest))
    return Table(columns, rows)


def problems(summary: FleetSummary) -> list[Fact]:
    """Return the alerts, then the failures, then the audits that run or were interrupted."""
    alerts, failures = list[Fact](), list[Fact]()
    for problem in summary.problems:
        if problem.failure:
            head = f"Failed at {facts.minute(problem.failure.at)}"
            failures.append(Fact(head, f"{problem.audit}: {problem.failure.error}", "error"))
        else:
            alerts.append(Fact("Alert", problem.text, "error"))
    attempts = [(audit.name, audit.attempt) for audit in summary.audits if audit.attempt]
    return [*alerts, *failures] + [
        Fact(attempt.state.capitalize(), f"{name}, since {facts.minute(attempt.began)}", "warning")
        for name, attempt in attempts
        if attempt.state in ("running", "interrupted")
    ]


def label_of(audit: AuditSummary) -> str:
    """Return the name of an audit within its fleet."""
    return audit.name if audit.model is None else f"{audit.model} × {audit.pool}"


def notes_of(summary: FleetSummary) -> list[tuple[str, str]]:
    """Return what a reader must know of the accuracies, each with its audit."""
    return [(label_of(audit), " ".join(audit.notes)) for audit in summary.audits if audit.notes]


def apart_texts(summary: FleetSummary) -> list[str]:
    """Return which audits have runs of another population, and what differs."""
    return [f"{label_of(audit)}: {audit.apart}" for audit in summary.audits if audit.apart]


def rule_texts(summary: FleetSummary) -> list[str]:
    """Return when alerts are raised, and how often falsely, in sentences; none without a rule."""
    rule, watched = summary.rule, [audit.watch for audit in summary.audits if audit.watch]
    texts = list[str]()
    if rule is not None:
        texts += [f"An alert is raised for {_limits_text(rule.limits)}."] if rule.limits else []
        usual = [(limit.name, limit.limit) for limit in rule.limits]
        for audit in summary.audits:
            checks = [check for check in audit.alerts if check.kind != "watch"]
            if [(check.name, check.limit) for check in checks] != usual:
                texts.append(f"{label_of(audit)} has its own limits: {_limits_text(checks)}.")
        wider = ", which are wider than those above" * (rule.level > 0.95 or rule.decided_by == "sequence")
        texts += [facts.sentence(rule.guarantee)]
        texts += [f"Alerts are decided by {facts.level_text(rule.level)} intervals{wider}."]
    texts += [
        "A watched audit whose accuracy never drops by more than the tolerance raises its alarm with probability "
        f"{watch.false_alarms:.2g} at most in its whole life, {watch.guarantee}."
        for watch in sorted(watched, key=lambda watch: watch.exact)[:1]  # all have one rate
    ]
    return texts


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


# -- console ---------------------------------------------------------------------------------------------


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


def states_of(audit: AuditSummary) -> list[State]:
    """Return the states of an audit, the most urgent first: it may have failed while an alert is raised."""
    urgent: list[State] = ["failed"] * (audit.failure is not None)
    if any(check.raised for check in audit.alerts):
        urgent.append("alert")
    return urgent or [_stated_state(audit)]


def _stated_state(audit: AuditSummary) -> State:
    if audit.last is None:
        return "waiting" if audit.waiting else "none"
    limit, low, high = limit_of(audit), audit.last.low, audit.last.high
    if limit is None and audit.goal and audit.goal.number:
        limit, (low, high) = audit.goal.least, audit.goal.number.interval
    if any(check.value is None for check in audit.alerts):
        return "open"
    if limit is None:  # drops, slices, metrics or a watch may be limited
        return "quiet" if audit.alerts else "stated"
    if low < limit <= high:
        return "open"
    return "met" if low >= limit else "missed"


def limit_of(audit: AuditSummary) -> float | None:
    """Return the least accuracy allowed: that of the alerts, or the goal of the spec."""
    goal = audit.goal.least if audit.goal and audit.goal.metric == ACCURACY else None
    return next((check.limit for check in audit.alerts if check.name == f"min {ACCURACY}"), goal)


def console(summary: FleetSummary) -> dict[str, Any]:
    """Return the rows and columns of the matrix, or all cells in one list, and how many audits have each state."""
    audits, frame = summary.audits, _frame(summary.audits)
    cells = [_cell(audit, frame, f"course-{place}") for place, audit in enumerate(audits)]
    states = [state for audit in audits for state in states_of(audit)]
    counts = [
        (state, mark, words if (num := states.count(state)) == 1 else _SEVERAL.get(words, words), num)
        for state, (mark, words) in WORDS.items()
        if state in states
    ]
    pools, models = list[str](), list[tuple[str, list[Any]]]()
    if all(audit.model is not None for audit in audits):
        pools = list(dict.fromkeys(audit.pool or "" for audit in audits))
        by_pair = {(audit.model, audit.pool): cell for audit, cell in zip(audits, cells, strict=True)}
        names = dict.fromkeys(audit.model or "" for audit in audits)
        models = [(model, [by_pair.get((model, pool)) for pool in pools]) for model in names]
    axes = _axes_text(audits, frame)
    return {"counts": counts, "cells": cells, "pools": pools, "models": models, "axes": axes}


def _cell(audit: AuditSummary, frame: Frame | None, name: str) -> dict[str, Any]:
    states, goal, value, interval = states_of(audit), audit.goal, "–", ""
    if audit.last:
        value, interval = facts.stated(audit.last, audit.last.measure)
    if limit_of(audit) is None and goal and goal.number:
        value, interval = facts.stated(goal.number, goal.metric)
        interval += f" {metric_name(goal.metric)}"
    missing = sum(run.missing for run in audit.waiting)
    return {
        "name": audit.name,
        "pool": audit.pool,
        "states": states,
        "mark": WORDS[states[0]][0],
        "words": ", ".join(WORDS[state][1] for state in states),
        "value": value,
        "interval": interval,
        "course": None if frame is None or not audit.history else _course(audit, frame, name),
        "report": audit.report,
        "waits": f"{thousands(missing)} to label" if missing else "",
        "oldest": f"for {facts.duration(max((run.days for run in audit.waiting), default=0.0))}",
        "label": f"opacc label {audit.waiting[0].run}" if audit.waiting else "",
    }


def _frame(audits: Sequence[AuditSummary]) -> Frame | None:
    """Return axes that hold the courses and limits of all audits; None without two points, or with several measures."""
    points = [point for audit in audits for point in audit.history]
    if len(points) < 2 or len({point.measure for point in points}) > 1:
        return None
    limits, times = _limits(audits), [point.time for point in points]
    low = min(*(point.low for point in points), *limits, 1.0)
    high = max(*(point.high for point in points), *limits, 0.0)
    first, last = min(times), max(times)
    return Frame(Scale(first, max(last, first + 1), 5, CELL - 5), Scale(low, max(high, low + 0.01), HEIGHT - 3, 3))


def _limits(audits: Sequence[AuditSummary]) -> list[float]:
    return sorted({limit for audit in audits if (limit := limit_of(audit)) is not None})


def _axes_text(audits: Sequence[AuditSummary], frame: Frame | None) -> str:
    """Return what all courses show, and their limits."""
    if frame is None:
        return ""
    measure = next(point.measure for audit in audits for point in audit.history)
    first, last = (datetime.fromtimestamp(time, UTC).date() for time in (frame.x.low, frame.x.high))
    values = facts.ends(frame.y.low, frame.y.high, measure) + " %" * facts.in_percent(measure)
    limits = ", ".join(map(percent_text, _limits(audits)))
    dashed = f" Dashed: the least allowed, {limits}." if limits else ""
    return f"Each course shows {values} from {first} to {last}.{dashed}"


def _course(audit: AuditSummary, frame: Frame, name: str) -> Markup:
    """Draw the accuracy of an audit over time on the shared axes, with its limit."""
    x, y = frame
    limit, parts = limit_of(audit), list[Markup]()
    if limit is not None:
        parts.append(line(0, y(limit), CELL, y(limit), "edge"))
    parts += trend([(x(point.time), point) for point in audit.history], y, 2.5)
    return figure(name, f"{audit.name} over time", texts_of(audit.history), (CELL, HEIGHT), parts)
