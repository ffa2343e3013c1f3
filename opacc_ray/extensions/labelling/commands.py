"""The command that writes a round as tasks for a labelling tool: manifest."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from opacc_ray.cli.command import TOOL, Answer, command, on_run, out_option, overlap_option

if TYPE_CHECKING:
    from opacc_ray.extensions.labelling.labelling_tasks import LabellingTasks
    from opacc_ray.report.facts import Line
    from opacc_ray.runs.run import Run

WAYS = click.Choice(["links", "copies", "thumbnails", "addresses"])


@command("manifest")
@on_run
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
    run: "Run", tool: str, out: str | None, number: int | None, days: float, annotators: str, **options: Any
) -> Answer:
    """Write a round as tasks for a labelling tool, without predictions."""
    from opacc_ray.extensions.labelling.labelling_tasks import write_tasks

    folder = out or f"{run.name}-round-{number or max(run.rounds(), default=1)}-{tool}"
    names = tuple(name.strip() for name in annotators.split(",") if name.strip())
    written = write_tasks(run, tool, folder, round=number, lifetime=timedelta(days=days), annotators=names, **options)
    return Answer(written, _tasks(written))


def _tasks(document: "LabellingTasks") -> "list[Line]":
    """Describe the tasks written for a tool, and the command to run next."""
    from opacc_ray.errors import counted
    from opacc_ray.report.answers import changed, next_step
    from opacc_ray.report.facts import facts

    examples = f"{counted(document.examples, 'example')} of round {document.round}"
    images = [f"images as {document.images}"] if document.images else []
    columns = [f"with {', '.join(document.columns)}"] if document.columns else []
    what = ", ".join([f"{examples} for {document.tool}", *images, *columns])
    shares = ", ".join(f"{name} {num}" for name, num in document.annotators.items())
    ends = f"{document.links_end} at the latest; for new links, write the tasks to another folder"
    return [
        *facts(
            ("tasks", what),
            *(("file", uri) for uri in document.files),
            ("shares", f"{shares}; {counted(document.twice, 'example')} go to two people" if shares else None),
            ("expires", ends if document.links_end else None),
        ),
        *changed(document.objects),
        next_step("labels import", document.run, "FILE"),
    ]
