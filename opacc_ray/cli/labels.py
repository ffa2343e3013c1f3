"""Commands for labels that come back: labels import, list, correct, withdraw, rule, agreement, export."""

from typing import TYPE_CHECKING, Any

import click

from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import RULE, TOOL, run_argument, track_option
from opacc_ray.errors import LabelError

if TYPE_CHECKING:
    from opacc_ray.spec import ConflictRule

MAX_BYTES = 256_000_000
"""Size of a file of labels beyond which it is not read: some five million labels."""


@command("import")
@run_argument
@click.argument("file", metavar="FILE")
@track_option
@click.option("--annotator", metavar="NAME", help="Who gave the labels, whatever the file says.")
@click.option("--conflict", type=RULE, help="The rule of the run from now on, where labels differ.")
@click.option(
    "--numbers-are-classes",
    is_flag=True,
    help="Read numbers as indexes of classes that have names, counted from 0; else they are refused.",
)
@click.option("--tool", type=TOOL, help="What wrote the file; refuse it if it looks like another's.")
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
    annotator: str | None,
    conflict: "ConflictRule | None",
    numbers_are_classes: bool,
    tool: str | None,
    max_bytes: int,
) -> Answer:
    """Take labels back: CSV or JSONL with id and label, or what a labelling tool exports; in any pieces and order."""
    from opacc_ray.cli import label_texts
    from opacc_ray.labels.actions import import_labels
    from opacc_ray.labels.formats.parsing import check_kind
    from opacc_ray.runs.run import Run

    data = _read(file, max_bytes)
    if tool is not None:
        check_kind(data, file, tool)
    imported = import_labels(
        Run.open(uri, track),
        file,
        data,
        conflict=conflict,
        annotator=annotator,
        numbers_are_classes=numbers_are_classes or None,
    )
    return Answer(imported, label_texts.imported(imported))


def _read(file: str, most: int) -> bytes:
    """The content of a file of at most ``most`` bytes; nothing of a larger one is kept."""
    try:
        with open(file, "rb") as opened:
            size = opened.seek(0, 2) if opened.seekable() else 0
            if size <= most:
                if opened.seekable():
                    opened.seek(0)
                data = opened.read(most + 1)
                size = len(data)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LabelError(f"the labels {file} cannot be read: {reason}") from None
    if size > most:
        raise LabelError(f"{file} has more than {most} bytes: cut it in pieces, or raise --max-bytes")
    return data


@command("list")
@run_argument
@click.option("--id", "example", metavar="ID", help="One example only.")
def list_labels(uri: str, example: str | None) -> Answer:
    """Show who said what when, and which answers count."""
    from opacc_ray.cli import label_texts
    from opacc_ray.labels.answers import list_answers
    from opacc_ray.runs.run import Run

    found = list_answers(Run.open(uri), example)
    return Answer(found, label_texts.answers(found))


@command("correct")
@run_argument
@click.argument("example", metavar="ID")
@click.argument("label", metavar="LABEL")
@click.option("--annotator", metavar="NAME", required=True, help="Who says so.")
def correct(uri: str, example: str, label: str, annotator: str) -> Answer:
    """Say what an example is (? for can't tell), whatever was said before; that is kept, and does not count."""
    from opacc_ray.labels import actions as verbs

    return _done(uri, lambda run: verbs.correct(run, example, label, annotator))


@command("withdraw")
@run_argument
@click.argument("what", metavar="ID|FILE")
def withdraw(uri: str, what: str) -> Answer:
    """Withdraw the labels of an example or of a file; they are kept in the log."""
    from opacc_ray.cli import label_texts
    from opacc_ray.labels import actions as verbs
    from opacc_ray.runs.run import Run

    found = verbs.withdraw(Run.open(uri), what)
    return Answer(found, label_texts.withdrawn(found))


@command("rule")
@run_argument
@click.argument("rule", metavar="RULE", type=RULE)
def set_rule(uri: str, rule: "ConflictRule") -> Answer:
    """Say what happens where labels differ, for every command from now on: error, majority or latest."""
    from opacc_ray.labels import actions as verbs

    return _done(uri, lambda run: verbs.set_rule(run, rule))


@command("agreement")
@run_argument
def agreement(uri: str) -> Answer:
    """Show how far annotators agree where several answered: Cohen's kappa, Krippendorff's alpha."""
    from opacc_ray.cli import label_texts
    from opacc_ray.labels.agreement import agreement as measure
    from opacc_ray.runs.run import Run

    found = measure(Run.open(uri))
    return Answer(found, label_texts.agreement(found))


@command("export")
@run_argument
@click.argument("folder", metavar="FOLDER")
@track_option
@click.option("--to", "tool", type=click.Choice(["fiftyone"]), default="fiftyone", show_default=True, help="The tool.")
def export(uri: str, folder: str, track: str | None, tool: str) -> Answer:
    """Write labelled examples with their predictions and weights, to look at failures; not for annotators."""
    from opacc_ray.labels.labelled_examples import export_labels
    from opacc_ray.runs.run import Run

    written = export_labels(Run.open(uri, track), tool, folder)
    return Answer(written, f"wrote      {written.examples} labelled examples for {tool} to {written.folder}")


def _done(uri: str, verb: Any) -> Answer:
    from opacc_ray.cli import label_texts
    from opacc_ray.runs.run import Run

    action = verb(Run.open(uri))
    return Answer(action, label_texts.action(action))


labels = click.Group(
    "labels",
    commands=[import_file, list_labels, correct, withdraw, set_rule, agreement, export],
    help="Labels that come back.",
)

COMMANDS = [labels]
