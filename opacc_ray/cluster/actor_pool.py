"""Extraction of shards by a pool of actors: its size, its queue, and its answer to failures.

The driver keeps the queue. Each actor gets one shard, and further ones to read ahead if enough are left for the others.
An actor that dies, or finishes nothing for ``shard_timeout`` seconds, is replaced, and its shards go back to the queue.
Such a shard is suspect: from then on it has an actor to itself. Failing storage and a lack of memory also count as a
failed attempt. After ATTEMPTS of them the run fails and names the shard: no shard is ever left out. An actor that
is preempted (SIGTERM) costs no attempt.

The pool grows and shrinks with the cluster. When the queue is empty, an idle actor gets a copy of the slowest shard,
and the first result counts. Both write the same bytes, since copies are only made on one kind of machine.

Two commands may work on one run, since they write the same bytes: a worker reads the report of a shard that the other
one has finished.

An example at which workers die, hang or lack memory is located by halving a shard that failed again and again. Each
half runs on a worker of its own, which computes and writes nothing. After log₂ n workers one file, row or group of rows
is left; a last worker confirms that it alone fails.
"""

import logging
import os
import signal
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from opacc_ray.cluster.local import raise_if_lost, unless_lost
from opacc_ray.cluster.remote_readers import RemoteReader
from opacc_ray.cluster.session import raise_if_ending
from opacc_ray.cluster.tasks import (
    LOST,
    Driver,
    Placement,
    cause_of,
    lost_a_process,
    place,
    raise_if_unmade,
    ran_out_of_memory,
)
from opacc_ray.errors import ClusterError, StorageError, counted, shortened
from opacc_ray.extract.extraction import Extraction, OnDone
from opacc_ray.extract.extractor import Extractor, Interrupted
from opacc_ray.extract.feature_set import left_of
from opacc_ray.extract.shards import Machine, ShardReport
from opacc_ray.lake.examples import Piece, Shard
from opacc_ray.lake.s3_store import expect_answers

log = logging.getLogger(__name__)

LEAST_SECONDS = 10.0
"""Least time that a part of a shard is given."""

LOADING = 120.0
"""Seconds in which a worker must load the model."""


def find_poison(shard: Shard, start: Callable[[], Any], seconds: float) -> str | None:
    """Return the name of the file or row that fails alone; None if none does. Raises RayError if no worker starts.

    Parameters
    ----------
    start : starts a worker, and returns its handle
    seconds : time in which the whole shard must be computed; a part has its share of it
    """
    whole, part = _size(shard), shard
    log.info("shard %s is halved to find the example that fails", shard.name)
    while _size(part) > 1:
        first, second = _halves(part)
        part = first if _fails(first, start, seconds * _size(first) / whole) else second
    if not _fails(part, start, seconds / whole):
        return None
    if not part.pieces:
        return part.entries[0].key
    [piece] = part.pieces
    return f"{piece.entry.key}, row or row group {piece.start}"


def _fails(part: Shard, start: Callable[[], Any], seconds: float) -> bool:
    """Return whether a worker dies, hangs or lacks memory at a part of a shard; another error is none."""
    worker = start()
    try:
        unless_lost(ray.get, worker.machine.remote(), timeout=LOADING)  # its failure says nothing of the part
    except RayError:
        ray.kill(worker)
        raise
    try:
        unless_lost(ray.get, worker.try_shard.remote(part), timeout=max(seconds, LEAST_SECONDS))
    except RayError as error:
        return lost_a_process(error)
    finally:
        ray.kill(worker)
    return False


def _size(shard: Shard) -> int:
    return sum(piece.stop - piece.start for piece in shard.pieces) if shard.pieces else len(shard.entries)


def _halves(shard: Shard) -> tuple[Shard, Shard]:
    if not shard.pieces:
        middle = len(shard.entries) // 2
        return shard._replace(entries=shard.entries[:middle]), shard._replace(entries=shard.entries[middle:])
    left, first, second = _size(shard) // 2, list[Piece](), list[Piece]()
    for piece in shard.pieces:
        middle = min(piece.stop, piece.start + left)
        first += [piece._replace(stop=middle)] if middle > piece.start else []
        second += [piece._replace(start=middle)] if middle < piece.stop else []
        left -= middle - piece.start
    return _of(shard, first), _of(shard, second)


def _of(shard: Shard, pieces: list[Piece]) -> Shard:
    return shard._replace(entries=tuple(dict.fromkeys(piece.entry for piece in pieces)), pieces=tuple(pieces))


