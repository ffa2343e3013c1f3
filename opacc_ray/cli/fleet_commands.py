"""Commands for many audits, and for audits over time: fleet, alerts, metrics, history."""

import re
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING

import click

from opacc_ray.audit.progress import Progress
from opacc_ray.cli.command import Answer, Group, command, picture_option
from opacc_ray.cli.terminal import say
from opacc_ray.errors import AlertError, DataError, counted, shown

if TYPE_CHECKING:
    from opacc_ray.fleet.fleet_documents import AccuracyHistory, OpenAlerts
    from opacc_ray.fleet.run_fleet import Written
    from opacc_ray.fleet.watched_audit import WatchedAudit
    from opacc_ray.report.facts import Line


@command("fleet")
@click.argument("spec", metavar="FLEET.yaml")
@click.option("--summary", is_flag=True, help="Run nothing; only summarise the labels so far.")
@click.option("--alert-to", metavar="FILE|URL", help="Also send alerts and failures to this file, object or webhook.")
@click.option("--no-trial", is_flag=True, help="Skip the trial of some examples on this machine's CPU.")
def fleet(spec: str, summary: bool, alert_to: str | None, no_trial: bool) -> Answer:
    """Run many audits on one cluster and summarise them. Rerun to resume."""
    from opacc_ray.extract import user_process
    from opacc_ray.fleet.fleet_spec import load_fleet
    from opacc_ray.fleet.run_fleet import run_fleet

    with Progress("fleet", "audits", bar=False) as progress, user_process.isolated():
        written = run_fleet(load_fleet(spec), progress, work=not summary, trial=not no_trial, alert_to=alert_to)
    return Answer(written.summary, fleet_text(written), written.failure)


def fleet_text(written: "Written") -> "list[Line]":
    """Describe the audits of a fleet in a table, what is wrong, what waits, and where the summary is."""
    from opacc_ray.fleet import summary_page
    from opacc_ray.report.facts import facts, warned

    summary = written.summary
    words = {"delivered": "delivered", "known": "unchanged", "failed": "FAILED"}
    return [
        summary_page.audit_table(summary),
        *(item._replace(label=item.label.upper()) for item in summary_page.problems(summary)),
        *summary_page.further_tables(summary),
        *facts(*(("note", f"{name}: {text}") for name, text in summary_page.notes_of(summary))),
        *warned(summary_page.apart_texts(summary), "note"),
        summary.answer,
        *facts(*(("wrote", uri) for uri in written.files)),
        *facts(*((words[item.state], item.error or item.to) for item in summary.deliveries)),
    ]


@command("list")
@click.argument("output", metavar="OUTPUT")
def list_alerts(output: str) -> Answer:
    """List the alerts and failures of the fleets of an output: firing or acknowledged."""
    from opacc_ray.fleet.alert_states import open_alerts

    found = open_alerts(output)
    return Answer(found, alerts_text(found))


@command("ack")
@click.argument("output", metavar="OUTPUT")
@click.argument("audit", metavar="AUDIT")
@click.option("--as", "name", metavar="NAME", required=True, help="Who takes care of it.")
@click.option("--note", metavar="TEXT", help="What is done about it.")
def acknowledge(output: str, audit: str, name: str, note: str | None) -> Answer:
    """Acknowledge what is wrong with an audit; it is not sent again until it is over."""
    from opacc_ray.fleet.alert_states import acknowledge as acknowledge_alerts

    found = acknowledge_alerts(output, audit, name, note)
    return Answer(found, alerts_text(found))


alerts = Group(
    "alerts",
    {"Commands": [list_alerts, acknowledge]},
    "list",
    help="List or acknowledge what is wrong in fleets; opacc alerts OUTPUT lists it.",
)


