"""Placement of actors: how many, with which resources, on which nodes of the cluster."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from opacc_ray.cluster.local import unless_lost
from opacc_ray.errors import ClusterError
from opacc_ray.spec import ActorRange, ExtractSpec

MAX_READERS = 16
Node = Mapping[str, Any]  # one entry of ``ray.nodes()``


@dataclass(frozen=True)
class Needs:
    """Resources of one actor, and requirements on its node."""

    cpus: int
    gpus: float = 0.0
    accelerator: str | None = None  # such as "A100", as Ray names it
    labels: Mapping[str, str] = field(default_factory=dict)  # of the node: "eu", "!eu", "in(eu,us)" or "!in(eu,us)"

    def options(self) -> dict[str, Any]:
        """Return options of a Ray actor."""
        kind = {} if self.accelerator is None else {"accelerator_type": self.accelerator}
        labels = {"label_selector": dict(self.labels)} if self.labels else {}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, **kind, **labels}

    def fit(self, node: Node) -> bool:
        """Return whether the node is alive and meets the requirements."""
        resources = node["Resources"]
        has_kind = self.accelerator is None or f"accelerator_type:{self.accelerator}" in resources
        labels = node.get("Labels", {})
        return node["Alive"] and has_kind and all(_matches(labels.get(key), want) for key, want in self.labels.items())

    def room(self, nodes: Sequence[Node]) -> int:
        """Return how many actors fit on the nodes when they are idle."""
        needed = {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})
        fitting = [node["Resources"] for node in nodes if self.fit(node)]
        return sum(int(min(own.get(name, 0) / num for name, num in needed.items())) for own in fitting)

    def __str__(self) -> str:
        kind = f" on a node with {self.accelerator}" if self.accelerator else ""
        labels = ", ".join(f"{key}: {value}" for key, value in self.labels.items())
        return f"{self.gpus:g} GPU and {self.cpus} CPU{kind}{f' labelled {labels}' if labels else ''}"


@dataclass(frozen=True)
class Placement:
    """Number of actors at the start, its limits, and the needs of each."""

    actors: int
    least: int
    most: int
    needs: Needs
    readers: int = 1  # threads of an actor that decode


def place(extract: ExtractSpec, num_shards: int) -> Placement:
    """Return the placement that the spec asks for.

    Raises ClusterError if the cluster is too small, and would otherwise be waited for without end.
    """
    nodes = unless_lost(ray.nodes)
    needs = _needs(extract, nodes)
    room = needs.room(nodes)
    asked = extract.actors
    if isinstance(asked, ActorRange):
        limits = asked.min, asked.max or num_shards
    else:
        limits = (1, num_shards) if asked == "auto" else (asked, asked)
    least, most = (max(1, min(number, num_shards)) for number in limits)
    if room < least and not extract.autoscaling:
        total = unless_lost(ray.cluster_resources)
        raise ClusterError(
            f"the spec asks for {least} actors, each with {needs}, and the cluster has "
            f"{total.get('GPU', 0):g} GPU and {total.get('CPU', 0):g} CPU in all, room for {room}; "
            "lower extract.actors, extract.gpus_per_actor or extract.threads_per_actor, add nodes, "
            "or set extract.autoscaling: true to wait for them"
        )
    wanted = most if extract.autoscaling and asked != "auto" else min(room, most)
    return Placement(max(least, wanted), least, most, needs, _readers(extract, needs, nodes))


def _readers(extract: ExtractSpec, needs: Needs, nodes: Sequence[Node]) -> int:
    """Return the threads that decode for an actor: with a GPU, its share of the CPUs of the smallest node."""
    if extract.readers != "auto":
        return extract.readers
    if not needs.gpus:
        return 1
    shares = [node["Resources"]["CPU"] * needs.gpus / node["Resources"]["GPU"] for node in nodes if needs.room([node])]
    return max(1, min(MAX_READERS, int(min(shares, default=1))))


def _needs(extract: ExtractSpec, nodes: Sequence[Node]) -> Needs:
    needs = Needs(extract.threads_per_actor, 0.0, extract.accelerator_type, extract.node_labels)
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
