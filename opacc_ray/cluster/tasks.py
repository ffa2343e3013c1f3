"""Work in Ray: placement of actors, functions in tasks, copies of an object and features of large pools in actors.

Errors of Ray become this package's.
"""

import contextlib
import logging
import os
import platform
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any, NamedTuple, TypeVar

import ray
import ray.cloudpickle
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

from opacc_ray import errors
from opacc_ray.cluster.local import unless_lost
from opacc_ray.errors import ClusterError, OpaccError, StorageError, counted, shortened, without_colours
from opacc_ray.extract import machine
from opacc_ray.extract.feature_files import Features, StoredParts
from opacc_ray.extract.readers import MAX_READERS, num_readers, shards_in_flight
from opacc_ray.extract.user_code import EndedError
from opacc_ray.parts.view import Call, add_up
from opacc_ray.spec import ExtractSpec

ray.cloudpickle.register_pickle_by_value(machine)  # for nodes with another opacc

log = logging.getLogger(__name__)

TASK_RETRIES = 3  # retries of a task whose worker died
RESTARTS = 3  # restarts of an actor that holds features, or an object
PATIENCE = 120.0  # seconds that the nodes may take to answer

LOST = (RayActorError, WorkerCrashedError, NodeDiedError, OutOfMemoryError, ObjectLostError)
"""Errors of Ray for work that was lost with its process, its node or its result, and not by a fault of its own.

An actor that Ray ends because its node runs out of memory is an OutOfMemoryError, and no RayActorError; one whose owner
died is an OwnerDiedError, an ObjectLostError.
"""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Driver(NamedTuple):
    """The process that drives the work, as its workers must know it."""

    folder: str
    software: dict[str, str]

    @classmethod
    def here(cls) -> "Driver":
        return cls(os.getcwd(), machine.software())

    def join(self) -> None:
        """Change to the driver's folder, if this node has it: relative paths in the user's code mean that one.

        Raises ClusterError if this worker has other software than the driver.
        """
        _refuse_other(self.software, machine.software(), f"{platform.node()} ({ray.util.get_node_ip_address()})")
        with suppress(OSError):
            os.chdir(self.folder)

    def assigned_device(self) -> str:
        """Join as a worker that computes; return the device that Ray assigned, "cuda" or "cpu"."""
        machine.tune_allocation()
        self.join()
        return "cuda" if ray.get_runtime_context().get_accelerator_ids().get("GPU", []) else "cpu"


def _refuse_other(here: dict[str, str], there: dict[str, str], node: str) -> None:
    if other := machine.difference(here, there):
        raise ClusterError(f"the worker on {node} {other}; install one version on all nodes, and run it again")


_FRAMES = re.compile(r'^  File ".*\n(?: {4}.*\n)*', re.MULTILINE)  # of a traceback, with the lines of code below


