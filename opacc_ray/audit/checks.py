"""Check a spec, and plan its run, before anything is extracted.

Every check reports its finding in one sentence. A check that depends on a failed one is left out, so that one mistake
gives one failure. Nothing is kept: the object that tests whether the output is writable is removed at once.

A plan predicts shards, requests, bytes, hours and memory. The listing gives shards, files and bytes. Some batches of
the first shards give the pace: they are read and computed here. Hours are those of extraction, without start-up. An
actor without a GPU reads and computes on the same CPU; with a GPU, it reads while the GPU computes.
"""

import os
import time
from collections.abc import Callable
from typing import Literal, TypeVar

from pydantic import Field

from opacc_ray.audit.comparison import check_models
from opacc_ray.audit.history import check_history
from opacc_ray.audit.sanity import check_model
from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, OpaccError, SpecError, counted, shown
from opacc_ray.extract import reference
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.feature_set import plan_set
from opacc_ray.extract.model_code import code_of
from opacc_ray.extract.readers import SLOTS, num_readers, shards_in_flight
from opacc_ray.extract.shards import find_repeated, hashes_of
from opacc_ray.extract.table_columns import try_slices
from opacc_ray.extract.trial import SECONDS, Pace, measure_pace
from opacc_ray.extract.user_code import call
from opacc_ray.labels.shown_examples import try_shown
from opacc_ray.lake.examples import Columns, Plan, ids_of
from opacc_ray.lake.formats import has_rows, webdataset
from opacc_ray.lake.formats.images import READ_BYTES
from opacc_ray.lake.pools import read_rows
from opacc_ray.lake.s3_store import num_pages
from opacc_ray.lake.store import in_order
from opacc_ray.lake.store_uris import open_store
from opacc_ray.registry import require
from opacc_ray.runs.run import Run, checked_weights, located, read_listing
from opacc_ray.runs.series import PoolChanges, changes_since, features_before, run_beside
from opacc_ray.samplers import parse_parameters
from opacc_ray.spec import SURPRISE, Spec, open_pool, plan_pool, rules_of

Found = TypeVar("Found")

MOST_IDS = 5_000_000
"""Examples whose ids are compared before a run, which takes some seconds."""


class SpecCheck(Part):
    """One check."""

    name: str  # what was checked: pool, budget, weights, output, model, and further parts of the spec
    ok: bool  # whether a run can continue
    found: str  # the finding, or the problem and its fix


class Requests(Part):
    """Requests to storage."""

    list: int = Field(ge=0)  # pages of listings
    read: int = Field(ge=0)  # reads of the pool's files, or of ranges of them
    write: int = Field(ge=0)  # objects that are written


class MeasuredPace(Part):
    """Measured pace of some batches on this machine, in seconds per example."""

    examples: int = Field(ge=1)  # measured examples
    reading: float = Field(ge=0)  # reading, decoding and the transform, including waiting
    reading_cpu: float = Field(ge=0)  # CPU time of reading
    computing: float = Field(ge=0)  # computing the model
    device: str  # device of the model: cpu or cuda


class MeasuredHalf(Part):
    """Gain and cost of `precision: bfloat16`, for one batch on this machine."""

    gain: float = Field(gt=1)  # how many times as fast as float32
    change: float = Field(ge=0)  # largest change of an output, divided by the largest output


class RunPlan(Part):
    """Forecast of the resources for a run."""

    files: int = Field(ge=1)  # files of the pool, and of the reference if there is one
    shards: int = Field(ge=1)  # units of work
    examples: int = Field(ge=1)  # examples of both
    estimated: bool  # whether the number of examples is an estimate, because metadata lack it
    requests: Requests  # requests to storage
    bytes_read: int = Field(ge=0)  # bytes read from the pool
    bytes_written: int = Field(ge=0)  # bytes of features written
    actors: int = Field(ge=1)  # number of actors, each with one copy of the model
    hours: float = Field(ge=0)  # hours of extraction, without start-up
    memory_actor: int = Field(ge=0)  # maximum bytes of one actor
    memory_driver: int = Field(ge=0)  # approximate bytes of the driver
    # objects, compared with the run whose features are taken; the rest is for new ones
    pool_changes: PoolChanges | None = None
    pace: MeasuredPace  # the measured pace
    bfloat16: MeasuredHalf | None  # null unless a torch model in float32 gains by it
    left_out: list[str]  # features without a time forecast, because they are compared with a reference


