"""The command that reports a result to people: report."""

from typing import TYPE_CHECKING

import click

from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import LEVEL, conflict_option, run_argument, score_for, score_option, track_option

if TYPE_CHECKING:
    from opacc_ray.report.documents import WrittenReport


@command("report")
@run_argument
@track_option
@click.option("--out", metavar="FOLDER", help="Where to write it; default: beside the estimate of the run.")
@click.option("--level", type=LEVEL, default=0.95, show_default=True, help="Confidence level of the intervals.")
@click.option("--mlflow", is_flag=True, help="Log numbers and files to MLflow, too; it reads MLFLOW_TRACKING_URI.")
@click.option("--wandb", is_flag=True, help="Log numbers and files to Weights & Biases, too; it reads WANDB_PROJECT.")
@conflict_option
@score_option
def report(
    uri: str,
    track: str | None,
    out: str | None,
    level: float,
    conflict: str | None,
    score: str | None,
    mlflow: bool,
    wandb: bool,
) -> Answer:
    """Write the result for people: one HTML page, report.json, and report.md for a pull request or model card."""
    from opacc_ray.report import trackers
    from opacc_ray.report.write import make_report
    from opacc_ray.runs.run import Run

    run = Run.open(uri, track)
    written, found = make_report(run, out, level=level, conflict=conflict, score=score_for(run.spec, score))
    wanted = [name for name, asked in (("mlflow", mlflow), ("wandb", wandb)) if asked]
    if wanted:
        written = trackers.track(written, found, wanted)
    return Answer(written, as_text(written))


def as_text(document: "WrittenReport") -> str:
    """What a report says, and where it is."""
    kinds = ("page", "document", "summary")
    lines = [f"answer     {document.answer}"]
    lines += [f"{kind:10} {uri}" for kind, uri in zip(kinds, document.files, strict=True)]
    lines += [f"logged     {place}" for place in document.tracked]
    return "\n".join([*lines, *(f"warning    {text}" for text in document.warnings)])


COMMANDS = [report]
