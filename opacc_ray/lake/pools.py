"""Operational pools in storage: listing them, planning shards, reading examples.

The plan of shards depends on the listing and on the files' own metadata alone, never on the cluster, so that the same
pool gives the same shards, batches and features whoever computes them and however often it starts again.

A format is a file of this room and a line of :data:`FORMATS`.

| format | a shard is | an id is | planning costs |
|---|---|---|---|
| images | files, up to ``shard_size`` or ``shard_bytes`` of them | the key | the listing |
| npy | rows of an ``.npy`` file, or an ``.npz`` file | ``KEY:row``, or of ``ids`` | the listing, a header a file |
| parquet, features | row groups of one or more files | of a column, or ``KEY#row`` | the listing, a footer a file |
| delta, iceberg | row groups of the files of one version | the same | the table's log, the listing, a footer a file |
| lance | rows of the fragments of one version | the same | the table's log, the listing |
| webdataset | a tar file | ``KEY/`` and the sample's key | the listing |
| huggingface | an Arrow file, or row groups of Parquet files | of a column, or ``KEY#row`` | the listing |
"""

import hashlib
import importlib
import json
import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol, cast

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Cut, Found, Items, Limits, Piece, Plan, Rules, Shard
from opacc_ray.lake.store import Entry, Store
from opacc_ray.lake.tables import Batch

log = logging.getLogger(__name__)


class Format(Protocol):
    """The names that a format's module offers."""

    def find(self, store: Store, rules: Rules, what: str) -> Found:
        """Return the pool's files in their order; ``what`` names the section of the spec in errors."""

    def cut(self, store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
        """Return the files of each shard, or their pieces, by metadata alone."""

    def read(self, store: Store, shard: Shard, rules: Rules) -> Items:
        """Yield the examples of one shard, and those that cannot be used with their reasons, in the order of files.

        One example at a time is decoded, so that a shard takes the memory of few.
        """


class TableFormat(Format, Protocol):
    """What a format offers whose examples are rows with columns."""

    def batches(self, store: Store, shard: Shard, rules: Rules) -> Iterator[Batch]:
        """Yield the rows of a shard that the filter leaves, in their order, with the columns of the rules."""


FORMATS = {
    "images": "images",
    "npy": "npy",
    "parquet": "parquet",
    "webdataset": "webdataset",
    "huggingface": "huggingface",
    "delta": "delta",
    "iceberg": "iceberg",
    "lance": "lance",
    "features": "parquet",
}
"""Module of each format, in this room: it is imported when a pool of that format is."""

SHARD_BYTES = 256 << 20
DEFAULTS = Rules()


def plan_shards(
    store: Store,
    kind: str,
    shard_size: int,
    shard_bytes: int = SHARD_BYTES,
    what: str = "pool",
    rules: Rules = DEFAULTS,
) -> Plan:
    """List the pool and cut it as its format does: about ``shard_size`` examples a shard, or ``shard_bytes``.

    What else lies there is counted and named in ``ignored``, and a warning says so. ``what`` names the section of the
    spec that the store is of.

    Raises
    ------
    DataError
        The prefix holds no file of that format, one whose name is no Unicode, or one whose metadata do not fit.
    StorageError
        There is no such folder or bucket.
    """
    format = format_of(kind)
    found = format.find(store, rules, what)
    _refuse_names(found.entries, f"the {what} {store.uri}")
    if found.ignored:
        log.warning("not read of the %s %s: %s", what, store.uri, ", ".join(map(str, found.ignored)))
    cut = format.cut(store, found, rules, Limits(shard_size, shard_bytes), what)
    shards = tuple(_shard(number, piece) for number, piece in enumerate(cut.shards))
    plan = Plan(shards, "", found.ignored, cut.num_examples, found.version)
    return plan._replace(digest=digest_of(plan.entries))


def newest_version(store: Store, kind: str, rules: Rules) -> str | None:
    """Return the version that a table has now; None of a format without versions."""
    newest = getattr(format_of(kind), "newest", None)
    return None if newest is None else str(newest(store, rules, "pool"))


def read_examples(store: Store, kind: str, shard: Shard, rules: Rules = DEFAULTS) -> Items:
    """Read and decode one shard, example by example; what does not decode is a bad item with its reason."""
    return format_of(kind).read(store, shard, rules)


def read_chosen(store: Store, kind: str, shard: Shard, ids: Collection[str], rules: Rules = DEFAULTS) -> Items:
    """Read those examples of a shard that have these ids, alone where the format finds rows without their shard."""
    format = format_of(kind)
    if hasattr(format, "read_chosen"):
        yield from format.read_chosen(store, shard, rules, ids)
    else:
        yield from (item for item in format.read(store, shard, rules) if item.id in ids)


def read_rows(store: Store, kind: str, shard: Shard, rules: Rules = DEFAULTS) -> Iterator[Batch]:
    """Read the rows of a shard of a table, with the columns of the rules."""
    return cast(TableFormat, format_of(kind)).batches(store, shard, rules)


def format_of(kind: str) -> Format:
    """The module of a format."""
    return cast(Format, importlib.import_module(f"opacc_ray.lake.{FORMATS[kind]}"))


def _shard(number: int, parts: Sequence[Entry | Piece]) -> Shard:
    pieces = tuple(part for part in parts if isinstance(part, Piece))
    entries = tuple(part for part in parts if isinstance(part, Entry))
    return Shard(number, entries or tuple(dict.fromkeys(piece.entry for piece in pieces)), pieces)


def _refuse_names(entries: Sequence[Entry], place: str) -> None:
    """Refuse names that no id can be made of: a file system takes any bytes for a name."""
    for entry in entries:
        shown = entry.key.encode("utf-8", "backslashreplace").decode()
        if shown != entry.key:
            raise DataError(f"{place} holds a file whose name is no Unicode: {shown!r}; rename it")


def planned_ids(kind: str, shard: Shard) -> tuple[str, ...] | None:
    """Return the ids of a shard's examples in their order, where the listing tells: an image's id is its key."""
    return shard.keys or None if kind == "images" else None


def digest_of(entries: Sequence[Entry]) -> str:
    """Return the digest of a pool's listing."""
    lines = [json.dumps([entry.key, entry.size, entry.tag]) for entry in entries]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