TICK = 1.0  # seconds between two checks of the actors if nothing happens
RESIZE_EVERY = 5.0  # seconds between two checks for how many actors the cluster has room

SLOW, SLOW_SECONDS = 2.0, 3.0
"""A shard is slow if it takes ``SLOW`` times the median of the finished ones, and at least ``SLOW_SECONDS``."""

ATTEMPTS = 3  # per shard before the run fails
START_SECONDS = 900.0  # without a start of any actor: a node that the cluster adds and a large model take minutes
GRACE = 20.0  # seconds from SIGTERM to the end of an actor's process, in which it may finish a batch
PROBE_SECONDS = 600.0  # in which a shard is computed when a fault is looked for, without extract.shard_timeout
LEAVE_WITHIN = 2.0  # seconds in which actors that are no longer needed may finish the file that they write


class Worker(Extractor):
    """Extractor in an actor: uses the device that Ray assigned, and ends cleanly on SIGTERM."""

    def __init__(self, job: Extraction, readers: int, remote_readers: int, driver: Driver) -> None:
        expect_answers()
        # not super(), which names this class: Ray may make a copy of it
        Extractor.__init__(self, job, driver.assigned_device(), readers)
        self._readers_elsewhere = [RemoteReader(job, driver) for _ in range(remote_readers)]
        signal.signal(signal.SIGTERM, self._on_sigterm)  # an actor is made in its process's main thread

    def machine(self) -> Machine:
        """Load the model, and return the kind of the machine that it is on."""
        return self.maker

    def _on_sigterm(self, *_: object) -> None:
        """End the shards in flight after their batch; the driver ends the process, or else it ends itself."""
        self.interrupt()
        end = threading.Timer(GRACE, os._exit, [128 + signal.SIGTERM])
        end.daemon = True
        end.start()


@dataclass(eq=False)
class Actor:
    """The driver's handle to a worker."""

    handle: Any
    starting: Any = field(init=False)  # reference of machine(); None once the model is loaded
    machine: Machine | None = None  # known once the model is loaded
    shards: dict[Any, Shard] = field(default_factory=dict)  # reference -> shard in flight
    assigned: dict[Any, float] = field(default_factory=dict)  # reference -> monotonic seconds of its assignment
    last_sign: float = 0.0  # monotonic seconds when it last finished a shard, or got one while idle

    def __post_init__(self) -> None:
        self.starting = self.handle.machine.remote()

    def assign(self, shard: Shard) -> None:
        """Add a shard to those that it extracts."""
        now = time.monotonic()
        if not self.shards:
            self.last_sign = now
        reference = self.handle.extract.remote(shard)
        self.shards[reference], self.assigned[reference] = shard, now

    def take(self, reference: Any) -> Shard:
        """Remove and return the shard of a call that has ended."""
        self.last_sign = time.monotonic()
        del self.assigned[reference]
        return self.shards.pop(reference)


def wait_to_leave(actors: Sequence[Actor]) -> None:
    """Let actors finish the files that they write, without a further batch, for LEAVE_WITHIN seconds in all."""
    busy = [actor for actor in actors if actor.shards]
    for actor in busy:
        actor.handle.interrupt.remote()
    in_flight = [reference for actor in busy for reference in actor.shards]
    if in_flight:
        ray.wait(in_flight, num_returns=len(in_flight), timeout=LEAVE_WITHIN)


def extract_shards(job: Extraction, shards: Sequence[Shard], on_done: OnDone) -> None:
    """Extract the shards on actors; ``on_done`` is called with each one and its report as it finishes, in any order.

    Raises ClusterError if there is no room for the actors or a shard failed ATTEMPTS times, and each OpaccError of the
    work itself.
    """
    placement = place(job.spec.extract, len(shards))
    log.info("%s with %s each", counted(placement.actors, "actor"), placement.needs)
    pool = _ActorPool(job, deque(shards), placement, on_done)
    try:
        pool.work()
    finally:
        pool.stop()


