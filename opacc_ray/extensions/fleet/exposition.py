"""The state of an output as metrics for Prometheus, read from storage: no cluster has to live for them.

    opacc_NAME{audit="…",run="…"}     the newest run of each audit
    opacc_NAME{fleet="…",audit="…"}   the last attempts of fleets, and their alerts

The text is Prometheus's exposition format, which its node exporter reads from a file (textfile collector) and
Prometheus itself from :func:`serve`.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from opacc_ray.audit.status import status
from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, OpaccError, SpecError
from opacc_ray.extensions.fleet.fleet_summary import FLEETS, Problem, acknowledged, failure_of, last_summary
from opacc_ray.extensions.fleet.queue import AuditFailure, AuditOutcome
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.registry import require
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import names_of_runs

if TYPE_CHECKING:
    from prometheus_client import Metric

log = logging.getLogger(__name__)

METRICS = {
    "opacc_run_created_timestamp_seconds": "time at which the newest run of the audit was created",
    "opacc_run_failed": "1 if the last `opacc run` of it failed or it cannot be read, else 0",
    "opacc_shards": "shards that the run extracts in all",
    "opacc_shards_done": "shards whose features are there",
    "opacc_labels": "labels that count",
    "opacc_labels_awaited": "labels that its rounds wait for",
    "opacc_estimate": "the last estimate of the accuracy, or of the score of a regression",
    "opacc_interval_low": "lower end of the interval of that estimate",
    "opacc_interval_high": "upper end of that interval",
    "opacc_interval_width": "width of that interval",
    "opacc_audit_failed": "1 if the last attempt of the fleet failed, was killed or is unreadable, else 0",
    "opacc_audit_seen_timestamp_seconds": "time of the last sign of life of that attempt",
    "opacc_alert": "1 for each alert and failure that is not over, by its state: firing or acknowledged",
    "opacc_read_timestamp_seconds": "time at which storage was read for these metrics",
}


READ_EVERY = 60.0


class MetricSample(Part):
    """One value of a metric."""

    name: str  # name of the metric
    labels: dict[str, str]  # label -> value
    value: float  # its value


class OutputMetrics(Document):
    """The state of an output as metrics."""

    format: Literal["opacc-metrics/1"] = "opacc-metrics/1"
    output: str  # URI of the output
    samples: list[MetricSample]  # all values

    @property
    def text(self) -> str:
        """All values in the exposition format; raises SpecError without the package for it."""
        require("the exposition of metrics", "prometheus_client")
        from prometheus_client import generate_latest

        return generate_latest(self).decode()

    def collect(self) -> "Iterator[Metric]":
        """Yield the metrics as prometheus_client takes them from a registry."""
        from prometheus_client import Metric

        for name, meaning in METRICS.items():
            metric = Metric(name, meaning, "gauge")
            for item in self.samples:
                if item.name == name:
                    metric.add_sample(name, item.labels, item.value)
            if metric.samples:
                yield metric


def output_metrics(output: str) -> OutputMetrics:
    """Read the state of an output; raises DataError if it has neither a run nor a fleet."""
    store = open_store(output)
    samples = [*_of_runs(store), *_of_fleets(store)]
    if not samples:
        raise DataError(f"{store.uri} holds no runs; give the `output` of a spec, which is the folder of its runs")
    samples += _samples({}, {"opacc_read_timestamp_seconds": time.time()})
    return OutputMetrics(output=store.uri, samples=samples)


def _samples(labels: Mapping[str, str], values: Mapping[str, float]) -> Iterator[MetricSample]:
    for name, value in values.items():
        yield MetricSample(name=name, labels=dict(labels), value=float(value))


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _of_runs(store: Store) -> Iterator[MetricSample]:
    """Yield the state of the newest run of each audit."""
    newest = dict[str, tuple[str, str]]()  # time of creation and name of a run; none if its header cannot be read
    for name in names_of_runs(store):
        try:
            header = Run.open(store.store(name).uri).header
            audit, created = header.spec.name, header.created
        except OpaccError:
            audit, created = name.rpartition("-")[0], ""
        newest[audit] = max(newest.get(audit, ("", "")), (created, name))
    for audit, (_, name) in newest.items():
        yield from _samples({"audit": audit, "run": name}, _of_run(store.store(name).uri))


def _of_run(uri: str) -> dict[str, float]:
    try:
        run = Run.open(uri)
        state = status(run, with_warnings=False)
    except OpaccError as error:
        log.warning("%s", error)
        return {"opacc_run_failed": 1.0}
    values: dict[str, float] = {
        "opacc_run_created_timestamp_seconds": _seconds(run.header.created),
        "opacc_run_failed": state.failure is not None,
        "opacc_shards": state.shards.total,
        "opacc_shards_done": state.shards.done,
        "opacc_labels": sum(counts.labelled for counts in state.rounds),
        "opacc_labels_awaited": sum(counts.missing for counts in state.rounds),
    }
    if stated := state.estimate:
        ends = {"opacc_interval_low": stated.low, "opacc_interval_high": stated.high}
        values |= {"opacc_estimate": stated.value, **ends, "opacc_interval_width": stated.high - stated.low}
    return values


def _of_fleets(store: Store) -> Iterator[MetricSample]:
    """Yield the outcomes of audits of fleets, and what is wrong."""
    keys = [entry.key for entry in store.list(FLEETS)]
    for key in keys:
        _, fleet, *rest = key.split("/")
        if len(rest) == 2 and rest[0] == "outcomes":
            labels = {"fleet": fleet, "audit": rest[1].removesuffix(".json")}
            yield from _samples(labels, _of_outcome(store.read(key), store.uri_of(key)))
    for fleet in dict.fromkeys(key.split("/")[1] for key in keys):
        folder, problems = store.store(f"{FLEETS}{fleet}"), list[Problem]()
        try:
            summary = last_summary(folder)
            problems = summary.problems if summary else []
            problems = acknowledged(folder, problems)
        except DataError as error:  # its alerts, or who knows of them, cannot be read: an alert itself
            log.warning("%s", error)
            failure = AuditFailure(error=str(error), exit_code=error.exit_code, at="")
            problems = [*problems, failure_of(fleet, fleet, failure)]
        for problem in problems:
            kind, _, of = problem.alert.removeprefix(f"{problem.audit} ").partition(" ")
            labels = {"fleet": fleet, "audit": problem.audit, "kind": kind} | ({"of": of} if of else {})
            labels["state"] = "acknowledged" if problem.acknowledged else "firing"
            yield from _samples(labels, {"opacc_alert": 1.0})


def _of_outcome(data: bytes, uri: str) -> dict[str, float]:
    try:
        outcome = AuditOutcome.from_bytes(data, uri)
    except DataError as error:
        log.warning("%s", error)
        return {"opacc_audit_failed": 1.0}
    return {
        "opacc_audit_failed": outcome.failure is not None or outcome.is_silent,
        "opacc_audit_seen_timestamp_seconds": _seconds(outcome.attempt.seen),
    }


class _Latest:
    """The metrics that were read last, for a registry of prometheus_client."""

    def __init__(self, metrics: OutputMetrics) -> None:
        self.metrics = metrics

    def collect(self) -> "Iterator[Metric]":
        return self.metrics.collect()


def serve(
    output: str,
    host: str,
    port: int,
    announce: Callable[[str], None],
    is_over: threading.Event | None = None,
) -> None:
    """Serve the metrics of an output at /metrics until an interrupt; storage is read every READ_EVERY seconds.

    While it cannot be read, the last values are served with the time of their reading: alerts neither end nor begin
    when storage fails. Those of a fleet whose summary is damaged give way to one of the fleet itself. Port 0: any free
    one. Raises SpecError if the address cannot be used, DataError if there is no such output.
    """
    require("the exposition of metrics", "prometheus_client")
    from prometheus_client import CollectorRegistry, start_http_server

    latest, registry, is_over = _Latest(output_metrics(output)), CollectorRegistry(), is_over or threading.Event()
    registry.register(latest)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise SpecError(f"cannot listen at {host}:{port}: {error.strerror}; give another --host or --serve") from None
    announce(f"http://{host}:{server.server_port}/metrics")
    try:
        while not is_over.wait(READ_EVERY):
            try:
                latest.metrics = output_metrics(output)
            except OpaccError as error:
                log.warning("%s", error)
    finally:
        server.shutdown()
        server.server_close()
