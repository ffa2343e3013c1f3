"""The features of one shard: their columns, their Parquet file and the report in it.

A file has one row group, so that a column is contiguous, a checksum on every page, and a report at its end: number of
examples, digests, predicted classes, the machine. So the index of all files needs only the reports: an actor returns
that of a new file, and the end of an older file contains it.
"""

import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from opacc_ray.documents import Part
from opacc_ray.errors import DataError
from opacc_ray.extract.machine import software
from opacc_ray.lake.examples import BadItem, Shard
from opacc_ray.lake.parquet_io import (
    Footer,
    footer_of,
    numbers,
    read_columns,
    read_footer,
    texts,
    to_numpy,
    unless_valid,
)
from opacc_ray.lake.pools import planned_ids
from opacc_ray.lake.store_uris import Store

FEATURES_FORMAT = 3
"""Increased when the same spec would give other features, so that runs of different versions do not mix."""

REMEDY = "run the spec again, which extracts a damaged shard anew"

MOST_FOOTERS = 1 << 12  # footers in memory for the next read of their file, of about 2 kB each

UNKNOWN = "not known"  # a version in files that do not state it

SOURCE = "source"  # column of the digests of the parts of the pool: see opacc_ray.lake.examples.source_of

_KEY = "opacc"  # key of the report in the file's metadata

_SEAL = '"end_sha256": "{}"'  # in the report: the digest of the footer with zeros in place of the digest
_UNSEALED = _SEAL.format("0" * 64).encode()


Columns = dict[str, NDArray[Any]]  # values by feature: one number per example (B,), or one row of them (B, width)
_ONE_WIDTH = "the model, or the column of the pool, must have the same number for each, at least one"
Hashes = NDArray[np.uint64]  # 8 bytes of a hash for each id, (N,)


class Machine(Part):
    """A kind of machine: two of one kind, with equal software, compute the same features of a shard, bit for bit."""

    processor: str  # name of the GPU, or else of the CPU
    capability: str  # instruction set that torch uses on it, such as AVX512 or sm_90
    torch: str  # version of torch
    opacc: str = UNKNOWN  # version of opacc, and the begin of a digest of its code
    python: str = UNKNOWN  # minor version of Python

    def __str__(self) -> str:
        return f"{self.processor} ({self.capability}, torch {self.torch}, Python {self.python}, opacc {self.opacc})"


class FeatureShard(NamedTuple):
    """The features of one shard's examples."""

    ids: list[str]
    uris: list[str] | None  # None: they are in the file with the other features
    columns: Columns
    bad: list[BadItem]
    own_ids: bool = True  # whether the ids are the pool's own; ids made of keys are unique without a check
    sources: list[int] | None = None  # digest of the part of the pool that each example is from; None: not known
    turned: Mapping[int, int] = {}  # image files that state an orientation, by the digest of their part

    def take(self, rows: Sequence[int], names: Iterable[str] | None = None) -> "FeatureShard":
        """Return some rows, in this order, of those columns in ``names`` that exist; default: all."""
        return self._replace(
            ids=[self.ids[row] for row in rows],
            uris=None if self.uris is None else [self.uris[row] for row in rows],
            sources=None if self.sources is None else [self.sources[row] for row in rows],
            columns={name: self.columns[name][list(rows)] for name in names or self.columns if name in self.columns},
        )


class Spent(NamedTuple):
    """Time of a process that computes, up to the end of a shard."""

    worker: str  # the process, by its machine and number
    readers: int  # its processes that read
    computing: float  # seconds in which the model ran
    elapsed: float  # seconds since its first batch was there
    ready: float  # batches that had been read when it asked for one, on average
    shards: int = 0  # that it has worked on; the driver counts them
    num_bytes: float = 0.0  # of their files, as the driver adds them up


