"""Pools in storage: find the files of a format, plan shards, read examples.

A plan depends on the listing and on the files' own metadata alone, never on the cluster. So a pool always gives the
same shards, batches and features. The formats are in :mod:`opacc_ray.lake.formats`.

Folders named ``column=value`` hold columns, as Hive, Spark and DuckDB write them.
"""

import hashlib
import json
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import date
from json.encoder import encode_basestring_ascii as quoted
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from opacc_ray.errors import DataError
from opacc_ray.lake import examples
from opacc_ray.lake.examples import BadItem, Batch, Example, Found, Ignored, Items, Plan, Rules, Shard
from opacc_ray.lake.formats import find_format
from opacc_ray.lake.parquet_io import pa
from opacc_ray.lake.store import Entry, Listing, Store

log = logging.getLogger(__name__)

SHARD_BYTES = 256 << 20
DEFAULTS = Rules()

_NAMED = 3  # ignored files of a kind whose names are shown

TABLES_HIDE = "_", "."
"""Beginnings of names that Spark and Hive ignore, such as ``_delta_log``."""


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
    cut = format.cut(store, found, rules, examples.Limits(shard_size, shard_bytes), what)
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
            yield from examples.examples_of(store, batch, rules)


def read_packed(store: Store, kind: str, shard: Shard, rules: Rules = DEFAULTS) -> Iterator[tuple[int, Any]]:
    """Read a shard without decoding it; yield the number of a part and what :func:`read_numbered` decodes."""
    for place in range(len(shard.parts)):
        yield from ((place, item) for item in find_format(kind).packed(store, shard.only([place]), rules))


def read_numbered(
    store: Store, kind: str, shard: Shard, rules: Rules = DEFAULTS, packed: Sequence[tuple[int, Any]] = ()
) -> Iterator[tuple[int, Example | BadItem]]:
    """Read a shard as :func:`read_examples`, each item with the number of its part; or decode what is ``packed``."""
    if packed:
        yield from ((number, find_format(kind).unpack(item, rules)) for number, item in packed)
        return
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


# -- files ---------------------------------------------------------------------------------------------------------


def find_files(
    store: Store,
    suffixes: tuple[str, ...],
    what: str,
    *,
    hidden: tuple[str, ...] = (".", "__MACOSX"),
    only: str | None = None,
) -> Found:
    """Return the files whose keys end in one of ``suffixes``, in any case, and count the others by kind.

    Files with a part of the path that begins with one of ``hidden`` are left out, unless it has a ``=``, as folders of
    Hive do. ``only`` is a pattern of keys: ``*`` and ``?`` match within a part of a path, ``**`` any parts. Errors call
    the pool ``what``. Raises DataError if there is no such file.
    """
    listing = store.survey()
    if only is not None:
        matches = pattern_of_keys(only).fullmatch
        chosen = [entry for entry in listing.entries if matches(entry.key)]
        if not chosen:
            raise DataError(f"the {what} {store.uri} has no file that matches {only!r}; correct {what}.uri")
        listing = Listing(chosen, [], listing.newest)
    fitting = (entry for entry in listing.entries if entry.key.lower().endswith(suffixes))
    wanted = tuple(entry for entry in fitting if not _is_hidden(entry.key, hidden))
    ignored = _ignored(listing, {entry.key for entry in wanted})
    if not wanted:
        there = "; it holds " + ", ".join(map(str, ignored)) if ignored else ", and nothing else"
        plain = " or ".join(end for end in suffixes if end.count(".") == 1)  # without those of compressed files
        raise DataError(f"the {what} {store.uri} holds no {plain} file{there}; check {what}.uri and {what}.format")
    return Found(wanted, ignored, data_as_of=listing.newest)


def pattern_of_keys(only: str) -> re.Pattern[str]:
    """Return a pattern of keys as a regular expression."""
    parts = []
    for part in re.split(r"(\*\*/|\*\*|\[[^\]]+\]|.)", only, flags=re.DOTALL):
        known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part)
        is_set = len(part) > 2 and part.startswith("[")
        parts.append(known or (part.replace("[!", "[^", 1) if is_set else re.escape(part)))
    return re.compile("".join(parts), re.DOTALL)


def _is_hidden(key: str, hidden: tuple[str, ...]) -> bool:
    return any(part.startswith(hidden) and "=" not in part for part in key.split("/"))


def _ignored(listing: Listing, wanted: set[str]) -> tuple[Ignored, ...]:
    """Count the files of other formats by kind, the most frequent first."""
    kinds: dict[str, list[str]] = {}
    for entry in listing.entries:
        if entry.key not in wanted:
            kinds.setdefault(PurePosixPath(entry.key).suffix.lower()[:20] or "no suffix", []).append(entry.key)
    for key, kind in listing.oddities:
        kinds.setdefault(kind, []).append(key)
    counted = (
        Ignored(readable_name(kind), len(keys), tuple(map(readable_name, keys[:_NAMED])))
        for kind, keys in kinds.items()
    )
    return tuple(sorted(counted, key=lambda item: (-item.num_files, item.kind)))


def readable_name(name: str) -> str:
    """Return a file's name with invalid Unicode escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


NULL = "__HIVE_DEFAULT_PARTITION__"


def partitions_of(entries: Sequence[Entry]) -> dict[str, examples.Constants]:
    """Return what the folders of each file say, by its key.

    A column has whole numbers or dates where all its values are, else text. A null has the type of its column.
    """

    texts = {entry.key: _texts(entry.key) for entry in entries}
    values: dict[str, set[str | None]] = {}
    for found in texts.values():
        for name, text in found.items():
            values.setdefault(name, set()).add(text)
    scalars = {name: _scalars(own) for name, own in values.items()}
    return {
        key: tuple((name, scalars[name][text]) for name, text in found.items()) for key, found in texts.items() if found
    }


def _scalars(texts: set[str | None]) -> dict[str | None, Any]:
    """Return the texts of a column as Arrow scalars; a column of nulls is one of text."""
    given = {text for text in texts if text is not None}
    if given and all(map(_is_whole, given)):
        return {text: pa.scalar(text and int(text), pa.int64()) for text in texts}
    if given and all(map(_is_date, given)):
        return {text: pa.scalar(text and date.fromisoformat(text), pa.date32()) for text in texts}
    return {text: pa.scalar(text, pa.string()) for text in texts}


def _texts(key: str) -> dict[str, str | None]:
    parts = (part.partition("=") for part in key.split("/")[:-1] if "=" in part)
    return {unquote(name): None if value == NULL else unquote(value) for name, _, value in parts}


def _is_whole(text: str) -> bool:
    """Whether a text is a number that reads the same when it is written again: 7, but not 007."""
    return text.removeprefix("-").isdecimal() and len(text) < 19 and str(int(text)) == text


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        return date.fromisoformat(text).isoformat() == text
    return False
