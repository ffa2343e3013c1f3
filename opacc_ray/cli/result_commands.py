"""Commands that state results: estimate, report, compare, budget, export."""

import click

from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import (
    HALF_WIDTH,
    LEVEL,
    RUN,
    SVG_FILE,
    conflict_option,
    run_argument,
    score_for,
    score_option,
    statement_options,
    track_option,
)


@command("estimate")
@run_argument
@track_option
@click.option("--costs", metavar="COSTS.yaml", help="Cost of errors by class; also report the mean cost.")
@click.option(
    "--assist",
    is_flag=True,
    help="Also report a prediction-powered estimate that uses the confidences of the whole pool.",
)
@statement_options
def estimate(
    uri: str,
    track: str | None,
    costs: str | None,
    assist: bool,
    level: float,
    partial: bool,
    conflict: str | None,
    score: str | None,
) -> Answer:
    """Report the accuracy with a confidence interval."""
    from opacc_ray.audit import accuracy
    from opacc_ray.cli import texts
    from opacc_ray.labels.costs import load_costs
    from opacc_ray.runs.run import Run

    run = Run.open(uri, track)
    worth = score_for(run.spec, score)
    prices = load_costs(costs, run.spec.model, run.num_classes) if costs else None
    stated = accuracy.estimate(
        run, level=level, partial=partial, conflict=conflict, costs=prices, assist=assist, score=worth
    )
    return Answer(stated, texts.estimate(stated))


@command("compare")
@run_argument
@click.argument("others", metavar="OTHER...", nargs=-1, required=True, type=RUN)
@track_option
@statement_options
def compare(
    uri: str,
    others: tuple[str, ...],
    track: str | None,
    level: float,
    partial: bool,
    conflict: str | None,
    score: str | None,
) -> Answer:
    """Compare the model of RUN with other models, by the labels of RUN.

    OTHER is a run of another model on the same pool; it needs no labels. All differences hold together, and each model
    has a probability that it is the best.
    """
    from opacc_ray.audit import several_models
    from opacc_ray.cli import texts
    from opacc_ray.runs.run import Run

    run = Run.open(uri, track)
    stated = several_models.compare(
        run,
        *map(Run.open, others),
        level=level,
        partial=partial,
        conflict=conflict,
        score=score_for(run.spec, score),
    )
    return Answer(stated, texts.comparison(stated))


@command("export")
@run_argument
@click.option("--case", "file", metavar="FILE.npz", help="Write the labelled pool as a case for `opacc study`.")
@click.option("--partial", is_flag=True, help="With --case: write the labelled part of the pool.")
@click.option("--to", "lake", metavar="URI", help="Write features, selections, labels and estimates as Parquet tables.")
@click.option("--no-features", is_flag=True, help="With --to: leave out the features.")
def export(uri: str, file: str | None, partial: bool, lake: str | None, no_features: bool) -> Answer:
    """Write a run as Parquet tables, or its labelled pool for `opacc study`."""
    from opacc_ray.cli import run_texts
    from opacc_ray.runs.run import Run

    if (file is None) == (lake is None):
        raise click.UsageError("give --case FILE.npz or --to URI")
    run = Run.open(uri)
    if file is not None:
        from opacc_ray.audit.exported_case import export_case

        case = export_case(run, file, partial=partial)
        return Answer(case, run_texts.exported(case))
    from opacc_ray.audit.exported_tables import export_tables

    tables = export_tables(run, str(lake), features=not no_features)
    return Answer(tables, run_texts.tables(tables))


@command("budget")
@click.argument("uri", metavar="RUN|FILE.csv")
@track_option
@click.option("--until", type=HALF_WIDTH, metavar="±W", required=True, help="Half-width to reach, such as 0.03.")
@click.option("--method", metavar="METHOD", help="Also report the labels that this method needs in one round.")
@click.option(
    "--picture", type=SVG_FILE, metavar="FILE.svg", help="Draw half the width of the interval against labels."
)
@click.option("--level", type=LEVEL, default=0.95, show_default=True, help="Confidence level.")
def budget(uri: str, track: str | None, until: float, method: str | None, picture: str | None, level: float) -> Answer:
    """Predict how many labels an interval of ±W needs."""
    from opacc_ray.audit.label_budget import label_budget, label_budget_of_table
    from opacc_ray.cli import texts
    from opacc_ray.runs.run import Run
    from opacc_ray.spec.predictions_table import is_table

    if is_table(uri):
        found = label_budget_of_table(uri, until, level=level)
    else:
        found = label_budget(Run.open(uri, track), until, level=level, method=method)
    if picture is not None:
        from opacc_ray.report.figures import with_picture

        found = with_picture(found, picture)
    return Answer(found, texts.label_budget(found))


@command("report")
@run_argument
@track_option
@click.option("--out", metavar="FOLDER", help="Folder of the report (default: next to the estimate).")
@click.option("--level", type=LEVEL, default=0.95, show_default=True, help="Confidence level of the intervals.")
@click.option("--mlflow", is_flag=True, help="Also log to MLflow (reads MLFLOW_TRACKING_URI).")
@click.option("--wandb", is_flag=True, help="Also log to Weights & Biases (reads WANDB_PROJECT).")
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
    """Write the result as a page (HTML), JSON and Markdown."""
    from opacc_ray.report import trackers
    from opacc_ray.report.facts import facts, warned
    from opacc_ray.report.run_report import make_report
    from opacc_ray.runs.run import Run

    run = Run.open(uri, track)
    written, found = make_report(run, out, level=level, conflict=conflict, score=score_for(run.spec, score))
    wanted = [name for name, asked in (("mlflow", mlflow), ("wandb", wandb)) if asked]
    if wanted:
        written = trackers.track(written, found, wanted)
    files = zip(("page", "document", "summary"), written.files, strict=True)
    lines = facts(("answer", written.answer), *files, *(("logged", place) for place in written.tracked))
    return Answer(written, [*lines, *warned(written.warnings)])
