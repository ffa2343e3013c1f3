"""The queue of a fleet: a number of audits at a time, all on one cluster.

Each audit does what `opacc run` does with its spec. A failed audit is reported and stops no other one. An interrupt
ends all of them; finished shards and rounds are kept, and the next run resumes.

Audits of one model on one pool share their features: the first one extracts, the others wait and reuse them. An audit
with ``actors: auto`` uses the whole cluster, so it extracts alone. Audits with a fixed number run in parallel.
"""

import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple, Self

from opacc_ray.audit import verbs
from opacc_ray.audit.progress import Progress
from opacc_ray.audit.stages import Stage
from opacc_ray.errors import OpaccError, shortened
from opacc_ray.fleet.fleet_documents import AuditOutcome
from opacc_ray.fleet.fleet_spec import FleetAudit
from opacc_ray.fleet.watched_audit import labels_for_next
from opacc_ray.runs.run import Run
from opacc_ray.samplers.base import Report
from opacc_ray.spec import ActorRange

log = logging.getLogger(__name__)

WAKE = 0.5
"""Seconds between two checks whether the work is to end."""


class _Claim(NamedTuple):
    """The resources that an audit needs while it extracts."""

    folders: frozenset[str]  # that it may write
    whole_cluster: bool

    @classmethod
    def of(cls, stages: Sequence[Stage]) -> Self:
        uses_actors = any(not stage.job.source.holds_features for stage in stages)
        asked = stages[-1].job.spec.extract.actors
        is_open = asked == "auto" or (isinstance(asked, ActorRange) and asked.max is None)
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
    """The end of an audit: its run or an error, neither if it was not run."""

    audit: FleetAudit
    run: Run | None = None
    error: OpaccError | None = None
    outcome: AuditOutcome | None = None  # as it is kept


Note = Callable[[FleetAudit, Callable[[], Ended]], Ended]
"""Does the work of an audit, and keeps what became of it."""


def work_through(
    audits: Sequence[FleetAudit],
    concurrency: int,
    progress: Report,
    *,
    trial: bool = True,
    note: Note = lambda _, work: work(),
) -> list[Ended]:
    """Run every audit, ``concurrency`` at a time; return their ends in order.

    ``progress(done, total)`` counts audits. ``trial`` is that of :func:`opacc_ray.audit.verbs.start`.

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
            return note(audit, lambda: ended(audit, lambda: _run(audit, turns, trial, raise_if_ending)))

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
    """Run the work of an audit; turn an error into one sentence."""
    try:
        return Ended(audit, work(), None)
    except OpaccError as error:
        found = error
    except (Exception, SystemExit) as error:  # a fault of the program, or of the user's code, which may exit
        found = OpaccError(f"unexpected {type(error).__name__}: {shortened(str(error))}")
        found.details = traceback.format_exc()
    log.error("failed: %s", found)
    return Ended(audit, None, found)


def _run(audit: FleetAudit, turns: Turns, trial: bool, check: Callable[[], None]) -> Run:
    check()
    extracting = Progress("extract", "shards", every=30.0, bar=False)
    watch, labels = audit.watch, None
    if watch is not None and watch.labels is not None:
        labels = partial(labels_for_next, audit.name, audit.spec.output, watch)
    return verbs.run(
        audit.spec, extracting, lambda done, total: check(), trial=trial, slot=turns.turn, labels_of_new=labels
    )


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