class SpecChecks(Document):
    """All checks of a spec before anything is extracted."""

    format: Literal["opacc-check/1"] = "opacc-check/1"
    spec: str  # file of the spec
    ok: bool  # whether all checks passed
    checks: list[SpecCheck]  # in order, without those that depend on a failed check
    warnings: list[str] = Field(default=[])  # signs that this may be the wrong model
    plan: RunPlan | None = None  # what a run will take; null unless asked for


def check_budget(spec: Spec, plan: Plan | None = None) -> str:
    """Describe the budget; raises SpecError if it is missing, or larger than the pool."""
    sample = spec.sample
    if sample.budget is None:
        if not parse_parameters(sample.method, sample.parameters).stops_itself:
            raise SpecError("sample.budget is missing; set the number of labels, such as budget: 100")
        return f"{sample.method} stops by itself"
    if plan is not None and plan.num_examples is not None and sample.budget > plan.num_examples:
        raise SpecError(
            f"sample.budget={sample.budget} is larger than the pool {spec.pool.uri}, which has "
            f"{counted(plan.num_examples, 'example')}; set at most {plan.num_examples}"
        )
    return f"{counted(sample.budget, 'label')} by {sample.method}"


def check_pool(spec: Spec) -> Plan:
    """Plan the shards of the pool; raises SpecError if the budget is missing, or larger than the pool."""
    check_budget(spec)  # before the pool is listed
    plan = plan_pool(spec.pool, spec.extract)
    check_budget(spec, plan)
    return plan


def check(
    spec: Spec, source: str, *, forecast: bool = False, actors: int | None = None
) -> tuple[SpecChecks, OpaccError | None]:
    """Run all checks of a valid spec from the file ``source``; returns them and the first failure.

    With ``forecast``, also measure some batches, and forecast the resources of a run; without ``actors``, their number
    is as in the spec, or as many as this machine can run. Raises SpecError for the forecast of a pool of features,
    where nothing is computed.
    """
    if forecast and spec.pool.holds_features:
        raise SpecError(f"{source}: the pool contains features, so there is nothing to plan; remove --plan")
    made = _Checks()
    plan = made.add("pool", lambda: plan_pool(spec.pool, spec.extract), _describe)
    made.add("budget", lambda: check_budget(spec, plan))
    if plan is not None and spec.pool.columns.id is not None and has_rows(spec.pool.format):
        made.add("ids", lambda: check_ids(spec, plan))
    if plan is not None and spec.pool.format == "webdataset":
        made.add("ids", lambda: check_members(spec, plan))
    compared = made.add("reference", lambda: reference.plan(spec), _describe) if spec.reads_reference else None
    if spec.sample.models:
        made.add("models", lambda: check_models(spec, plan))
    weighed = made.add("weights", lambda: checked_weights(spec), _weights)
    if spec.has_history and plan is not None and weighed is not None:
        made.add("history", lambda: check_history(weighed, plan, compared))
    if spec.pool.slice_rules and plan is not None:
        made.add("slices", lambda: try_slices(spec.pool, plan))
    if spec.manifest.show and plan is not None:
        made.add("shown", lambda: try_shown(spec))
    made.add("output", lambda: _try_output(spec.output))
    tried = planned = None
    if plan is not None and weighed is not None:
        tried = made.add("model", lambda: check_model(spec, plan, compared), lambda tried: tried.found)
        if forecast and tried is not None:
            planned = made.add("plan", lambda: plan_run(weighed, plan, compared, actors), _measured)
    warnings = [*tried.warnings, *tried.of_some] if tried else []
    checks = SpecChecks(spec=source, ok=made.failure is None, checks=made.checks, warnings=warnings, plan=planned)
    return checks, made.failure


