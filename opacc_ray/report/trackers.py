"""Log the numbers of a report to MLflow or Weights & Biases. A tracker that fails is a warning.

Logged are ``value``, ``low``, ``high``, ``effective_sample_size`` and ``n``, what identifies the run, and the files.
The trackers read their own environment variables: MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME; WANDB_PROJECT,
WANDB_ENTITY and WANDB_MODE.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opacc_ray.errors import shortened
from opacc_ray.lake.redaction import redacted
from opacc_ray.lake.store_uris import read_uri
from opacc_ray.report.report_documents import RunReport, WrittenReport
from opacc_ray.runs.identity import Population

PREFIX = "opacc/"
"""Prefix of the names of numbers."""


def track(written: WrittenReport, report: RunReport, names: Sequence[str]) -> WrittenReport:
    """Log a report to the named trackers; return the answer with their runs and warnings."""
    tracked, warnings = [], []
    for name in names:
        try:
            tracked.append(TRACKERS[name](written, report))
        except ImportError as error:
            warnings.append(f"{name} is not installed ({error}); pip install 'opacc_ray[{name}]'")
        except Exception as error:  # whatever a tracker raises, the report is made
            reason = redacted(shortened(str(error))) or "no reason given"
            warnings.append(f"{name} refused the report: {type(error).__name__}: {reason}")
    return written.model_copy(update={"tracked": tracked, "warnings": warnings})


def metrics_of(report: RunReport) -> dict[str, float]:
    """Return the numbers to log; none without labels."""
    stated = report.estimate
    if stated is None:
        return {}
    found: dict[str, float] = {"value": stated.value, "low": stated.low, "high": stated.high, "n": stated.n}
    if stated.srs.effective_size is not None:
        found["effective_sample_size"] = stated.srs.effective_size
    return {f"{PREFIX}{name}": float(number) for name, number in found.items()}


def settings_of(report: RunReport) -> dict[str, str]:
    """Return what identifies the run and the labels."""
    header, stated = report.header, report.estimate
    return {
        f"{PREFIX}run": report.run,
        f"{PREFIX}run_digest": header.digest or "",
        f"{PREFIX}weights_sha256": header.model.sha256 or "",
        f"{PREFIX}pool_digest": header.pool.digest,
        f"{PREFIX}population": Population.of(header.spec).digest,
        f"{PREFIX}measure": report.measure,
        f"{PREFIX}method": ", ".join(dict.fromkeys(item.method for item in report.rounds)),
        f"{PREFIX}labels_digest": stated.labels_digest if stated else "",
        f"{PREFIX}interval": stated.interval if stated else "",
        f"{PREFIX}notes": " ".join(stated.notes) if stated else "",
        f"{PREFIX}state": report.state,
    }


def _log_to_mlflow(written: WrittenReport, report: RunReport) -> str:
    """Log to the active run of MLflow, or to a new one."""
    import mlflow

    active = mlflow.active_run()
    with tempfile.TemporaryDirectory() as folder:
        paths = _copies(written, Path(folder))
        run = active or mlflow.start_run(run_name=report.name)
        try:
            mlflow.log_metrics(metrics_of(report))
            mlflow.set_tags(settings_of(report))
            for path in paths:
                mlflow.log_artifact(str(path), "opacc")
        finally:
            if active is None:
                mlflow.end_run()
    return f"mlflow run {run.info.run_id} at {redacted(mlflow.get_tracking_uri())}"


def _log_to_wandb(written: WrittenReport, report: RunReport) -> str:
    """Log to the active run of Weights & Biases, or to a new one."""
    import wandb

    active = wandb.run
    run: Any = active or wandb.init(
        project=os.environ.get("WANDB_PROJECT", "opacc"), name=report.name, config=settings_of(report)
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            artifact = wandb.Artifact(f"opacc-{run.id}", type="report")
            for path in _copies(written, Path(folder)):
                artifact.add_file(str(path))
            run.log(metrics_of(report))
            run.log_artifact(artifact)
            place = f"wandb run {run.id} of project {run.project}"
            if active is None:
                run.finish()
    except BaseException:
        if active is None:
            run.finish(exit_code=1)
        raise
    return place


def _copies(written: WrittenReport, folder: Path) -> list[Path]:
    """Copy the files of the report to a local folder."""
    paths = []
    for uri in written.files:
        path = folder / uri.rpartition("/")[2]
        path.write_bytes(read_uri(uri))
        paths.append(path)
    return paths


TRACKERS: dict[str, Callable[[WrittenReport, RunReport], str]] = {"mlflow": _log_to_mlflow, "wandb": _log_to_wandb}
