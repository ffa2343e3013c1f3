"""The queue of a fleet: a number of audits at a time, all on one cluster.

Each audit does what `opacc run` does with its spec. A failed audit is reported and stops no other one. An interrupt
ends all of them; finished shards and rounds are kept, and the next run resumes.

Audits of one model on one pool share their features: the first one extracts, the others wait and reuse them. An audit
with ``actors: auto`` uses the whole cluster, so it extracts alone. Audits with a fixed number run in parallel.

The outcome of each audit is in storage, where it survives the command and a killed process. While an audit runs, its
outcome is written again each minute. One that was not written for ten minutes belongs to a process that was killed,
which is a failure. The last failure of an audit is kept until an attempt succeeds.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field, field_validator

from opacc_ray.audit import verbs
from opacc_ray.audit.extraction_stages import Stage
from opacc_ray.audit.progress import Progress
from opacc_ray.documents import Document, Part
from opacc_ray.errors import ClusterError, DataError, OpaccError, as_ours
from opacc_ray.extensions.fleet.fleet_spec import Fleet, FleetAudit
from opacc_ray.extensions.fleet.watched_audit import labels_for_next
from opacc_ray.lake.store import Store
from opacc_ray.runs.run import Run
from opacc_ray.samplers.base import Report

log = logging.getLogger(__name__)

WAKE = 0.5
"""Seconds between two checks whether the work is to end."""

BEAT = 60.0
"""Seconds after which the outcome of an audit that runs is written again."""

SILENT = 600.0
"""Seconds after which one that was not written belongs to a process that was killed."""


class AuditFailure(Part):
    """An audit that failed."""

    error: str  # error in one sentence
    exit_code: int = Field(ge=1)  # exit code of `opacc run` for this error
    at: str  # time of the failure: ISO 8601, UTC


AttemptState = Literal["running", "succeeded", "failed", "interrupted"]


class Attempt(Part):
    """Last attempt of a fleet to run an audit."""

    state: AttemptState  # state of the attempt
    began: str  # start time: ISO 8601, UTC
    seen: str  # end time; for a running attempt, time of its last sign of life

    @field_validator("began", "seen")
    @classmethod
    def _time(cls, value: str) -> str:
        if datetime.fromisoformat(value).tzinfo is None:
            raise ValueError("the time has no zone")
        return value


class AuditOutcome(Document):
    """Last outcome of an audit of a fleet: ``fleets/NAME/outcomes/AUDIT.json``."""

    remedy: ClassVar[str] = "delete it, and run `opacc fleet` again"

    format: Literal["opacc-outcome/1"] = "opacc-outcome/1"
    audit: str  # name of the audit
    attempt: Attempt  # last attempt
    run: str | None  # URI of the run; null: the last attempt has not succeeded
    # URI of a run -> head of its log at the last success, so that a rollback is noticed
    heads: dict[str, str] = Field(default={})
    failure: AuditFailure | None  # last failure; null once an attempt has succeeded

    def now(self, state: AttemptState) -> "AuditOutcome":
        """Return the outcome with a state of its attempt at this time."""
        return self.model_copy(update={"attempt": Attempt(state=state, began=self.attempt.began, seen=_now())})

    @property
    def is_silent(self) -> bool:
        """Whether an attempt that should run gives no sign of life."""
        silence = datetime.now(UTC) - datetime.fromisoformat(self.attempt.seen)
        return self.attempt.state == "running" and silence.total_seconds() > SILENT


class Ended(NamedTuple):
    """The end of an audit: its run or a failure, neither if it was not run."""

    audit: FleetAudit
    run: Run | None = None
    failure: AuditFailure | None = None
    details: str = ""  # traceback of the user's own code, for a log file
    attempt: Attempt | None = None


def work_through(fleet: Fleet, progress: Report, *, trial: bool = True) -> list[Ended]:
    """Run every audit of a fleet, a number at a time; return their ends in order, and keep their outcomes.

    ``progress(done, total)`` counts audits. ``trial`` is that of :func:`opacc_ray.audit.verbs.start`.

    Raises
    ------
    KeyboardInterrupt
        After all audits have ended: nothing works on in the background.
    """
    from opacc_ray.cluster.session import TICK, Shared, raise_if_ending

    turns, num = Turns(raise_if_ending), len(fleet.audits)

    def work(audit: FleetAudit) -> Ended:
        _AUDIT.set(audit.name)
        with cluster.used():
            return outcomes.keep(audit, lambda: _run(fleet, audit, turns, trial, raise_if_ending))

    outcomes, threads = Outcomes(fleet.folder), ThreadPoolExecutor(fleet.spec.concurrency, "opacc-fleet")
    with Shared() as cluster, _names_in_log(), threads:
        try:
            begun = [threads.submit(work, audit) for audit in fleet.audits]
            pending = set(begun)
            progress(0, num)
            while pending:
                cluster.start_if_wanted()
                outcomes.beat()
                done, pending = wait(pending, TICK, FIRST_COMPLETED)
                if done:
                    progress(num - len(pending), num)
        except BaseException:
            cluster.end()
            threads.shutdown(wait=True, cancel_futures=True)
            raise
        return [future.result() for future in begun]


def _run(fleet: Fleet, audit: FleetAudit, turns: "Turns", trial: bool, check: Callable[[], None]) -> Run:
    check()
    extracting = Progress("extract", "shards", every=30.0, bar=False)
    watch, labels = fleet.spec.watch, None
    if watch is not None and watch.labels is not None:
        labels = partial(labels_for_next, audit.name, fleet.spec.output, watch)
    return verbs.first_round(
        audit.spec, extracting, lambda done, total: check(), trial=trial, slot=turns.turn, labels_of_new=labels
    )


def ended(audit: FleetAudit, work: Callable[[], Run], heads: Mapping[str, str] | None = None) -> Ended:
    """Run the work of an audit; turn an error into a failure of one sentence.

    A run whose log lost its entry of ``heads`` is a failure as well.
    """
    run = None
    try:
        run = work()
        run.refuse_rollback((heads or {}).get(run.uri))
    except (Exception, SystemExit) as error:
        return failed(audit, error)._replace(run=run)
    return Ended(audit, run)


def failed(audit: FleetAudit, error: BaseException) -> Ended:
    """Return the end of an audit by an error."""
    ours = as_ours(error)  # the user's code may exit
    log.error("failed: %s", ours)
    failure = AuditFailure(error=str(ours), exit_code=ours.exit_code, at=_now())
    return Ended(audit, failure=failure, details=ours.details)


class Turns:
    """Lets audits extract at the same time if they write no folder in common, and none needs the whole cluster.

    ``check`` is called while one waits, and raises if the work is to end.
    """

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._changed = threading.Condition()
        self._held: list[tuple[set[str], bool]] = []  # folders, and whether the whole cluster is used

    @contextmanager
    def turn(self, stages: Sequence[Stage]) -> Iterator[None]:
        """Wait until an audit with these stages may extract; hold its resources during the block."""
        folders = {stage.job.target.uri for stage in stages}
        uses_actors = any(not stage.job.source.holds_features for stage in stages)
        needs_all = uses_actors and stages[-1].job.spec.extract.actors == "auto"
        claim = folders, needs_all
        with self._changed:
            while any(needs_all or has_all or folders & held for held, has_all in self._held):
                self._check()
                self._changed.wait(WAKE)
            self._held.append(claim)
        try:
            yield
        finally:
            with self._changed:
                self._held.remove(claim)
                self._changed.notify_all()


_AUDIT: ContextVar[str | None] = ContextVar("audit", default=None)
"""The audit that a thread works on."""


@contextmanager
def _names_in_log() -> Iterator[None]:
    """Prefix each log line of an audit with the audit's name."""
    handlers = list(logging.getLogger().handlers)

    def name(record: logging.LogRecord) -> bool:
        audit = _AUDIT.get()
        fields = getattr(record, "fields", {})
        if audit is not None and "audit" not in fields:  # another handler may have had it before
            record.fields = fields | {"audit": audit}
            record.msg, record.args = f"{audit}: {record.getMessage()}", None
        return True

    for handler in handlers:
        handler.addFilter(name)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(name)


