"""Checking a spec before Ray starts: all that can be found out from the driver, one check after another.

Every check answers in one sentence what it found. A check that rests on one that failed is left out, so that one
mistake gives one failure. Nothing is kept: the object that tries whether the output can be written is removed at once,
and no folder is made for it.
"""

import math
import os
from collections.abc import Callable
from typing import Literal, TypeVar

from pydantic import Field

from opacc_ray.audit.prior_labels import check_history
from opacc_ray.audit.sanity import check_model
from opacc_ray.audit.several_models import check_models
from opacc_ray.documents import Document, Part
from opacc_ray.errors import OpaccError, SpecError, counted
from opacc_ray.extract import reference
from opacc_ray.extract.extractor import Extraction
from opacc_ray.extract.pace import Pace, measure
from opacc_ray.extract.source import plan_pool
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.images import DECODED_BYTES, READ_BYTES
from opacc_ray.lake.storage import open_store
from opacc_ray.runs.identity import checked_weights, located
from opacc_ray.samplers.select import parse_parameters
from opacc_ray.spec import SURPRISE, ActorRange, Spec

Found = TypeVar("Found")


class Check(Part):
    """One thing that was checked."""

    name: str = Field(
        description="what was checked: pool, budget, weights, output, model, or what the spec names beside them"
    )
    ok: bool = Field(description="whether a run can go on with it")
    found: str = Field(description="what was found, or what is wrong and how to put it right")


class SpecChecks(Document):
    """What can be said of a spec before anything is extracted."""

    format: Literal["opacc-check/1"] = Field(default="opacc-check/1", description="name and version of this form")
    spec: str = Field(description="the file")
    ok: bool = Field(description="whether all checks passed")
    checks: list[Check] = Field(description="in order; those that rest on a failed one are left out")
    warnings: list[str] = Field(default=[], description="reasons to doubt that this is the model that is meant")


def check_budget(spec: Spec, plan: Plan | None = None) -> str:
    """What the method may spend; raises SpecError if it needs a budget and has none, or more than a pool can give."""
    sample = spec.sample
    if sample.budget is None:
        if not parse_parameters(sample.method, sample.parameters).stops_itself:
            raise SpecError("sample.budget is missing; say how many labels can be paid for, such as budget: 100")
        return f"{sample.method} stops by itself"
    if plan is not None and plan.num_examples is not None and sample.budget > plan.num_examples:
        raise SpecError(
            f"sample.budget={sample.budget} is more than the pool {spec.pool.uri} can give: "
            f"it holds {plan.num_examples} examples; give at most {plan.num_examples}"
        )
    return f"{counted(sample.budget, 'label')} by {sample.method}"


def check_pool(spec: Spec) -> Plan:
    """The shards of the pool; raises SpecError if there is no budget, or one that is more than the pool can give."""
    check_budget(spec)  # before the pool is listed
    plan = plan_pool(spec.pool, spec.extract)
    check_budget(spec, plan)
    return plan


def check(spec: Spec, source: str) -> tuple[SpecChecks, OpaccError | None]:
    """All checks of a spec that parses; returns them, and the first failure.

    Parameters
    ----------
    spec : what is checked
    source : the file that it came from
    """
    made = _Checks()
    plan = made.add("pool", lambda: plan_pool(spec.pool, spec.extract), _describe)
    made.add("budget", lambda: check_budget(spec, plan))
    compared = made.add("reference", lambda: reference.plan(spec), _describe) if spec.reads_reference else None
    if spec.sample.models:
        made.add("models", lambda: check_models(spec, plan))
    weighed = made.add("weights", lambda: checked_weights(spec), _weights)
    if spec.has_history and plan is not None and weighed is not None:
        made.add("history", lambda: check_history(weighed, plan, compared))
    made.add("output", lambda: _try_output(spec.output))
    tried = None
    if plan is not None and weighed is not None:
        tried = made.add("model", lambda: check_model(spec, plan, compared), lambda tried: tried.found)
    warnings = tried.warnings if tried else []
    return SpecChecks(spec=source, ok=made.failure is None, checks=made.checks, warnings=warnings), made.failure