class ShardReport(NamedTuple):
    """Report on a finished shard for the driver and the index."""

    num_examples: int
    bad: list[BadItem]
    widths: dict[str, int]  # values per example of each feature
    predicted: dict[int, int] | None  # examples by predicted class; None for a regression
    ids: str  # digest of the ids in their order
    own_ids: bool
    machine: Machine | None  # that made it; None if unknown
    size: int  # of the file in bytes
    footer_size: int  # bytes from the file's footer to its end
    sha256: str  # of the footer, which contains the SHA-256 of all bytes before it
    turned: Mapping[int, int]  # as of the features
    hashes: Hashes | None = None  # (num_examples,) of the ids, if they are the pool's own and were at hand
    spent: Spent | None = None  # if the model ran for it now


class FeatureFile(NamedTuple):
    """The file of a shard; None: not known, so that it is looked up, or not compared."""

    name: str
    num_examples: int
    size: int | None = None  # in bytes
    footer_size: int | None = None
    sha256: str | None = None  # of the footer
    added: tuple[tuple[str, "FeatureFile"], ...] = ()  # by feature: its file for the same examples


def encode_shard(shard: FeatureShard, machine: Machine | None = None) -> bytes:
    """Return the bytes of a Parquet file: id, uri, and a column per feature; layers are lists of fixed size."""
    columns = {"id": texts(shard.ids)} | ({} if shard.uris is None else {"uri": texts(shard.uris)})
    if shard.sources is not None:
        columns[SOURCE] = numbers(np.array(shard.sources, dtype=np.uint64))
    table = pa.table(columns | {name: numbers(values) for name, values in shard.columns.items()})
    predicted, prediction = None, shard.columns.get("prediction")
    if prediction is not None and prediction.dtype.kind in "iu":
        classes, counts = np.unique(prediction, return_counts=True)
        predicted = dict(zip(classes.tolist(), counts.tolist(), strict=True))
    report = {
        "ids": digest_of(shard.ids),
        "predicted": predicted,
        "bad": [{key: value for key, value in item._asdict().items() if value is not None} for item in shard.bad],
        "own_ids": shard.own_ids,
        "turned": shard.turned,
        "machine": machine.model_dump() if machine else None,
    }
    return encode_reported(table, report, use_dictionary=False)


def encode_reported(table: Any, report: dict[str, Any], *, use_dictionary: bool) -> bytes:
    """Return the bytes of a Parquet file with one row group and a report at its end."""
    sink = io.BytesIO()
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": use_dictionary, "write_page_checksum": True}
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=max(len(table), 1))
        digests = {"data_sha256": hashlib.sha256(sink.getvalue()).hexdigest(), "end_sha256": "0" * 64}
        writer.add_key_value_metadata({_KEY: json.dumps(report | digests)})
    data = sink.getvalue()
    end = footer_of(data).data
    seal = _SEAL.format(hashlib.sha256(end).hexdigest()).encode()
    return data[: -len(end)] + end.replace(_UNSEALED, seal)


def report_on(shard: FeatureShard, data: bytes, source: str) -> ShardReport:
    """Return the report of a new file, with the hashes of ids that must be checked."""
    report = parse_report(data, source)
    return report._replace(hashes=hashes_of(shard.ids)) if shard.own_ids else report


def parse_report(data: bytes, source: str) -> ShardReport:
    """Return the report in the bytes of a file."""
    with _readable(source):
        return _parse(footer_of(data), len(data))


def read_report(store: Store, file: str, size: int, *, whole: bool = False) -> ShardReport:
    """Return the report at the end of a file.

    Raises DataError if it is not a shard of features, or damaged: ``whole``, anywhere; else at its end.
    """
    with _readable(store.uri_of(file)):
        footer = read_footer(store, file, size=size)
        digest = _header(footer)["end_sha256"]
        unsealed = footer.data.replace(_SEAL.format(digest).encode(), _UNSEALED)
        if hashlib.sha256(unsealed).hexdigest() != digest:
            raise ValueError("its end does not match the digest in it")
        if whole:
            before = store.read(file)[: -len(footer.data)]
            _check(hashlib.sha256(footer.data).hexdigest(), footer, before)
        return _parse(footer, size)


