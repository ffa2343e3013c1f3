"""Functions in Ray tasks, and the errors of Ray as errors of this package."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from opacc_ray.cluster.local import unless_lost
from opacc_ray.errors import ClusterError, OpaccError, StorageError, shortened

log = logging.getLogger(__name__)

TASK_RETRIES = 3  # retries of a task whose worker died
PATIENCE = 120.0  # seconds that the nodes may take to answer

LOST = (RayActorError, WorkerCrashedError, NodeDiedError, OutOfMemoryError, ObjectLostError)
"""Errors of Ray for work that was lost with its process, its node or its result, and not by a fault of its own.

An actor that Ray ends because its node runs out of memory is an OutOfMemoryError, and no RayActorError; one whose owner
died is an OwnerDiedError, an ObjectLostError.
"""

Item = TypeVar("Item")
Result = TypeVar("Result")


def cause_of(error: RayTaskError) -> Exception:
    """Return the error that the work raised, without the traceback that Ray puts into its text."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, OpaccError) else error


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether work failed because it had too little memory."""
    return isinstance(error, OutOfMemoryError) or isinstance(getattr(error, "cause", error), MemoryError)


def map_tasks(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Iterator[tuple[Item, Result]]:
    """Run ``function(item)`` for every item in tasks of one CPU, ``workers`` at a time (default: all CPUs).

    Yields each item with its result as it finishes, in any order. A task whose worker dies is retried. Raises
    ClusterError if it dies more than ``TASK_RETRIES`` times, and each OpaccError of the function itself.
    """
    at_once = workers or max(1, int(unless_lost(ray.cluster_resources).get("CPU", 1)))
    remote, folder = ray.remote(_call).options(num_cpus=1, max_retries=TASK_RETRIES), os.getcwd()
    waiting = iter(items)
    in_flight: dict[Any, Item] = {}
    try:
        while True:
            for item in islice(waiting, at_once - len(in_flight)):
                in_flight[unless_lost(remote.remote, function, item, folder)] = item
            if not in_flight:
                return
            (reference,), _ = unless_lost(ray.wait, list(in_flight), num_returns=1)
            item = in_flight.pop(reference)
            try:
                result = ray.get(reference)
            except RayTaskError as error:
                raise cause_of(error) from None
            except RayError as error:
                raise ClusterError(
                    f"{item}: the worker died {TASK_RETRIES + 1} times: {shortened(str(error))}"
                ) from None
            yield item, result
    finally:
        for reference in in_flight:
            ray.cancel(reference)


def _call(function: Callable[[Item], Result], item: Item, folder: str) -> Result:
    enter_folder(folder)
    return function(item)


def enter_folder(folder: str) -> None:
    """Change to the driver's folder, if this node has it: relative paths in the user's code mean that one."""
    with suppress(OSError):
        os.chdir(folder)


def results_of(references: Sequence[Any], died: str) -> list[Any]:
    """Return the results of calls of actors; raises ClusterError, with the text ``died``, if one is lost for good."""
    try:
        return unless_lost(ray.get, list(references))
    except RayTaskError as error:
        raise cause_of(error) from None
    except LOST as error:
        raise ClusterError(f"{died}: {shortened(str(error))}") from None


def refuse_unseen(paths: Mapping[str, str]) -> None:
    """Raise StorageError if a node lacks one of the paths, which are by their keys in the spec; it names the first."""
    asked = {}
    for node in ray.nodes() if paths else []:
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            remote = ray.remote(_unseen).options(num_cpus=0, scheduling_strategy=there)
            asked[remote.remote(dict(paths))] = node["NodeManagerAddress"]
    ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE) if asked else ([], [])
    for reference in ready:
        try:
            unseen = ray.get(reference)
        except RayError:  # the node has gone since, and runs nothing
            continue
        if unseen:
            raise StorageError(
                f"{unseen[0]}: there is no {paths[unseen[0]]} for the worker on {asked[reference]}; put it on a file "
                "system that all nodes share under one path, or on S3"
            )
    if late:
        log.warning("%d nodes did not answer within %g s whether the run's folders exist there", len(late), PATIENCE)


def _unseen(paths: dict[str, str]) -> list[str]:
    return [key for key, path in paths.items() if not os.path.exists(path)]
