"""Commands that state results: estimate, compare, report."""

import click

from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import (
    LEVEL,
    conflict_option,
    run_argument,
    score_for,
    score_option,
    statement_options,
)


@command("estimate")
@run_argument
@click.option("--costs", metavar="COSTS.yaml", help="What errors cost, by class: state the mean cost, too.")
@click.option("--assist", is_flag=True, help="State it with the help of the pool's confidence, too.")
@statement_options
def estimate(
    uri: str,
    costs: str | None,
    assist: bool,
    level: float,
    partial: bool,
    conflict: str | None,
    score: str | None,
) -> Answer:
    """State the accuracy (of a regression: its score) with its interval, and what it rests on."""
    from opacc_ray.audit import results
    from opacc_ray.audit.run import Run
    from opacc_ray.cli import texts
    from opacc_ray.labelling.costs import load_costs

    run = Run.open(uri)
    worth = score_for(run.spec, score)
    prices = load_costs(costs, run.spec.model, run.num_classes) if costs else None
    stated = results.estimate(
        run, level=level, partial=partial, conflict=conflict, costs=prices, assist=assist, score=worth
    )
    return Answer(stated, texts.estimate(stated))


@command("compare")
@run_argument
@click.argument("other", metavar="OTHER")
@statement_options
def compare(uri: str, other: str, level: float, partial: bool, conflict: str | None, score: str | None) -> Answer:
    """Compare the model of RUN with that of OTHER, by the labels of RUN.

    OTHER is a run of another model on the same pool; it needs no labels.
    """
    from opacc_ray.audit import results
    from opacc_ray.audit.run import Run
    from opacc_ray.cli import texts

    run = Run.open(uri)
    stated = results.compare(
        run, Run.open(other), level=level, partial=partial, conflict=conflict, score=score_for(run.spec, score)
    )
    return Answer(stated, texts.comparison(stated))


@command("report")
@run_argument
@click.option("--out", metavar="FOLDER", help="Where to write it; default: beside the estimate of the run.")
@click.option("--level", type=LEVEL, default=0.95, show_default=True, help="Confidence level of the intervals.")
@conflict_option
@score_option
@click.option("--mlflow", is_flag=True, help="Log numbers and files to MLflow, too; it reads MLFLOW_TRACKING_URI.")
@click.option("--wandb", is_flag=True, help="Log numbers and files to Weights & Biases, too; it reads WANDB_PROJECT.")
def report(
    uri: str, out: str | None, level: float, conflict: str | None, score: str | None, mlflow: bool, wandb: bool
) -> Answer:
    """Write the result for people: one HTML page, report.json, and report.md for a pull request or model card."""
    from opacc_ray.audit.run import Run
    from opacc_ray.cli import texts
    from opacc_ray.report.trackers import track
    from opacc_ray.report.write import make_report

    run = Run.open(uri)
    written, found = make_report(run, out, level=level, conflict=conflict, score=score_for(run.spec, score))
    wanted = [name for name, asked in (("mlflow", mlflow), ("wandb", wandb)) if asked]
    written = track(written, found, wanted) if wanted else written
    return Answer(written, texts.report(written))


COMMANDS = [estimate, compare, report]