def read_table(
    store: Store, file: FeatureFile, names: Sequence[str] | None, footers: dict[str, bytes] | None = None
) -> Any:
    """Return some columns of a file as an Arrow table, or all; raises DataError if it is damaged, or another file.

    The digest of the footer identifies the file. The pages that are read are checked by their own checksums, and all
    bytes by their digest, if all were read. ``footers`` are those that were read before, by file; that of this file is
    added.
    """

    def check(footer: Footer, before: bytes | None) -> None:
        if file.sha256 is not None:
            _check(file.sha256, footer, before)
        if footers is not None and len(footers) < MOST_FOOTERS:
            footers[file.name] = footer.data

    known, sizes = footers.get(file.name) if footers else None, {"size": file.size, "footer_size": file.footer_size}
    with _readable(store.uri_of(file.name)):
        table = read_columns(store, file.name, names, footer=known, check=check, **sizes)
        for name in names or ():
            table.column(name)
        if len(table) != file.num_examples:
            raise ValueError(f"it holds {len(table)} examples, and {file.num_examples} in its index")
        return table


def read_shard(store: Store, file: str, names: Sequence[str], sources: Sequence[int] | None = None) -> FeatureShard:
    """Return the stored examples of a file, with those of the named features that it has.

    With ``sources``, digests of parts of the pool, only the examples from these, without bad items.
    """
    size = store.size(file)
    report = read_report(store, file, size)
    held = [name for name in names if name in report.widths]
    turned, own = report.turned, FeatureFile(file, report.num_examples, size, report.footer_size)
    if sources is None:
        table = read_table(store, own, ["id", *held])
        uris, found, bad = None, None, report.bad
    else:
        table = read_table(store, own, ["id", "uri", SOURCE, *held])
        rows = np.flatnonzero(np.isin(to_numpy(table[SOURCE]), np.array(sources, dtype=np.uint64)))
        table = table.take(numbers(rows))
        uris, found, bad = table["uri"].to_pylist(), to_numpy(table[SOURCE]).tolist(), []
        turned = {source: num for source, num in report.turned.items() if source in sources}
    columns = {name: to_numpy(table[name]) for name in held}
    return FeatureShard(table["id"].to_pylist(), uris, columns, bad, report.own_ids, found, turned)


def _check(sha256: str, footer: Footer, before: bytes | None) -> None:
    if hashlib.sha256(footer.data).hexdigest() != sha256:
        raise ValueError("it is not the one of its index")
    if before is not None and hashlib.sha256(before).hexdigest() != _header(footer)["data_sha256"]:
        raise ValueError("it does not match its digest")


def finished_shards(folder: Store) -> set[str]:
    """Return the names of the shards whose features are in a folder, not in folders below it."""
    keys = [entry.key for entry in folder.list()]
    return {key.removesuffix(".parquet") for key in keys if key.endswith(".parquet") and "/" not in key}


def _header(footer: Footer) -> dict[str, Any]:
    return dict(json.loads((footer.metadata.metadata or {}).get(_KEY.encode(), b"null")))


def _parse(footer: Footer, size: int) -> ShardReport:
    header = _header(footer)
    machine, predicted = header.get("machine"), header["predicted"]
    return ShardReport(
        num_examples=footer.metadata.num_rows,
        bad=[BadItem(**item) for item in header["bad"]],
        widths=widths(footer.metadata.schema.to_arrow_schema()),
        predicted=None if predicted is None else {int(c): num for c, num in predicted.items()},
        ids=header["ids"],
        own_ids=header["own_ids"],
        machine=None if machine is None else Machine(**machine),
        size=size,
        footer_size=len(footer.data),
        sha256=hashlib.sha256(footer.data).hexdigest(),
        turned={int(source): num for source, num in header.get("turned", {}).items()},
    )


def widths(schema: Any) -> dict[str, int]:
    """Return the values per example of each feature in an Arrow schema."""
    held = [item for item in schema if item.name not in ("id", "uri", SOURCE)]
    return {item.name: item.type.list_size if pa.types.is_fixed_size_list(item.type) else 1 for item in held}


def _readable(source: str) -> AbstractContextManager[None]:
    fault = f"{source} is not a shard of features"
    return unless_valid(fault, f"; {REMEDY}", lambda error: str(error) or type(error).__name__)


