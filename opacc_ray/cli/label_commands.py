"""Commands about labels: label, and labels import, list, correct, withdraw, export."""

import os
from typing import TYPE_CHECKING, Any

import click

from opacc_ray.cli.command import (
    RULE,
    RUN,
    Answer,
    Group,
    command,
    on_run,
    run_argument,
)
from opacc_ray.runs.run_names import uri_of
from opacc_ray.stored_audit import EXPORTERS, Audit

if TYPE_CHECKING:
    from opacc_ray.runs.run import Run
    from opacc_ray.spec import ConflictRule

overlap_option = click.option(
    "--overlap",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Share of the examples that two people label (default: labels.overlap of the spec).",
)


@command("label")
@click.argument("uri", metavar="RUN|OUTPUT", type=RUN)
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
def label(
    uri: str,
    annotator: str | None,
    port: int,
    host: str,
    people: str,
    user_header: str | None,
    overlap: float | None,
) -> Answer:
    """Label on a web page, until Ctrl-C; answers are saved at once.

    Of an OUTPUT, all runs that wait for labels are served, with an inbox and the team.
    """
    from opacc_ray.labels.page.serve import holds_runs, serve
    from opacc_ray.report import label_answers
    from opacc_ray.runs.run import Run

    is_output = holds_runs(uri)

    def announce(address: str) -> None:
        who = "it shows the team, so keep it to yourself" if people else "anyone with this address can label"
        plain = "; it is not encrypted, so use it in a trusted network alone" if host in ("0.0.0.0", "::") else ""
        click.echo(f"label at   {address}\nend with   Ctrl-C; {who}{plain}", err=True)

    def on_person(name: str, address: str) -> None:
        click.echo(f"{name:<10} {address}", err=True)

    def on_done(desk: Any) -> None:
        step = label_answers.after(desk.run).text
        click.echo(f"done       {desk.name}: all examples are answered; next: {step}", err=True)

    run = None if is_output else Run.open(uri)
    session = serve(
        run or uri,
        host,
        port,
        announce,
        annotator=annotator,
        overlap=overlap,
        people=[name.strip() for name in people.split(",") if name.strip()],
        user_header=user_header,
        on_person=on_person,
        on_done=on_done,
    )
    return Answer(session, label_answers.session(session, run))


@command("import")
@run_argument
@click.argument("file", metavar="[FILE|RUN]", required=False)
@click.option("--annotator", metavar="NAME", help="Annotator of all labels in the file.")
@click.option(
    "--conflict", type=RULE, help="Rule for labels that differ, for the run from now on; without FILE, set it alone."
)
@click.option(
    "--numbers-are-classes", is_flag=True, help="Read numbers as class indexes from 0 although classes have names."
)
@click.option("--only-selected", is_flag=True, help="Leave out rows of other examples, as of a file of all labels.")
def import_file(
    uri: str,
    file: str | None,
    annotator: str | None,
    conflict: "ConflictRule | None",
    numbers_are_classes: bool,
    only_selected: bool,
) -> Answer:
    """Import labels: CSV or JSONL with id and label, a tool's export, or the answers of another run.

    Files may come in any order, and may hold any part of the labels. Of another run on the same pool, the answers to
    the examples that RUN has selected are taken.
    """
    from opacc_ray.report import label_answers
    from opacc_ray.report.facts import facts

    if file is None:
        if conflict is None:
            raise click.UsageError("give FILE or RUN, or --conflict RULE to set the rule for labels that differ")
        return Answer(Audit.open(uri).set_rule(conflict), facts(("rule", f"{conflict}, where labels differ")))
    source, audit = uri_of(file), Audit.open(uri)
    is_run = source != file or "://" in file or os.path.isdir(file)
    imported = audit.add_labels(
        Audit.open(source) if is_run else file,
        annotator=annotator,
        conflict=conflict,
        numbers_are_classes=numbers_are_classes or None,
        only_selected=only_selected,
    )
    return Answer(imported, label_answers.imported(imported, audit.record))


@command("list")
@on_run
@click.option("--id", "example", metavar="ID", help="Show one example only.")
def list_labels(run: "Run", example: str | None) -> Answer:
    """List all answers: who, when, and which ones count."""
    from opacc_ray.report import label_answers

    listed = Audit(run).answers(example)
    return Answer(listed, label_answers.answers(listed))


@command("correct")
@on_run
@click.argument("example", metavar="ID")
@click.argument("label", metavar="LABEL")
@click.option("--annotator", metavar="NAME", required=True, help="Annotator of the correction.")
def correct(run: "Run", example: str, label: str, annotator: str) -> Answer:
    """Override an example's label (`?` = can't tell). Earlier answers stay in the log but are ignored."""
    from opacc_ray.report import label_answers

    listed = Audit(run).correct(example, label, annotator=annotator)
    later = label_answers.carried_to(run, example, "correct", example, label, "--annotator", annotator)
    return Answer(listed, [*label_answers.answers(listed), *later])


@command("withdraw")
@on_run
@click.argument("what", metavar="ID|FILE")
def withdraw(run: "Run", what: str) -> Answer:
    """Withdraw the labels of a file or an example (kept in the log)."""
    from opacc_ray.report import label_answers

    gone = Audit(run).withdraw(what)
    later = [] if gone.id is None else label_answers.carried_to(run, gone.id, "withdraw", gone.id)
    return Answer(gone, [*label_answers.withdrawn(gone), *later])


@command("export")
@on_run
@click.argument("target", metavar="FOLDER|FILE")
@click.option("--to", "tool", type=click.Choice(list(EXPORTERS)), required=True, help="What to write them for.")
def export(run: "Run", target: str, tool: str) -> Answer:
    """Write labelled examples: failures or all of them to train on, a case for a study, or for FiftyOne."""
    from opacc_ray.report.facts import facts

    written = Audit(run).export(target, tool)
    wrote = f"{written.examples} labelled examples for {tool} to {written.to}"
    return Answer(written, facts(("wrote", wrote), *(("note", text) for text in written.notes)))


labels = Group(
    "labels",
    {"Commands": [import_file, list_labels, correct, withdraw, export]},
    help="Import, list and correct labels.",
)
