"""Commands that state results: estimate, report, compare, budget, export."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from opacc_ray.cli import command as cli
from opacc_ray.errors import SpecError

if TYPE_CHECKING:
    from opacc_ray.labels.label_log import Score
    from opacc_ray.runs.run import Run
    from opacc_ray.spec import Spec

TELLING = 0.1
"""Half of the width that is proposed for a metric with too few labels to tell."""


class _Time(click.ParamType):  # type: ignore[type-arg]
    """A time in ISO 8601, UTC unless it says otherwise; a day means its end."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> datetime:
        try:
            found = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value}: give a day or a time, such as 2026-11-20 or 2026-11-20T09:30", param, context)
        if len(str(value)) <= len("2026-11-20"):
            found += timedelta(days=1) - timedelta(microseconds=1)
        return found if found.tzinfo else found.replace(tzinfo=UTC)


conflict_option = click.option(
    "--conflict", type=cli.RULE, help="Rule for labels that differ, this time only (default: that of the run)."
)
score_option = click.option(
    "--score",
    metavar="NAME=VALUE",
    help="Score, this time only: within=0.5, error_scale=2, or exact=true (multilabel).",
)
statement_options = cli.with_options(
    score_option,
    conflict_option,
    click.option("--partial", is_flag=True, help="Treat missing labels as missing at random."),
    cli.level_option,
)
"""Options of results: score, conflict, partial and level."""


def _score_for(spec: "Spec", given: str | None) -> "Score | None":
    """Return the score that ``--score NAME=VALUE`` gives; None if it is not given."""
    from opacc_ray.labels.label_log import Score
    from opacc_ray.spec import ScoreSpec, validated

    if given is None:
        return None
    if spec.model.task not in ("regression", "multilabel"):
        raise SpecError(f"--score {given}: only a regression and multilabel have a score; remove --score")
    stated = validated(ScoreSpec, cli.parse_assignments([given], "--score"), "--score")
    return Score(stated.error_scale or spec.model.error_scale, stated.within, bool(stated.exact))


@cli.command("estimate")
@cli.on_run
@cli.track_option
@click.option("--costs", metavar="COSTS.yaml", help="Cost of errors by class; also report the mean cost.")
@click.option(
    "--assist",
    is_flag=True,
    help="Also report a prediction-powered estimate that uses the confidences of the whole pool.",
)
@click.option("--metric", "metrics", multiple=True, metavar="METRIC", help="Report macro_f1, recall@CLASS, …")
@click.option("--by", multiple=True, metavar="SLICES", help="By a slice of the spec, prediction or truth.")
@click.option(
    "--as-of", type=_Time(), metavar="TIME", help="What was known at a time, such as 2026-11-20; nothing is written."
)
@statement_options
def estimate(
    run: "Run",
    as_of: datetime | None,
    costs: str | None,
    assist: bool,
    metrics: tuple[str, ...],
    by: tuple[str, ...],
    score: str | None,
    **options: Any,
) -> cli.Answer:
    """Report the accuracy with a confidence interval, and the metrics of the spec."""
    from opacc_ray.audit import accuracy
    from opacc_ray.cli import texts
    from opacc_ray.labels.cost_table import load_costs
    from opacc_ray.report.stated_numbers import part_tells

    worth = _score_for(run.spec, score)
    prices = load_costs(costs, run.spec.model, run.num_classes) if costs else None
    options |= {"metrics": metrics or None, "by": by or None}
    if as_of is not None:
        from opacc_ray.audit.run_log import run_as_of

        run, options["keep"] = run_as_of(run, as_of), False
    stated = accuracy.estimate(run, costs=prices, assist=assist, score=worth, **options)
    step = ["report"]
    vague = [name for name in metrics if name in stated.metrics and not part_tells(stated.metrics[name])]
    if stated.missing or vague or run.newest_goal(reached=False) is not None:  # the usual case loads less
        from opacc_ray.audit.next_step import step_of, until_options

        step = step_of(run, stated.rounds, stated=True)
        if vague and step == ["report"]:
            step = ["next", *until_options(TELLING, vague[0])]
    return cli.Answer(stated, texts.estimate(stated, step))


@cli.command("compare")
@cli.on_run
@click.argument("others", metavar="OTHER...", nargs=-1, required=True, type=cli.RUN)
@cli.track_option
@click.option("--metric", default="accuracy", metavar="METRIC", help="Compare macro_f1, recall@CLASS, … instead.")
@statement_options
def compare(run: "Run", others: tuple[str, ...], score: str | None, **options: Any) -> cli.Answer:
    """Compare the model of RUN with other models, by the labels of RUN.

    OTHER is a run of another model on the same pool; it needs no labels. All differences hold together, and each model
    has a probability that it is the best.
    """
    from opacc_ray.audit import comparison
    from opacc_ray.cli import comparison_texts
    from opacc_ray.runs.run import Run

    stated = comparison.compare(run, *map(Run.open, others), score=_score_for(run.spec, score), **options)
    return cli.Answer(stated, comparison_texts.comparison(stated))