def check_plan(folder: Store, kind: str, shard: Shard, report: ShardReport) -> None:
    """Raise DataError if a shard's file in a folder does not hold the examples of a plan for a pool of that kind.

    One that another opacc has made is refused as well: features of a set that is not complete are from one.
    """
    if report.machine is not None and report.machine.opacc not in (UNKNOWN, _own_opacc()):
        raise DataError(
            f"{folder.uri_of(shard.file)} was made by opacc {report.machine.opacc}, and this is {_own_opacc()}; delete "
            "it and run the spec again"
        )
    planned = planned_ids(kind, shard)
    if planned is None:
        return
    bad = {item.id for item in report.bad}
    if bad.difference(planned) or digest_of(name for name in planned if name not in bad) != report.ids:
        raise DataError(
            f"{folder.uri_of(shard.file)} holds {report.num_examples} examples and names {len(bad)} that could not "
            f"be used, which are not the {len(planned)} of its plan; delete it and run the spec again"
        )


@cache
def _own_opacc() -> str:
    return software()["opacc"]


def digest_of(ids: Iterable[str]) -> str:
    """Return the SHA-256 of ids in order, each after its length in bytes (8 bytes, little-endian)."""
    encoded = [name.encode() for name in ids]
    lengths = {size: size.to_bytes(8, "little") for size in set(map(len, encoded))}
    return hashlib.sha256(b"".join([lengths[len(name)] + name for name in encoded])).hexdigest()


def hashes_of(ids: Sequence[str]) -> Hashes:
    """Return 8 bytes of a hash for each id, (N,)."""
    hashed = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in ids)
    return np.frombuffer(hashed, dtype=np.uint64)


def find_repeated(hashes: Sequence[Hashes], ids_of: Callable[[int], Sequence[str]]) -> str | None:
    """Return the first repeated id of a pool; None if there is none.

    Ids with equal hashes are compared, so the result is exact. Memory: 16 bytes per example.

    ``hashes`` are of each shard, in the order of the pool; ``ids_of`` is called only for shards that share one.
    """
    ordered = np.concatenate(hashes)
    ordered.sort()
    shared = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    del ordered
    seen: set[str] = set()
    for place, own in enumerate(hashes if len(shared) else []):
        rows = np.flatnonzero(np.isin(own, shared, kind="sort")).tolist()
        ids = ids_of(place) if rows else []
        for row in rows:
            if ids[row] in seen:
                return ids[row]
            seen.add(ids[row])
    return None


def joined(batches: Sequence[Columns]) -> Columns:
    """Concatenate the columns of batches; raises DataError if a feature has another number of values in some."""
    for name in batches[0] if batches else ():
        widths = sorted({batch[name].shape[1] for batch in batches if batch[name].ndim > 1})
        if len(widths) > 1:
            raise DataError(f"{name} has {widths[0]} values for some examples and {widths[1]} for others; {_ONE_WIDTH}")
        if widths == [0]:
            raise DataError(f"{name} has no value for any example; {_ONE_WIDTH}")
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]} if batches else {}


def stacked(parts: Sequence[FeatureShard]) -> FeatureShard:
    """Return the examples of some parts, one after another, with the columns that all have, and the bad items."""
    held = [part for part in parts if part.ids]
    turned: Counter[int] = Counter()
    for part in parts:
        turned.update(part.turned)
    names = set.intersection(*(set(part.columns) for part in held)) if held else set()
    return FeatureShard(
        ids=[name for part in held for name in part.ids],
        uris=[uri for part in held for uri in part.uris or ()],
        columns=joined([{name: part.columns[name] for name in part.columns if name in names} for part in held]),
        bad=[item for part in parts for item in part.bad],
        own_ids=any(part.own_ids for part in parts),
        sources=[source for part in held for source in part.sources or ()],
        turned=turned,
    )


def not_finite(columns: Columns) -> dict[int, str]:
    """Return the rows with NaN or infinity, in order, each with the first such feature."""
    found: dict[int, str] = {}
    for name, values in columns.items():
        if values.dtype.kind == "f":
            bad = np.flatnonzero(~np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
            found = dict.fromkeys(bad.tolist(), name) | found
    return dict(sorted(found.items()))