def check_ids(spec: Spec, plan: Plan) -> str:
    """Read the ids of a table, and nothing else; raises DataError if one appears twice."""
    if plan.num_examples is None or plan.num_examples > MOST_IDS:
        return f"not compared: the pool may have more than {MOST_IDS:,} examples; a run compares them"
    rules = rules_of(spec.pool)
    rules = rules._replace(columns=Columns(id=rules.columns.id))
    store = open_pool(spec.pool)

    def ids(place: int) -> list[str]:
        batches = read_rows(store, spec.pool.format, plan.shards[place], rules)
        return [id for batch in batches for id in ids_of(batch, rules.columns.id) if isinstance(id, str)]

    hashes = list(in_order(lambda place: hashes_of(ids(place)), range(len(plan.shards)), threads=2))
    repeated = find_repeated(hashes, ids)
    if repeated is not None:
        raise DataError(
            f"the id {shown(repeated)} appears twice in {spec.pool.uri}; ids must be unique: name another column in "
            "pool.columns.id, or several that make one"
        )
    return f"{counted(sum(map(len, hashes)), 'id')}, each once"


def check_members(spec: Spec, plan: Plan) -> str:
    """Read the names of the members of tar files for some seconds; raises DataError if they make no whole examples."""
    store, num, begun = open_pool(spec.pool), 0, time.monotonic()
    for place, entry in enumerate(plan.entries):
        for _ in webdataset.keys(store, entry):
            num += 1
            if time.monotonic() > begun + SECONDS:
                part = f"the first {counted(num, 'example')} of {counted(len(plan.entries), 'tar file')}"
                return f"{part}, to file {place + 1}; a run compares the others"
    return f"{counted(num, 'example')} in {counted(len(plan.entries), 'tar file')}, each member once"


class _Checks:
    def __init__(self) -> None:
        self.checks: list[SpecCheck] = []
        self.failure: OpaccError | None = None

    def add(self, name: str, work: Callable[[], Found], describe: Callable[[Found], str] = str) -> Found | None:
        """Run one check; returns its result, or None if it failed."""
        try:
            found = work()
        except OpaccError as error:
            self.failure = self.failure or error
            self.checks.append(SpecCheck(name=name, ok=False, found=str(error)))
            return None
        self.checks.append(SpecCheck(name=name, ok=True, found=describe(found)))
        return found


def _describe(plan: Plan | None) -> str:
    assert plan is not None
    examples = "" if plan.num_examples is None else f", {counted(plan.num_examples, 'example')}"
    return f"{counted(len(plan.entries), 'file')} in {counted(len(plan.shards), 'shard')}{examples}"


def _weights(spec: Spec) -> str:
    if spec.pool.holds_features:
        return "none: the pool contains the features"
    return f"SHA-256 {spec.model.sha256}" if spec.model.sha256 else "loaded by the model's own code"


def _measured(plan: RunPlan) -> str:
    return f"{counted(plan.pace.examples, 'example')} measured on this machine"


def _try_output(uri: str) -> str:
    store = open_store(uri)
    store.try_writing()
    return f"{store.uri} is writable"


BATCHES = 4
"""Batches that are measured."""

DRIVER_BASE = 350 << 20
"""Bytes of the driver's process with Ray and this package, without shards."""

PER_FILE, PER_SHARD = 700, 6000
"""Bytes of the driver for each listed file, and for each shard with its report."""


def plan_run(spec: Spec, pool: Plan, compared: Plan | None = None, actors: int | None = None) -> RunPlan:
    """Measure some batches of the first shards and forecast the resources of the run; raises the errors of the run."""
    spec = located(spec)
    compares = (*SURPRISE, *(("coverage",) if "ranges" in spec.compares_with() else ()))
    names = tuple(name for name in spec.features() if name not in compares)  # those that need no reference
    job = Extraction(spec, spec.pool, names, open_store(spec.output))
    require("a forecast", "torch")
    from opacc_ray.extract.torch_model import has_gpu

    device = "cuda" if has_gpu() else "cpu"
    pace = call(measure_pace, job, pool.shards, BATCHES, device, seconds=spec.extract.shard_timeout)
    planned = _planned(spec, [pool, *([compared] if compared else [])], pace, device, actors)
    code = code_of(spec)
    before = features_before(spec, pool, plan_set(spec, pool, compared, code), code)
    return planned if before is None else _after_growth(planned, run_beside(open_store(spec.output), before), pool)