class Outcomes:
    """The outcomes of audits in the folder of a fleet."""

    def __init__(self, folder: Store) -> None:
        self._store = folder.store("outcomes")
        self._running: dict[str, AuditOutcome] = {}
        self._lock, self._last_beat = threading.Lock(), time.monotonic()

    def keep(self, audit: FleetAudit, work: Callable[[], Run]) -> Ended:
        """Run the work of an audit and write its outcome, even after an interrupt.

        An earlier outcome that cannot be read is a failure: without its heads, a rollback would not be noticed.
        """
        try:
            last = self._read(audit.name)
        except OpaccError as error:
            return failed(audit, error)
        now = _now()
        outcome = AuditOutcome(
            audit=audit.name,
            attempt=Attempt(state="running", began=now, seen=now),
            run=None,
            heads=last.heads if last else {},
            failure=last.failure if last else None,
        )
        with self._lock:
            self._running[audit.name] = outcome
            self._write(outcome)
        state: AttemptState = "interrupted"
        try:
            end = ended(audit, work, outcome.heads)
            state, heads = "failed" if end.failure else "succeeded", outcome.heads
            if end.run is not None and not end.failure:
                heads = {end.run.uri: end.run.head or ""}
            run = end.run.uri if end.run else None
            outcome = outcome.model_copy(update={"run": run, "heads": heads, "failure": end.failure})
        finally:
            with self._lock:
                del self._running[audit.name]
                outcome = outcome.now(state)
                self._write(outcome)
        return end._replace(attempt=outcome.attempt)

    def last(self, audit: FleetAudit) -> Ended:
        """Return the last outcome of an audit, without its run."""
        try:
            outcome = self._read(audit.name)
        except DataError as error:
            return failed(audit, error)
        if outcome is None:
            return Ended(audit)
        failure = outcome.failure
        if outcome.is_silent:
            killed = (
                "the process that ran this audit ended without a report: it was killed, or its node was lost; run "
                "`opacc fleet` again: finished shards are kept"
            )
            failure = AuditFailure(error=killed, exit_code=ClusterError.exit_code, at=outcome.attempt.seen)
        return Ended(audit, failure=failure, attempt=outcome.attempt)

    def beat(self) -> None:
        """Write the outcomes of running audits again, unless that was less than `BEAT` ago."""
        if time.monotonic() < self._last_beat + BEAT:
            return
        self._last_beat = time.monotonic()
        with self._lock:  # none is written once it has ended
            for outcome in self._running.values():
                self._write(outcome.now("running"))

    def _read(self, name: str) -> AuditOutcome | None:
        data = self._store.read_if_there(f"{name}.json")
        return None if data is None else AuditOutcome.from_bytes(data, self._store.uri_of(f"{name}.json"))

    def _write(self, outcome: AuditOutcome) -> None:
        try:
            self._store.write(f"{outcome.audit}.json", outcome.to_bytes())
        except OpaccError as error:
            log.warning("the outcome of %s could not be kept: %s", outcome.audit, error)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