class _Checks:
    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.failure: OpaccError | None = None

    def add(self, name: str, work: Callable[[], Found], describe: Callable[[Found], str] = str) -> Found | None:
        """Make one check; returns what it found, or None if it failed."""
        try:
            found = work()
        except OpaccError as error:
            self.failure = self.failure or error
            self.checks.append(Check(name=name, ok=False, found=str(error)))
            return None
        self.checks.append(Check(name=name, ok=True, found=describe(found)))
        return found


def _describe(plan: Plan | None) -> str:
    assert plan is not None
    examples = "" if plan.num_examples is None else f", {counted(plan.num_examples, 'example')}"
    return f"{counted(len(plan.entries), 'file')} in {counted(len(plan.shards), 'shard')}{examples}"


def _weights(spec: Spec) -> str:
    if spec.pool.holds_features:
        return "none: the pool brings its features"
    return f"SHA-256 {spec.model.sha256}" if spec.model.sha256 else "those that the model's code brings"


def _try_output(uri: str) -> str:
    store = open_store(uri)
    store.try_writing()
    return f"{store.uri} can be written"


LISTED = 1000
"""Keys that one answer of S3 to a listing holds."""

DRIVER_BASE = 350 << 20
"""Bytes of the driver's process with Ray and this package, before any shard."""

PER_FILE, PER_SHARD = 700, 6000
"""Bytes that the driver holds of each file of the listing, and of each shard and its report."""


class Requests(Part):
    """Requests to storage."""

    list: int = Field(ge=0, description="pages of listings")
    read: int = Field(ge=0, description="reads of the pool's files, or of ranges of them")
    write: int = Field(ge=0, description="objects that are written")


class MeasuredPace(Part):
    """What some batches took on this machine; seconds an example."""

    examples: int = Field(ge=1, description="that were measured")
    reading: float = Field(ge=0, description="reading, decoding and the transform, waiting included")
    reading_cpu: float = Field(ge=0, description="of that, on the CPU")
    computing: float = Field(ge=0, description="the model")
    device: str = Field(description="where the model ran: cpu or cuda")


class RunPlan(Document):
    """What a run will take."""

    format: Literal["opacc-plan/1"] = Field(default="opacc-plan/1", description="name and version of this form")
    spec: str = Field(description="the file")
    files: int = Field(ge=1, description="of the pool, and of the reference if there is one")
    shards: int = Field(ge=1, description="units of work")
    examples: int = Field(ge=1, description="of both")
    estimated: bool = Field(description="whether the number of examples is estimated, as metadata do not tell it")
    requests: Requests = Field(description="to storage")
    bytes_read: int = Field(ge=0, description="of the pool's files")
    bytes_written: int = Field(ge=0, description="of features")
    actors: int = Field(ge=1, description="copies of the model at work")
    hours: float = Field(ge=0, description="of extraction, start-up aside")
    memory_actor: int = Field(ge=0, description="bytes of one actor at most")
    memory_driver: int = Field(ge=0, description="bytes of the driver, about")
    pace: MeasuredPace = Field(description="what was measured")
    left_out: list[str] = Field(description="features whose time is not in this, as they compare with a reference")


def plan_run(spec: Spec, source: str, actors: int | None = None, num_batches: int = 4) -> RunPlan:
    """Measure some batches and say what the run will take.

    Parameters
    ----------
    spec : of the run
    source : the file that it came from
    actors : of the cluster that is meant; None: what the spec says, or what this machine has room for
    num_batches : to measure, from the first shards

    Raises
    ------
    SpecError, DataError, StorageError
        What the run would end with; and a pool of features, of which nothing is computed.
    """
    if spec.pool.holds_features:
        raise SpecError(f"{source}: the pool holds features, so nothing is extracted; run it, it takes seconds")
    spec = located(spec)
    pool = check_pool(spec)
    spec = checked_weights(spec)
    compared = reference.plan(spec)
    job = Extraction(spec, spec.pool, _without_surprise(spec), open_store(spec.output))
    device = _device()
    pace = measure(job, pool.shards, num_batches, device)
    return _planned(spec, source, [pool, *([compared] if compared else [])], pace, device, actors)


