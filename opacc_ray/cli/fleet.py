"""Commands for many audits, and for one audit over time: fleet, history."""

from typing import TYPE_CHECKING

import click

from opacc_ray.audit.progress import Progress
from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import SVG_FILE

if TYPE_CHECKING:
    from opacc_ray.fleet.documents import AccuracyHistory, HistoryPoint
    from opacc_ray.fleet.write import Written


@command("fleet")
@click.argument("spec", metavar="FLEET.yaml")
@click.option("--summary", is_flag=True, help="Run nothing: report only how the audits stand, by the labels so far.")
@click.option("--alert-to", metavar="FILE|URL", help="Also send alerts and failures there: a file, object or webhook.")
@click.option(
    "--no-trial",
    is_flag=True,
    help="Skip the trials on this machine's CPU: some examples, or a comparison with stored ones.",
)
def fleet(spec: str, summary: bool, alert_to: str | None, no_trial: bool) -> Answer:
    """Run many audits on one cluster, and say how all of them stand; run it again and it does what is missing."""
    from opacc_ray.fleet.spec import load_fleet
    from opacc_ray.fleet.write import run_fleet

    with Progress("fleet", "audits", bar=False) as progress:
        written = run_fleet(load_fleet(spec), progress, work=not summary, trial=not no_trial, alert_to=alert_to)
    return Answer(written.summary, fleet_text(written), written.failure)


def fleet_text(written: "Written") -> str:
    """The audits of a fleet, a line or two each, and where their summary is."""
    from opacc_ray.fleet import sentences

    lines = []
    for item in written.summary.audits:
        said = []
        if item.last:
            value, between = sentences.stated_text(item.last)
            said.append(f"{value} ({between}, {100 * item.last.level:g}% interval, {item.last.n} labels)")
            said += item.notes
        if item.last and item.change:
            value, between, how = sentences.change_text(item.change, item.last.measure)
            said.append(f"{value} ({between}; {how})")
        said += [f"NOTE {item.apart}"] if item.apart else []
        said += [f"waits for {sentences.waiting_text(part)}: {part.run}" for part in item.waiting]
        said += [f"ALERT {sentences.alert_text(item, check)}" for check in item.alerts if check.raised]
        if item.failure:
            said.append(f"{sentences.failed_text(item.failure).replace('Failed', 'FAILED')}: {item.failure.error}")
        if item.attempt and (text := sentences.attempt_text(item.attempt)):
            said.append(text)
        lines += [f"{item.name if place == 0 else '':32} {text}" for place, text in enumerate(said or ["nothing yet"])]
    lines += [written.summary.answer, *(f"wrote      {uri}" for uri in written.files)]
    words = {"delivered": "delivered", "known": "unchanged", "failed": "FAILED"}
    lines += [f"{words[item.state]:10} {item.error or item.to}" for item in written.summary.deliveries]
    return "\n".join(lines)


@command("history")
@click.argument("name", metavar="NAME")
@click.option("--output", metavar="URI", default=".", show_default=True, help="Where the runs of the audit are.")
@click.option("--tables", metavar="URI", help="Read what `opacc export --to URI` wrote instead.")
@click.option(
    "--picture", type=SVG_FILE, metavar="FILE.svg", help="Draw the accuracy over time to this file or object."
)
def history(name: str, output: str, tables: str | None, picture: str | None) -> Answer:
    """Show what all runs of an audit stated, over time; NAME is that of their spec."""
    from opacc_ray.fleet.history import history_in_tables, history_of_runs
    from opacc_ray.fleet.picture import with_picture

    found = history_of_runs(name, output) if tables is None else history_in_tables(name, tables)
    if picture is not None:
        found = with_picture(found, picture)
    return Answer(found, history_text(found))


def history_text(found: "AccuracyHistory") -> str:
    """A line for each run, by population."""
    from opacc_ray.fleet.history import series_of

    lines = []
    several = len(found.populations) > 1
    if several:
        lines.append(
            f"These runs are of {len(found.populations)} populations. Their accuracies are not one series over time."
        )
    for number, series in enumerate(series_of(found.points), start=1):
        if several:
            own = found.populations[number - 1]
            lines += ["", f"population {number:<6} {f'other {own.differs}' if own.differs else own.text}"]
        lines += map(_line, series)
    lines += [""] if several else []
    lines += [f"{'waiting':17} nothing is stated yet: {uri}" for uri in found.waiting]
    lines += [f"{'failed':17} `opacc status` reports why: {uri}" for uri in found.failed]
    lines += [f"{'warning':17} this cannot be read: {uri}" for uri in found.unread]
    if found.picture:
        lines.append(f"{'picture':17} {found.picture}")
    return "\n".join(lines).rstrip()


def _line(point: "HistoryPoint") -> str:
    from opacc_ray.fleet.sentences import stated_text

    value, between = stated_text(point)
    stated = f"{value:>8}  {between:19} at {100 * point.level:g}%  {point.n:>6} labels  {point.run}"
    measure = "" if point.measure == "accuracy" else f" ({point.measure})"
    return f"{(point.made or 'unknown')[:16]:17} {stated}{measure}"


COMMANDS = [fleet, history]
