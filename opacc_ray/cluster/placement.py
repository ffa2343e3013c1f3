"""How many actors a job gets, with what each, and on which nodes of the cluster."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from opacc_ray.errors import ClusterError
from opacc_ray.spec import ActorRange, ExtractSpec

MAX_READERS = 16

Node = Mapping[str, Any]
"""One entry of ``ray.nodes()``."""


@dataclass(frozen=True)
class Needs:
    """What one actor is given, and what its node must be."""

    cpus: int
    gpus: float = 0.0
    accelerator: str | None = None  # such as "A100", as Ray names it
    labels: Mapping[str, str] = field(default_factory=dict)  # of the node: "eu", "!eu", "in(eu,us)" or "!in(eu,us)"

    def options(self) -> dict[str, Any]:
        """Options of a Ray actor."""
        found: dict[str, Any] = {"num_cpus": self.cpus, "num_gpus": self.gpus}
        if self.accelerator is not None:
            found["accelerator_type"] = self.accelerator
        if self.labels:
            found["label_selector"] = dict(self.labels)
        return found

    def fit(self, node: Node) -> bool:
        """Tell whether the node is alive and one that may be used."""
        there = node["Resources"]
        has_kind = self.accelerator is None or f"accelerator_type:{self.accelerator}" in there
        labels = node.get("Labels", {})
        return node["Alive"] and has_kind and all(_matches(labels.get(key), want) for key, want in self.labels.items())

    def room(self, nodes: Sequence[Node]) -> int:
        """How many actors fit on the nodes, each on one of them, whoever uses them now."""
        return sum(self._room_on(node["Resources"]) for node in nodes if self.fit(node))

    def _room_on(self, there: Mapping[str, float]) -> int:
        by_cpus = there.get("CPU", 0) / self.cpus
        return int(min(by_cpus, there.get("GPU", 0) / self.gpus) if self.gpus else by_cpus)

    def __str__(self) -> str:
        kind = f" on a node with {self.accelerator}" if self.accelerator else ""
        labels = ", ".join(f"{key}: {value}" for key, value in self.labels.items())
        return f"{self.gpus:g} GPU and {self.cpus} CPU{kind}{f' labelled {labels}' if labels else ''}"


@dataclass(frozen=True)
class Placement:
    """How many actors to start with, between which numbers they may vary, and what each needs."""

    actors: int
    least: int
    most: int
    needs: Needs
    readers: int = 1  # threads of an actor that decode


def place(extract: ExtractSpec, num_shards: int) -> Placement:
    """Return what the spec asks for, if the cluster can give it.

    Raises
    ------
    ClusterError
        In one sentence what is asked and what is there, instead of waiting for ever.
    """
    nodes = ray.nodes()
    needs = _needs(extract, nodes)
    room = needs.room(nodes)
    least, most = (max(1, min(number, num_shards)) for number in _range(extract, num_shards))
    if room < least and not extract.autoscaling:
        there = ray.cluster_resources()
        raise ClusterError(
            f"the spec asks for {least} actors, each with {needs}, and the cluster has "
            f"{there.get('GPU', 0):g} GPU and {there.get('CPU', 0):g} CPU in all, room for {room}; "
            "lower extract.actors, extract.gpus_per_actor or extract.threads_per_actor, add nodes, "
            "or set extract.autoscaling: true to wait for them"
        )
    asked = most if extract.autoscaling and extract.actors != "auto" else min(room, most)
    return Placement(max(least, asked), least, most, needs, _readers(extract, needs, nodes))


def _readers(extract: ExtractSpec, needs: Needs, nodes: Sequence[Node]) -> int:
    """Threads that decode for one actor: beside a GPU, its share of the CPUs of the node that has fewest."""
    if extract.readers != "auto":
        return extract.readers
    if not needs.gpus:
        return 1
    shares = [node["Resources"]["CPU"] * needs.gpus / node["Resources"]["GPU"] for node in nodes if needs.room([node])]
    return max(1, min(MAX_READERS, int(min(shares, default=1))))


def _needs(extract: ExtractSpec, nodes: Sequence[Node]) -> Needs:
    needs = Needs(extract.threads_per_actor, 0.0, extract.accelerator_type, extract.node_labels)
    if extract.gpus_per_actor == "auto":
        gpus = float(any(node["Resources"].get("GPU", 0) > 0 for node in nodes if needs.fit(node)))
    else:
        gpus = float(extract.gpus_per_actor)
    return Needs(needs.cpus, gpus, needs.accelerator, needs.labels)


def _range(extract: ExtractSpec, num_shards: int) -> tuple[int, int]:
    """The fewest and the most actors that the spec allows."""
    asked = extract.actors
    if isinstance(asked, ActorRange):
        return asked.min, asked.max or num_shards
    return (1, num_shards) if asked == "auto" else (asked, asked)


def _matches(value: str | None, wanted: str) -> bool:
    """Whether a node's label is what is wanted, in the syntax of Ray's label selectors."""
    found = re.fullmatch(r"(!?)(?:in\((.*)\)|([^()]*))", wanted)
    assert found is not None  # the spec has checked it
    allowed = found[2].split(",") if found[2] is not None else [found[3]]
    return (value in allowed) != bool(found[1])
