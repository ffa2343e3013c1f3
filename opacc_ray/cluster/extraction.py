"""Extraction on actors: how many there are, what each is given, and what happens when one dies.

The driver keeps the queue of shards. Every actor is given one, and a second to read while it computes if enough are
left for the others. An actor that dies, or finishes nothing for ``shard_timeout`` seconds, is replaced and its shards
go back to the queue; a shard that was in flight then is suspect and from then on has an actor to itself. Storage that
fails, and memory that runs out, cost a shard a try, too. After ``attempts`` tries the run fails with the shard's name:
a shard that fails never becomes a smaller pool. A machine that is taken back (SIGTERM) costs no try.

The crew grows when the cluster has room for more, and shrinks with it. When nothing is left to give, an idle actor is
given a copy of the slowest shard; whichever is finished first counts. Both write the same bytes, since copies are only
made on one kind of machine.
"""

import logging
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from opacc_ray.cluster.actor import Actor, Worker, wait_to_leave
from opacc_ray.cluster.elsewhere import Elsewhere
from opacc_ray.cluster.failures import LOST, cause_of, ran_out_of_memory
from opacc_ray.cluster.local import raise_if_lost
from opacc_ray.cluster.placement import Placement, place
from opacc_ray.cluster.session import raise_if_ending
from opacc_ray.errors import ClusterError, StorageError, counted, shortened
from opacc_ray.extract.extractor import Extraction, Interrupted
from opacc_ray.extract.shards import ShardReport
from opacc_ray.lake.examples import Shard

log = logging.getLogger(__name__)

OnDone = Callable[[Shard, ShardReport], None]
"""Called with each shard that is finished, and its report."""

IN_FLIGHT = 2
"""Shards an actor holds: one computing, one being read."""

TICK = 1.0
"""Seconds after which the crew looks around though nothing has happened."""

LOOK_FOR_ROOM = 5.0
"""Seconds between two looks at how many actors the cluster has room for."""

SLOW = 2.0
"""A shard is slow that takes so many times the median of those that are finished, and at least ``SLOW_SECONDS``."""

SLOW_SECONDS = 3.0


def extract_shards(job: Extraction, shards: Sequence[Shard], on_done: OnDone) -> None:
    """Extract the shards on actors; ``on_done`` is called with each one and its report as it finishes, in any order.

    Raises
    ------
    ClusterError
        No room for the actors, or a shard that failed ``attempts`` times.
    OpaccError
        What the work itself raised.
    """
    placement = place(job.spec.extract, len(shards))
    log.info("%s with %s each", counted(placement.actors, "actor"), placement.needs)
    crew = _Crew(job, placement, on_done)
    try:
        crew.work(deque(shards))
    finally:
        crew.stop()


