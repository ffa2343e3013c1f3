"""Commands for many audits, and for audits over time: fleet, metrics, history, watch."""

import re
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING

import click

from opacc_ray.audit.progress import Progress
from opacc_ray.cli.command import Answer, Group, command, say
from opacc_ray.errors import AlertError, DataError, counted, shown

if TYPE_CHECKING:
    from opacc_ray.extensions.fleet.accuracy_history import AccuracyHistory
    from opacc_ray.extensions.fleet.fleet_summary import OpenAlerts
    from opacc_ray.extensions.fleet.run_fleet import Written
    from opacc_ray.extensions.fleet.watched_audit import WatchedAudit
    from opacc_ray.report.facts import Line


@command("run")
@click.argument("spec", metavar="FLEET.yaml")
@click.option("--summary", is_flag=True, help="Run nothing; only summarise the labels so far.")
@click.option("--no-trial", is_flag=True, help="Skip the trial of some examples on this machine's CPU.")
def run_audits(spec: str, summary: bool, no_trial: bool) -> Answer:
    """Run many audits on one cluster and summarise them. Rerun to resume."""
    from opacc_ray.extensions.fleet.fleet_spec import load_fleet
    from opacc_ray.extensions.fleet.run_fleet import run_fleet
    from opacc_ray.extract import user_code

    with Progress("fleet", "audits", bar=False) as progress, user_code.isolated():
        written = run_fleet(load_fleet(spec), progress, work=not summary, trial=not no_trial)
    return Answer(written.summary, fleet_text(written), written.failure)


def fleet_text(written: "Written") -> "list[Line]":
    """Describe the audits of a fleet in a table, what is wrong, what waits, and where the summary is."""
    from opacc_ray.extensions.fleet import summary_page
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
    from opacc_ray.extensions.fleet.fleet_summary import open_alerts

    found = open_alerts(output)
    return Answer(found, alerts_text(found))


@command("ack")
@click.argument("output", metavar="OUTPUT")
@click.argument("audit", metavar="AUDIT")
@click.option("--as", "name", metavar="NAME", required=True, help="Who takes care of it.")
@click.option("--note", metavar="TEXT", help="What is done about it.")
def acknowledge(output: str, audit: str, name: str, note: str | None) -> Answer:
    """Acknowledge what is wrong with an audit; it is not sent again until it is over."""
    from opacc_ray.extensions.fleet.fleet_summary import acknowledge as acknowledge_alerts

    found = acknowledge_alerts(output, audit, name, note)
    return Answer(found, alerts_text(found))


alerts = Group(
    "alerts",
    {"Commands": [list_alerts, acknowledge]},
    "list",
    help="List or acknowledge what is wrong in fleets; opacc fleet alerts OUTPUT lists it.",
)

