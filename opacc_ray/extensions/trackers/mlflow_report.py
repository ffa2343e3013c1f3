"""Log the numbers of a report to MLflow.

Logged are ``value``, ``low``, ``high``, ``effective_sample_size`` and ``n``, metrics, classes and slices with enough
labels, what identifies the audit and its verdict, and the files. Numbers have the number of labels as their step. A
report of the same run goes to the same run of MLflow again.

MLflow reads its own environment variables: MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME.
"""

import hashlib
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from opacc_ray.documents import Document
from opacc_ray.errors import DataError, StorageError, redacted, shortened
from opacc_ray.estimation.intervals import clipped
from opacc_ray.registry import require
from opacc_ray.report.facts import lowest_first, part_tells
from opacc_ray.report.report_documents import RunReport
from opacc_ray.report.run_report import DOCUMENT, PAGE, SUMMARY
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import Population

PREFIX = "opacc/"
"""Prefix of the names of numbers."""

MOST_PARTS, MOST_CHARACTERS = 100, 200
"""Most classes or slices of a table, the lowest first, and most characters of a name or a parameter."""


class LoggedReport(Document):
    """A report that was logged to MLflow."""

    format: Literal["opacc-mlflow/1"] = "opacc-mlflow/1"
    run: str  # URI of the run
    id: str  # id of the run of MLflow
    tracking_uri: str  # where MLflow keeps it


def log_report(run: Run, out: str | None = None) -> LoggedReport:
    """Log the report that was written of a run, or into the folder ``out``.

    Raises DataError without a report, SpecError without MLflow, StorageError if MLflow refuses the report.
    """
    folder = run.results(out)
    files = {name: folder.read_if_there(name) for name in (PAGE, DOCUMENT, SUMMARY)}
    kept = {name: data for name, data in files.items() if data is not None}
    if len(kept) < len(files):
        raise DataError(f"there is no report in {folder.uri}; run `opacc report` first")
    report = RunReport.from_bytes(kept[DOCUMENT], folder.uri_of(DOCUMENT))
    require("a tracker", "mlflow")
    import mlflow

    uri = redacted(mlflow.get_tracking_uri())
    try:
        return LoggedReport(run=run.uri, id=_logged(report, kept), tracking_uri=uri)
    except Exception as error:  # whatever it raises, of its server or its version
        reason = redacted(shortened(str(error))) or "no reason given"
        raise StorageError(f"MLflow at {uri} refused the report ({type(error).__name__}): {reason}") from error


def metrics_of(report: RunReport) -> dict[str, float]:
    """Return the numbers to log, by names that MLflow allows: of metrics and slices those with labels enough."""
    estimate = report.estimate
    if estimate is None:
        return {}
    found: dict[str, float] = {"value": clipped(estimate), "low": estimate.low, "high": estimate.high, "n": estimate.n}
    if estimate.srs.effective_size is not None:
        found["effective_sample_size"] = estimate.srs.effective_size
    for name, own in estimate.metrics.items():
        if part_tells(own, name):  # MLflow would show an undefined one as a number without its interval
            found[name.replace("@", "/")] = clipped(own)
    for table in [*estimate.by_slice, *report.tables]:
        told = [(name, part) for name, part in lowest_first(table) if part.tells]
        for name, part in told[:MOST_PARTS]:
            found.setdefault(f"{table.metric.replace('@', '/')}/{table.by}/{name}", clipped(part))
    return {f"{PREFIX}{_allowed(name)}": float(number) for name, number in found.items()}


def _allowed(name: str) -> str:
    """Return a name of letters, digits and the signs that MLflow allows, without empty parts of its path."""
    parts = re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII).split("/")
    return "/".join(part.strip(". ") or "_" for part in parts)[:MOST_CHARACTERS]


def params_of(report: RunReport) -> dict[str, str]:
    """Return what the audit is about; it stays the same from one report of a run to the next."""
    spec = report.header.spec
    found = {
        "name": spec.name,
        "pool": spec.pool.uri,
        "pool_format": spec.pool.format,
        "pool_size": str(report.pool_size),
        "model": spec.model.factory or spec.model.program or spec.model.function or "",
        "weights": spec.model.weights or "",
        "task": spec.model.task,
        "method": spec.sample.method,
        "seed": str(spec.seed),
    }
    return {f"{PREFIX}{name}": redacted(text)[:MOST_CHARACTERS] for name, text in found.items() if text}


def key_of(report: RunReport) -> str:
    """Return a digest of the run, by which its run of MLflow is found again."""
    return hashlib.sha256(report.run.encode()).hexdigest()[:32]


def settings_of(report: RunReport) -> dict[str, str]:
    """Return what identifies the run and the labels, and what the report decides."""
    header, estimate = report.header, report.estimate
    found = {
        "key": key_of(report),
        "run": report.run,
        "run_digest": header.digest or "",
        "weights_sha256": header.model.sha256 or "",
        "pool_digest": header.pool.digest,
        "population": Population.of(header.spec).digest,
        "measure": report.measure,
        "method": ", ".join(dict.fromkeys(item.method for item in report.rounds)),
        "labels_digest": estimate.labels_digest if estimate else "",
        "interval": estimate.method if estimate else "",
        "notes": " ".join(estimate.notes) if estimate else "",
        "state": report.state,
        "verdict": report.verdict.heading if report.verdict else "",
    }
    return {f"{PREFIX}{name}": text for name, text in found.items()}


def _logged(report: RunReport, files: Mapping[str, bytes]) -> str:
    """Log to the active run of MLflow, to the run that has this audit, or to a new one; return its id."""
    import mlflow

    active = mlflow.active_run()
    same = f"tags.`{PREFIX}key` = '{key_of(report)}'"
    options: dict[str, Any] = {"search_all_experiments": True, "output_format": "list", "max_results": 1}
    before: Any = [] if active else mlflow.search_runs(filter_string=same, **options)
    run = active or mlflow.start_run(run_id=before[0].info.run_id if before else None, run_name=report.name)
    try:
        mlflow.log_params(params_of(report))
        mlflow.log_metrics(metrics_of(report), step=report.estimate.n if report.estimate else 0)
        mlflow.set_tags(settings_of(report))
        with tempfile.TemporaryDirectory() as folder:
            for name, data in files.items():
                Path(folder, name).write_bytes(data)
            mlflow.log_artifacts(folder, "opacc")
    finally:
        if active is None:
            mlflow.end_run()
    return str(run.info.run_id)
