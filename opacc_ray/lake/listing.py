"""The files of a format below a prefix, and the files that are ignored.

Folders named ``column=value`` hold columns, as Hive, Spark and DuckDB write them.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Constants, Found, Ignored
from opacc_ray.lake.parquet_io import pa
from opacc_ray.lake.store import Entry, Listing, Store

_NAMED = 3  # ignored files of a kind whose names are shown

TABLES_HIDE = "_", "."
"""Beginnings of names that Spark and Hive ignore, such as ``_delta_log``."""


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


def partitions_of(entries: Sequence[Entry]) -> dict[str, Constants]:
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
