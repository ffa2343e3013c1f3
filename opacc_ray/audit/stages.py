"""Extract the features of a run, folder by folder: find missing and damaged shards, and make them.

This is the driver's part; actors do the work (:mod:`opacc_ray.cluster.actor_pool`). Ray starts only if needed.

If a folder has an index, its files are compared with it: every byte, up to ``READ_WHOLE`` in total; above, the sizes
and footers, which identify a file (`opacc verify` reads everything). Without an index, files are compared with the plan
and with the digests inside them.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from opacc_ray.errors import DataError
from opacc_ray.extract import reference, stored_features
from opacc_ray.extract.content_digest import describe
from opacc_ray.extract.extractor import Base, Extraction, refusal
from opacc_ray.extract.feature_set import (
    ALL,
    INDEX,
    Index,
    IndexedShard,
    check_shard,
    loses,
    read_index,
    write_description,
)
from opacc_ray.extract.shards import ShardReport, check_plan, read_report
from opacc_ray.lake.examples import BadItem, Plan, Shard
from opacc_ray.lake.read_ahead import in_order
from opacc_ray.lake.store_uris import Store
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run
from opacc_ray.samplers.base import Report
from opacc_ray.spec import Spec

log = logging.getLogger(__name__)


READ_WHOLE = 4 << 30
"""Bytes of features that are read again to find damage when a complete run is repeated."""

THREADS = 4


class Found(NamedTuple):
    """Shards of a stage that are missing or done."""

    missing: list[Shard]  # without sound features
    reports: dict[int, ShardReport]  # of sound files without an index, by number


class Stage(NamedTuple):
    """One folder of features with its shards."""

    job: Extraction
    plan: Plan
    whole: Store | None = None  # folder for all features, if an added one fails for some examples


def stages_of(run: Run, spec: Spec, plan: Plan, compared: Plan | None) -> list[Stage]:
    """Return the stages of a run: the reference if a feature is compared with it, then the pool.

    A shared set has one stage for the features of the forward pass, and one for each added feature.
    """
    code = run.header.code
    folder = reference.folder(spec, compared, run.store, code) if compared and spec.reference else None
    stages = []
    if compared and spec.reference and folder:
        ranges = "ranges" in spec.compares_with()
        job = Extraction(spec, spec.reference, reference.names(spec), folder, ranges=ranges, code=code)
        stages.append(Stage(job, compared))
    own, link = run.feature_set, run.header.features
    if link is None:
        return [*stages, Stage(Extraction(spec, spec.pool, spec.features(), own.folder, folder, code=code), plan)]
    write_description(own.folder, describe(spec, plan, link.features, code))
    names = tuple(link.features)
    forward = Extraction(spec, spec.pool, names, own.folder, folder, beside=tuple(own.added.items()), code=code)
    return [
        *stages,
        Stage(forward, plan),
        *(
            Stage(
                replace(forward, names=(name,), target=place, beside=(), base=Base(own.folder, names)), plan, own.whole
            )
            for name, place in own.added.items()
        ),
    ]


OnShard = Callable[[ShardReport], None]
"""Callback with the report of each extracted shard."""


def extract(stages: Sequence[Stage], progress: Report, on_shard: OnShard = lambda _: None) -> None:
    """Extract every missing or damaged shard, stage after stage, and write the index of each complete stage.

    ``progress(done, total)`` counts shards; for an added feature only those that are extracted separately.
    """
    todo = _todo(stages)
    total = sum(
        len(stage.plan.shards) if stage.job.base is None else len(own.missing)
        for stage, own in zip(stages, todo, strict=True)
    )
    kept = total - sum(len(own.missing) for own in todo)
    progress(kept, total)
    finished = iter(range(kept + 1, total + 1))
    with _connected(stages) if any(map(_needs_actors, stages, todo)) else nullcontext():
        for stage, (shards, known) in zip(stages, todo, strict=True):
            made = _work_on(stage.job, shards, lambda: progress(next(finished), total), on_shard) if shards else {}
            _complete(stage, known | made)
    rest = _whole(stages)
    if rest is not None:
        log.warning("a feature cannot be computed for some examples; all features are extracted again for the others")
        extract([rest], progress, on_shard)


def _todo(stages: Sequence[Stage]) -> list[Found]:
    """Return the missing shards of each stage, without those that an earlier stage will make."""
    todo: list[Found] = []
    made: dict[str, list[Shard]] = {}
    for job, plan, _ in stages:
        found, coming = unfinished(job, plan), made.get(job.target.uri, [])
        if coming:
            job.target.delete(INDEX)  # its files will be replaced
        numbers = {shard.number for shard in coming}
        todo.append(
            Found(
                [shard for shard in found.missing if shard.number not in numbers],
                {number: report for number, report in found.reports.items() if number not in numbers},
            )
        )
        made |= {folder.uri: found.missing for _, folder in job.beside}
    return todo


def _whole(stages: Sequence[Stage]) -> Stage | None:
    """The stage that extracts all features at once, if an added one cannot be had of some examples."""
    for job, plan, whole in stages:
        if whole is not None and job.base is not None:
            indices = [read_index(job.base.folder), read_index(job.target)]
            if loses([index for index in indices if index]):
                names = tuple(name for name in ALL if name in job.spec.features())
                return Stage(replace(job, names=names, target=whole, base=None), plan)
    return None


def _needs_actors(stage: Stage, found: Found) -> bool:
    return bool(found.missing) and not stage.job.source.holds_features


@contextmanager
def _connected(stages: Sequence[Stage]) -> Iterator[None]:
    """A cluster whose workers see all that they need."""
    from opacc_ray.cluster import session

    with session.connected() as is_ours:
        from opacc_ray.cluster.tasks import refuse_unseen  # imports Ray, which reads its token mode then

        if not is_ours:
            refuse_unseen(_paths(stages))
        yield


def _paths(stages: Sequence[Stage]) -> dict[str, str]:
    """Return the local paths that workers need, by their keys in the spec."""
    spec = stages[-1].job.spec
    output = stages[-1].job.target.uri.rpartition("/")[0]  # it exists: what says what lies there is written
    files = {"model.weights": spec.model.weights, "model.program": spec.model.program}
    named = {"pool.uri": spec.pool.uri, **files, "output": output}
    if spec.reference is not None and any(stage.job.source != stages[-1].job.source for stage in stages):
        named["reference.uri"] = spec.reference.uri
    return {key: uri for key, uri in named.items() if uri is not None and not uri.startswith("s3://")}


def _work_on(
    job: Extraction, shards: Sequence[Shard], tick: Callable[[], None], on_shard: OnShard
) -> dict[int, ShardReport]:
    """Extract some shards and return their reports by number; calls ``tick`` after each."""
    reports: dict[int, ShardReport] = {}

    def on_done(shard: Shard, report: ShardReport) -> None:
        reports[shard.number] = report
        on_shard(report)
        tick()

    if job.source.holds_features:
        stored_features.extract_shards(job, shards, on_done)
    else:
        from opacc_ray.cluster import actor_pool

        actor_pool.extract_shards(job, shards, on_done)
    return reports


def _complete(stage: Stage, reports: Mapping[int, ShardReport]) -> None:
    """Write the index of a complete folder, and report examples that are left out."""
    job = stage.job
    index = read_index(job.target)
    if index is None:
        others = reference.merge_ranges(job.target) if job.ranges else {}
        index = feature_store.index_features(job, stage.plan, reports, others)
    if index.bad:
        first = BadItem(index.bad[0].id, index.bad[0].reason)
        if job.spec.extract.on_bad_item == "error":  # the run that extracted them left them out
            raise refusal(job.spec, job.source, first)
        if job.base is None:
            log.warning("%d examples of %s are left out, such as %s: %s", len(index.bad), job.source.uri, *first)


# -- what is there already -----------------------------------------------------------------------------------


def unfinished(job: Extraction, plan: Plan) -> Found:
    """Find the shards of the plan without sound features; deletes the index if it does not cover the others."""
    index = _sound_index(job, plan)
    sizes = {entry.key: entry.size for entry in job.target.list()}
    there = [shard for shard in plan.shards if shard.file in sizes]
    whole = sum(sizes[shard.file] for shard in there) <= READ_WHOLE
    stored = _Stored(job, index, _base_of(job), sizes, whole)
    found = dict(zip(there, in_order(stored.check_safely, there, THREADS), strict=True))
    faults = [answer for answer in found.values() if isinstance(answer, str)]
    missing = [shard for shard in plan.shards if isinstance(found.get(shard, "it is missing"), str)]
    _log_found(job, missing, faults, len(plan.shards))
    if index and missing:
        log.warning("%s lacks %d of its shards; extracting them again", job.target.uri, len(missing))
        job.target.delete(INDEX)
    reports = {shard.number: answer for shard, answer in found.items() if isinstance(answer, ShardReport)}
    return Found(missing, reports)


@dataclass(frozen=True)
class _Stored:
    """Stored files of a stage."""

    job: Extraction
    index: Index | None
    base: Mapping[str, IndexedShard]  # by file: features that these extend
    sizes: Mapping[str, int]  # bytes of each file
    whole: bool  # whether all bytes are compared with their digests

    @cached_property
    def indexed(self) -> dict[str, IndexedShard]:
        """Entries of the index by file."""
        return {shard.file: shard for shard in self.index.shards} if self.index else {}

    def check_safely(self, shard: Shard) -> ShardReport | str | None:
        """Check the file of a shard; returns its report, or the problem as text."""
        try:
            return self.check(shard)
        except DataError as error:
            return str(error)

    def check(self, shard: Shard) -> ShardReport | None:
        """Check the file of a shard; returns its report if no index has it, and raises DataError if it is damaged."""
        job, size, own = self.job, self.sizes[shard.file], self.indexed.get(shard.file)
        if self.index and own:
            check_shard(job.target, self.index, own, size, whole=self.whole)
            _check_base(job, self.base, shard, own.examples, own.ids)
            return None
        report = read_report(job.target, shard.file, size, whole=self.whole)
        check_plan(job.target, job.source.format, shard, report)
        _check_base(job, self.base, shard, report.num_examples, report.ids)
        if job.ranges and report.num_examples:
            reference.check_ranges(job.target, shard)
        return report


def _base_of(job: Extraction) -> dict[str, IndexedShard]:
    """Return the features that this stage extends, by file, as far as they are complete."""
    try:
        index = read_index(job.base.folder) if job.base else None
    except DataError:  # it will be replaced
        return {}
    return {shard.file: shard for shard in index.shards} if index else {}


def _check_base(
    job: Extraction, base: Mapping[str, IndexedShard], shard: Shard, num_examples: int, ids: str | None
) -> None:
    """Raise DataError if an added feature belongs to other examples; it may lack some."""
    under = base.get(shard.file)
    if under and (num_examples > under.examples or (num_examples == under.examples and ids != under.ids)):
        raise DataError(f"{job.target.uri_of(shard.file)} belongs to other examples than its set; run the spec again")


def _sound_index(job: Extraction, plan: Plan) -> Index | None:
    """Read the index of a folder; deletes it and returns None if it is damaged or belongs to another plan."""
    try:
        index = read_index(job.target)
        if index and [shard.file for shard in index.shards] != [shard.file for shard in plan.shards]:
            raise DataError(f"{job.target.uri_of(INDEX)} lists other shards than the plan")
        if index and job.ranges:
            reference.read_ranges(job.target)
    except DataError as error:
        log.warning("%s; writing it again", error)
        job.target.delete(INDEX)
        return None
    return index


def _log_found(job: Extraction, missing: Sequence[Shard], faults: Sequence[str], total: int) -> None:
    for text in faults:
        log.warning("%s; extracting it again", text.partition("; ")[0])
    kept = total - len(missing)
    if kept:
        log.info("%d of %d shards were done before: %s", kept, total, job.target.uri)
