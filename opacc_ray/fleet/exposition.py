"""The state of an output as metrics for Prometheus, read from storage: no cluster has to live for them.

    opacc_NAME{audit="…",run="…"}     the newest run of each audit
    opacc_NAME{fleet="…",audit="…"}   the last attempts of fleets, and their alerts

The text is the exposition format 0.0.4 of Prometheus, which its node exporter reads from a file (textfile collector)
and Prometheus itself from :func:`serve`.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, NamedTuple

from pydantic import Field

from opacc_ray.audit.status import status
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import DataError, OpaccError, SpecError
from opacc_ray.fleet.alert_states import FLEETS, open_alerts
from opacc_ray.fleet.fleet_documents import AuditOutcome
from opacc_ray.fleet.outcomes import is_silent
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.runs.run_documents import RunHeader
from opacc_ray.runs.series import names_of_runs

log = logging.getLogger(__name__)

METRICS = {
    "opacc_run_created_timestamp_seconds": "time at which the newest run of the audit was created",
    "opacc_run_failed": "1 if the last `opacc run` of it failed or it cannot be read, else 0",
    "opacc_shards": "shards that the run extracts in all",
    "opacc_shards_done": "shards whose features are there",
    "opacc_labels": "labels of its main track",
    "opacc_labels_awaited": "labels that its rounds wait for",
    "opacc_estimate": "the last estimate of the accuracy, or of the score of a regression",
    "opacc_interval_low": "lower end of the interval of that estimate",
    "opacc_interval_high": "upper end of that interval",
    "opacc_interval_width": "width of that interval",
    "opacc_audit_failed": "1 if the last attempt of the fleet failed or was killed, else 0",
    "opacc_audit_seen_timestamp_seconds": "time of the last sign of life of that attempt",
    "opacc_alert": "1 for each alert and failure that is not over, by its state: firing or acknowledged",
    "opacc_read_timestamp_seconds": "time at which storage was read for these metrics",
}


class MetricSample(Part):
    """One value of a metric."""

    name: str = Field(description="name of the metric")
    labels: dict[str, str] = Field(description="label -> value")
    value: float = Field(description="its value")


class OutputMetrics(Document):
    """The state of an output as metrics."""

    format: Literal["opacc-metrics/1"] = format_field("opacc-metrics/1")
    output: str = Field(description="URI of the output")
    samples: list[MetricSample] = Field(description="all values")

    @property
    def text(self) -> str:
        """All values in the exposition format."""
        lines = list[str]()
        for name, meaning in METRICS.items():
            own = [item for item in self.samples if item.name == name]
            if own:
                lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", *map(_line, own)]
        return "\n".join(lines) + "\n"


def _line(sample: MetricSample) -> str:
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
    return f"{sample.name}{{{labels}}} {sample.value!r}" if labels else f"{sample.name} {sample.value!r}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def output_metrics(output: str, now: float | None = None) -> OutputMetrics:
    """Read the state of an output; raises DataError if it has neither a run nor a fleet."""
    store = open_store(output)
    samples = [*_of_runs(store), *_of_fleets(store)]
    if not samples:
        raise DataError(f"{store.uri} holds no runs; give the `output` of a spec, which is the folder of its runs")
    read = MetricSample(name="opacc_read_timestamp_seconds", labels={}, value=time.time() if now is None else now)
    return OutputMetrics(output=store.uri, samples=[*samples, read])


def _samples(labels: Mapping[str, str], values: Mapping[str, float | None]) -> Iterator[MetricSample]:
    for name, value in values.items():
        if value is not None:
            yield MetricSample(name=name, labels=dict(labels), value=float(value))


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


class _Found(NamedTuple):
    """A run, with what its header says."""

    name: str
    audit: str
    created: str  # empty if the header cannot be read


def _of_runs(store: Store) -> Iterator[MetricSample]:
    """Yield the state of the newest run of each audit."""
    newest = dict[str, _Found]()
    for name in names_of_runs(store):
        found = _found(store, name)
        if found.audit not in newest or newest[found.audit].created < found.created:
            newest[found.audit] = found
    for found in newest.values():
        yield from _of_run(store, found)


def _found(store: Store, name: str) -> _Found:
    try:
        key = f"{name}/{HEADER}"
        header = RunHeader.from_bytes(store.read(key), store.uri_of(key))
        return _Found(name, header.spec.name, header.created)
    except OpaccError:
        return _Found(name, name.rpartition("-")[0], "")


def _of_run(store: Store, found: _Found) -> Iterator[MetricSample]:
    labels, values = {"audit": found.audit, "run": found.name}, dict[str, float | None]({"opacc_run_failed": 1.0})
    try:
        state = status(Run.open(store.store(found.name).uri), with_warnings=False)
    except OpaccError as error:
        log.warning("%s", error)
        yield from _samples(labels, values)
        return
    values = {
        "opacc_run_created_timestamp_seconds": _seconds(found.created),
        "opacc_run_failed": float(state.failure is not None),
        "opacc_shards": state.shards.total,
        "opacc_shards_done": state.shards.done,
        "opacc_labels": sum(item.labelled for item in state.rounds),
        "opacc_labels_awaited": sum(item.missing for item in state.rounds),
    }
    if stated := state.estimate:
        ends = {"opacc_interval_low": stated.low, "opacc_interval_high": stated.high}
        values |= {"opacc_estimate": stated.value, **ends, "opacc_interval_width": stated.high - stated.low}
    yield from _samples(labels, values)


def _of_fleets(store: Store) -> Iterator[MetricSample]:
    """Yield the outcomes of audits of fleets, and what is wrong."""
    keys = [entry.key for entry in store.list(FLEETS)]
    for key in keys:
        _, fleet, *rest = key.split("/")
        if len(rest) == 2 and rest[0] == "outcomes":
            outcome = AuditOutcome.from_bytes(store.read(key), store.uri_of(key))
            yield from _samples(
                {"fleet": fleet, "audit": outcome.audit},
                {
                    "opacc_audit_failed": float(outcome.failure is not None or is_silent(outcome)),
                    "opacc_audit_seen_timestamp_seconds": _seconds(outcome.attempt.seen),
                },
            )
    for item in open_alerts(store.uri).alerts if keys else []:
        kind, _, of = item.alert.removeprefix(f"{item.audit} ").partition(" ")
        labels = {"fleet": item.fleet, "audit": item.audit, "kind": kind, "of": of, "state": item.state}
        yield from _samples({name: value for name, value in labels.items() if value}, {"opacc_alert": 1.0})


# -- exporter ------------------------------------------------------------------------------------------------


def serve(
    output: str,
    host: str,
    port: int,
    every: float,
    announce: Callable[[str], None],
    is_over: threading.Event | None = None,
) -> None:
    """Serve the metrics of an output at /metrics until an interrupt; storage is read ``every`` so many seconds.

    While it cannot be read, the last values are served with the time of their reading: alerts neither end nor begin
    for want of storage. Port 0: any free one. Raises SpecError if the address cannot be used, DataError if there is no
    such output.
    """
    texts, is_over = [output_metrics(output).text], is_over or threading.Event()

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            is_known = self.path == "/metrics"
            content = texts[-1].encode() if is_known else b""
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    def keep_reading() -> None:
        while not is_over.wait(every):
            try:
                texts[:] = [output_metrics(output).text]
            except OpaccError as error:
                log.warning("%s", error)
        server.shutdown()

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise SpecError(f"cannot listen at {host}:{port}: {error.strerror}; give another --host or --serve") from None
    reading = threading.Thread(target=keep_reading, name="opacc-metrics", daemon=True)
    reading.start()
    announce(f"http://{host}:{server.server_port}/metrics")
    try:
        server.serve_forever(0.1)
    finally:
        is_over.set()
        server.server_close()
