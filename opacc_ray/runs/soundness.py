"""Which shards of a stage have to be extracted, since they are missing, damaged, or not those of the plan.

A folder whose index is there is compared with it: every byte, up to ``READ_WHOLE`` in all; above, sizes and the ends
of files, which tell a file from every other (`opacc verify` reads all). A folder without an index is compared with the
plan, and its files with the digests in them: as much of each, and the ids that the plan has.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opacc_ray.errors import DataError
from opacc_ray.extract import reference
from opacc_ray.extract.extractor import Extraction
from opacc_ray.extract.index import INDEX, Index, IndexedShard, check_shard, read_index
from opacc_ray.extract.planned import check_plan
from opacc_ray.extract.shards import ShardReport, read_report
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.lake.store import in_order

log = logging.getLogger(__name__)

READ_WHOLE = 4 << 30
"""Bytes of features that are read again to find damage when a complete run is started again."""

THREADS = 4


class Found(NamedTuple):
    """What there is of a stage."""

    missing: list[Shard]  # without sound features
    reports: dict[int, ShardReport]  # of files that no index names, by number: read, and of the plan


def unfinished(job: Extraction, plan: Plan) -> Found:
    """Find the shards of the plan without sound features; an index that does not stand for the others is deleted."""
    index = _sound_index(job, plan)
    sizes = {entry.key: entry.size for entry in job.target.list()}
    there = [shard for shard in plan.shards if shard.file in sizes]
    indexed = {shard.file: shard for shard in index.shards} if index else {}
    whole = sum(sizes[shard.file] for shard in there) <= READ_WHOLE
    base = _base_of(job)
    reports: dict[int, ShardReport] = {}

    def fault(shard: Shard) -> str | None:
        try:
            if index and shard.file in indexed:
                own = indexed[shard.file]
                check_shard(job.target, index, own, sizes[shard.file], whole=whole)
                _check_base(job, base, shard, own.examples, own.ids)
            else:
                report = read_report(job.target, shard.file, sizes[shard.file], whole=whole)
                check_plan(job.target, job.source.format, shard, report)
                _check_base(job, base, shard, report.num_examples, report.ids)
                if job.ranges and report.num_examples:
                    reference.check_ranges(job.target, shard)
                reports[shard.number] = report
        except DataError as error:
            return str(error)
        return None

    faults = dict(zip(there, in_order(fault, there, THREADS), strict=True))
    missing = [shard for shard in plan.shards if faults.get(shard, "it is missing") is not None]
    _say(job, missing, {shard: text for shard, text in faults.items() if text}, len(plan.shards))
    if index and missing:
        log.warning("%s lacks %d of its shards; they are extracted again", job.target.uri, len(missing))
        job.target.delete(INDEX)
    return Found(missing, reports)


def _base_of(job: Extraction) -> dict[str, IndexedShard]:
    """The features that others are added to, by file, as far as they are complete."""
    try:
        index = read_index(job.base.folder) if job.base else None
    except DataError:  # it is made again
        return {}
    return {shard.file: shard for shard in index.shards} if index else {}


def _check_base(
    job: Extraction, base: Mapping[str, IndexedShard], shard: Shard, num_examples: int, ids: str | None
) -> None:
    """Raise DataError if an added feature is of other examples; it may lack some."""
    under = base.get(shard.file)
    if under and (num_examples > under.examples or (num_examples == under.examples and ids != under.ids)):
        raise DataError(f"{job.target.uri_of(shard.file)} is not of the examples of its set; run the spec again")


def _sound_index(job: Extraction, plan: Plan) -> Index | None:
    """The index of a folder; None, and it is deleted, if it is damaged or of another plan."""
    try:
        index = read_index(job.target)
        if index and [shard.file for shard in index.shards] != [shard.file for shard in plan.shards]:
            raise DataError(f"{job.target.uri_of(INDEX)} names other shards than the plan")
        if index and job.ranges:
            reference.read_ranges(job.target)
    except DataError as error:
        log.warning("%s; it is made again", error)
        job.target.delete(INDEX)
        return None
    return index


def _say(job: Extraction, missing: Sequence[Shard], faults: dict[Shard, str], total: int) -> None:
    for text in faults.values():
        log.warning("%s; it is extracted again now", text.partition("; ")[0])
    kept = total - len(missing)
    if kept:
        log.info("%d of %d shards were done before and are kept: %s", kept, total, job.target.uri)