def _planned(spec: Spec, source: str, plans: list[Plan], pace: Pace, device: str, actors: int | None) -> RunPlan:
    shards = sum(len(plan.shards) for plan in plans)
    entries = [entry for plan in plans for entry in plan.entries]
    counts = [_num_examples(spec, plan) for plan in plans]
    examples, at_work = sum(counts), min(actors or _actors(spec), shards)
    return RunPlan(
        spec=source,
        files=len(entries),
        shards=shards,
        examples=examples,
        estimated=any(plan.num_examples is None for plan in plans),
        requests=Requests(
            list=sum(math.ceil(len(plan.entries) / LISTED) + 1 for plan in plans),
            read=sum(max(1, 2 * len(shard.pieces) or len(shard.entries)) for plan in plans for shard in plan.shards),
            write=shards + 2 * len(plans),
        ),
        bytes_read=sum(entry.size for entry in entries),
        bytes_written=examples * pace.feature_bytes + shards * pace.file_bytes,
        actors=at_work,
        hours=examples * seconds_per_example(pace, device) / at_work / 3600,
        memory_actor=actor_bytes(spec, pace, _readers(spec, device)),
        memory_driver=DRIVER_BASE + PER_FILE * len(entries) + PER_SHARD * shards,
        pace=MeasuredPace(
            examples=pace.examples,
            reading=pace.read,
            reading_cpu=pace.read_cpu,
            computing=pace.compute,
            device=device,
        ),
        left_out=[name for name in SURPRISE if name in spec.features()],
    )


def seconds_per_example(pace: Pace, device: str) -> float:
    """Seconds of one actor: on a CPU the greater of waiting and of all work; with a GPU, of reading and computing."""
    if device == "cpu":
        return max(pace.read, pace.read_cpu + pace.compute)
    return max(pace.read, pace.compute)


def actor_bytes(spec: Spec, pace: Pace, readers: int) -> int:
    """What an actor holds at most: its process with the model, and what docs/scale.md says for each of two shards."""
    extract = spec.extract
    ahead = READ_BYTES + (DECODED_BYTES if readers > 1 else 0)
    images = 2 * (readers + 1) * pace.example_bytes
    batch = 2 * extract.batch_size * pace.input_bytes  # the inputs, and the same as the model lays them in memory
    features = 3 * extract.shard_size * pace.feature_bytes  # by batch, together, and encoded
    return pace.process_bytes + 2 * (ahead + images + batch + features)


def _num_examples(spec: Spec, plan: Plan) -> int:
    """The examples of a plan; where metadata do not tell, as many as its shards may hold."""
    return plan.num_examples if plan.num_examples is not None else len(plan.shards) * spec.extract.shard_size


def _actors(spec: Spec) -> int:
    """Copies of the model that the spec asks for, or that this machine has room for."""
    asked = spec.extract.actors
    room = max(1, (os.cpu_count() or 1) // spec.extract.threads_per_actor)
    if isinstance(asked, ActorRange):
        return max(asked.min, min(room, asked.max or room))
    return room if asked == "auto" else asked


def _readers(spec: Spec, device: str) -> int:
    asked = spec.extract.readers
    return asked if asked != "auto" else 1 if device == "cpu" else 16


def _without_surprise(spec: Spec) -> tuple[str, ...]:
    """The features that need no reference."""
    coverage = ("coverage",) if "ranges" in spec.compares_with() else ()
    return tuple(name for name in spec.features() if name not in (*SURPRISE, *coverage))


def _device() -> str:
    """Where the batches are measured: on a GPU if this machine has one."""
    from opacc_ray.extract.model import has_gpu

    return "cuda" if has_gpu() else "cpu"