def cause_of(error: RayError) -> Exception:
    """Return the error that the work raised, without the frames and colours that Ray puts into its text.

    One that this package did not raise is a ClusterError, which names the node; the traceback is in its details. A lack
    of memory stays what it is.
    """
    cause = getattr(error, "cause", None)
    if isinstance(cause, OpaccError):
        return cause
    if isinstance(cause, MemoryError):
        return error
    text = without_colours(str(error))
    reason, node = _FRAMES.split(text)[-1].strip(), re.search(r"\bip=([^,)\s]+)", text)
    kind, _, rest = reason.partition(": ")
    known = getattr(errors, kind.removeprefix("opacc_ray.errors."), None)  # raised while an actor was made
    if isinstance(known, type) and issubclass(known, OpaccError):
        return known(rest)
    failure = ClusterError(f"the worker on {node[1] if node else 'a node'} failed: {shortened(reason)}")
    failure.details = text
    return failure


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether work failed because it had too little memory."""
    return isinstance(error, OutOfMemoryError) or isinstance(getattr(error, "cause", error), MemoryError)


def lost_a_process(error: BaseException) -> bool:
    """Return whether work failed because a process died, hung or ran out of memory: another one may do it."""
    lost = (TimeoutError, EndedError, *LOST)
    return isinstance(error, lost) or isinstance(getattr(error, "cause", None), EndedError) or ran_out_of_memory(error)


def map_tasks(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Iterator[tuple[Item, Result]]:
    """Run ``function(item)`` for every item in tasks of one CPU, ``workers`` at a time (default: all CPUs).

    Yields each item with its result as it finishes, in any order. A task whose worker dies is retried. Raises
    ClusterError if it dies more than ``TASK_RETRIES`` times, and each OpaccError of the function itself.
    """
    at_once = workers or max(1, int(unless_lost(ray.cluster_resources).get("CPU", 1)))
    remote, driver = ray.remote(_call).options(num_cpus=1, max_retries=TASK_RETRIES), Driver.here()
    waiting = iter(items)
    in_flight: dict[Any, Item] = {}
    try:
        while True:
            for item in islice(waiting, at_once - len(in_flight)):
                in_flight[unless_lost(remote.remote, function, item, driver)] = item
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


def _call(function: Callable[[Item], Result], item: Item, driver: Driver) -> Result:
    driver.join()
    return function(item)


def results_of(references: Sequence[Any], died: str) -> list[Any]:
    """Return the results of calls of actors; raises ClusterError, with the text ``died``, if one is lost for good."""
    try:
        return unless_lost(ray.get, list(references))
    except RayTaskError as error:
        raise cause_of(error) from None
    except LOST as error:
        raise_if_unmade(error)
        raise ClusterError(f"{died}: {shortened(str(error))}") from None


def raise_if_unmade(error: RayError) -> None:
    """Raise the error for which an actor could not be made, if it was not lost: another one would not help."""
    if getattr(error, "actor_init_failed", False):
        raise cause_of(error) from None


def refuse_unfit(paths: Mapping[str, str]) -> None:
    """Refuse a node that has other software than this process, or lacks one of the paths of the spec, by their keys.

    Raises ClusterError or StorageError, which name the node. Nodes that join later are compared by :meth:`Driver.join`.
    """
    asked, here = {}, machine.software()
    for node in ray.nodes():
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            remote = ray.remote(machine.look).options(num_cpus=0, scheduling_strategy=there)
            asked[remote.remote(dict(paths))] = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
    ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE) if asked else ([], [])
    for reference in ready:
        try:
            unseen, own = ray.get(reference)
        except RayError:  # the node has gone since, and runs nothing
            continue
        _refuse_other(here, own, asked[reference])
        if unseen:
            raise StorageError(
                f"{unseen[0]}: there is no {paths[unseen[0]]} for the worker on {asked[reference]}; put it on a file "
                "system that all nodes share under one path, or on S3"
            )
    if late:
        log.warning("%d nodes did not answer within %g s which opacc they have", len(late), PATIENCE)


@contextlib.contextmanager
def hold(features: Features, names: Sequence[str]) -> Iterator["ActorParts"]:
    """Yield the named features in the memory of one actor per CPU of the cluster."""
    num_actors = max(1, min(len(features.parts()), int(unless_lost(ray.cluster_resources).get("CPU", 1))))
    parts = ActorParts(features, names, num_actors)
    try:
        yield parts
    finally:
        parts.close()


class _Held(StoredParts):
    """Parts in an actor."""

    def __init__(self, driver: Driver, *parts: Any) -> None:
        driver.join()
        StoredParts.__init__(self, *parts)  # not super(), which names this class: Ray may make a copy of it


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
        remote = ray.remote(_Held).options(num_cpus=0, max_restarts=RESTARTS, max_task_retries=RESTARTS)
        driver = Driver.here()
        self._actors = []
        for start, stop in pairwise(bounds):
            files = tuple(file for part in own[start:stop] for file in part.files)
            self._actors.append(
                unless_lost(remote.remote, driver, features.part(files), list(names), (), own[start:stop])
            )

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
    readers: int = 0  # processes of an actor that read
    in_flight: int = 2  # shards of an actor
    remote_readers: int = 0  # of an actor, on other nodes


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
    actors = most if waits else max(1, min(room, most))
    readers, remote = _readers(extract, needs, nodes, actors), _remote_readers(extract, needs, nodes, actors)
    return Placement(actors, most, needs, readers, shards_in_flight(extract, readers + remote), remote)


def _remote_readers(extract: ExtractSpec, needs: Needs, nodes: Sequence[Node], actors: int) -> int:
    """Return the readers of an actor with a GPU on nodes without any: at most its share of their CPUs."""
    if not needs.gpus:
        return 0
    others = [node["Resources"].get("CPU", 0) for node in nodes if node["Alive"] and not node["Resources"].get("GPU")]
    share = min(MAX_READERS, int(sum(others)) // actors)
    return share if extract.remote_readers == "auto" else min(share, extract.remote_readers)


def _readers(extract: ExtractSpec, needs: Needs, nodes: Sequence[Node], actors: int) -> int:
    """Return the readers of an actor, which has its share of the smallest node that fits."""
    fitting = [node["Resources"] for node in nodes if needs.room([node])]
    if needs.gpus:
        shares = [own["CPU"] * min(1.0, needs.gpus / own["GPU"]) for own in fitting]
    else:
        shares = [own["CPU"] / -(-actors // len(fitting)) for own in fitting]
    return num_readers(extract, min(shares, default=0), has_gpu=needs.gpus > 0)


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


Ask = Callable[[str, Sequence[Any]], list[Any]]
"""Returns the results of a method for each item, in their order."""


class Copy:
    """An object in an actor, made for the device that Ray assigned."""

    def __init__(self, make: Callable[[str], Any], driver: Driver) -> None:
        self._own = make(driver.assigned_device())

    def ask(self, method: str, item: Any) -> Any:
        """Return the result of a method for one item."""
        return getattr(self._own, method)(item)


@contextlib.contextmanager
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
