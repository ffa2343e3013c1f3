"""Commands by which people label: manifest, label."""

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import TOOL, run_argument, track_option

if TYPE_CHECKING:
    from opacc_ray.labels.formats.tools import Way

WAYS = click.Choice(["links", "copies", "thumbnails", "addresses"])

overlap_option = click.option(
    "--overlap",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Share of the examples that two people label; default: labels.overlap of the spec.",
)


@command("manifest")
@run_argument
@track_option
@click.option("--to", "tool", type=TOOL, required=True, help="The tool that people label with.")
@click.option("--out", metavar="FOLDER", help="Where the files go; default: RUN-round-N-TOOL, here.")
@click.option("--round", "number", type=click.IntRange(min=1), metavar="N", help="Default: the newest.")
@click.option("--images", type=WAYS, help="How images reach annotators; default: what suits pool and tool.")
@click.option("--days", type=click.FloatRange(0, 7, min_open=True), default=7.0, show_default=True, help="Of links.")
@click.option("--annotators", metavar="NAMES", default="", help="Deal the examples to these, separated by commas.")
@overlap_option
def manifest(
    uri: str,
    track: str | None,
    tool: str,
    out: str | None,
    number: int | None,
    images: "Way | None",
    days: float,
    annotators: str,
    overlap: float | None,
) -> Answer:
    """Write a round as tasks for a labelling tool; the model's answers are not in them."""
    from opacc_ray.cli import label_texts
    from opacc_ray.labels.tasks import Wanted, write_tasks
    from opacc_ray.runs.run import Run

    run = Run.open(uri, track)
    folder = out or "-".join(filter(None, [run.name, track, f"round-{number or max(run.rounds(), default=1)}", tool]))
    names = tuple(name.strip() for name in annotators.split(",") if name.strip())
    written = write_tasks(run, Wanted(tool, folder, number, images, timedelta(days=days), names, overlap))
    return Answer(written, label_texts.tasks(written))


@command("label")
@run_argument
@track_option
@click.option("--annotator", metavar="NAME", help="Whose labels they are; default: the page asks everybody.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0: any that is free.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Another address lets other machines in; see docs/labelling.md.",
)
@overlap_option
def label(uri: str, track: str | None, annotator: str | None, port: int, host: str, overlap: float | None) -> Answer:
    """Serve a page on which people label, until Ctrl-C; every answer is kept in the run at once."""
    from opacc_ray.cli import label_texts
    from opacc_ray.labels.page.serving import Address, serve
    from opacc_ray.runs.run import Run

    def announce(address: str) -> None:
        click.echo(f"label at   {address}\nend with   Ctrl-C; whoever has this address can label", err=True)

    session = serve(Run.open(uri, track), Address(host, port), announce, annotator=annotator, overlap=overlap)
    return Answer(session, label_texts.session(session))


COMMANDS = [manifest, label]