def alerts_text(found: "OpenAlerts") -> "list[Line]":
    """Describe what is wrong, and who knows of it."""
    from opacc_ray.report.facts import Fact, facts, minute

    if not found.alerts:
        told = f"Nothing is wrong in {counted(len(found.fleets), 'fleet')}: {', '.join(found.fleets)}"
        if found.unknown:
            told += f", as far as is known; no accuracy is known of {', '.join(found.unknown)}"
        return [f"{told}."]
    lines: list[Line] = []
    for item in found.alerts:
        lines.append(Fact(item.state.upper(), item.text, "warning" if item.acknowledged else "error"))
        lines += facts(("since", item.since and minute(item.since)), ("known", item.acknowledged))
    return lines


@command("metrics")
@click.argument("output", metavar="OUTPUT")
@click.option("--to", metavar="FILE", help="Write them to a file or object, such as one of a textfile collector.")
@click.option("--serve", type=click.IntRange(0, 65535), metavar="PORT", help="Serve them at /metrics; 0: a free port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve them at.")
@click.option(
    "--every",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Seconds between readings of storage.",
)
def metrics(output: str, to: str | None, serve: int | None, host: str, every: float) -> Answer:
    """Print the state of all audits of an output as metrics for Prometheus."""
    from opacc_ray.fleet import exposition
    from opacc_ray.lake.store_uris import open_store, split
    from opacc_ray.report.facts import facts

    if serve is not None:
        exposition.serve(output, host, serve, every, say)
    found = exposition.output_metrics(output)
    if to is None:
        return Answer(found, [found.text.rstrip("\n")])
    folder, name = split(to)
    open_store(folder).write(name, found.text.encode())
    return Answer(found, facts(("wrote", open_store(folder).uri_of(name)), ("metrics", len(found.samples))))


@command("history")
@click.argument("name", metavar="NAME")
@click.option("--output", metavar="URI", help="Output of the runs (default: this folder, then ./audits).")
@click.option("--tables", metavar="URI", help="Read tables of `opacc export --to URI`, or its Iceberg table, instead.")
@click.option("--metric", metavar="METRIC", help="Show another metric of the estimates, such as f1@defect.")
@click.option("--slice", "part", metavar="SLICES=SLICE", help="Show one slice of the pool, such as camera=north.")
@picture_option("File or object for a chart of the accuracy over time.")
def history(
    name: str, output: str | None, tables: str | None, metric: str | None, part: str | None, picture: str | None
) -> Answer:
    """Show the accuracy of an audit over time; NAME is that of its spec."""
    from opacc_ray.audit.number_rows import NumberName
    from opacc_ray.fleet.accuracy_history import history_in_tables, history_of_runs, with_picture

    _refuse_path(name)
    number = NumberName.parse(metric, part)
    found = history_of_runs(name, output, number) if tables is None else history_in_tables(name, tables, number)
    if picture is not None:
        found = with_picture(found, picture)
    return Answer(found, history_text(found))


@command("watch")
@click.argument("name", metavar="NAME")
@click.option("--output", metavar="URI", default="audits", show_default=True, help="Output of the runs.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Drop of the accuracy that is no reason for an alarm, such as 0.02.",
)
@click.option(
    "--false-alarms",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=0.05,
    show_default=True,
    help="Probability of a false alarm in the whole life of the audit.",
)
@click.option("--by", metavar="SLICES", help="Windows are these slices of the pool, such as week, in their order.")
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DAY",
    help="First day of the life: its first labelled run is the reference.",
)
def watch(
    name: str, output: str, tolerance: float, false_alarms: float, by: str | None, since: datetime | None
) -> Answer:
    """Watch an audit: each run is a window, compared with the first labelled run; ends with 8 on an alarm."""
    from opacc_ray.fleet.watched_audit import watch_audit

    _refuse_path(name)
    day = since.date().isoformat() if since else None
    found = watch_audit(name, output, tolerance=tolerance, false_alarms=false_alarms, by=by, since=day)
    return Answer(found, watch_text(found), AlertError(found.answer) if found.alarm else None)