class _Crew:
    """The actors and the loop that feeds them."""

    def __init__(self, job: Extraction, placement: Placement, on_done: OnDone) -> None:
        self._job = job
        self._placement = placement
        self._options = job.spec.extract
        self._on_done = on_done
        self._elsewhere = Elsewhere(job.target, job.source.format)
        self._pending: deque[Shard] = deque()
        self._done: set[int] = set()  # numbers of the shards that are finished
        self._copied: set[int] = set()  # numbers of those of which a copy was given
        self._seconds: list[float] = []  # that each finished shard took
        self._tries: Counter[int] = Counter()  # shard number -> failed attempts
        self._failed_starts = 0
        self._last_look = self._last_event = time.monotonic()
        self._actors: list[Actor] = [self._start() for _ in range(placement.actors)]

    def stop(self) -> None:
        """End the actors, which may first finish what they write."""
        wait_to_leave(self._actors)
        for actor in self._actors:
            actor.kill()

    def work(self, shards: deque[Shard]) -> None:
        """Feed the actors until every shard is finished."""
        self._pending = shards
        while self._pending or self._in_flight():
            raise_if_ending()
            self._feed()
            flying = {reference: actor for actor in self._actors for reference in actor.shards}
            starting = {actor.starting: actor for actor in self._actors if actor.starting is not None}
            ready, _ = ray.wait([*flying, *starting], num_returns=1, timeout=TICK)
            raise_if_lost()
            if ready:
                self._last_event = time.monotonic()
            elif not flying and time.monotonic() - self._last_event > self._options.start_timeout:
                raise self._no_start()
            for reference in ready:
                if reference in starting:
                    self._on_started(starting[reference])
                else:
                    self._collect(flying[reference], reference)
            self._replace_hung()
            self._fit_cluster()
            for shard, report in self._elsewhere.take(self._pending):
                self._finish(shard, report)

    def _in_flight(self) -> list[Shard]:
        """Shards that are being worked on and not finished elsewhere, without copies."""
        flying = {shard.number: shard for actor in self._actors for shard in actor.shards.values()}
        return [shard for number, shard in flying.items() if number not in self._done]

    def _start(self) -> Actor:
        remote = ray.remote(Worker).options(**self._placement.needs.options(), max_concurrency=IN_FLIGHT + 1)
        return Actor(remote.remote(self._job, self._placement.readers))

    def _on_started(self, actor: Actor) -> None:
        """The model is loaded, or its error ends the run."""
        try:
            actor.machine = ray.get(actor.starting)
            actor.starting = None
        except RayTaskError as error:
            raise cause_of(error) from None
        except LOST as error:
            self._failed_starts += 1
            log.warning("an actor was lost while it loaded the model; it is replaced")
            if self._failed_starts >= self._options.attempts * self._placement.actors:
                raise ClusterError(
                    f"actors died {self._failed_starts} times while loading the model, last with: "
                    f"{shortened(str(error))}; often the node has too little memory for it"
                ) from None
            self._replace(actor)

    def _feed(self) -> None:
        """Give each actor that has none a shard, then a second to each if enough are left for those still starting."""
        started = [actor for actor in self._actors if actor.starting is None]
        for actor in started:
            if self._pending and not actor.shards:
                actor.give(self._pending.popleft())
        num_starting = len(self._actors) - len(started)
        for actor in started:
            if len(self._pending) > num_starting and len(actor.shards) < IN_FLIGHT:
                suspects = [self._tries[shard.number] for shard in (self._pending[0], *actor.shards.values())]
                if not any(suspects):
                    actor.give(self._pending.popleft())
        if not self._pending:
            self._copy_slowest([actor for actor in started if not actor.shards])

    def _copy_slowest(self, idle: list[Actor]) -> None:
        """Give an idle actor a copy of the shard that has been in flight longest, if it is slow and no suspect."""
        if not idle or not self._seconds:
            return
        limit = time.monotonic() - max(SLOW_SECONDS, SLOW * statistics.median(self._seconds))
        waiting = [(actor.given[ref], ref, actor) for actor in self._actors for ref in actor.shards]
        for given, reference, slow in sorted(waiting, key=lambda item: item[0]):
            if given > limit:
                return
            shard = slow.shards[reference]
            twin = next((actor for actor in idle if actor.machine == slow.machine), None)
            if twin and shard.number not in self._copied | self._done and not self._tries[shard.number]:
                log.info("shard %s is slow; another actor is given a copy", shard.name)
                self._copied.add(shard.number)
                twin.give(shard)
                return

    def _collect(self, actor: Actor, reference: Any) -> None:
        if reference not in actor.shards:  # its actor is lost, and it is back in the queue
            return
        try:
            report = ray.get(reference)
            seconds = time.monotonic() - actor.given[reference]
            self._seconds.append(seconds)
            self._finish(actor.take(reference), report)
        except RayTaskError as error:
            cause = cause_of(error)
            if isinstance(cause, Interrupted):
                log.warning("the machine of an actor is taken back; its %d shards start again", len(actor.shards))
                wait_to_leave([actor])
                self._give_up(actor)
            elif isinstance(cause, StorageError) or ran_out_of_memory(cause):
                self._send_back([actor.take(reference)], cause)
            elif actor.shards[reference].number in self._done:
                actor.take(reference)
            else:
                raise cause from None
        except LOST as error:
            log.warning("an actor was lost with %d shards in flight; it is replaced", len(actor.shards))
            self._give_up(actor, None if getattr(error, "preempted", False) else error)
        except RayError as error:
            raise ClusterError(
                f"the Ray cluster failed: {shortened(str(error))}; finished shards are kept, run again"
            ) from None

    def _finish(self, shard: Shard, report: ShardReport) -> None:
        if shard.number not in self._done:
            self._done.add(shard.number)
            self._on_done(shard, report)

    def _replace_hung(self) -> None:
        limit = self._options.shard_timeout
        for actor in list(self._actors):
            if limit is not None and actor.shards and time.monotonic() - actor.last_sign >= limit:
                place = f" ({where})" if (where := actor.where()) else ""
                log.warning("an actor finished nothing for %g s; it is replaced%s", limit, place)
                why = f"an example hangs{place}, or extract.shard_timeout is too short"
                self._give_up(actor, TimeoutError(f"nothing was finished for {limit:g} s: {why}"))

    def _fit_cluster(self) -> None:
        """Start more actors where there is room and work for them; give up those that wait for room that is gone."""
        if time.monotonic() - self._last_look < LOOK_FOR_ROOM:
            return
        self._last_look = time.monotonic()
        room, there = self._placement.needs.room(ray.nodes()), len(self._actors)
        starting = [actor for actor in self._actors if actor.starting is not None]
        more = min(room, self._placement.most) - there
        if more > 0 and len(self._pending) > len(starting):
            more = min(more, len(self._pending) - len(starting))
            log.info("the cluster has room for %d actors; %d more start", room, more)
            self._actors += [self._start() for _ in range(more)]
        elif there > max(room, self._placement.least) and not self._options.autoscaling:
            for actor in starting[: there - max(room, self._placement.least)]:
                log.info("the cluster has room for %d actors; one that waits for a place is given up", room)
                actor.kill()
                self._actors.remove(actor)

    def _replace(self, actor: Actor) -> None:
        actor.kill()  # it may live on, hung or cut off
        self._actors[self._actors.index(actor)] = self._start()

    def _give_up(self, actor: Actor, error: Exception | None = None) -> None:
        """Replace an actor; its shards go back. Without an error it costs them no try."""
        lost = actor.take_all()
        self._replace(actor)
        self._send_back(lost, error)

    def _send_back(self, shards: list[Shard], error: Exception | None) -> None:
        """Put shards first in the queue that are neither finished nor in flight as a copy."""
        flying = {shard.number for shard in self._in_flight()}
        for shard in reversed([shard for shard in shards if shard.number not in self._done]):
            self._tries[shard.number] += error is not None
            if error is not None and self._tries[shard.number] >= self._options.attempts:
                raise ClusterError(
                    f"shard {shard.name} ({shard.keys[0]} .. {shard.keys[-1]}) failed {self._options.attempts} "
                    f"times, last with: {_reason(error)}; finished shards are kept, so fix this one and run again"
                )
            self._copied.discard(shard.number)
            if shard.number not in flying:
                self._pending.appendleft(shard)

    def _no_start(self) -> ClusterError:
        return ClusterError(
            f"no actor with {self._placement.needs} started within {self._options.start_timeout:g} s; "
            "the cluster is full or cannot grow: ask for less, or raise extract.start_timeout"
        )


def _reason(error: Exception) -> str:
    if ran_out_of_memory(error):
        return (
            "memory ran out; lower extract.batch_size, or use fewer actors on a node "
            f"({shortened(str(getattr(error, 'cause', error)))})"
        )
    often = " (often memory runs out: lower extract.batch_size)" if isinstance(error, RayActorError) else ""
    return f"{shortened(str(error))}{often}"
