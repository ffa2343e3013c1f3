"""Pools of NumPy files: one example a row.

An ``.npz`` holds the rows under ``x`` (or its only name), and may hold their ``ids``; else an id is the file's key and
the row's number, ``digits.npy:7``. A file that cannot be used is one bad item, named by its key.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.lake.arrays import read_npy, read_npz
from opacc_ray.lake.examples import BadItem, Example, Rules
from opacc_ray.lake.store import Entry, Store

SUFFIXES = (".npy", ".npz")


def cut(entries: Sequence[Entry], shard_size: int, shard_bytes: int) -> list[tuple[Entry, ...]]:
    """Return the files of each shard: one, whatever it holds."""
    return [(entry,) for entry in entries]


def read(store: Store, entries: Sequence[Entry], rules: Rules) -> Iterator[Example | BadItem]:
    """Yield the rows of each file, in their order."""
    for entry in entries:
        try:
            yield from _rows(store, entry, rules.max_bytes)
        except DataError as error:
            yield BadItem(entry.key, str(error))


def _rows(store: Store, entry: Entry, max_bytes: int) -> list[Example]:
    if entry.size > max_bytes:
        raise DataError(f"{entry.key} has {entry.size} bytes, and pool.max_bytes is {max_bytes}")
    rows, ids = _load(entry.key, store.read_entry(entry), max_bytes)
    if rows.ndim < 2:
        raise DataError(f"{entry.key} has shape {rows.shape}; give one example per row")
    if ids is not None and ids.shape != (len(rows),):
        raise DataError(f"{entry.key} has {len(rows)} rows and {ids.size} ids; give one id per row")
    names = [f"{entry.key}:{row}" for row in range(len(rows))] if ids is None else [str(name) for name in ids]
    uri, own = store.uri_of(entry.key), ids is not None
    return [Example(names[row], f"{uri}#row={row}", rows[row], own) for row in range(len(rows))]


def _load(key: str, content: bytes, max_bytes: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Rows, and their ids if the file has some."""
    if not content.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return read_npy(content, key, max_bytes), None
    archive = read_npz(content, key, max_bytes)
    names = [name for name in archive if name != "ids"]
    if "x" not in names and len(names) != 1:
        raise DataError(f"{key} holds the arrays {', '.join(names)}; name the examples 'x'")
    return archive["x" if "x" in names else names[0]], archive.get("ids")
