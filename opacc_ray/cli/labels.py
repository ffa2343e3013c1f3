"""Commands for labels that come back: labels import."""

from pathlib import Path

import click

from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import conflict_option, run_argument
from opacc_ray.errors import LabelError


@command("import")
@run_argument
@click.argument("file", metavar="FILE")
@conflict_option
def import_file(uri: str, file: str, conflict: str) -> Answer:
    """Take labels back: CSV or JSONL with id and label, in any pieces and order."""
    from opacc_ray.audit.labelled_rounds import import_labels
    from opacc_ray.audit.run import Run
    from opacc_ray.cli import texts

    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise LabelError(f"the labels {file} cannot be read: {error.strerror}") from None
    imported = import_labels(Run.open(uri), file, data, conflict=conflict)
    return Answer(imported, texts.imported(imported))


labels = click.Group("labels", commands=[import_file], help="Labels that come back.")

COMMANDS = [labels]