def watch_text(found: "WatchedAudit") -> "list[Line]":
    """Describe a watched audit: its windows in a table, and the state of the alarm."""
    from opacc_ray.report.facts import Column, Line, Table, facts, percent

    names = "window", "examples", "labels", "accuracy", "interval", "change", "its interval", "evidence"
    columns = [Column(name, "" if "interval" in name or name == "window" else "n") for name in names]
    rows = []
    for item in found.windows:
        cells = ["", "", "", "", ""]
        if item.value is not None:
            own = f"{percent(item.low or 0.0)} to {percent(item.high or 0.0)}"
            low, change, high = (100 * (end or 0.0) for end in (item.change_low, item.change, item.change_high))
            cells = [percent(item.value), own, f"{change:+.1f} points", f"{low:+.1f} to {high:+.1f}"]
            cells.append(f"{item.evidence:.3g}")
        rows.append((item.run, str(item.examples), str(item.labels), *cells))
    lines: list[Line] = [*facts(("reference", f"{found.reference}: {percent(found.accuracy)}"))]
    lines += [*facts(("order", found.order)), Table(columns, rows)]
    for item in found.windows[-1:]:
        guesses = ", ".join(f"{percent(value)} ({name})" for name, value in item.without_labels.items())
        lines += facts(("if", guesses and f"confidence means in {item.run} what it meant in the reference: {guesses}"))
    noticed = None
    if found.windows:
        noticed = "a drop by 5 points would not be noticed in 520 such windows; label more of the reference"
    if found.delay is not None:
        noticed = f"a further drop by 5 points would be noticed after {counted(found.delay, 'window')}"
    kind = "exactly" if found.exact else "as far as the intervals of its windows hold"
    promise = f"at most {percent(found.false_alarms)} in the life of the audit, {kind}"
    lines += facts(("false alarms", promise), ("delay", noticed), *(("note", text) for text in found.notes))
    return [*lines, found.answer]


def _refuse_path(name: str) -> None:
    """Raise DataError for a path or URI, of which no audit has the name."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        run = re.fullmatch(r"(?:(.*)/)?([^/]+)-[0-9a-f]{8}/?", name)
        instead = (
            f"run `opacc history {run[2]} --output {quote(run[1] or '.')}`" if run else "give the `name` in its spec"
        )
        raise DataError(f"{shown(name)} is a path, and history takes the name of an audit; {instead}")


def history_text(found: "AccuracyHistory") -> "list[Line]":
    """Describe the runs of an audit, one table per population."""
    from opacc_ray.fleet.accuracy_history import series_of
    from opacc_ray.report.facts import Column, Fact, Table, facts, level_text, stated, thousands

    names = "made", "accuracy", "interval", "level", "labels", "run"
    columns = [Column(name, "n" if name in ("accuracy", "level", "labels") else "") for name in names]
    if found.number is not None:
        columns[1] = Column(found.number, "n")
    lines: list[Line] = []
    num = len(found.populations)
    if num > 1:
        lines.append(f"The runs have {num} populations. Their accuracies are not one series over time.")
    for place, series in enumerate(series_of(found.points)):
        if num > 1:
            own = found.populations[place]
            lines += facts((f"population {place + 1}", f"other {own.differs}" if own.differs else own.text))
        rows = []
        for point in series:
            is_named = point.measure == "accuracy" or found.number is not None
            name = point.run if is_named else f"{point.run} ({point.measure})"
            texts = stated(point, point.measure)
            made = (point.made or "unknown")[:16].replace("T", " ")
            rows.append((made, *texts, level_text(point.level), thousands(point.n), name))
        lines.append(Table(columns, rows))
    lines += facts(*(("waiting", f"no estimate yet: {uri}") for uri in found.waiting))
    lines += facts(*(("without", f"the estimate has no {found.number}: {uri}") for uri in found.without))
    lines += [Fact("failed", f"`opacc status` reports why: {uri}", "error") for uri in found.failed]
    lines += [Fact("warning", f"this cannot be read: {uri}", "warning") for uri in found.unread]
    return [*lines, *facts(("picture", found.picture))]