fleet = Group(
    "fleet",
    {"Commands": [run_audits, alerts]},
    "run",
    help="Run many audits on one cluster, or list what is wrong; opacc fleet FLEET.yaml runs them.",
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
        known = item.acknowledged
        lines.append(Fact("ACKNOWLEDGED", item.text, "warning") if known else Fact("FIRING", item.text, "error"))
        lines += facts(("since", minute(item.since)), ("known", known))
    return lines


@command("metrics")
@click.argument("output", metavar="OUTPUT")
@click.option("--to", metavar="FILE", help="Write them to a file or object, such as one of a textfile collector.")
@click.option("--serve", type=click.IntRange(0, 65535), metavar="PORT", help="Serve them at /metrics; 0: a free port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve them at.")
def metrics(output: str, to: str | None, serve: int | None, host: str) -> Answer:
    """Print the state of all audits of an output as metrics for Prometheus."""
    from opacc_ray.extensions.fleet import exposition
    from opacc_ray.lake.store_uris import write_object
    from opacc_ray.report.facts import facts

    if serve is not None:
        exposition.serve(output, host, serve, say)
    found = exposition.output_metrics(output)
    if to is None:
        return Answer(found, [found.text.rstrip("\n")])
    written = write_object(to, found.text.encode())
    return Answer(found, facts(("wrote", written), ("metrics", len(found.samples))))


@command("history")
@click.argument("name", metavar="NAME")
@click.option("--output", metavar="URI", help="Output of the runs (default: this folder, then ./audits).")
@click.option("--metric", metavar="METRIC", help="Show another metric of the estimates, such as f1@defect.")
@click.option("--slice", "part", metavar="SLICES=SLICE", help="Show one slice of the pool, such as camera=north.")
def history(name: str, output: str | None, metric: str | None, part: str | None) -> Answer:
    """Show the accuracy of an audit over time; NAME is that of its spec."""
    from opacc_ray.extensions.fleet.accuracy_history import history_of_runs
    from opacc_ray.runs.run_documents import NumberName

    _refuse_path(name)
    found = history_of_runs(name, output, NumberName.parse(metric, part))
    return Answer(found, history_text(found))


@command("watch")
@click.argument("name", metavar="NAME")
@click.option("--output", metavar="URI", default="audits", show_default=True, help="Output of the runs.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Accuracy drop to tolerate, such as 0.02.",
)
@click.option(
    "--false-alarms",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=0.05,
    show_default=True,
    help="False-alarm probability over the audit's lifetime.",
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
    from opacc_ray.extensions.fleet.fleet_spec import WatchSpec
    from opacc_ray.extensions.fleet.watched_audit import watch_audit

    _refuse_path(name)
    day = since.date().isoformat() if since else None
    found = watch_audit(name, output, WatchSpec(tolerance=tolerance, false_alarms=false_alarms, by=by, since=day))
    return Answer(found, watch_text(found), AlertError(found.answer) if found.alarm else None)


def watch_text(found: "WatchedAudit") -> "list[Line]":
    """Describe a watched audit: its windows in a table, and the state of the alarm."""
    from opacc_ray.report.facts import Column, Line, Table, change, facts, percent, stated

    names = "window", "examples", "labels", "accuracy", "interval", "change", "its interval", "evidence"
    columns = [Column(name, "" if "interval" in name or name == "window" else "n") for name in names]
    rows = []
    for window in found.windows:
        cells = ("0", "", "", "", "", "")
        if window.estimate and window.change:
            numbers = *stated(window.estimate), *change(window.change)
            cells = (str(window.estimate.n), *numbers, f"{window.evidence:.3g}")
        rows.append((window.run, str(window.examples), *cells))
    lines: list[Line] = [*facts(("reference", f"{found.reference}: {percent(found.estimate.value)}"))]
    lines += [*facts(("order", found.order)), Table(columns, rows)]
    for window in found.windows[-1:]:
        if window.without_labels is not None:
            meaning = f"confidence means in {window.run} what it meant in the reference"
            lines += facts(("if", f"{meaning}: {percent(window.without_labels)}"))
    noticed = None
    if found.delay is not None:
        noticed = f"a further drop by 5 points would be noticed after {counted(found.delay, 'window')}"
    elif found.windows:
        noticed = "a drop by 5 points would not be noticed in 520 such windows; label more of the reference"
    promise = f"at most {percent(found.false_alarms)} in the life of the audit, {found.guarantee}"
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
    from opacc_ray.extensions.fleet.accuracy_history import series_of
    from opacc_ray.report.facts import Column, Fact, Table, facts, level_text, stated, thousands

    names = "made", "accuracy", "interval", "level", "labels", "run"
    columns = [Column(name, "n" if name in ("accuracy", "level", "labels") else "") for name in names]
    if found.number is not None:
        columns[1] = Column(found.number, "n")
    lines: list[Line] = []
    all_series = series_of(found.points)
    if len(all_series) > 1:
        lines.append(f"The runs have {len(all_series)} populations. Their accuracies are not one series over time.")
    before = None
    for place, series in enumerate(all_series, start=1):
        population = series[0].population
        if len(all_series) > 1:
            said = f"other {population.differs(before)}" if before else str(population)
            lines += facts((f"population {place}", said))
        before, rows = population, []
        for point in series:
            is_named = point.measure == "accuracy" or found.number is not None
            name = point.run if is_named else f"{point.run} ({point.measure})"
            made = point.made[:16].replace("T", " ")
            rows.append((made, *stated(point, point.measure), level_text(point.level), thousands(point.n), name))
        lines.append(Table(columns, rows))
    lines += facts(*(("waiting", f"no estimate yet: {uri}") for uri in found.waiting))
    lines += facts(*(("without", f"the estimate has no {found.number}: {uri}") for uri in found.without))
    lines += [Fact("failed", f"`opacc status` reports why: {uri}", "error") for uri in found.failed]
    lines += [Fact("warning", f"this cannot be read: {uri}", "warning") for uri in found.unread]
    return lines
