"""Features of a pool in the memory of actors, for pools that are too large for the driver."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import ray

from opacc_ray.cluster.local import unless_lost
from opacc_ray.cluster.tasks import results_of
from opacc_ray.errors import counted
from opacc_ray.extract.feature_files import Features, StoredParts
from opacc_ray.parts.view import Call, add_up

RESTARTS = 3  # restarts of an actor that holds features


@contextlib.contextmanager
def hold(features: Features, names: Sequence[str]) -> Iterator["ActorParts"]:
    """Yield the named features in the memory of one actor per CPU of the cluster."""
    num_actors = max(1, min(len(features.parts()), int(unless_lost(ray.cluster_resources).get("CPU", 1))))
    parts = ActorParts(features, names, num_actors)
    try:
        yield parts
    finally:
        parts.close()


class ActorParts(StoredParts):
    """Parts of a view in actors, each with consecutive ones: see :mod:`opacc_ray.parts.view`.

    An actor reads a feature at its first use. The driver reads ids, and columns for itself, from storage.
    """

    def __init__(self, features: Features, names: Sequence[str], num_actors: int) -> None:
        super().__init__(features, names)
        own = self._parts
        bounds = [len(own) * i // num_actors for i in range(num_actors + 1)]
        self._home = [
            (actor, part - start) for actor, (start, stop) in enumerate(pairwise(bounds)) for part in range(start, stop)
        ]
        remote = ray.remote(StoredParts).options(num_cpus=0, max_restarts=RESTARTS, max_task_retries=RESTARTS)
        self._actors = []
        for start, stop in pairwise(bounds):
            files = tuple(file for part in own[start:stop] for file in part.files)
            self._actors.append(unless_lost(remote.remote, features.part(files), list(names), (), own[start:stop]))

    def call(self, calls: Sequence[Call]) -> list[Any]:
        """Return the answer to each call; each actor gets one message."""
        whole: list[Any] = [None] * len(calls)
        places = self._places(calls)
        for mine, found in zip(places.values(), self._ask("call", places, calls), strict=True):
            for i, answer in zip(mine, found, strict=True):
                whole[i] = answer
        return whole

    def total(self, calls: Sequence[Call]) -> Any:
        """Return the sum of the answers; each actor adds up those of its own parts."""
        return add_up(self._ask("total", self._places(calls), calls))

    def _places(self, calls: Sequence[Call]) -> dict[int, list[int]]:
        places = defaultdict(list)
        for place, (part, _, _) in enumerate(calls):
            places[self._home[part][0]].append(place)
        return places

    def _ask(self, method: str, places: dict[int, list[int]], calls: Sequence[Call]) -> list[Any]:
        """Return the answer of each actor to its calls, which run in parallel."""
        references = []
        for actor, mine in places.items():
            local = [(self._home[calls[i][0]][1], *calls[i][1:]) for i in mine]
            references.append(getattr(self._actors[actor], method).remote(local))
        return results_of(references, f"an actor that holds features died {counted(RESTARTS + 1, 'time')}")

    def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
