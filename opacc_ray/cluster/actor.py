"""One actor of the crew: the process that extracts, and what the driver knows of it."""

import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from opacc_ray.extract.extractor import Extraction, Extractor
from opacc_ray.extract.machine import Machine
from opacc_ray.extract.process import tune_allocation
from opacc_ray.extract.shards import ShardReport
from opacc_ray.lake.examples import Shard

GRACE = 20.0
"""Seconds between SIGTERM and the end of an actor's process, for the batch that is being computed."""

ANSWER = 5.0
"""Seconds that a worker which finishes nothing has to say what it is at."""

LEAVE = 2.0
"""Seconds that actors which are no longer needed have to end the shard that they write."""


class Worker:
    """Extractor in an actor: picks its device from what Ray assigned to it, and ends cleanly on SIGTERM."""

    def __init__(self, job: Extraction, readers: int) -> None:
        tune_allocation()
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        self._extractor = Extractor(job, "cuda" if gpus else "cpu", readers)
        signal.signal(signal.SIGTERM, self._on_sigterm)  # an actor is made in its process's main thread

    def prepare(self) -> Machine:
        return self._extractor.prepare().machine

    def extract(self, shard: Shard) -> ShardReport:
        return self._extractor.extract(shard)

    def places(self) -> dict[int, tuple[str, str]]:
        """First and last id of the batch that each shard in work has come to, by the shard's number."""
        return dict(self._extractor.places)

    def leave(self) -> None:
        self._extractor.interrupt()

    def _on_sigterm(self, *_: object) -> None:
        """End the shards in flight after their batch; the driver ends the process when it knows, or it ends itself."""
        self._extractor.interrupt()
        end = threading.Timer(GRACE, os._exit, [128 + signal.SIGTERM])
        end.daemon = True
        end.start()


@dataclass(eq=False)
class Actor:
    """A worker as the driver sees it."""

    handle: Any
    starting: Any = field(init=False)  # reference of prepare(); None once the model is loaded
    machine: Machine | None = None  # known once the model is loaded
    shards: dict[Any, Shard] = field(default_factory=dict)  # reference -> shard in flight
    given: dict[Any, float] = field(default_factory=dict)  # reference -> monotonic seconds when that shard was given
    last_sign: float = 0.0  # monotonic seconds when it last finished a shard, or was given one while it had none

    def __post_init__(self) -> None:
        self.starting = self.handle.prepare.remote()

    def give(self, shard: Shard) -> None:
        """Begin a shard, after those that it has."""
        now = time.monotonic()
        if not self.shards:
            self.last_sign = now
        reference = self.handle.extract.remote(shard)
        self.shards[reference], self.given[reference] = shard, now

    def take(self, reference: Any) -> Shard:
        """Return the shard of a call that has ended, which the actor no longer has."""
        self.last_sign = time.monotonic()
        del self.given[reference]
        return self.shards.pop(reference)

    def take_all(self) -> list[Shard]:
        """Return the shards in flight, which the actor no longer has."""
        lost = list(self.shards.values())
        self.shards.clear()
        self.given.clear()
        return lost

    def where(self) -> str:
        """Which examples the worker has come to, in words; empty if it does not answer."""
        try:
            places = ray.get(self.handle.places.remote(), timeout=ANSWER)
        except RayError:  # it is dead, or what hangs leaves no other thread a turn
            return ""
        own = [(shard, places[shard.number]) for shard in self.shards.values() if shard.number in places]
        return "; ".join(f"{shard.name} was at {first!r} .. {last!r}" for shard, (first, last) in own)

    def kill(self) -> None:
        ray.kill(self.handle)


def wait_to_leave(actors: Sequence[Actor]) -> None:
    """Let actors finish what they write, and begin no further batch, for LEAVE seconds in all."""
    busy = [actor for actor in actors if actor.shards]
    for actor in busy:
        actor.handle.leave.remote()
    flying = [reference for actor in busy for reference in actor.shards]
    if flying:
        ray.wait(flying, num_returns=len(flying), timeout=LEAVE)
