"""The queue of a fleet: a number of audits at a time, all on one cluster.

Each audit does what `opacc run` does with its spec. A failed audit is reported and stops no other one. An interrupt
ends all of them; finished shards and rounds are kept, and the next run resumes.

Audits of one model on one pool share their features: the first one extracts, the others wait and reuse them. An audit
with ``actors: auto`` uses the whole cluster, so it extracts alone. Audits with a fixed number run in parallel.

The outcome of each audit is in storage, where it survives the command and a killed process. While an audit runs, its
outcome is written again each minute. One that was not written for ten minutes belongs to a process that was killed,
which is a failure. The last failure of an audit is kept until an attempt succeeds.
"""

import contextlib
import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, Self

from opacc_ray.audit import verbs
from opacc_ray.audit.progress import Progress
from opacc_ray.audit.stages import Stage
from opacc_ray.errors import ClusterError, DataError, OpaccError, shortened
from opacc_ray.extensions.fleet.fleet_documents import Attempt, AttemptState, AuditFailure, AuditOutcome
from opacc_ray.extensions.fleet.fleet_spec import FleetAudit
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


class _Claim(NamedTuple):
    """The resources that an audit needs while it extracts."""

    folders: frozenset[str]  # that it may write
    whole_cluster: bool

    @classmethod
    def of(cls, stages: Sequence[Stage]) -> Self:
        uses_actors = any(not stage.job.source.holds_features for stage in stages)
        is_open = stages[-1].job.spec.extract.actors == "auto"
        return cls(frozenset(stage.job.target.uri for stage in stages), uses_actors and is_open)

    def conflicts(self, other: "_Claim") -> bool:
        return self.whole_cluster or other.whole_cluster or not self.folders.isdisjoint(other.folders)


class Turns:
    """Lets audits extract at the same time if they share no resource.

    ``check`` is called while one waits, and raises if the work is to end.
    """

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._changed = threading.Condition()
        self._held: list[_Claim] = []

    @contextmanager
    def turn(self, stages: Sequence[Stage]) -> Iterator[None]:
        """Wait until an audit with these stages may extract; hold its resources during the block."""
        claim = _Claim.of(stages)
        with self._changed:
            while any(claim.conflicts(other) for other in self._held):
                self._check()
                self._changed.wait(WAKE)
            self._held.append(claim)
        try:
            yield
        finally:
            with self._changed:
                self._held.remove(claim)
                self._changed.notify_all()


class Ended(NamedTuple):
    """The end of an audit: its run or a failure, neither if it was not run."""

    audit: FleetAudit
    run: Run | None = None
    failure: AuditFailure | None = None
    details: str = ""  # traceback of the user's own code, for a log file
    attempt: Attempt | None = None


def work_through(
    audits: Sequence[FleetAudit],
    concurrency: int,
    progress: Report,
    *,
    trial: bool = True,
    outcomes: "Outcomes | None" = None,
) -> list[Ended]:
    """Run every audit, ``concurrency`` at a time; return their ends in order.

    ``progress(done, total)`` counts audits. ``trial`` is that of :func:`opacc_ray.audit.verbs.start`. ``outcomes``
    keeps what became of each audit.

    Raises
    ------
    KeyboardInterrupt
        After all audits have ended: nothing works on in the background.
    """
    from opacc_ray.cluster.session import TICK, Shared, raise_if_ending

    turns = Turns(raise_if_ending)

    def work(audit: FleetAudit) -> Ended:
        _AUDIT.set(audit.name)
        with cluster.used():
            todo = partial(ended, audit, lambda: _run(audit, turns, trial, raise_if_ending))
            return outcomes.noted(audit, todo) if outcomes else todo()

    with Shared() as cluster, _names_in_log(), ThreadPoolExecutor(concurrency, "opacc-fleet") as threads:
        try:
            begun = [threads.submit(work, audit) for audit in audits]
            pending = set(begun)
            progress(0, len(audits))
            while pending:
                cluster.start_if_wanted()
                done, pending = wait(pending, TICK, FIRST_COMPLETED)
                if done:
                    progress(len(audits) - len(pending), len(audits))
        except BaseException:
            cluster.end()
            threads.shutdown(wait=True, cancel_futures=True)
            raise
        return [future.result() for future in begun]


def ended(audit: FleetAudit, work: Callable[[], Run | None]) -> Ended:
    """Run the work of an audit; turn an error into a failure of one sentence."""
    try:
        return Ended(audit, work())
    except (Exception, SystemExit) as error:
        return failed(audit, error)


