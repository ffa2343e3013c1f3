"""Whether workers on other machines see the folders and files that a run names by their paths."""

import logging
import os
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from opacc_ray.errors import StorageError

log = logging.getLogger(__name__)

PATIENCE = 120.0
"""Seconds that the nodes may take to answer."""


def refuse_unseen(paths: Mapping[str, str]) -> None:
    """Ask a worker on every node whether it sees the paths, which are named by their keys in the spec.

    Raises
    ------
    StorageError
        A node does not; the message names the first, and the path.
    """
    nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    asked = {_ask(node, dict(paths)): address for node, address in nodes.items() if paths}
    ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE) if asked else ([], [])
    for reference in ready:
        try:
            unseen = ray.get(reference)
        except RayError:  # the node has gone since; what is not there runs nothing
            continue
        if unseen:
            raise StorageError(
                f"{unseen[0]}: there is no {paths[unseen[0]]} for the worker on {asked[reference]}; put it on a file "
                "system that all nodes share under one path, or on S3"
            )
    if late:
        log.warning("%d nodes did not say in %g s whether they see the run's folders", len(late), PATIENCE)


def _ask(node: str, paths: dict[str, str]) -> Any:
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(_unseen).options(num_cpus=0, scheduling_strategy=strategy).remote(paths)


def _unseen(paths: dict[str, str]) -> list[str]:
    """Keys of the paths that do not exist here."""
    return [key for key, path in paths.items() if not os.path.exists(path)]
