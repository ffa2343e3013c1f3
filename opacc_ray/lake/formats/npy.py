"""Pools of NumPy files: one example per row.

An ``.npz`` file has the rows under ``x`` (or its only name), and may have ``ids``. Otherwise an id is the file's key
and the row's number, ``digits.npy:7``. An unusable file is one bad item, named by its key.

A shard is some rows of one ``.npy`` file, and reads only those. An ``.npz`` file, and an array in Fortran order, are
read as a whole.
"""

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import BadItem, Cut, Example, Found, Items, Limits, Piece, Rules, Shard, fault_of_id
from opacc_ray.lake.formats import Traits
from opacc_ray.lake.listing import find_files
from opacc_ray.lake.numpy_files import HEAD_BYTES, Layout, locate_rows, read_npy, read_npz
from opacc_ray.lake.store import Entry, Store, in_order

TRAITS = Traits()

SUFFIXES = (".npy", ".npz")

THREADS = 16
"""Headers that are read at a time."""


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return all NumPy files below the prefix."""
    return find_files(store, SUFFIXES, what)


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return the rows of each shard, which are in one file; or the file, if it must be read as a whole."""
    shards: list[tuple[Entry, ...] | tuple[Piece, ...]] = []
    num_examples: int | None = 0
    located = in_order(lambda entry: _locate(store, entry), found.entries, THREADS)
    for entry, rows in zip(found.entries, located, strict=True):
        if rows is None or rows.row_bytes > rules.max_bytes:
            shards.append((entry,))
            num_examples = None
            continue
        step = max(1, min(limits.examples, limits.bytes // rows.row_bytes))
        length = rows.shape[0]
        shards += [(Piece(entry, start, min(start + step, length)),) for start in range(0, length, step)]
        num_examples = None if num_examples is None else num_examples + length
    return Cut(shards, num_examples)


def _locate(store: Store, entry: Entry) -> Layout | None:
    """Return the layout of a file's rows; None if the file must be read as a whole, or is damaged."""
    if not entry.key.lower().endswith(".npy"):
        return None
    try:
        head = store.read_entry_range(entry, 0, min(HEAD_BYTES, entry.size))
        return locate_rows(head, entry.size, entry.key)
    except DataError:
        return None


def read(store: Store, shard: Shard, rules: Rules) -> Items:
    """Yield the rows of each file, in their order."""
    for piece in shard.pieces:
        yield from _slice(store, piece)
    for entry in () if shard.pieces else shard.entries:
        try:
            yield from _rows(store, entry, rules.max_bytes)
        except DataError as error:
            yield BadItem(entry.key, str(error))


def _slice(store: Store, piece: Piece) -> Iterator[Example]:
    """Yield the rows of a piece, reading no others."""
    entry = piece.entry
    rows = _locate(store, entry)
    assert rows is not None  # the file is that of the plan, or reading it raises
    found = rows.decode(store.read_entry_range(entry, *rows.range(piece.start, piece.stop)))
    uri = store.uri_of(entry.key)
    for row, array in enumerate(found, piece.start):
        yield Example(f"{entry.key}:{row}", f"{uri}#row={row}", array)


def _rows(store: Store, entry: Entry, max_bytes: int) -> Iterator[Example | BadItem]:
    if entry.size > max_bytes:
        raise DataError(f"{entry.key} has {entry.size} bytes, and pool.max_bytes is {max_bytes}")
    rows, ids = _load(entry.key, store.read_entry(entry), max_bytes)
    if rows.ndim < 2:
        raise DataError(f"{entry.key} has shape {rows.shape}; store one example per row")
    if ids is not None and ids.shape != (len(rows),):
        raise DataError(f"{entry.key} has {len(rows)} rows and {ids.size} ids; store one id per row")
    uri = store.uri_of(entry.key)
    for row, array in enumerate(rows):
        place = f"{entry.key}:{row}"
        name = place if ids is None else str(ids[row])
        fault = fault_of_id(name)
        yield BadItem(place, fault) if fault else Example(name, f"{uri}#row={row}", array, ids is not None)


def _load(key: str, content: bytes, max_bytes: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the rows, and their ids if the file has some."""
    if not content.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return read_npy(content, key, max_bytes), None
    archive = read_npz(content, key, max_bytes)
    names = [name for name in archive if name != "ids"]
    if "x" not in names and len(names) != 1:
        raise DataError(f"{key} has the arrays {', '.join(names)}; name that of the examples 'x'")
    return archive["x" if "x" in names else names[0]], archive.get("ids")
