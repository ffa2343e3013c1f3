"""Pools in storage: plan shards, read examples.

A plan depends on the listing and on the files' own metadata alone, never on the cluster. So a pool always gives the
same shards, batches and features. The formats are in :mod:`opacc_ray.lake.formats`.
"""

import hashlib
import json
import logging
from collections.abc import Collection, Iterator, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import BadItem, Batch, Example, Items, Limits, Plan, Rules, Shard, examples_of
from opacc_ray.lake.formats import find_format
from opacc_ray.lake.listing import find_files, readable_name
from opacc_ray.lake.store import Entry, Store

log = logging.getLogger(__name__)

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
    """List a pool and cut it into shards of about ``shard_size`` examples or ``shard_bytes``.

    Other files below the prefix are counted in ``ignored``, and a warning names them. Errors call the pool ``what``,
    after its section of the spec. Raises DataError if there is no file of that format, a file name is not Unicode, or
    the files' metadata do not match the rules; StorageError if the folder or bucket does not exist.
    """
    format = find_format(kind)
    found = (
        format.find(store, rules, what)
        if hasattr(format, "find")
        else find_files(store, format.SUFFIXES, what, only=rules.only)
    )
    for entry in found.entries:
        if (shown := readable_name(entry.key)) != entry.key:  # it cannot be an id
            raise DataError(f"the {what} {store.uri} holds a file whose name is not Unicode: {shown!r}; rename it")
    if found.ignored:
        log.warning("ignored in the %s %s: %s", what, store.uri, ", ".join(map(str, found.ignored)))
    cut = format.cut(store, found, rules, Limits(shard_size, shard_bytes), what)
    shards = tuple(Shard.of(number, parts) for number, parts in enumerate(cut.shards))
    plan = Plan(shards, "", found.ignored, cut.num_examples, found.version, found.data_as_of)
    return plan._replace(digest=digest_of(plan.entries, beyond_content(plan)))


def newest_version(store: Store, kind: str, rules: Rules) -> str | None:
    """Return the version that a table has now; None for a format without versions."""
    newest = getattr(find_format(kind), "newest", None)
    return None if newest is None else str(newest(store, rules, "pool"))


def read_examples(store: Store, kind: str, shard: Shard, rules: Rules = DEFAULTS) -> Items:
    """Read and decode a shard, example by example; an unusable example is a bad item with the reason."""
    format = find_format(kind)
    if hasattr(format, "read"):
        yield from format.read(store, shard, rules)
    else:
        for batch in format.batches(store, shard, rules):
            yield from examples_of(store, batch, rules)


def read_numbered(
    store: Store, kind: str, shard: Shard, rules: Rules = DEFAULTS
) -> Iterator[tuple[int, Example | BadItem]]:
    """Read a shard as :func:`read_examples`, each item with the number of its part."""
    planned = planned_ids(kind, shard)
    if planned is not None:
        number = {name: place for place, name in enumerate(planned)}
        yield from ((number[item.id], item) for item in read_examples(store, kind, shard, rules))
        return
    for place in range(len(shard.parts)):
        yield from ((place, item) for item in read_examples(store, kind, shard.only([place]), rules))


def read_chosen(store: Store, kind: str, shard: Shard, ids: Collection[str], rules: Rules = DEFAULTS) -> Items:
    """Read the examples of a shard with these ids."""
    yield from (item for item in read_examples(store, kind, shard, rules) if item.id in ids)


def read_in_order(store: Store, kind: str, shard: Shard, ids: Sequence[str], rules: Rules = DEFAULTS) -> list[Example]:
    """Return the examples of a shard with these ids, in their order; raises DataError if one cannot be read now."""
    found = {item.id: item for item in read_chosen(store, kind, shard, set(ids), rules) if isinstance(item, Example)}
    lost = next((id for id in ids if id not in found), None)
    if lost is not None:
        raise DataError(f"example {lost!r} of {store.uri} cannot be read now; restore it")
    return [found[id] for id in ids]


def read_rows(store: Store, kind: str, shard: Shard, rules: Rules = DEFAULTS) -> Iterator[Batch]:
    """Read the rows of a table's shard, with the columns of the rules."""
    batches: Iterator[Batch] = find_format(kind).batches(store, shard, rules)
    return batches


def planned_ids(kind: str, shard: Shard) -> tuple[str, ...] | None:
    """Return the ids of a shard's examples in their order if the listing determines them, else None."""
    return shard.keys or None if find_format(kind).TRAITS.keys_are_ids else None


def beyond_content(plan: Plan) -> list[Any]:
    """Return what a table says of its files beyond their content: deleted rows and renamed columns; empty if nothing.

    It consists of values of JSON.
    """
    pieces = [piece for shard in plan.shards for piece in shard.pieces]
    deleted = [[piece.entry.key, piece.deleted.hex()] for piece in pieces if piece.deleted]
    layouts = {piece.entry.key: piece.layout for piece in pieces}
    renamed = [
        [key, column.name, column.path]
        for key, layout in layouts.items()
        for column in layout
        if ".".join(column.path) != column.name
    ]
    return [deleted, renamed] if deleted or renamed else []


def digest_of(entries: Sequence[Entry], beyond: Sequence[Any] = ()) -> str:
    """Return the digest of a pool's listing, and of what is :func:`beyond_content`."""
    lines = [f"[{quoted(entry.key)}, {entry.size}, {quoted(entry.tag)}]" for entry in entries]  # as json.dumps, faster
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return hashlib.sha256(json.dumps([digest, *beyond]).encode()).hexdigest() if beyond else digest
