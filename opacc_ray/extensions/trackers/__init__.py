"""The command that logs a report to MLflow."""

from typing import TYPE_CHECKING

from opacc_ray.cli import command as cli

if TYPE_CHECKING:
    from opacc_ray.runs.run import Run


@cli.command("mlflow")
@cli.on_run
@cli.out_option(help="Folder of the report (default: that of `opacc report RUN`).")
def mlflow(run: "Run", out: str | None) -> cli.Answer:
    """Log the report that `opacc report` wrote (reads MLFLOW_TRACKING_URI)."""
    from opacc_ray.extensions.trackers.mlflow_report import log_report
    from opacc_ray.report.facts import facts

    made = log_report(run, out)
    return cli.Answer(made, facts(("logged", f"MLflow run {made.id} at {made.tracking_uri}")))