def failed(audit: FleetAudit, error: BaseException) -> Ended:
    """Return the end of an audit by an error."""
    if not isinstance(error, OpaccError):  # a fault of the program, or of the user's code, which may exit
        details = "".join(traceback.format_exception(error))
        error = OpaccError(f"unexpected {type(error).__name__}: {shortened(str(error))}")
        error.details = details
    log.error("failed: %s", error)
    failure = AuditFailure(error=str(error), exit_code=error.exit_code, at=_now())
    return Ended(audit, failure=failure, details=error.details)


def _run(audit: FleetAudit, turns: Turns, trial: bool, check: Callable[[], None]) -> Run:
    check()
    extracting = Progress("extract", "shards", every=30.0, bar=False)
    watch, labels = audit.watch, None
    if watch is not None and watch.labels is not None:
        labels = partial(labels_for_next, audit.name, audit.spec.output, watch)
    return verbs.first_round(
        audit.spec, extracting, lambda done, total: check(), trial=trial, slot=turns.turn, labels_of_new=labels
    )


# -- names in the log ----------------------------------------------------------------------------------------


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


# -- outcomes ------------------------------------------------------------------------------------------------


class Outcomes:
    """The outcomes of audits in the folder of a fleet; as a context, it updates those of running audits."""

    def __init__(self, folder: Store) -> None:
        self._store = folder.store("outcomes")
        self._running: dict[str, AuditOutcome] = {}
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._beats = threading.Thread(target=self._beat, name="opacc-outcomes", daemon=True)

    def __enter__(self) -> Self:
        self._beats.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._beats.join()

    def noted(self, audit: FleetAudit, work: Callable[[], Ended]) -> Ended:
        """Run the work of an audit and write its outcome, even after an interrupt."""
        before = None
        with contextlib.suppress(OpaccError):  # an outcome that cannot be read is replaced
            before = self._read(audit.name)
        now = _now()
        outcome = AuditOutcome(
            audit=audit.name,
            attempt=Attempt(state="running", began=now, seen=now),
            run=None,
            heads=before.heads if before else {},
            failure=before.failure if before else None,
        )
        with self._lock:
            self._running[audit.name] = outcome
            self._write(outcome)
        state: AttemptState = "interrupted"
        try:
            done = work()
            if done.run is not None:
                checked = ended(audit, partial(done.run.refuse_rollback, outcome.heads.get(done.run.uri)))
                done = checked._replace(run=done.run)
            state, change = "failed" if done.failure else "succeeded", dict[str, Any](failure=done.failure)
            if done.run is not None:
                change["run"] = done.run.uri
                change |= {} if done.failure else {"heads": {done.run.uri: done.run.head or ""}}
            outcome = outcome.model_copy(update=change)
        finally:
            with self._lock:
                del self._running[audit.name]
                outcome = _seen(outcome, state)
                self._write(outcome)
        return done._replace(attempt=outcome.attempt)

    def last(self, audit: FleetAudit) -> Ended:
        """Return the last outcome of an audit, without its run."""
        try:
            outcome = self._read(audit.name)
        except DataError as error:
            return failed(audit, error)
        if outcome is None:
            return Ended(audit)
        failure = outcome.failure
        if is_silent(outcome):
            killed = (
                "the process that ran this audit ended without a report: it was killed, or its node was lost; run "
                "`opacc fleet` again: finished shards are kept"
            )
            failure = AuditFailure(error=killed, exit_code=ClusterError.exit_code, at=outcome.attempt.seen)
        return Ended(audit, failure=failure, attempt=outcome.attempt)

    def _beat(self) -> None:
        while not self._is_over.wait(BEAT):
            with self._lock:  # none is written once it has ended
                for outcome in self._running.values():
                    self._write(_seen(outcome, "running"))

    def _read(self, name: str) -> AuditOutcome | None:
        data = self._store.read_if_there(f"{name}.json")
        return None if data is None else AuditOutcome.from_bytes(data, self._store.uri_of(f"{name}.json"))

    def _write(self, outcome: AuditOutcome) -> None:
        try:
            self._store.write(f"{outcome.audit}.json", outcome.to_bytes())
        except OpaccError as error:
            log.warning("the outcome of %s could not be kept: %s", outcome.audit, error)


def _seen(outcome: AuditOutcome, state: AttemptState) -> AuditOutcome:
    """Return an outcome whose attempt has a state now."""
    return outcome.model_copy(update={"attempt": Attempt(state=state, began=outcome.attempt.began, seen=_now())})


def is_silent(outcome: AuditOutcome) -> bool:
    """Return whether an attempt that should run gives no sign of life."""
    seen = datetime.fromisoformat(outcome.attempt.seen)
    return outcome.attempt.state == "running" and (datetime.now(UTC) - seen).total_seconds() > SILENT


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
