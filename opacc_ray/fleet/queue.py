"""The queue of a fleet: so many audits at a time, each by itself, all on one cluster.

Each audit does what `opacc run` does with its spec. One that fails is named with its error and stops no other. An
interrupt ends all of them as it ends one: finished shards and rounds are kept, and the next run does what is missing.
"""

import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from opacc_ray.audit import verbs
from opacc_ray.audit.progress import Progress
from opacc_ray.errors import OpaccError, shortened
from opacc_ray.fleet.documents import AuditOutcome
from opacc_ray.fleet.spec import FleetAudit
from opacc_ray.fleet.turns import Turns
from opacc_ray.runs.run import Run
from opacc_ray.samplers.base import Report

log = logging.getLogger(__name__)


class Ended(NamedTuple):
    """What became of an audit: it has its run, or an error; neither if it was left as it is."""

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
    """Run every audit, ``concurrency`` at a time; returns what became of each, in their order.

    ``progress(done, total)`` counts audits. ``trial`` is that of :func:`opacc_ray.audit.verbs.start`.

    Raises
    ------
    KeyboardInterrupt
        After all audits have ended: nothing works on in the background.
    """
    from opacc_ray.cluster.session import TICK, Shared, raise_if_ending

    turns = Turns(raise_if_ending)

    def work(audit: FleetAudit) -> Ended:
        with cluster.used(), _named(audit.name):
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
    """Do the work of an audit; an error is its own, and becomes one sentence."""
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
    def selecting(done: int, total: int | None) -> None:
        check()

    check()
    extracting = Progress("extract", "shards", every=30.0, bar=False)
    return verbs.run(audit.spec, extracting, selecting, trial=trial, slot=turns.turn)


_AUDIT: ContextVar[str | None] = ContextVar("audit", default=None)
"""The audit that a thread works on."""


@contextmanager
def _named(name: str) -> Iterator[None]:
    token = _AUDIT.set(name)
    try:
        yield
    finally:
        _AUDIT.reset(token)


@contextmanager
def _names_in_log() -> Iterator[None]:
    """Let every log line of an audit begin with its name: those of several come in turns."""
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
