"""Features that an earlier extraction of the pool has made: copied for the objects that are as they were.

A shard's file has, for each example, the digest of the part of the pool that it is from: a file, or some row groups of
one, with key, size and tag (:func:`opacc_ray.lake.examples.source_of`). A part with the same digest has the same
examples. So a grown pool needs the model only for its new and changed objects.

Parts with an example that could not be used are read again. Values are those that were made when the object was first
seen, in its batch of that time; another batch would change the last bits.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from opacc_ray.extract.extraction import Extraction, Known
from opacc_ray.extract.feature_files import Features
from opacc_ray.extract.feature_set import read_index
from opacc_ray.extract.shards import (
    SOURCE,
    FeatureShard,
    ShardReport,
    encode_shard,
    read_report,
    read_table,
    report_on,
    stacked,
)
from opacc_ray.lake.examples import Shard, source_of
from opacc_ray.lake.parquet_io import numbers, to_numpy
from opacc_ray.lake.store import in_order
from opacc_ray.lake.store_uris import Store

THREADS = 4  # shards that are copied at a time


def locate(known: Known, shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards with the files that have features of their parts, as ``carried``."""
    index = read_index(known.folder)
    if index is None or any(item.source is None for item in index.bad):
        return list(shards)
    faulty = [item.source for item in index.bad if item.source is not None]
    features = Features.of(known.folder, index.files)
    held = [np.unique(own) for own in features.sources()]
    if not held:
        return list(shards)
    sources = np.concatenate(held)  # (k,) digests of the known parts
    sources, first = np.unique(sources, return_index=True)
    file = np.repeat(np.arange(len(held)), [len(own) for own in held])[first]  # (k,)
    sound = ~np.isin(sources, np.array(faulty, dtype=np.uint64))
    return [_with_known(shard, sources[sound], file[sound], features) for shard in shards]


def _with_known(shard: Shard, sources: NDArray[np.uint64], file: NDArray[np.int64], features: Features) -> Shard:
    """Return a shard with the parts that are among the sorted ``sources`` (k,), each in the ``file`` (k,)."""
    own = np.array([source_of(part) for part in shard.parts], dtype=np.uint64)
    place = np.minimum(np.searchsorted(sources, own), max(len(sources) - 1, 0))
    there = np.flatnonzero(sources[place] == own) if len(sources) else np.empty(0, dtype=np.int64)
    files = [features.files[number].name for number in file[place[there]].tolist()] if len(there) else []
    return shard._replace(carried=tuple(zip(there.tolist(), files, strict=True)))


def left_of(shard: Shard) -> list[int]:
    """Return the numbers of the parts of a shard that have no known features."""
    there = {number for number, _ in shard.carried}
    return [number for number in range(len(shard.parts)) if number not in there]


def read_carried(job: Extraction, shard: Shard) -> FeatureShard:
    """Return the known features of a shard's parts; raises DataError if their files are damaged."""
    assert job.known is not None
    added = dict(job.known.added)
    by_file: dict[str, list[int]] = {}
    for number, file in shard.carried:
        by_file.setdefault(file, []).append(source_of(shard.parts[number]))
    return stacked([_rows_of(job, added, file, sources) for file, sources in by_file.items()])


def _rows_of(job: Extraction, added: dict[str, Store], file: str, sources: Sequence[int]) -> FeatureShard:
    """Return the rows of a file that are from some parts of the pool."""
    assert job.known is not None
    folder = job.known.folder
    size = folder.size(file)
    report = read_report(folder, file, size)
    table = read_table(folder, file, ["id", "uri", SOURCE, *job.names], size, report.footer_size)
    rows = np.flatnonzero(np.isin(to_numpy(table[SOURCE]), np.array(sources, dtype=np.uint64)))
    own = table.take(numbers(rows))
    columns = {name: to_numpy(own[name]) for name in job.names}
    for name, _ in job.beside:
        further = read_table(added[name], file, [name], None, None, num_examples=len(table))
        columns[name] = to_numpy(further.take(numbers(rows))[name])
    ids, uris = own["id"].to_pylist(), own["uri"].to_pylist()
    return FeatureShard(ids, uris, columns, [], report.own_ids, to_numpy(own[SOURCE]).tolist())


def merged(shard: Shard, parts: Sequence[FeatureShard]) -> FeatureShard:
    """Return the features of several groups of a shard's parts, in the order of the shard."""
    whole = stacked(parts)
    place = {source_of(part): number for number, part in enumerate(shard.parts)}
    order = np.argsort([place[source] for source in whole.sources or ()], kind="stable")
    return whole.take(order.tolist())


def copy_shards(job: Extraction, shards: Sequence[Shard], on_done: Callable[[Shard, ShardReport], None]) -> None:
    """Write the features of shards of which all parts are known; no model runs."""
    for shard, report in zip(shards, in_order(lambda shard: _copy(job, shard), shards, THREADS), strict=True):
        on_done(shard, report)


def _copy(job: Extraction, shard: Shard) -> ShardReport:
    whole = merged(shard, [read_carried(job, shard)])
    for name, folder in job.beside:
        folder.write(shard.file, encode_shard(FeatureShard(whole.ids, None, {name: whole.columns[name]}, [], False)))
    own = whole._replace(columns={name: whole.columns[name] for name in job.names})
    data = encode_shard(own)
    job.target.write(shard.file, data)
    return report_on(own, data, job.target.uri_of(shard.file))
