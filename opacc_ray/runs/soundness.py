"""Which shards of a stage have to be extracted, since they are missing, damaged, or not those of the plan.

A folder whose index is there is compared with it: every byte, up to ``READ_WHOLE`` in all; above, sizes and the ends
of files, which tell a file from every other (`opacc verify` reads all). A folder without an index is compared with the
plan, and its files with the digests in them: as much of each, and the ids that the plan has.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from opacc_ray.errors import DataError
from opacc_ray.extract import reference
from opacc_ray.extract.extractor import Extraction
from opacc_ray.extract.index import INDEX, Index, IndexedShard, check_shard, read_index
from opacc_ray.extract.shards import ShardReport, check_plan, read_report
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.lake.read_ahead import in_order

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
    whole = sum(sizes[shard.file] for shard in there) <= READ_WHOLE
    stored = _Stored(job, index, _base_of(job), sizes, whole)
    found = dict(zip(there, in_order(stored.look, there, THREADS), strict=True))
    faults = [answer for answer in found.values() if isinstance(answer, str)]
    missing = [shard for shard in plan.shards if isinstance(found.get(shard, "it is missing"), str)]
    _say(job, missing, faults, len(plan.shards))
    if index and missing:
        log.warning("%s lacks %d of its shards; they are extracted again", job.target.uri, len(missing))
        job.target.delete(INDEX)
    reports = {shard.number: answer for shard, answer in found.items() if isinstance(answer, ShardReport)}
    return Found(missing, reports)


@dataclass(frozen=True)
class _Stored:
    """What lies in the folder of a stage."""

    job: Extraction
    index: Index | None
    base: Mapping[str, IndexedShard]  # by file: the features that these are added to
    sizes: Mapping[str, int]  # bytes of each file
    whole: bool  # whether all bytes are compared with their digests

    @cached_property
    def indexed(self) -> dict[str, IndexedShard]:
        """What the index says of each file."""
        return {shard.file: shard for shard in self.index.shards} if self.index else {}

    def look(self, shard: Shard) -> ShardReport | str | None:
        """What :meth:`check` returns, or what is wrong with the file of a shard."""
        try:
            return self.check(shard)
        except DataError as error:
            return str(error)

    def check(self, shard: Shard) -> ShardReport | None:
        """The report of a file that no index names; raises DataError unless the file is sound, and of the plan."""
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


def _say(job: Extraction, missing: Sequence[Shard], faults: Sequence[str], total: int) -> None:
    for text in faults:
        log.warning("%s; it is extracted again now", text.partition("; ")[0])
    kept = total - len(missing)
    if kept:
        log.info("%d of %d shards were done before and are kept: %s", kept, total, job.target.uri)
