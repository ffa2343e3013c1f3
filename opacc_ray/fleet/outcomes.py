"""The outcome of each audit of a fleet, in storage: it survives the command and a killed process.

While an audit runs, its outcome is written again each minute. One that was not written for ten minutes belongs to a
process that was killed, which is a failure. The last failure of an audit is kept until an attempt succeeds.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Self

from opacc_ray.errors import ClusterError, DataError, OpaccError
from opacc_ray.fleet.fleet_documents import Attempt, AttemptState, AuditFailure, AuditOutcome
from opacc_ray.fleet.fleet_spec import FleetAudit
from opacc_ray.fleet.queue import Ended, ended
from opacc_ray.lake.store import Store
from opacc_ray.runs.run import Run

log = logging.getLogger(__name__)

BEAT = 60.0
"""Seconds after which the outcome of an audit that runs is written again."""

SILENT = 600.0
"""Seconds after which one that was not written belongs to a process that was killed."""


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
        began, failure, heads = datetime.now(UTC), None, dict[str, str]()
        with contextlib.suppress(OpaccError):  # an outcome that cannot be read is replaced
            before = self._read(audit.name)
            failure, heads = (None, {}) if before is None else (before.failure, before.heads)
        with self._lock:
            self._running[audit.name] = self._write(audit.name, began, "running", failure, heads)
        state: AttemptState = "interrupted"
        run, error = None, None
        try:
            _, run, error, _ = work()
            if run is not None:
                error = ended(audit, partial(run.refuse_rollback, heads.get(run.uri))).error
            state, failure = "succeeded", None
            if error is not None:
                state, failure = "failed", _failure(error, datetime.now(UTC))
            elif run is not None:
                heads = {run.uri: run.head or ""}
        finally:
            with self._lock:
                del self._running[audit.name]
                outcome = self._write(audit.name, began, state, failure, heads, run)
        return Ended(audit, run, error, outcome)

    def last(self, audit: FleetAudit) -> Ended:
        """Return the last outcome of an audit, without its run."""
        try:
            outcome = self._read(audit.name)
        except DataError as error:
            return Ended(audit, error=error)
        if outcome is None:
            return Ended(audit)
        if is_silent(outcome):
            killed = ClusterError(
                "the process that ran this audit ended without a report: it was killed, or its node was lost; run "
                "`opacc fleet` again: finished shards are kept"
            )
            outcome = outcome.model_copy(
                update={"failure": AuditFailure(error=str(killed), exit_code=killed.exit_code, at=outcome.attempt.seen)}
            )
        if outcome.failure is None:
            return Ended(audit, outcome=outcome)
        failed = OpaccError(outcome.failure.error)
        failed.exit_code = outcome.failure.exit_code
        return Ended(audit, None, failed, outcome)

    def _beat(self) -> None:
        while not self._is_over.wait(BEAT):
            with self._lock:  # none is written once it has ended
                for name, outcome in self._running.items():
                    self._write(
                        name, datetime.fromisoformat(outcome.attempt.began), "running", outcome.failure, outcome.heads
                    )

    def _read(self, name: str) -> AuditOutcome | None:
        data = self._store.read_if_there(f"{name}.json")
        return None if data is None else AuditOutcome.from_bytes(data, self._store.uri_of(f"{name}.json"))

    def _write(
        self,
        name: str,
        began: datetime,
        state: AttemptState,
        failure: AuditFailure | None,
        heads: dict[str, str],
        run: Run | None = None,
    ) -> AuditOutcome:
        now = datetime.now(UTC)
        attempt = Attempt(state=state, began=_text(began), seen=_text(now), seconds=(now - began).total_seconds())
        known = run.uri if run else None
        outcome = AuditOutcome(audit=name, attempt=attempt, run=known, heads=heads, failure=failure)
        try:
            self._store.write(f"{name}.json", outcome.to_bytes())
        except OpaccError as error:
            log.warning("the outcome of %s could not be kept: %s", name, error)
        return outcome


def is_silent(outcome: AuditOutcome) -> bool:
    """Return whether an attempt that should run gives no sign of life."""
    seen = datetime.fromisoformat(outcome.attempt.seen)
    return outcome.attempt.state == "running" and (datetime.now(UTC) - seen).total_seconds() > SILENT


def _failure(error: OpaccError, at: datetime) -> AuditFailure:
    return AuditFailure(error=str(error), exit_code=error.exit_code, at=_text(at))


def _text(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
