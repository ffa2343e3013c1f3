"""Commands that state results: estimate, compare, export."""

import click

from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import HALF_WIDTH, LEVEL, SVG_FILE, run_argument, score_for, statement_options, track_option


@command("estimate")
@run_argument
@track_option
@click.option("--costs", metavar="COSTS.yaml", help="What errors cost, by class: state the mean cost, too.")
@click.option("--assist", is_flag=True, help="State it with the help of the pool's confidence, too.")
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
    """State the accuracy (of a regression: its score) with its interval, and what it rests on."""
    from opacc_ray.audit import results
    from opacc_ray.cli import texts
    from opacc_ray.labels.costs import load_costs
    from opacc_ray.runs.run import Run

    run = Run.open(uri, track)
    worth = score_for(run.spec, score)
    prices = load_costs(costs, run.spec.model, run.num_classes) if costs else None
    stated = results.estimate(
        run, level=level, partial=partial, conflict=conflict, costs=prices, assist=assist, score=worth
    )
    return Answer(stated, texts.estimate(stated))


@command("compare")
@run_argument
@click.argument("others", metavar="OTHER...", nargs=-1, required=True)
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
    """Compare the model of RUN with those of other runs, by the labels of RUN.

    OTHER is a run of another model on the same pool; it needs no labels. All differences hold together, and each model
    is stated with the probability that it is the best.
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
@click.option("--case", "file", metavar="FILE.npz", help="Write the labelled pool as a case for a study.")
@click.option("--partial", is_flag=True, help="Case: write the labelled part of a pool that is not fully labelled.")
@click.option("--to", "lake", metavar="URI", help="Write features, selections, labels and estimates as Parquet tables.")
@click.option("--no-features", is_flag=True, help="Tables: leave out the features, which are as large as in the run.")
def export(uri: str, file: str | None, partial: bool, lake: str | None, no_features: bool) -> Answer:
    """Write a run as tables of a lake, or its labelled pool, labels of all tracks together, for `opacc study`."""
    from opacc_ray.cli import texts
    from opacc_ray.runs.run import Run

    if (file is None) == (lake is None):
        raise click.UsageError("give --case FILE.npz or --to URI")
    run = Run.open(uri)
    if file is not None:
        from opacc_ray.audit.export import export_case

        case = export_case(run, file, partial=partial)
        return Answer(case, texts.exported(case))
    from opacc_ray.audit.tables import export_tables

    tables = export_tables(run, str(lake), features=not no_features)
    return Answer(tables, texts.tables(tables))


@command("budget")
@run_argument
@track_option
@click.option("--until", type=HALF_WIDTH, metavar="±W", required=True, help="The interval to reach.")
@click.option("--method", metavar="METHOD", help="Say what this method takes, too, in one round from the beginning.")
@click.option(
    "--picture", type=SVG_FILE, metavar="FILE.svg", help="Draw half the width of the interval against labels."
)
@click.option("--level", type=LEVEL, default=0.95, show_default=True, help="Confidence level.")
def budget(uri: str, track: str | None, until: float, method: str | None, picture: str | None, level: float) -> Answer:
    """Say how many labels an interval of ±W takes, before any label and after every round. The run stays as it is."""
    from opacc_ray.audit.label_budget import label_budget
    from opacc_ray.cli import texts
    from opacc_ray.runs.run import Run

    found = label_budget(Run.open(uri, track), until, level=level, method=method)
    if picture is not None:
        from opacc_ray.report.width_figure import with_picture

        found = with_picture(found, picture)
    return Answer(found, texts.label_budget(found))


COMMANDS = [estimate, compare, budget, export]
