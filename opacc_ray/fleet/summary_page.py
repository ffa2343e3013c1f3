"""The summary of a fleet for people: its rows and sentences, drawn as Markdown, as a page and in figures.

The page is one HTML file that needs no network and runs no script. Every text of others is escaped.
"""

from collections.abc import Sequence
from importlib.resources import files
from shlex import quote

from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.fleet.console import console
from opacc_ray.fleet.fleet_documents import AlertCheck, AuditSummary, FleetSummary, Limit, WatchState
from opacc_ray.fleet.fleet_spec import AlertLimits
from opacc_ray.report.facts import (
    Cell,
    Column,
    Fact,
    Table,
    change,
    difference,
    digits_for,
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
from opacc_ray.report.rendering import escaped, markdown_table, style, template
from opacc_ray.report.stated_numbers import measure_of, metric_name, parts_name, stated_together
from opacc_ray.svg import shortened_to

TEMPLATES = files("opacc_ray.fleet") / "templates"


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
            guesses = ", ".join(f"{number(value, ACCURACY, 1)} ({name})" for name, value in own.without_labels.items())
            guesses = guesses and f"{guesses}, if confidence means what it meant in the reference"
            counts = thousands(own.windows), thousands(own.labelled)
            evidence = "–" if own.evidence is None else f"{own.evidence:.3g}"
            rows.append((label_of(item), own.reference, *counts, evidence, f"{own.needed:.3g}", guesses))
    return Table(columns, rows)


def problems(summary: FleetSummary) -> list[Fact]:
    """Return the alerts, then the failures, then the audits that run or were interrupted."""
    raised = [(item, check) for item in summary.audits for check in item.alerts if check.raised]
    found = [Fact("Alert", alert_text(item, check), "error") for item, check in raised]
    for item in summary.audits:
        if item.failure:
            head = f"Failed at {minute(item.failure.at)}" if item.failure.at else "Failed"
            found.append(Fact(head, f"{item.name}: {item.failure.error}", "error"))
    for item in summary.audits:
        if item.attempt and item.attempt.state in ("running", "interrupted"):
            text = f"{item.name}, since {minute(item.attempt.began)}"
            found.append(Fact(item.attempt.state.capitalize(), text, "warning"))
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


def alert_text(audit: AuditSummary, check: AlertCheck) -> str:
    """Return a raised alert as one sentence."""
    measure = audit.last.measure if audit.last else "accuracy"
    if check.value is None:
        what = (
            "alarm of its whole life"
            if check.kind == "watch"
            else " ".join(filter(None, ("alert", check.kind, check.of)))
        )
        return f"{audit.name}: the {what} stays raised, because it cannot be decided: {check.reason}."
    if check.kind == "watch" and audit.watch:
        return (
            f"{audit.name}: the accuracy has dropped by more than the {percent_text(check.limit)} allowed since "
            f"{audit.watch.reference}; the window {audit.watch.alarm} raised the alarm of its whole life."
        )
    if check.kind in ("min_metric", "max_metric_drop"):
        measure = check.of or measure
    low, high, limit = check.low or 0.0, check.high or 0.0, check.limit
    digits = digits_for(low, high)
    confidence = f"at {level_text(check.level)} confidence"
    if check.kind not in ("max_drop", "max_metric_drop"):
        allowed = number(limit, measure, digits)
        between = f"{ends(low, high, measure, digits)}{' %' * in_percent(measure)}"
        return f"{audit.name}: the {_subject(check)} is {between} {confidence}, below {allowed}."
    parts = [difference(part, measure, digits).removeprefix("+") for part in (low, high, limit)]
    points = " points" if in_percent(measure) else ""
    return (
        f"{audit.name}: the {_subject(check)} dropped by {parts[0]} to {parts[1]}{points} {confidence}, "
        f"more than the {parts[2]} allowed."
    )


def _subject(check: AlertCheck) -> str:
    """Return what a check is about."""
    if check.kind == "min_slice":
        return f"accuracy in {check.slice} ({parts_name(check.of or '')})"
    return "accuracy" if check.of is None else metric_name(check.of)


def percent_text(limit: float) -> str:
    """Format a limit as it was written: 0.925 -> 92.5 %."""
    return f"{100 * limit:g} %"


def rule_texts(summary: FleetSummary) -> list[str]:
    """Return when alerts are raised, and how often falsely, in sentences; none without a rule."""
    rule, watched = summary.rule, [item.watch for item in summary.audits if item.watch]
    promise = [watch_guarantee(watched)] if watched else []
    if rule is None:
        return promise
    usual = AlertLimits(**rule.model_dump(include=set(AlertLimits.model_fields))).all()
    found = [f"An alert is raised for {_limits_text(usual)}."] if usual else []
    for item in summary.audits:
        own = [Limit(check.kind, check.limit, check.of) for check in item.alerts if check.kind != "watch"]
        if own != usual:
            found.append(f"{label_of(item)} has its own limits: {_limits_text(own)}.")
    wider = ", which are wider than those above" * (rule.level > 0.95 or rule.decided_by == "sequence")
    return [
        *found,
        sentence(rule.guarantee),
        f"Alerts are decided by {level_text(rule.level)} intervals{wider}.",
        *promise,
    ]


def watch_guarantee(watched: Sequence[WatchState]) -> str:
    """Return the bound on false alarms of watched audits, as a sentence."""
    kind = "exactly" if all(item.exact for item in watched) else "as far as the intervals of their windows hold"
    return (
        f"A watched audit whose accuracy never drops by more than the tolerance raises its alarm with probability "
        f"{watched[0].false_alarms:.2g} at most in its whole life, {kind}."
    )


def _limits_text(limits: Sequence[Limit]) -> str:
    return " or ".join(map(_limit_text, limits)) or "no alert"


def _limit_text(limit: Limit) -> str:
    if limit.kind in ("max_drop", "max_metric_drop"):
        of = "" if limit.of is None else f" of {metric_name(limit.of)}"
        return f"an interval of the drop{of} above {percent_text(limit.limit)}"
    if limit.kind == "min_slice":
        return f"an interval of the accuracy of any {parts_name(limit.of or '')} below {percent_text(limit.limit)}"
    name = "the accuracy" if limit.of is None else metric_name(limit.of)
    return f"an interval of {name} below {percent_text(limit.limit)}"
