"""Log the numbers of a report to MLflow or Weights & Biases. A tracker that fails is a warning.

Logged are ``value``, ``low``, ``high``, ``effective_sample_size`` and ``n``, what identifies the run, and the files.
The trackers read their own environment variables: MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME; WANDB_PROJECT,
WANDB_ENTITY and WANDB_MODE.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    found = {
        "run": report.run,
        "run_digest": header.digest or "",
        "weights_sha256": header.model.sha256 or "",
        "pool_digest": header.pool.digest,
        "population": Population.of(header.spec).digest,
        "measure": report.measure,
        "method": ", ".join(dict.fromkeys(item.method for item in report.rounds)),
        "labels_digest": stated.labels_digest if stated else "",
        "interval": stated.interval if stated else "",
        "notes": " ".join(stated.notes) if stated else "",
        "state": report.state,
    }
    return {f"{PREFIX}{name}": text for name, text in found.items()}


def _log_to_mlflow(written: WrittenReport, report: RunReport) -> str:
    """Log to the active run of MLflow, or to a new one."""
    import mlflow

    active = mlflow.active_run()
    with _copies(written) as paths:
        run = active or mlflow.start_run(run_name=report.name)
        try:
            mlflow.log_metrics(metrics_of(report))
            mlflow.set_tags(settings_of(report))
            for path in paths:
                mlflow.log_artifact(path, "opacc")
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
        with _copies(written) as paths:
            artifact = wandb.Artifact(f"opacc-{run.id}", type="report")
            for path in paths:
                artifact.add_file(path)
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


@contextmanager
def _copies(written: WrittenReport) -> Iterator[list[str]]:
    """Yield the paths of local copies of the report's files."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {f"{folder}/{uri.rpartition('/')[2]}": uri for uri in written.files}
        for path, uri in paths.items():
            Path(path).write_bytes(read_uri(uri))
        yield list(paths)


TRACKERS: dict[str, Callable[[WrittenReport, RunReport], str]] = {"mlflow": _log_to_mlflow, "wandb": _log_to_wandb}