@cli.command("export")
@cli.on_run
@click.option(
    "--track", metavar="NAME", help="With --training: track whose labels are written (default: the main one)."
)
@click.option("--case", "file", metavar="FILE.npz", help="Write the labelled pool as a case for `opacc study`.")
@click.option("--partial", is_flag=True, help="With --case: write the labelled part of the pool.")
@click.option(
    "--training",
    metavar="FILE.csv",
    help="Write the labelled mispredictions as training data, with the examples of the pool that each stands for.",
)
@click.option("--all", "everything", is_flag=True, help="With --training: write all labelled examples.")
@click.option("--to", "lake", metavar="URI", help="Write features, selections, labels and estimates as Parquet tables.")
@click.option("--no-features", is_flag=True, help="With --to: leave out the features.")
@click.option("--delta", is_flag=True, help="With --to: append the estimates to a Delta table.")
@click.option(
    "--iceberg",
    metavar="catalog://CATALOG/TABLE",
    help="With --to: append the estimates to an Iceberg table of a catalog in pyiceberg's configuration.",
)
def export(
    run: "Run",
    file: str | None,
    partial: bool,
    training: str | None,
    everything: bool,
    lake: str | None,
    no_features: bool,
    delta: bool,
    iceberg: str | None,
) -> cli.Answer:
    """Write a run as Parquet tables, its failures as training data, or its labelled pool for `opacc study`."""
    from opacc_ray.audit.exported_case import export_case
    from opacc_ray.audit.exported_tables import export_tables
    from opacc_ray.cli import run_answers

    if sum(option is not None for option in (file, training, lake)) != 1:
        raise click.UsageError("give one of --case FILE.npz, --training FILE.csv and --to URI")
    if training is not None:
        from opacc_ray.audit.exported_training import export_training

        written = export_training(run, training, failures=not everything)
        return cli.Answer(written, run_answers.training(written))
    if file is not None:
        case = export_case(run, file, partial=partial)
        return cli.Answer(case, run_answers.exported(case))
    tables = export_tables(run, str(lake), features=not no_features, delta=delta, iceberg=iceberg)
    return cli.Answer(tables, run_answers.tables(tables))


@cli.command("budget")
@click.argument("uri", metavar="RUN|FILE.csv", type=cli.RUN)
@cli.track_option
@cli.until_option(required=True, help="Half-width to reach, such as 0.03 or 'recall@defect ±0.03'.")
@cli.goal_parts_option
@click.option("--method", metavar="METHOD", help="Also report the labels that this method needs in one round.")
@cli.picture_option("Draw half the width of the interval against labels.")
@cli.level_option
@cli.columns_option
@cli.judges_option
@click.option("--label-price", type=click.FloatRange(min=0), metavar="X", help="What one label costs.")
@click.option("--judge-price", type=click.FloatRange(min=0), metavar="X", help="What one judge call costs.")
def budget(
    uri: str,
    track: str | None,
    until: tuple[str, float],
    by: str | None,
    method: str | None,
    picture: str | None,
    level: float,
    columns: str | None,
    judges: str | None,
    label_price: float | None,
    judge_price: float | None,
) -> cli.Answer:
    """Predict how many labels an interval of ±W needs."""
    from opacc_ray.audit.goals import read_target
    from opacc_ray.audit.judge_budget import Prices
    from opacc_ray.audit.label_budget import label_budget, label_budget_of_table
    from opacc_ray.cli import texts
    from opacc_ray.runs.run import Run
    from opacc_ray.spec.predictions_table import is_table

    target, half_width = read_target(until[0], by), until[1]
    if judge_price is not None and label_price is None:
        raise click.UsageError("--judge-price is compared with the price of labels; give --label-price as well")
    prices, read_by = Prices(label_price, judge_price or 0.0), {"columns": columns, "judges": judges}
    if is_table(uri):
        if method or track:
            raise click.UsageError(f"{uri} is a file, and --method and --track need a run; remove them")
        found = label_budget_of_table(uri, half_width, target, level=level, prices=prices, **read_by)
    else:
        if judges is not None or columns is not None:
            option = "--judges" if columns is None else "--columns"
            raise click.UsageError(f"{option} is for a CSV file; a run has those of pool.columns; remove it")
        found = label_budget(Run.open(uri, track), half_width, target, level=level, method=method, prices=prices)
    if picture is not None:
        from opacc_ray.report.figures import with_picture

        found = with_picture(found, picture)
    return cli.Answer(found, [*texts.label_budget(found), *texts.step_to_goal(found, is_table(uri), **read_by)])


@cli.command("report")
@cli.on_run
@cli.track_option
@cli.out_option(help="Folder of the report (default: next to the estimate).")
@cli.level_option
@click.option("--goal", metavar='"[METRIC ]SHARE"', help="Least accuracy, or metric: 0.9 or 'recall@defect 0.9'.")
@click.option("--mlflow", is_flag=True, help="Also log to MLflow (reads MLFLOW_TRACKING_URI).")
@click.option("--wandb", is_flag=True, help="Also log to Weights & Biases (reads WANDB_PROJECT).")
@conflict_option
@score_option
def report(run: "Run", score: str | None, goal: str | None, mlflow: bool, wandb: bool, **options: Any) -> cli.Answer:
    """Write the result as a page (HTML), JSON and Markdown."""
    from opacc_ray.cli.guided_answers import concluded, step_after
    from opacc_ray.report import trackers
    from opacc_ray.report.facts import facts, warned
    from opacc_ray.report.run_report import make_report
    from opacc_ray.spec.steps import Least

    least = None if goal is None else Least.parse(goal)
    options["goal"] = least and {least.metric: least.share}
    written, found = make_report(run, score=_score_for(run.spec, score), **options)
    wanted = [name for name, asked in (("mlflow", mlflow), ("wandb", wandb)) if asked]
    if wanted:
        written = trackers.track(written, found, wanted)
    files = zip(("page", "document", "summary"), written.files, strict=True)
    lines = facts(*files, *(("logged", place) for place in written.tracked))
    return cli.Answer(written, [*concluded(found), *lines, *warned(written.warnings), *step_after(found)])
