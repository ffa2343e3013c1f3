"""Commands for other tools: schemas."""

import click

from opacc_ray.cli.command import Answer, command


@command("schemas")
@click.argument("folder", metavar="FOLDER")
def schemas(folder: str) -> Answer:
    """Write the JSON schemas of all files and answers that are JSON to FOLDER."""
    from opacc_ray.cli.document_kinds import write_schemas

    written = write_schemas(folder)
    return Answer(written, "\n".join(written.files))


COMMANDS = [schemas]
