"""Operational pools in storage: listing them, planning shards, reading examples.

The plan of shards depends on the listing alone, never on the cluster, so that the same pool gives the same shards,
batches and features whoever computes them and however often it starts again.

A format is a file of this room and a line of :data:`FORMATS`.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Protocol

from opacc_ray.errors import DataError
from opacc_ray.lake import images, npy
from opacc_ray.lake.examples import Examples, Plan, Shard
from opacc_ray.lake.store import Entry, Store


class Format(Protocol):
    """The names that a format's module offers."""

    @property
    def SUFFIXES(self) -> tuple[str, ...]:
        """How the keys of its files end, in lower case."""

    def cut(self, keys: Sequence[str], shard_size: int) -> list[tuple[str, ...]]:
        """Return the keys of each shard, by the sorted keys of all files alone."""

    def read(self, store: Store, keys: Sequence[str]) -> Examples:
        """Read the examples of one shard; those that cannot be used are returned in ``bad`` with their reasons."""


FORMATS: dict[str, Format] = {
    "images": images,
    "npy": npy,
}


def plan_shards(store: Store, kind: str, shard_size: int) -> Plan:
    """List the pool and cut it as its format does: ``shard_size`` images a shard, or one array file a shard.

    Raises
    ------
    DataError
        If the prefix holds no file of that format.
    """
    format = FORMATS[kind]
    listed = store.list()
    entries = [entry for entry in listed if entry.key.lower().endswith(format.SUFFIXES)]
    if not entries:
        raise DataError(
            f"the pool {store.uri} holds no {' or '.join(format.SUFFIXES)} file among its {len(listed)} objects; "
            "check pool.uri and pool.format"
        )
    pieces = format.cut([entry.key for entry in entries], shard_size)
    return Plan(tuple(Shard(number, keys) for number, keys in enumerate(pieces)), digest_of(entries), tuple(entries))


def read_examples(store: Store, kind: str, shard: Shard) -> Examples:
    """Read and decode one shard; what does not decode is returned in ``bad`` with its reason."""
    return FORMATS[kind].read(store, shard.keys)


def planned_ids(kind: str, shard: Shard) -> tuple[str, ...] | None:
    """Return the ids of a shard's examples in their order, where the listing tells: an image's id is its key."""
    return shard.keys or None if kind == "images" else None


def digest_of(entries: Sequence[Entry]) -> str:
    """Return the digest of a pool's listing."""
    lines = [json.dumps([entry.key, entry.size, entry.tag]) for entry in entries]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