class _ActorPool:
    """The actors, and the loop that assigns shards to them."""

    def __init__(self, job: Extraction, shards: deque[Shard], placement: Placement, on_done: OnDone) -> None:
        self._driver = Driver.here()
        self._job, self._options = job, job.spec.extract
        self._pending, self._placement, self._on_done = shards, placement, on_done
        self._done: set[int] = set()  # numbers of the finished shards
        self._copied: set[int] = set()  # numbers of those that were copied
        self._seconds: list[float] = []  # of each finished shard
        self._failures: Counter[int] = Counter()  # failed attempts by shard number
        self._failed_starts = 0
        self._last_resize = self._last_event = time.monotonic()
        self._actors: list[Actor] = [self._start() for _ in range(placement.actors)]

    def stop(self) -> None:
        """End the actors once they have written the files that they are at."""
        wait_to_leave(self._actors)
        for actor in self._actors:
            ray.kill(actor.handle)

    def work(self) -> None:
        """Assign shards to actors until every shard is finished."""
        while self._pending or self._unfinished():
            raise_if_ending()
            self._assign()
            in_flight = {reference: actor for actor in self._actors for reference in actor.shards}
            starting = {actor.starting: actor for actor in self._actors if actor.starting is not None}
            ready, _ = ray.wait([*in_flight, *starting], num_returns=1, timeout=TICK)
            raise_if_lost()
            if ready:
                self._last_event = time.monotonic()
            elif not in_flight and time.monotonic() - self._last_event > START_SECONDS:
                raise ClusterError(
                    f"no actor with {self._placement.needs} started within {START_SECONDS:g} s; "
                    "the cluster is full or cannot grow: ask for less, or run again when it has room"
                )
            for reference in ready:
                if reference in starting:
                    self._on_started(starting[reference])
                else:
                    self._collect(in_flight[reference], reference)
            self._replace_hung()
            self._fit_cluster()

    def _unfinished(self) -> dict[int, Shard]:
        shards = {shard.number: shard for actor in self._actors for shard in actor.shards.values()}
        return {number: shard for number, shard in shards.items() if number not in self._done}

    def _start(self) -> Actor:
        remote = ray.remote(Worker).options(
            **self._placement.needs.options(), max_concurrency=self._placement.in_flight + 1
        )
        own = self._placement
        return Actor(unless_lost(remote.remote, self._job, own.readers, own.remote_readers, self._driver))

    def _on_started(self, actor: Actor) -> None:
        """Note the machine of an actor that has loaded the model; an error of the model ends the run."""
        try:
            actor.machine = ray.get(actor.starting)
            actor.starting = None
        except RayTaskError as error:
            raise cause_of(error) from None
        except LOST as error:
            raise_if_unmade(error)
            self._failed_starts += 1
            log.warning("an actor was lost while it loaded the model; it is replaced")
            if self._failed_starts >= ATTEMPTS * self._placement.actors:
                raise ClusterError(
                    f"actors died {self._failed_starts} times while loading the model, last with: "
                    f"{shortened(str(error))}; often the node has too little memory for it"
                ) from None
            self._replace(actor)

    def _assign(self) -> None:
        """Give a shard to each idle actor, then further ones if enough are left for actors that still start."""
        started = [actor for actor in self._actors if actor.starting is None]
        for actor in started:
            if self._pending and not actor.shards:
                actor.assign(self._pending.popleft())
        num_starting = len(self._actors) - len(started)
        for actor in started * (self._placement.in_flight - 1):  # in turns
            has_room = len(self._pending) > num_starting and len(actor.shards) < self._placement.in_flight
            if has_room and not any(self._failures[own.number] for own in (self._pending[0], *actor.shards.values())):
                actor.assign(self._pending.popleft())
        if not self._pending:
            self._copy_slowest([actor for actor in started if not actor.shards])

    def _copy_slowest(self, idle: list[Actor]) -> None:
        """Give an idle actor a copy of the oldest shard in flight, if it is slow and not suspect."""
        if not idle or not self._seconds:
            return
        limit = time.monotonic() - max(SLOW_SECONDS, SLOW * statistics.median(self._seconds))
        waiting = [(own.assigned[ref], own.machine, shard) for own in self._actors for ref, shard in own.shards.items()]
        for since, machine, shard in sorted(waiting, key=lambda item: item[0]):
            if since > limit:
                return
            twin = next((actor for actor in idle if actor.machine == machine), None)
            if twin and shard.number not in self._copied | self._done and not self._failures[shard.number]:
                log.info("shard %s is slow; another actor extracts a copy", shard.name)
                self._copied.add(shard.number)
                twin.assign(shard)
                return

    def _collect(self, actor: Actor, reference: Any) -> None:
        if reference not in actor.shards:  # its actor is lost, and it is back in the queue
            return
        try:
            report = ray.get(reference)
            self._seconds.append(time.monotonic() - actor.assigned[reference])
            self._finish(actor.take(reference), report)
        except RayTaskError as error:
            self._on_error(actor, reference, cause_of(error))
        except LOST as error:
            log.warning("an actor was lost with %s in flight; it is replaced", counted(len(actor.shards), "shard"))
            self._discard(actor, None if getattr(error, "preempted", False) else error)
        except RayError as error:
            raise ClusterError(
                f"the Ray cluster failed: {shortened(str(error))}; finished shards are kept, run again"
            ) from None

    def _on_error(self, actor: Actor, reference: Any, cause: Exception) -> None:
        """Requeue a shard whose extraction raised, or raise its error if another attempt would not help."""
        if isinstance(cause, Interrupted):
            shards = counted(len(actor.shards), "shard")
            log.warning("an actor was preempted; %s will start again", shards)
            wait_to_leave([actor])
            self._discard(actor)
        elif isinstance(cause, StorageError) or lost_a_process(cause):
            self._requeue([actor.take(reference)], cause)
        elif actor.shards[reference].number in self._done:
            actor.take(reference)
        else:
            raise cause from None

    def _finish(self, shard: Shard, report: ShardReport) -> None:
        if shard.number not in self._done:
            self._done.add(shard.number)
            self._on_done(shard, report)

    def _replace_hung(self) -> None:
        limit = self._options.shard_timeout
        for actor in list(self._actors):
            if limit is not None and actor.shards and time.monotonic() - actor.last_sign >= limit:
                log.warning("an actor finished nothing for %g s; it is replaced", limit)
                why = "an example hangs, or extract.shard_timeout is too short"
                self._discard(actor, TimeoutError(f"nothing was finished for {limit:g} s: {why}"))

    def _fit_cluster(self) -> None:
        """Start more actors if there is room and work; cancel pending ones whose node has gone."""
        if time.monotonic() - self._last_resize < RESIZE_EVERY:
            return
        self._last_resize = time.monotonic()
        room, size = self._placement.needs.room(unless_lost(ray.nodes)), len(self._actors)
        starting = [actor for actor in self._actors if actor.starting is not None]
        more = min(room, self._placement.most) - size
        if more > 0 and len(self._pending) > len(starting):
            more = min(more, len(self._pending) - len(starting))
            log.info("the cluster has room for %d actors; %d more start", room, more)
            self._actors += [self._start() for _ in range(more)]
        elif size > max(room, 1) and not self._options.autoscaling:
            for actor in starting[: size - max(room, 1)]:
                log.info("the cluster has room for %d actors; a pending one is cancelled", room)
                ray.kill(actor.handle)
                self._actors.remove(actor)

    def _replace(self, actor: Actor) -> None:
        ray.kill(actor.handle)  # it may still run, hung or disconnected
        self._actors[self._actors.index(actor)] = self._start()

    def _discard(self, actor: Actor, error: Exception | None = None) -> None:
        """Replace an actor and requeue its shards; without an error that is no failed attempt."""
        lost = list(actor.shards.values())
        actor.shards.clear()
        self._replace(actor)
        self._requeue(lost, error)

    def _requeue(self, shards: list[Shard], error: Exception | None) -> None:
        """Put unfinished shards at the front of the queue, unless a copy is in flight."""
        copied = self._unfinished()
        for shard in reversed([shard for shard in shards if shard.number not in self._done]):
            self._failures[shard.number] += error is not None
            if error is not None and self._failures[shard.number] >= ATTEMPTS:
                poison = self._poison(shard, error)
                remedy = "so fix this one and run again"
                if poison is not None:
                    remedy = f"so repair or remove {poison}, at which alone it fails, and run again"
                raise ClusterError(
                    f"shard {shard.name} ({shard.keys[0]} .. {shard.keys[-1]}) failed {ATTEMPTS} "
                    f"times, last with: {_reason(error)}; finished shards are kept, {remedy}"
                )
            self._copied.discard(shard.number)
            if shard.number not in copied:
                self._pending.appendleft(shard)

    def _poison(self, shard: Shard, error: Exception) -> str | None:
        """Return the file or row at which workers die, hang or lack memory; None if there is not one such."""
        if not lost_a_process(error):
            return None
        self.stop()  # the run ends anyway, and a worker needs its room
        self._actors.clear()
        try:
            left = shard.only(left_of(shard))
            return find_poison(left, lambda: self._start().handle, self._options.shard_timeout or PROBE_SECONDS)
        except RayError:  # no worker starts now: the first error matters
            return None


def _reason(error: Exception) -> str:
    if ran_out_of_memory(error):
        why = shortened(str(getattr(error, "cause", error)))
        return f"memory ran out; lower extract.batch_size, or use fewer actors on a node ({why})"
    often = " (often memory runs out: lower extract.batch_size)" if isinstance(error, RayActorError) else ""
    return f"{shortened(str(error))}{often}"
