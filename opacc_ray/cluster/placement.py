"""Placement of actors: how many, with which resources, on which nodes; and calls spread over copies of an object."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from opacc_ray.cluster.local import unless_lost
from opacc_ray.cluster.tasks import Driver, results_of
from opacc_ray.errors import ClusterError
from opacc_ray.extract.machine import tune_allocation
from opacc_ray.spec import ExtractSpec

MAX_READERS = 16
Node = Mapping[str, Any]  # one entry of ``ray.nodes()``


@dataclass(frozen=True)
class Needs:
    """Resources of one actor, and requirements on its node."""

    cpus: int
    gpus: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)  # of the node: "eu", "!eu", "in(eu,us)" or "!in(eu,us)"

    def options(self) -> dict[str, Any]:
        """Return options of a Ray actor."""
        labels = {"label_selector": dict(self.labels)} if self.labels else {}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, **labels}

    def fit(self, node: Node) -> bool:
        """Return whether the node is alive and meets the requirements."""
        labels = node.get("Labels", {})
        return node["Alive"] and all(_matches(labels.get(key), want) for key, want in self.labels.items())

    def room(self, nodes: Sequence[Node]) -> int:
        """Return how many actors fit on the nodes when they are idle."""
        needed = {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})
        fitting = [node["Resources"] for node in nodes if self.fit(node)]
        return sum(int(min(own.get(name, 0) / num for name, num in needed.items())) for own in fitting)

    def __str__(self) -> str:
        labels = ", ".join(f"{key}: {value}" for key, value in self.labels.items())
        return f"{self.gpus:g} GPU and {self.cpus} CPU{f' on a node labelled {labels}' if labels else ''}"


@dataclass(frozen=True)
class Placement:
    """Number of actors at the start, the largest number, and the needs of each."""

    actors: int
    most: int
    needs: Needs
    readers: int = 1  # threads of an actor that decode


def place(extract: ExtractSpec, num_shards: int) -> Placement:
    """Return the placement that the spec asks for.

    Raises ClusterError if the cluster has no room for an actor, and would otherwise be waited for without end.
    """
    nodes = unless_lost(ray.nodes)
    needs = _needs(extract, nodes)
    room = needs.room(nodes)
    most = max(1, num_shards if extract.actors == "auto" else min(extract.actors, num_shards))
    if not room and not extract.autoscaling:
        total = unless_lost(ray.cluster_resources)
        raise ClusterError(
            f"an actor needs {needs}, and no node of the cluster has room for one; the cluster has "
            f"{total.get('GPU', 0):g} GPU and {total.get('CPU', 0):g} CPU in all: lower extract.gpus_per_actor or "
            "extract.threads_per_actor, add nodes, or set extract.autoscaling: true to wait for them"
        )
    waits = extract.autoscaling and extract.actors != "auto"
    return Placement(most if waits else max(1, min(room, most)), most, needs, _readers(needs, nodes))


def _readers(needs: Needs, nodes: Sequence[Node]) -> int:
    """Return the threads that decode for an actor: with a GPU, its share of the CPUs of the smallest node."""
    if not needs.gpus:
        return 1
    shares = [node["Resources"]["CPU"] * needs.gpus / node["Resources"]["GPU"] for node in nodes if needs.room([node])]
    return max(1, min(MAX_READERS, int(min(shares, default=1))))


def _needs(extract: ExtractSpec, nodes: Sequence[Node]) -> Needs:
    needs = Needs(extract.threads_per_actor, 0.0, extract.node_labels)
    gpus = extract.gpus_per_actor
    if gpus == "auto":
        gpus = any(node["Resources"].get("GPU", 0) > 0 for node in nodes if needs.fit(node))
    return replace(needs, gpus=float(gpus))


def _matches(value: str | None, wanted: str) -> bool:
    """Return whether a node's label matches one of Ray's label selectors."""
    found = re.fullmatch(r"(!?)(?:in\((.*)\)|([^()]*))", wanted)
    assert found is not None  # the spec is validated
    allowed = found[2].split(",") if found[2] is not None else [found[3]]
    return (value in allowed) != bool(found[1])


RESTARTS = 3  # restarts of an actor

Ask = Callable[[str, Sequence[Any]], list[Any]]
"""Returns the results of a method for each item, in their order."""


class Copy:
    """An object in an actor, made for the device that Ray assigned."""

    def __init__(self, make: Callable[[str], Any], driver: Driver) -> None:
        tune_allocation()
        driver.join()
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
    actors = [unless_lost(remote.remote, make, Driver.here()) for _ in range(placement.actors)]

    def ask(method: str, items: Sequence[Any]) -> list[Any]:
        asked = [actors[place % len(actors)].ask.remote(method, item) for place, item in enumerate(items)]
        return results_of(asked, f"an actor that runs the model died {RESTARTS + 1} times")

    try:
        yield ask
    finally:
        for actor in actors:
            ray.kill(actor)
