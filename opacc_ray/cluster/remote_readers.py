"""Readers on other nodes of a cluster: CPUs that feed a GPU, where its own node has too few of them.

Each is an actor of one CPU on a node without GPUs, and owned by the actor that computes, with which it ends. It reads,
decodes and transforms as a reader's process does (:mod:`opacc_ray.extract.readers`), and its batches come by Ray's
object store, so features are the same, byte for byte. If its node is lost, that costs the shard a try, and the reader
starts again where a CPU is free.
"""

from math import prod
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError, RayTaskError

from opacc_ray.cluster.tasks import Driver, cause_of
from opacc_ray.errors import shortened
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.readers import Answer, Reader, Reading, Slot, Unit, nameless_file
from opacc_ray.extract.user_code import EndedError

NODE = "ray.io/node-id"
"""Label that Ray gives to each node."""


class RemoteReading:
    """A reader in an actor."""

    def __init__(self, job: Extraction, driver: Driver) -> None:
        driver.join()
        file = nameless_file()
        self._slot, self._reading = Slot(file), Reading(job, [file])

    def ready(self) -> None:
        """Return once the transform is loaded."""

    def next(self, unit: Unit | None) -> tuple[Answer, NDArray[np.uint8]]:
        """Return what :meth:`Reading.next` returns, and the bytes of the inputs."""
        batch, layout, bad = self._reading.next(unit, 0)
        size = 4 * prod(layout[0]) if batch.ids else 0
        inputs = np.frombuffer(self._slot.memory(size), np.uint8, size) if size else np.empty(0, np.uint8)
        return (batch, layout, bad), inputs


class RemoteReader(Reader):
    """The handle of one of them, in the actor that computes."""

    def __init__(self, job: Extraction, driver: Driver) -> None:
        super().__init__(job)
        self._driver = driver
        self._actor: Any = None
        self._inputs: dict[int, NDArray[np.uint8]] = {}  # by slot

    def start(self) -> Any:
        """Start the actor, and wait until there is a CPU for it."""
        if self._actor is None:
            gpus = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]
            remote = ray.remote(RemoteReading).options(
                num_cpus=1, scheduling_strategy="SPREAD", label_selector={NODE: f"!in({','.join(gpus)})"}
            )
            self._actor = remote.remote(self._job, self._driver)
            self._get(self._actor.ready.remote())
        return self._actor

    def ask(self, unit: Unit | None, slot: int) -> Answer:
        """Return the answer of the actor; raises EndedError if it is lost."""
        answer, self._inputs[slot] = self._get(self.start().next.remote(unit))
        return answer

    def memory(self, slot: int, num_bytes: int) -> Any:
        """Return a copy of what came, since Ray's memory must not be written to."""
        return self._inputs.pop(slot).copy()

    def end(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None:
            ray.kill(actor)

    def _get(self, reference: Any) -> Any:
        try:
            return ray.get(reference)
        except RayTaskError as error:
            raise cause_of(error) from None
        except RayError as error:
            self.end()
            raise EndedError(f"a reader on another node was lost: {shortened(str(error))}") from None
