"""Operational pools in storage: listing them, planning shards, reading examples.

The plan of shards depends on the listing alone, never on the cluster, so that the same pool gives the same shards,
batches and features whoever computes them and however often it starts again.

A format is a file of this room and a line of :data:`FORMATS`.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Protocol

from opacc_ray.errors import DataError
from opacc_ray.lake import images, npy
from opacc_ray.lake.examples import BadItem, Example, Ignored, Plan, Rules, Shard
from opacc_ray.lake.store import Entry, Listing, Store

log = logging.getLogger(__name__)


class Format(Protocol):
    """The names that a format's module offers."""

    @property
    def SUFFIXES(self) -> tuple[str, ...]:
        """How the keys of its files end, in lower case."""

    def cut(self, entries: Sequence[Entry], shard_size: int, shard_bytes: int) -> list[tuple[Entry, ...]]:
        """Return the files of each shard, by the sorted listing alone."""

    def read(self, store: Store, entries: Sequence[Entry], rules: Rules) -> Iterator[Example | BadItem]:
        """Yield the examples of one shard, and those that cannot be used with their reasons, in the order of files.

        One example at a time is decoded, so that a shard takes the memory of few.
        """


FORMATS: dict[str, Format] = {
    "images": images,
    "npy": npy,
}

SHARD_BYTES = 256 << 20
DEFAULTS = Rules()

_NAMED = 3  # ignored files of a kind that are named


def plan_shards(store: Store, kind: str, shard_size: int, shard_bytes: int = SHARD_BYTES, what: str = "pool") -> Plan:
    """List the pool and cut it as its format does: at most ``shard_size`` images a shard, or one array file a shard.

    What else lies there is counted and named in ``ignored``, and a warning says so. ``what`` names the section of the
    spec that the store is of.

    Raises
    ------
    DataError
        The prefix holds no file of that format, or one whose name is no Unicode.
    StorageError
        There is no such folder or bucket.
    """
    format = FORMATS[kind]
    listing = store.survey()
    entries = [entry for entry in listing.entries if entry.key.lower().endswith(format.SUFFIXES)]
    ignored = _ignored(listing, format.SUFFIXES)
    if not entries:
        found = "; it holds " + ", ".join(map(str, ignored)) if ignored else ", and nothing else"
        raise DataError(
            f"the {what} {store.uri} holds no {' or '.join(format.SUFFIXES)} file{found}; "
            f"check {what}.uri and {what}.format"
        )
    _refuse_names(entries, f"the {what} {store.uri}")
    if ignored:
        log.warning("not read of the %s %s: %s", what, store.uri, ", ".join(map(str, ignored)))
    pieces = format.cut(entries, shard_size, shard_bytes)
    shards = tuple(Shard(number, piece) for number, piece in enumerate(pieces))
    return Plan(shards, digest_of(entries), ignored)


def read_examples(store: Store, kind: str, shard: Shard, rules: Rules = DEFAULTS) -> Iterator[Example | BadItem]:
    """Read and decode one shard, example by example; what does not decode is a bad item with its reason."""
    return FORMATS[kind].read(store, shard.entries, rules)


def _ignored(listing: Listing, suffixes: tuple[str, ...]) -> tuple[Ignored, ...]:
    """What is no file of the format, by kind, the most frequent first."""
    kinds: dict[str, list[str]] = {}
    for entry in listing.entries:
        if not entry.key.lower().endswith(suffixes):
            kinds.setdefault(PurePosixPath(entry.key).suffix.lower()[:20] or "no suffix", []).append(entry.key)
    for oddity in listing.oddities:
        kinds.setdefault(oddity.kind, []).append(oddity.key)
    counted = [Ignored(_safe(kind), len(keys), tuple(map(_safe, keys[:_NAMED]))) for kind, keys in kinds.items()]
    return tuple(sorted(counted, key=lambda item: (-item.num_files, item.kind)))


def _refuse_names(entries: Sequence[Entry], place: str) -> None:
    """Refuse names that no id can be made of: a file system takes any bytes for a name."""
    odd = next((entry.key for entry in entries if _safe(entry.key) != entry.key), None)
    if odd is not None:
        raise DataError(f"{place} holds a file whose name is no Unicode: {_safe(odd)!r}; rename it")


def _safe(name: str) -> str:
    """A name with what is no Unicode as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def planned_ids(kind: str, shard: Shard) -> tuple[str, ...] | None:
    """Return the ids of a shard's examples in their order, where the listing tells: an image's id is its key."""
    return shard.keys or None if kind == "images" else None


def digest_of(entries: Sequence[Entry]) -> str:
    """Return the digest of a pool's listing."""
    lines = [json.dumps([entry.key, entry.size, entry.tag]) for entry in entries]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
