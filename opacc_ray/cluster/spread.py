"""Calls of one object's methods, spread over copies of it in actors."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from opacc_ray.cluster.local import unless_lost
from opacc_ray.cluster.placement import place
from opacc_ray.cluster.tasks import enter_folder, results_of
from opacc_ray.extract.machine import tune_allocation
from opacc_ray.spec import ExtractSpec

RESTARTS = 3  # restarts of an actor

Ask = Callable[[str, Sequence[Any]], list[Any]]
"""Returns the results of a method for each item, in their order."""


class Copy:
    """An object in an actor, made for the device that Ray assigned."""

    def __init__(self, make: Callable[[str], Any], folder: str) -> None:
        tune_allocation()
        enter_folder(folder)
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        self._own = make("cuda" if gpus else "cpu")

    def ask(self, method: str, item: Any) -> Any:
        """Return the result of a method for one item."""
        return getattr(self._own, method)(item)


@contextmanager
def spread(make: Callable[[str], Any], extract: ExtractSpec, most: int) -> Iterator[Ask]:
    """Yield a function that asks copies of ``make(device)`` in actors, as many as extraction has, ``most`` at most.

    Raises ClusterError if there is no room for them, or one dies repeatedly.
    """
    placement = place(extract, most)
    restarts = {"max_restarts": RESTARTS, "max_task_retries": RESTARTS}
    remote = ray.remote(Copy).options(**placement.needs.options(), **restarts)
    actors = [unless_lost(remote.remote, make, os.getcwd()) for _ in range(placement.actors)]

    def ask(method: str, items: Sequence[Any]) -> list[Any]:
        asked = [actors[place % len(actors)].ask.remote(method, item) for place, item in enumerate(items)]
        return results_of(asked, f"an actor that runs the model died {RESTARTS + 1} times")

    try:
        yield ask
    finally:
        for actor in actors:
            ray.kill(actor)
