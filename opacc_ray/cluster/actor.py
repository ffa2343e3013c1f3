"""One actor of the pool: the process that extracts shards, and the driver's handle to it."""

import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from opacc_ray.cluster.tasks import enter_folder
from opacc_ray.extract.extractor import Extraction, Extractor
from opacc_ray.extract.machine import Machine, tune_allocation
from opacc_ray.extract.shards import ShardReport
from opacc_ray.lake.examples import Shard

GRACE = 20.0
"""Seconds from SIGTERM to the end of an actor's process, in which it may finish a batch."""

ANSWER_WITHIN = 5.0
"""Seconds in which a worker that finishes nothing must report its current examples."""

LEAVE_WITHIN = 2.0
"""Seconds in which actors that are no longer needed may finish the file that they write."""


class Worker:
    """Extractor in an actor: uses the device that Ray assigned, and ends cleanly on SIGTERM."""

    def __init__(self, job: Extraction, readers: int) -> None:
        tune_allocation()
        enter_folder(job.modules)
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        self._extractor = Extractor(job, "cuda" if gpus else "cpu", readers)
        signal.signal(signal.SIGTERM, self._on_sigterm)  # an actor is made in its process's main thread

    def prepare(self) -> Machine:
        return self._extractor.prepare().machine

    def extract(self, shard: Shard) -> ShardReport:
        return self._extractor.extract(shard)

    def places(self) -> dict[int, tuple[str, str]]:
        """Return the first and last id of the current batch of each shard in work, by the shard's number."""
        return dict(self._extractor.places)

    def leave(self) -> None:
        self._extractor.interrupt()

    def _on_sigterm(self, *_: object) -> None:
        """End the shards in flight after their batch; the driver ends the process, or else it ends itself."""
        self._extractor.interrupt()
        end = threading.Timer(GRACE, os._exit, [128 + signal.SIGTERM])
        end.daemon = True
        end.start()


@dataclass(eq=False)
class Actor:
    """The driver's handle to a worker."""

    handle: Any
    starting: Any = field(init=False)  # reference of prepare(); None once the model is loaded
    machine: Machine | None = None  # known once the model is loaded
    shards: dict[Any, Shard] = field(default_factory=dict)  # reference -> shard in flight
    assigned: dict[Any, float] = field(default_factory=dict)  # reference -> monotonic seconds of its assignment
    last_sign: float = 0.0  # monotonic seconds when it last finished a shard, or got one while idle

    def __post_init__(self) -> None:
        self.starting = self.handle.prepare.remote()

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

    def where(self) -> str:
        """Return in words which examples the worker is at; empty if it does not answer."""
        try:
            places = ray.get(self.handle.places.remote(), timeout=ANSWER_WITHIN)
        except RayError:  # it is dead, or the code that hangs blocks all threads
            return ""
        own = [(shard, places[shard.number]) for shard in self.shards.values() if shard.number in places]
        return "; ".join(f"{shard.name} was at {first!r} .. {last!r}" for shard, (first, last) in own)


def wait_to_leave(actors: Sequence[Actor]) -> None:
    """Let actors finish the files that they write, without a further batch, for LEAVE_WITHIN seconds in all."""
    busy = [actor for actor in actors if actor.shards]
    for actor in busy:
        actor.handle.leave.remote()
    in_flight = [reference for actor in busy for reference in actor.shards]
    if in_flight:
        ray.wait(in_flight, num_returns=len(in_flight), timeout=LEAVE_WITHIN)
