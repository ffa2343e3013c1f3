"""Commands about labels: label, manifest, and labels import, list, correct, withdraw, rule, agreement, export."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from opacc_ray.cli.command import (
    RULE,
    RUN,
    TOOL,
    Answer,
    Group,
    command,
    on_run,
    out_option,
    run_argument,
    track_option,
)
from opacc_ray.errors import LabelError

if TYPE_CHECKING:
    from opacc_ray.labels.label_rows import FormatName
    from opacc_ray.runs.run import Run
    from opacc_ray.spec import ConflictRule

WAYS = click.Choice(["links", "copies", "thumbnails", "addresses"])

overlap_option = click.option(
    "--overlap",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Share of the examples that two people label (default: labels.overlap of the spec).",
)


@command("manifest")
@on_run
@track_option
@click.option("--to", "tool", type=TOOL, required=True, help="Labelling tool.")
@out_option(help="Folder of the files (default: RUN-round-N-TOOL).")
@click.option("--round", "number", type=click.IntRange(min=1), metavar="N", help="Round (default: the newest).")
@click.option("--images", type=WAYS, help="How images reach annotators (default: by pool and tool).")
@click.option(
    "--days",
    type=click.FloatRange(0, 7, min_open=True),
    default=7.0,
    show_default=True,
    help="Days until links expire.",
)
@click.option(
    "--annotators", metavar="NAMES", default="", help="Annotators who share the examples, separated by commas."
)
@overlap_option
def manifest(
    run: "Run", tool: "FormatName", out: str | None, number: int | None, days: float, annotators: str, **options: Any
) -> Answer:
    """Write a round as tasks for a labelling tool, without predictions."""
    from opacc_ray.cli import label_texts
    from opacc_ray.labels.labelling_tasks import Wanted, write_tasks

    folder = out or "-".join(
        filter(None, [run.name, run.track, f"round-{number or max(run.rounds(), default=1)}", tool])
    )
    names = tuple(name.strip() for name in annotators.split(",") if name.strip())
    wanted = Wanted(tool, folder, number, lifetime=timedelta(days=days), annotators=names, **options)
    written = write_tasks(run, wanted)
    return Answer(written, label_texts.tasks(written))


@command("label")
@click.argument("uri", metavar="RUN|OUTPUT", type=RUN)
@track_option
@click.option("--annotator", metavar="NAME", help="Annotator (default: the page asks).")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0: any free one.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address; another one lets other machines in (docs/labelling.md).",
)
@click.option("--people", metavar="NAMES", default="", help="People who get an address each, such as ann,bob.")
@click.option("--user-header", metavar="NAME", help="Header in which a proxy names who signed in.")
@overlap_option
def label(uri: str, track: str | None, port: int, host: str, people: str, **options: Any) -> Answer:
    """Label on a web page, until Ctrl-C; answers are saved at once.

    Of an OUTPUT, all runs that wait for labels are served, with an inbox and the team.
    """
    from opacc_ray.cli import label_texts
    from opacc_ray.labels.page.serve import holds_runs, serve
    from opacc_ray.runs.run import Run

    is_output = track is None and holds_runs(uri)

    def announce(address: str) -> None:
        who = "it shows the team, so keep it to yourself" if people else "anyone with this address can label"
        plain = "; it is not encrypted, so use it in a trusted network alone" if host in ("0.0.0.0", "::") else ""
        click.echo(f"label at   {address}\nend with   Ctrl-C; {who}{plain}", err=True)

    def on_person(name: str, address: str) -> None:
        click.echo(f"{name:<10} {address}", err=True)

    def on_done(desk: Any) -> None:
        step = label_texts.after(desk.run).text
        click.echo(f"done       {desk.name}: all examples are answered; next: {step}", err=True)

    names = [name.strip() for name in people.split(",") if name.strip()]
    options |= {"people": names, "on_person": on_person, "on_done": on_done}
    run = None if is_output else Run.open(uri, track)
    session = serve(run or uri, host, port, announce, **options)
    return Answer(session, label_texts.session(session, run))


MAX_BYTES = 256_000_000
"""Most bytes of a file of labels: about five million labels."""


@command("import")
@run_argument
@click.argument("file", metavar="FILE")
@track_option
@click.option("--annotator", metavar="NAME", help="Annotator of all labels in the file.")
@click.option("--conflict", type=RULE, help="Rule for labels that differ, for the run from now on.")
@click.option(
    "--numbers-are-classes", is_flag=True, help="Read numbers as class indexes from 0 although classes have names."
)
@click.option("--only-selected", is_flag=True, help="Leave out rows of other examples, as of a file of all labels.")
@click.option("--tool", type=TOOL, help="Tool that wrote the file; other files are refused.")
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    default=MAX_BYTES,
    show_default=True,
    metavar="N",
    help="Refuse larger files.",
)
def import_file(
    uri: str,
    file: str,
    track: str | None,
    numbers_are_classes: bool,
    tool: "FormatName | None",
    max_bytes: int,
    **options: Any,
) -> Answer:
    """Import labels: CSV or JSONL with id and label, or a tool's export.

    Files may come in any order, and may hold any part of the labels.
    """
    from opacc_ray.cli import label_texts
    from opacc_ray.labels.formats.label_formats import check_kind
    from opacc_ray.labels.label_actions import import_labels
    from opacc_ray.runs.run import Run

    data = _read(file, max_bytes)
    if tool is not None:
        check_kind(data, file, tool)
    run = Run.open(uri, track)
    imported = import_labels(run, file, data, numbers_are_classes=numbers_are_classes or None, **options)
    return Answer(imported, label_texts.imported(imported, run))


def _read(file: str, most: int) -> bytes:
    """Return the content of a file of at most ``most`` bytes."""
    try:
        with open(file, "rb") as opened:
            size = opened.seek(0, 2) if opened.seekable() else 0
            if size <= most:
                if opened.seekable():
                    opened.seek(0)
                data = opened.read(most + 1)
                size = len(data)
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise LabelError(f"there is no file {file}; check the path") from None
        reason = error.strerror if isinstance(error, OSError) else error
        raise LabelError(f"the labels {file} cannot be read: {reason}") from None
    if size > most:
        raise LabelError(f"{file} has more than {most} bytes: split it, or raise --max-bytes")
    return data


@command("list")
@on_run
@click.option("--id", "example", metavar="ID", help="Show one example only.")
def list_labels(run: "Run", example: str | None) -> Answer:
    """List all answers: who, when, and which ones count."""
    from opacc_ray.cli import label_texts
    from opacc_ray.labels.label_actions import list_answers

    found = list_answers(run, example)
    return Answer(found, label_texts.answers(found))


@command("correct")
@on_run
@click.argument("example", metavar="ID")
@click.argument("label", metavar="LABEL")
@click.option("--annotator", metavar="NAME", required=True, help="Annotator of the correction.")
def correct(run: "Run", example: str, label: str, annotator: str) -> Answer:
    """Override an example's label (`?` = can't tell). Earlier answers stay in the log but are ignored."""
    from opacc_ray.cli import label_texts
    from opacc_ray.labels import label_actions

    action = label_actions.correct(run, example, label, annotator)
    later = label_texts.carried_to(run, example, "correct", example, label, "--annotator", annotator)
    return Answer(action, [*label_texts.action(action), *later])


@command("withdraw")
@on_run
@click.argument("what", metavar="ID|FILE")
def withdraw(run: "Run", what: str) -> Answer:
    """Withdraw the labels of a file or an example (kept in the log)."""
    from opacc_ray.cli import label_texts
    from opacc_ray.labels import label_actions

    found = label_actions.withdraw(run, what)
    later = [] if found.id is None else label_texts.carried_to(run, found.id, "withdraw", found.id)
    return Answer(found, [*label_texts.withdrawn(found), *later])


@command("rule")
@on_run
@click.argument("rule", metavar="RULE", type=RULE)
def set_rule(run: "Run", rule: "ConflictRule") -> Answer:
    """Set the rule for labels that differ: error, majority or latest."""
    from opacc_ray.cli import label_texts
    from opacc_ray.labels import label_actions

    action = label_actions.set_rule(run, rule)
    return Answer(action, label_texts.action(action))


@command("agreement")
@on_run
def agreement(run: "Run") -> Answer:
    """Measure agreement of annotators: Cohen's kappa, Krippendorff's alpha."""
    from opacc_ray.cli import label_texts
    from opacc_ray.labels.annotator_agreement import measure_agreement

    found = measure_agreement(run)
    return Answer(found, label_texts.agreement(found))


@command("export")
@on_run
@click.argument("folder", metavar="FOLDER")
@track_option
@click.option(
    "--to", "tool", type=click.Choice(["fiftyone"]), default="fiftyone", show_default=True, help="Tool to write for."
)
def export(run: "Run", folder: str, tool: str) -> Answer:
    """Write labelled examples with predictions and weights, to inspect failures."""
    from opacc_ray.labels.fiftyone_export import export_labels
    from opacc_ray.report.facts import facts

    written = export_labels(run, tool, folder)
    found = facts(("wrote", f"{written.examples} labelled examples for {tool} to {written.folder}"))
    return Answer(written, found)


labels = Group(
    "labels",
    {"Commands": [import_file, list_labels, correct, withdraw, set_rule, agreement, export]},
    help="Import, list and correct labels.",
)
