"""Pools of NumPy files: one example per row.

An ``.npz`` file has the rows under ``x`` (or its only name), and may have ``ids``. Otherwise an id is the file's key
and the row's number, ``digits.npy:7``. An unusable file is one bad item, named by its key.

A shard is some rows of one ``.npy`` file, and reads only those. An ``.npz`` file, and an array in Fortran order, are
read as a whole.

Headers are checked before anything is allocated or unpacked, since a short one can ask for gigabytes. So the type must
be numbers, booleans or text, and the shape must match the bytes after the header. The sizes that a zip archive
announces are compared with the limits, and with the unpacked bytes.
"""

import io
import zipfile
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake.examples import BadItem, Cut, Example, Found, Items, Limits, Piece, Rules, Shard, fault_of_id
from opacc_ray.lake.formats import Traits
from opacc_ray.lake.parquet_io import unless_valid
from opacc_ray.lake.store import Entry, Store, in_order

SUFFIXES = (".npy", ".npz")

TRAITS = Traits(files=SUFFIXES)

MAX_BYTES = 8 << 30  # of the largest array, by default
MAX_EXPANSION = 200  # of an archive's member, unpacked to compressed; deflate reaches 1,032 on zeros
_FREE_BYTES = 64 << 20  # any ratio is harmless up to here
_MAX_HEADER = 10_000
_MAX_ITEM = 1024  # bytes of one item: numbers have at most 16, text has 4 per character
_HEAD_BYTES = _MAX_HEADER + 16  # at the beginning of an .npy file contain its header in any version


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return the rows of each shard, which are in one file; or the file, if it must be read as a whole."""
    shards: list[tuple[Entry, ...] | tuple[Piece, ...]] = []
    num_examples: int | None = 0
    located = in_order(lambda entry: _locate(store, entry), found.entries)
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


def _locate(store: Store, entry: Entry) -> "_Layout | None":
    """Return the layout of a file's rows; None if the file must be read as a whole, or is damaged."""
    if not entry.key.lower().endswith(".npy"):
        return None
    try:
        found = _read_header(store.read_range(entry.key, 0, min(_HEAD_BYTES, entry.size), entry), entry.key, entry.size)
    except DataError:
        return None
    has_rows = len(found.shape) > 1 and not found.is_fortran and found.num_bytes > 0
    return found if has_rows and found.start + found.num_bytes == entry.size else None


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
    entry = piece.entry
    found = _locate(store, entry)
    assert found is not None  # the file is that of the plan, or reading it raises
    first, end = (found.start + row * found.row_bytes for row in (piece.start, piece.stop))
    rows = np.frombuffer(store.read_range(entry.key, first, end, entry), found.dtype).reshape(-1, *found.shape[1:])
    uri = store.uri_of(entry.key)
    for row, array in enumerate(rows, piece.start):
        yield Example(f"{entry.key}:{row}", f"{uri}#row={row}", array)


def _rows(store: Store, entry: Entry, max_bytes: int) -> Iterator[Example | BadItem]:
    if entry.size > max_bytes:
        raise DataError(f"{entry.key} has {entry.size} bytes, and at most {max_bytes} are read")
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
    if not content.startswith((b"PK\x03\x04", b"PK\x05\x06")):  # a zip archive
        return read_npy(content, key, max_bytes), None
    archive = read_npz(content, key, max_bytes)
    names = [name for name in archive if name != "ids"]
    if "x" not in names and len(names) != 1:
        raise DataError(f"{key} has the arrays {', '.join(names)}; name that of the examples 'x'")
    return archive["x" if "x" in names else names[0]], archive.get("ids")


class _Layout(NamedTuple):
    """The layout of an .npy file, according to its header."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]
    start: int  # first byte of the array

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        return prod(self.shape[1:]) * self.dtype.itemsize


def read_npy(content: bytes, name: str, max_bytes: int = MAX_BYTES) -> NDArray[Any]:
    """Return the array of an .npy file, as a view of ``content``.

    Raises DataError if the file is not valid, or the array is larger than ``max_bytes``.
    """
    found = _read_header(content, name, max_bytes)
    there = len(content) - found.start
    if found.num_bytes != there:
        raise DataError(
            f"{name} announces {found.num_bytes} bytes of {found.dtype} in the shape {found.shape}, and has "
            f"{there}; write it again"
        )
    flat = np.frombuffer(content, found.dtype, offset=found.start)
    return flat.reshape(found.shape, order="F" if found.is_fortran else "C")


def read_npz(content: bytes, name: str, max_bytes: int = MAX_BYTES) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz archive by their names.

    Raises DataError if the archive or a member is not valid, or the arrays have more than ``max_bytes`` together.
    """
    with (
        unless_valid(f"{name} is not a valid .npz archive", "; write it again"),
        zipfile.ZipFile(io.BytesIO(content)) as archive,
    ):
        members = archive.infolist()
        _check_members(members, name, max_bytes)
        return {
            own.filename.removesuffix(".npy"): read_npy(archive.read(own), f"{name} ({own.filename})", max_bytes)
            for own in members
        }


def _check_members(members: list[zipfile.ZipInfo], name: str, max_bytes: int) -> None:
    if len({member.filename for member in members}) < len(members):
        raise DataError(f"{name} has two arrays of one name; write it again")
    for member in members:
        limit = max(_FREE_BYTES, MAX_EXPANSION * member.compress_size)
        if member.file_size > limit:
            raise DataError(
                f"{name}: {member.filename} expands from {member.compress_size} to {member.file_size} bytes, more than "
                f"{MAX_EXPANSION} times; store it with np.savez, uncompressed"
            )
    total = sum(member.file_size for member in members)
    if total > max_bytes:
        raise DataError(f"{name} has {total} bytes of arrays, and at most {max_bytes} are read; write smaller files")


def _read_header(content: bytes, name: str, max_bytes: int) -> _Layout:
    stream = io.BytesIO(content[:_HEAD_BYTES])
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        found = _Layout(*read(stream, max_header_size=_MAX_HEADER), stream.tell())
    except Exception as error:  # Python's parser raises MemoryError for a header that is nested too deeply
        reason = shortened(str(error), 200) or type(error).__name__
        raise DataError(f"{name} is not a valid NumPy file ({reason}); write it again") from None
    if found.dtype.kind not in "biufSU" or found.dtype.itemsize > _MAX_ITEM:
        raise DataError(f"{name} has items of the type {str(found.dtype)[:60]}; store numbers, booleans or short text")
    if any(length < 0 for length in found.shape) or (0 in found.shape and found.shape[0] > 0):
        raise DataError(f"{name} has the shape {found.shape}: its rows are empty; store one example per row")
    if found.num_bytes > max_bytes:
        raise DataError(
            f"{name} announces {found.num_bytes} bytes in the shape {found.shape}, and at most {max_bytes} are read; "
            "write smaller files"
        )
    return found
