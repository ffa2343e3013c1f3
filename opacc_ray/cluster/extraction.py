"""Extraction on actors: how many, what each is given, and what happens when one dies.

The driver keeps the queue of shards. Every actor is given one, and a second to read while it computes if enough are
left for the others. An actor that dies, or finishes nothing for ``shard_timeout`` seconds, is replaced and its shards
go back to the queue; a shard that was in flight then is suspect and from then on has an actor to itself. Storage that
fails, and memory that runs out, cost a shard a try, too. After ``attempts`` tries the run fails with the shard's name:
a shard that fails never becomes a smaller pool.
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from opacc_ray.cluster.failures import LOST, brief, cause_of, ran_out_of_memory
from opacc_ray.errors import ClusterError, StorageError
from opacc_ray.extract.extractor import Extraction, Extractor
from opacc_ray.extract.shards import ShardReport
from opacc_ray.lake.examples import Shard
from opacc_ray.spec import ExtractSpec

log = logging.getLogger(__name__)

OnDone = Callable[[Shard, ShardReport], None]
"""Called with each shard that is finished, and its report."""

IN_FLIGHT = 2
"""Shards an actor holds: one computing, one being read."""


@dataclass(frozen=True)
class Placement:
    """How many actors, with what each."""

    actors: int
    gpus: float
    cpus: int


def place(extract: ExtractSpec, num_shards: int) -> Placement:
    """What the spec asks for, if the cluster can give it.

    Raises
    ------
    ClusterError
        In one sentence what is asked and what is there, instead of waiting for ever.
    """
    there = ray.cluster_resources()
    gpus_there, cpus_there = there.get("GPU", 0), there.get("CPU", 0)
    gpus = float(gpus_there > 0) if extract.gpus_per_actor == "auto" else float(extract.gpus_per_actor)
    cpus = extract.threads_per_actor
    room = int(min(gpus_there / gpus if gpus else cpus_there, cpus_there / cpus))
    wanted = min(room, num_shards) if extract.actors == "auto" else extract.actors
    wanted = max(1, min(wanted, num_shards))
    if room < wanted and not extract.autoscaling:
        raise ClusterError(
            f"the spec asks for {wanted} actors with {gpus:g} GPU and {cpus} CPU each, and the cluster has "
            f"{gpus_there:g} GPU and {cpus_there:g} CPU in all; lower extract.actors, extract.gpus_per_actor or "
            "extract.threads_per_actor, add nodes, or set extract.autoscaling: true to wait for them"
        )
    return Placement(wanted, gpus, cpus)


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
    log.info("%d actors with %g GPU and %d CPU each", placement.actors, placement.gpus, placement.cpus)
    crew = _Crew(job, placement)
    try:
        crew.work(deque(shards), on_done)
    finally:
        crew.stop()


class _Worker:
    """Extractor in an actor: picks its device from what Ray assigned to it."""

    def __init__(self, job: Extraction) -> None:
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        self._extractor = Extractor(job, "cuda" if gpus else "cpu")

    def prepare(self) -> None:
        self._extractor.prepare()

    def extract(self, shard: Shard) -> ShardReport:
        return self._extractor.extract(shard)


@dataclass(eq=False)
class _Actor:
    handle: Any
    starting: Any  # reference of prepare(); None once the model is loaded
    shards: dict[Any, Shard] = field(default_factory=dict)  # reference -> shard in flight
    last_sign: float = 0.0  # monotonic seconds when it last finished a shard, or was given one while it had none


class _Crew:
    """The actors and the loop that feeds them."""

    def __init__(self, job: Extraction, placement: Placement) -> None:
        self._job = job
        self._placement = placement
        self._options = job.spec.extract
        self._tries: Counter[int] = Counter()  # shard number -> failed attempts
        self._failed_starts = 0
        self._actors: list[_Actor] = [self._start() for _ in range(placement.actors)]

    def stop(self) -> None:
        for actor in self._actors:
            ray.kill(actor.handle)

    def work(self, pending: deque[Shard], on_done: OnDone) -> None:
        """Feed the actors until nothing is pending or in flight."""
        while pending or any(actor.shards for actor in self._actors):
            self._feed(pending)
            flying = {reference: actor for actor in self._actors for reference in actor.shards}
            starting = {actor.starting: actor for actor in self._actors if actor.starting is not None}
            ready, _ = ray.wait([*flying, *starting], num_returns=1, timeout=self._patience())
            if not ready and not flying:
                raise self._no_start()
            for reference in ready:
                if reference in starting:
                    self._on_started(starting[reference])
                else:
                    self._collect(flying[reference], reference, pending, on_done)
            self._replace_hung(pending)

    def _patience(self) -> float | None:
        """Seconds until an actor counts as hung, or as one that never starts; None to wait for ever."""
        busy = [actor.last_sign for actor in self._actors if actor.shards]
        if not busy:
            return self._options.start_timeout
        limit = self._options.shard_timeout
        return None if limit is None else max(0.0, min(busy) + limit - time.monotonic())

    def _replace_hung(self, pending: deque[Shard]) -> None:
        limit = self._options.shard_timeout
        for actor in list(self._actors):
            if limit is not None and actor.shards and time.monotonic() - actor.last_sign >= limit:
                log.warning("an actor finished nothing for %g s; it is replaced", limit)
                what = f"nothing was finished for {limit:g} s: an example hangs, or extract.shard_timeout is too short"
                self._give_up(actor, pending, TimeoutError(what))

    def _start(self) -> _Actor:
        remote = ray.remote(_Worker).options(
            num_cpus=self._placement.cpus, num_gpus=self._placement.gpus, max_concurrency=IN_FLIGHT
        )
        handle = remote.remote(self._job)
        return _Actor(handle, handle.prepare.remote())

    def _replace(self, actor: _Actor) -> None:
        ray.kill(actor.handle)  # it may live on, hung or cut off
        self._actors[self._actors.index(actor)] = self._start()

    def _on_started(self, actor: _Actor) -> None:
        """The model is loaded, or its error ends the run."""
        try:
            ray.get(actor.starting)
            actor.starting = None
        except RayTaskError as error:
            raise cause_of(error) from None
        except LOST as error:
            self._failed_starts += 1
            log.warning("an actor was lost while it loaded the model; it is replaced")
            if self._failed_starts >= self._options.attempts * self._placement.actors:
                raise ClusterError(
                    f"actors died {self._failed_starts} times while loading the model, last with: {brief(error)}; "
                    "often the node has too little memory for it"
                ) from None
            self._replace(actor)

    def _feed(self, pending: deque[Shard]) -> None:
        """Give each actor that has none a shard, then a second to each if enough are left for those still starting."""
        started = [actor for actor in self._actors if actor.starting is None]
        for actor in started:
            if pending and not actor.shards:
                actor.last_sign = time.monotonic()
                self._give(actor, pending.popleft())
        num_starting = len(self._actors) - len(started)
        for actor in started:
            if len(pending) > num_starting and len(actor.shards) < IN_FLIGHT:
                suspects = [self._tries[shard.number] for shard in (pending[0], *actor.shards.values())]
                if not any(suspects):
                    self._give(actor, pending.popleft())

    def _give(self, actor: _Actor, shard: Shard) -> None:
        actor.shards[actor.handle.extract.remote(shard)] = shard

    def _collect(self, actor: _Actor, reference: Any, pending: deque[Shard], on_done: OnDone) -> None:
        if reference not in actor.shards:  # its actor is lost, and it is back in the queue
            return
        try:
            report = ray.get(reference)
            actor.last_sign = time.monotonic()
            on_done(actor.shards.pop(reference), report)
        except RayTaskError as error:
            cause = cause_of(error)
            if not isinstance(cause, StorageError) and not ran_out_of_memory(cause):
                raise cause from None
            actor.last_sign = time.monotonic()
            self._send_back([actor.shards.pop(reference)], pending, cause)
        except LOST as error:
            log.warning("an actor was lost with %d shards in flight; it is replaced", len(actor.shards))
            self._give_up(actor, pending, error)
        except RayError as error:
            raise ClusterError(f"the Ray cluster failed: {brief(error)}; finished shards are kept, run again") from None

    def _give_up(self, actor: _Actor, pending: deque[Shard], error: Exception) -> None:
        """Replace an actor; its shards go back."""
        lost = list(actor.shards.values())
        actor.shards.clear()
        self._replace(actor)
        self._send_back(lost, pending, error)

    def _send_back(self, shards: list[Shard], pending: deque[Shard], error: Exception) -> None:
        for shard in reversed(shards):
            self._tries[shard.number] += 1
            if self._tries[shard.number] >= self._options.attempts:
                raise ClusterError(
                    f"shard {shard.name} ({shard.keys[0]} .. {shard.keys[-1]}) failed {self._options.attempts} "
                    f"times, last with: {_reason(error)}; finished shards are kept, so fix this one and run again"
                )
            pending.appendleft(shard)

    def _no_start(self) -> ClusterError:
        return ClusterError(
            f"no actor with {self._placement.gpus:g} GPU and {self._placement.cpus} CPU started within "
            f"{self._options.start_timeout:g} s; the cluster is full or cannot grow: "
            "ask for less, or raise extract.start_timeout"
        )


def _reason(error: Exception) -> str:
    if ran_out_of_memory(error):
        return (
            "memory ran out; lower extract.batch_size, or use fewer actors on a node "
            f"({brief(getattr(error, 'cause', error))})"
        )
    often = " (often memory runs out: lower extract.batch_size)" if isinstance(error, RayActorError) else ""
    return f"{brief(error)}{often}"
