"""Actors, shards and retries: the only module that imports Ray.

The driver keeps the queue of shards. Every actor is given at most two at a time, so that it reads the next one while it
computes. An actor that dies is replaced and its shards go back to the queue; a shard that was in flight when an actor
died is suspect and from then on has an actor to itself. After ``attempts`` tries the run fails with the shard's name: a
shard that fails never becomes a smaller pool.
"""

import contextlib
import logging
import os
import secrets
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, TypeVar

import ray
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
from ray.exceptions import RayActorError, RayError, RayTaskError

from opacc_ray.errors import ClusterError, OpaccError, StorageError
from opacc_ray.extract.extractor import Extraction, Extractor, ShardReport
from opacc_ray.extract.shards import read_pools
from opacc_ray.lake.sources import Shard
from opacc_ray.lake.storage import Store
from opacc_ray.pool import Pool
from opacc_ray.spec import ExtractSpec

log = logging.getLogger(__name__)

IN_FLIGHT = 2
"""Shards an actor holds: one computing, one being read."""

TASK_RETRIES = 3
"""Times a task is tried again whose worker died."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextlib.contextmanager
def connected() -> Iterator[None]:
    """Join the cluster that RAY_ADDRESS or an enclosing ``ray.init`` names, else start a local one and end it after.

    Workers of a local cluster inherit this process's environment and module path. On a cluster that is joined they
    use their own credentials: those of the driver are never sent, since Ray would show them to every user.
    """
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {}
    if address is None:
        lock_local_cluster()
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        options = {"address": "local", "include_dashboard": False, "object_store_memory": 200 << 20}
    log.info("joining Ray at %s", address) if address else log.info("starting a local Ray")
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, OSError) as error:
        raise ClusterError(f"no Ray cluster could be reached: {_brief(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


def lock_local_cluster() -> None:
    """Let nobody into a cluster that this process starts, whose ports listen on all interfaces: Ray's token mode.

    The token is random, and in this process's environment alone, which its workers inherit.
    """
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
    Config.initialize("")  # Ray read its settings when it was imported
    AuthenticationTokenLoader.instance().reset_cache()


@dataclass(frozen=True)
class Placement:
    """How many actors, with what each."""

    actors: int
    gpus: float
    cpus: int


def place(extract: ExtractSpec, num_shards: int) -> Placement:
    """What the spec asks for, if the cluster can give it.

    Raises
    ------
    ClusterError
        In one sentence what is asked and what is there, instead of waiting for ever.
    """
    there = ray.cluster_resources()
    gpus_there, cpus_there = there.get("GPU", 0), there.get("CPU", 0)
    gpus = float(gpus_there > 0) if extract.gpus_per_actor == "auto" else float(extract.gpus_per_actor)
    cpus = extract.threads_per_actor
    room = int(min(gpus_there / gpus if gpus else cpus_there, cpus_there / cpus))
    wanted = min(room, num_shards) if extract.actors == "auto" else extract.actors
    wanted = max(1, min(wanted, num_shards))
    if room < wanted and not extract.autoscaling:
        raise ClusterError(
            f"the spec asks for {wanted} actors with {gpus:g} GPU and {cpus} CPU each, and the cluster has "
            f"{gpus_there:g} GPU and {cpus_there:g} CPU in all; lower extract.actors, extract.gpus_per_actor or "
            "extract.threads_per_actor, add nodes, or set extract.autoscaling: true to wait for them"
        )
    return Placement(wanted, gpus, cpus)


def extract_shards(job: Extraction, shards: Sequence[Shard], on_done: Callable[[ShardReport], None]) -> None:
    """Extract the shards on actors; ``on_done`` is called as each one finishes, in any order.

    Raises
    ------
    ClusterError
        No room for the actors, or a shard that failed ``attempts`` times.
    OpaccError
        What the work itself raised.
    """
    placement = place(job.spec.extract, len(shards))
    log.info("%d actors with %g GPU and %d CPU each", placement.actors, placement.gpus, placement.cpus)
    crew = _Crew(job, placement)
    try:
        crew.work(deque(shards), on_done)
    finally:
        crew.dismiss()


class _Worker:
    """Extractor in an actor: picks its device from what Ray assigned to it."""

    def __init__(self, job: Extraction) -> None:
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        self._extractor = Extractor(job, "cuda" if gpus else "cpu")

    def prepare(self) -> None:
        self._extractor.prepare()

    def extract(self, shard: Shard) -> ShardReport:
        return self._extractor.extract(shard)


@dataclass(eq=False)
class _Actor:
    handle: Any
    starting: Any  # reference of prepare(); None once the model is loaded
    shards: dict[Any, Shard] = field(default_factory=dict)  # reference -> shard in flight


class _Crew:
    """The actors and the loop that feeds them."""

    def __init__(self, job: Extraction, placement: Placement) -> None:
        self._job = job
        self._placement = placement
        self._options = job.spec.extract
        self._tries: Counter[int] = Counter()  # shard number -> failed attempts
        self._failed_starts = 0
        self._actors: list[_Actor] = [self._hire() for _ in range(placement.actors)]

    def dismiss(self) -> None:
        for actor in self._actors:
            ray.kill(actor.handle)

    def work(self, pending: deque[Shard], on_done: Callable[[ShardReport], None]) -> None:
        """Feed the actors until nothing is pending or in flight."""
        while pending or any(actor.shards for actor in self._actors):
            for actor in self._actors:
                if actor.starting is None:
                    self._feed(actor, pending)
            flying = {reference: actor for actor in self._actors for reference in actor.shards}
            starting = {actor.starting: actor for actor in self._actors if actor.starting is not None}
            patience = None if flying else self._options.start_timeout
            ready, _ = ray.wait([*flying, *starting], num_returns=1, timeout=patience)
            if not ready:
                raise self._no_start()
            for reference in ready:
                if reference in starting:
                    self._welcome(starting[reference])
                else:
                    self._collect(flying[reference], reference, pending, on_done)

    def _hire(self) -> _Actor:
        remote = ray.remote(_Worker).options(
            num_cpus=self._placement.cpus, num_gpus=self._placement.gpus, max_concurrency=IN_FLIGHT
        )
        handle = remote.remote(self._job)
        return _Actor(handle, handle.prepare.remote())

    def _replace(self, actor: _Actor) -> None:
        self._actors[self._actors.index(actor)] = self._hire()

    def _welcome(self, actor: _Actor) -> None:
        """The model is loaded, or its error ends the run."""
        try:
            ray.get(actor.starting)
            actor.starting = None
        except RayTaskError as error:
            raise _cause(error) from None
        except RayActorError as error:
            self._failed_starts += 1
            log.warning("an actor died while it loaded the model; it is replaced")
            if self._failed_starts >= self._options.attempts * self._placement.actors:
                raise ClusterError(
                    f"actors died {self._failed_starts} times while loading the model, last with: {_brief(error)}; "
                    "often the node has too little memory for it"
                ) from None
            self._replace(actor)

    def _feed(self, actor: _Actor, pending: deque[Shard]) -> None:
        """Give an actor up to two shards; a shard that failed before has it to itself."""
        while pending and len(actor.shards) < IN_FLIGHT:
            holds_suspect = any(self._tries[shard.number] for shard in actor.shards.values())
            if holds_suspect or (self._tries[pending[0].number] and actor.shards):
                return
            shard = pending.popleft()
            actor.shards[actor.handle.extract.remote(shard)] = shard

    def _collect(
        self, actor: _Actor, reference: Any, pending: deque[Shard], on_done: Callable[[ShardReport], None]
    ) -> None:
        if reference not in actor.shards:  # its actor died, and it is back in the queue
            return
        try:
            report = ray.get(reference)
            del actor.shards[reference]
            on_done(report)
        except RayTaskError as error:
            cause = _cause(error)
            if not isinstance(cause, StorageError):
                raise cause from None
            self._send_back([actor.shards.pop(reference)], pending, cause)
        except RayActorError as error:
            lost = list(actor.shards.values())
            actor.shards.clear()
            log.warning("an actor died with %d shards in flight; it is replaced", len(lost))
            self._replace(actor)
            self._send_back(lost, pending, error)

    def _send_back(self, shards: list[Shard], pending: deque[Shard], error: Exception) -> None:
        for shard in reversed(shards):
            self._tries[shard.number] += 1
            if self._tries[shard.number] >= self._options.attempts:
                raise ClusterError(
                    f"shard {shard.name} ({shard.keys[0]} .. {shard.keys[-1]}) failed {self._options.attempts} "
                    f"times, last with: {_brief(error)}; finished shards are kept, so mend this one and run again"
                )
            pending.appendleft(shard)

    def _no_start(self) -> ClusterError:
        return ClusterError(
            f"no actor with {self._placement.gpus:g} GPU and {self._placement.cpus} CPU started within "
            f"{self._options.start_timeout:g} s; the cluster is full or cannot grow: "
            "ask for less, or raise extract.start_timeout"
        )


def map_tasks(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Iterator[tuple[Item, Result]]:
    """Run ``function(item)`` for every item in tasks of one CPU, ``workers`` at a time (default: all CPUs there are).

    Yields each item with its result as it finishes, in any order. A task whose worker dies is tried again.

    Raises
    ------
    ClusterError
        The worker of an item, which is named, died again and again.
    OpaccError
        What the function itself raised.
    """
    at_once = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    remote = ray.remote(function).options(num_cpus=1, max_retries=TASK_RETRIES)
    waiting = iter(items)
    flying: dict[Any, Item] = {}
    try:
        while True:
            for item in islice(waiting, at_once - len(flying)):
                flying[remote.remote(item)] = item
            if not flying:
                return
            (reference,), _ = ray.wait(list(flying), num_returns=1)
            item = flying.pop(reference)
            try:
                result = ray.get(reference)
            except RayTaskError as error:
                raise _cause(error) from None
            except RayError as error:
                raise ClusterError(f"{item}: the worker died {TASK_RETRIES + 1} times: {_brief(error)}") from None
            yield item, result
    finally:
        for reference in flying:
            ray.cancel(reference)


@contextlib.contextmanager
def shelves(store: Store, files: Sequence[str], sizes: Sequence[int], names: Sequence[str]) -> Iterator["ActorParts"]:
    """Hold the named features in one actor per CPU of the cluster while the block runs."""
    num_actors = max(1, min(len(files), int(ray.cluster_resources().get("CPU", 1))))
    parts = ActorParts(store, files, sizes, names, num_actors)
    try:
        yield parts
    finally:
        parts.close()


class ActorParts:
    """Parts of a view held by actors, each with consecutive shards of features: see :mod:`opacc_ray.parts.view`.

    Parameters
    ----------
    store : the run's folder of features
    files : the shards' names, in the order of the pool
    sizes : examples in each
    names : the features to hold
    num_actors : how many actors share them
    """

    def __init__(
        self, store: Store, files: Sequence[str], sizes: Sequence[int], names: Sequence[str], num_actors: int
    ) -> None:
        self.sizes = list(sizes)
        self.fields = frozenset(names)
        bounds = [len(files) * i // num_actors for i in range(num_actors + 1)]
        self._home = [
            (actor, part - start) for actor, (start, stop) in enumerate(pairwise(bounds)) for part in range(start, stop)
        ]
        remote = ray.remote(_Shelf).options(num_cpus=0, max_restarts=3, max_task_retries=3)
        self._actors = [remote.remote(store, list(files[start:stop]), list(names)) for start, stop in pairwise(bounds)]

    def call(self, calls: Sequence[tuple[int, Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
        """One message to each actor concerned, whatever the number of parts."""
        places: dict[int, list[int]] = {}
        for place_in_calls, (part, _, _) in enumerate(calls):
            places.setdefault(self._home[part][0], []).append(place_in_calls)
        references = []
        for actor, mine in places.items():
            local = [(self._home[calls[i][0]][1], *calls[i][1:]) for i in mine]
            references.append(self._actors[actor].call.remote(local))
        answers: list[Any] = [None] * len(calls)
        for mine, reference in zip(places.values(), references, strict=True):
            for i, answer in zip(mine, _get(reference), strict=True):
                answers[i] = answer
        return answers

    def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor)


class _Shelf:
    """Some shards' features in an actor."""

    def __init__(self, store: Store, files: Sequence[str], names: Sequence[str]) -> None:
        self._pools: list[Pool] = read_pools(store, files, names)

    def call(self, calls: Sequence[tuple[int, Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
        return [function(self._pools[part], *arguments) for part, function, arguments in calls]


def _get(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise _cause(error) from None
    except RayActorError as error:
        raise ClusterError(f"an actor that holds features died again and again: {_brief(error)}") from None


def _cause(error: RayTaskError) -> Exception:
    """The error the work raised, without the traceback that Ray puts into its text."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, OpaccError) else error


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