def _after_growth(planned: RunPlan, before: Run | None, pool: Plan) -> RunPlan:
    """Return a plan in which the objects that an earlier run has are not read, nor computed."""
    changes = changes_since(before, pool.entries) if before else None
    if before is None or changes is None:
        return planned
    old = read_listing(before)
    left = [entry for entry in pool.entries if old.get(entry.key) != entry]
    share = len(left) / len(pool.entries)
    requests = planned.requests.model_copy(update={"read": round(share * planned.requests.read)})
    num_bytes, hours = sum(entry.size for entry in left), share * planned.hours
    update = {"requests": requests, "bytes_read": num_bytes, "hours": hours, "pool_changes": changes}
    return planned.model_copy(update=update)


def _planned(spec: Spec, plans: list[Plan], pace: Pace, device: str, actors: int | None) -> RunPlan:
    shards = sum(len(plan.shards) for plan in plans)
    entries = [entry for plan in plans for entry in plan.entries]
    size = spec.extract.shard_size  # without metadata, as many examples as fit in the shards
    counts = [len(plan.shards) * size if plan.num_examples is None else plan.num_examples for plan in plans]
    examples, at_work = sum(counts), min(actors or _actors(spec), shards)
    has_gpu = device != "cpu"
    readers = num_readers(spec.extract, (os.cpu_count() or 1) / (1 if has_gpu else at_work), has_gpu=has_gpu)
    # Reading and computing overlap, as far as they have own processors.
    seconds = max(pace.read / max(readers, 1), pace.compute + (0 if has_gpu or readers else pace.read_cpu))
    return RunPlan(
        files=len(entries),
        shards=shards,
        examples=examples,
        estimated=any(plan.num_examples is None for plan in plans),
        requests=Requests(
            list=sum(num_pages([entry.key for entry in plan.entries]) + 1 for plan in plans),
            read=sum(max(1, 2 * len(shard.pieces) or len(shard.entries)) for plan in plans for shard in plan.shards),
            write=shards + at_work + 2 * len(plans),
        ),
        bytes_read=sum(entry.size for entry in entries),
        bytes_written=examples * pace.feature_bytes + shards * pace.file_bytes,
        actors=at_work,
        hours=examples * seconds / at_work / 3600,
        memory_actor=actor_bytes(spec, pace, readers),
        memory_driver=DRIVER_BASE + PER_FILE * len(entries) + PER_SHARD * shards,
        pace=MeasuredPace(
            examples=pace.examples,
            reading=pace.read,
            reading_cpu=pace.read_cpu,
            computing=pace.compute,
            device=device,
        ),
        bfloat16=pace.half and MeasuredHalf(**pace.half._asdict()),
        left_out=[name for name in SURPRISE if name in spec.features()],
    )


def actor_bytes(spec: Spec, pace: Pace, readers: int) -> int:
    """Return the maximum bytes of an actor with its readers: see docs/scale.md."""
    extract = spec.extract
    reading = READ_BYTES + 4 * pace.example_bytes
    batch = extract.batch_size * pace.input_bytes
    features = 3 * extract.shard_size * pace.feature_bytes  # by batch, joined, and encoded
    shards, actor = shards_in_flight(extract, readers), pace.process_bytes + batch  # in the model's memory layout
    if not readers:
        return actor + shards * (reading + batch + features)
    return actor + shards * features + readers * (pace.process_bytes + reading + SLOTS * batch)


def _actors(spec: Spec) -> int:
    """Return the number of actors: as in the spec, or as many as this machine can run."""
    asked = spec.extract.actors
    return max(1, (os.cpu_count() or 1) // spec.extract.threads_per_actor) if asked == "auto" else asked
