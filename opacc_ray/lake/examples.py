"""Types of pools: files, shards and plans; examples, bad items and rows; the rules for reading them."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.lake.decode import Alpha
from opacc_ray.lake.store import Entry

if TYPE_CHECKING:
    from opacc_ray.lake.filters import Bounds
    from opacc_ray.lake.logical_schema import Placed

Constants = tuple[tuple[str, Any], ...]
"""Columns with one value for a whole file, from its folder or the table: name, Arrow scalar."""


class Piece(NamedTuple):
    """Consecutive row groups, or rows, of one file: what a shard reads of it."""

    entry: Entry
    start: int  # the first unit
    stop: int  # the one after the last
    constants: Constants = ()
    layout: tuple["Placed", ...] = ()  # the columns that are read, in a Parquet file
    deleted: bytes = b""  # numbers in the file of the rows that its table has deleted, as int64 in their order


class Shard(NamedTuple):
    """The unit of work, of failure and of resume: consecutive files, or pieces of files."""

    number: int
    entries: tuple[Entry, ...]
    pieces: tuple[Piece, ...] = ()  # what to read of the entries; empty: all
    carried: tuple[tuple[int, str], ...] = ()  # numbers of parts with known features, each with the file that has them

    @property
    def parts(self) -> tuple[Entry | Piece, ...]:
        """Return what the shard reads: its pieces, or whole files."""
        return self.pieces or self.entries

    def only(self, numbers: Sequence[int]) -> "Shard":
        """Return a shard of some parts, by their numbers; none of them is carried."""
        parts = [self.parts[number] for number in numbers]
        pieces = tuple(part for part in parts if isinstance(part, Piece))
        entries = dict.fromkeys(part.entry if isinstance(part, Piece) else part for part in parts)
        return Shard(self.number, tuple(entries), pieces)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(entry.key for entry in self.entries)

    @property
    def name(self) -> str:
        return f"part-{self.number:06d}"

    @property
    def file(self) -> str:
        """Return the key of the shard's features."""
        return f"{self.name}.parquet"


class Ignored(NamedTuple):
    """Files below a pool's prefix that are not of its format, by kind."""

    kind: str  # a suffix such as ".txt", "no suffix", "symbolic link", "FIFO", ...
    num_files: int
    first: tuple[str, ...]  # some of their names

    def __str__(self) -> str:
        more = ", ..." if self.num_files > len(self.first) else ""
        return f"{self.num_files} x {self.kind} ({', '.join(self.first)}{more})"


class Plan(NamedTuple):
    """A pool's shards, the digest of its listing (keys, sizes, change tokens), and its ignored files."""

    shards: tuple[Shard, ...]
    digest: str
    ignored: tuple[Ignored, ...] = ()
    num_examples: int | None = None  # if the metadata determine it
    version: str | None = None  # of a table
    data_as_of: datetime | None = None  # when that version, or the newest of the files, was written

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return the pool's files, each once."""
        return tuple(dict.fromkeys(entry for shard in self.shards for entry in shard.entries))


class Found(NamedTuple):
    """The files of a pool, before they are cut."""

    entries: tuple[Entry, ...]
    ignored: tuple[Ignored, ...] = ()
    constants: Mapping[str, Constants] = {}  # by key of the file
    version: str | None = None  # of a table
    schema: Any = None  # pyarrow.Schema of a table that has one; None: the common one of the files
    imported: Mapping[str, int] = {}  # numbers of a table's columns by name, for files without numbers
    bounds: Mapping[str, "Bounds"] = {}  # what the table's log states of columns in each of the entries
    deleted: Mapping[str, bytes] = {}  # rows that the table has deleted, by key of the file: see Piece
    data_as_of: datetime | None = None  # when the version, or the newest of the files, was written


class Cut(NamedTuple):
    """The files of a pool in shards, by metadata alone."""

    shards: Sequence[tuple[Entry, ...] | tuple[Piece, ...]]
    num_examples: int | None = None  # if the metadata determine it


class BadItem(NamedTuple):
    """An example, or a file, that could not be used."""

    id: str
    reason: str
    source: int | None = None  # digest of the part of the shard that it is from: see :func:`source_of`


class Example(NamedTuple):
    """One decoded example."""

    id: str
    uri: str  # a row of a file has a fragment: ``digits.npy#row=7``
    array: NDArray[Any]  # (H, W) or (H, W, channels) of an image, or the array in the file
    own_id: bool = False  # whether the id is from the file; ids from keys need no check for duplicates


class Batch(NamedTuple):
    """Some rows of one file."""

    entry: Entry
    rows: NDArray[np.int64]  # (k,) numbers in the file
    columns: Any  # pyarrow.Table of k rows with the columns of the rules


LONGEST_ID = 4096  # characters that an id may have


def fault_of_id(id: str) -> str | None:
    """Return why a text cannot be an id; None if it can."""
    if not id:
        return "its id is empty"
    return f"its id has {len(id)} characters, and {LONGEST_ID} are allowed" if len(id) > LONGEST_ID else None


Items = Iterator[Example | BadItem]
"""The examples of a shard in the order of its files, with bad items in the place of unusable ones."""


class Columns(NamedTuple):
    """Columns of a table by their meaning. Several columns of numbers make one array."""

    id: str | tuple[str, ...] | None = None  # several make one id
    uri: str | None = None
    image: str | None = None
    array: tuple[str, ...] = ()
    features: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (name, columns) of each feature

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the columns that make the id."""
        return (self.id,) if isinstance(self.id, str) else self.id or ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return all columns that are read, each once."""
        single = (*self.ids, self.uri, self.image)
        several = (name for _, columns in self.features for name in columns)
        return tuple(dict.fromkeys(name for name in (*single, *self.array, *several) if name is not None))


class Rules(NamedTuple):
    """How a pool is read: see ``PoolSpec``."""

    alpha: Alpha = "refuse"
    max_pixels: int = 1 << 26
    max_bytes: int = 8 << 30
    columns: Columns = Columns()
    filter: str | None = None
    version: int | str | None = None  # number, or name of a branch or tag; None: the newest
    timestamp: str | None = None  # or the newest at that time
    file: str | None = None  # URI of the file that the pool's URI names, if it names one
    only: str | None = None  # pattern of the keys that belong to the pool; None: all
    catalog: tuple[str, str] | None = None  # of an Iceberg table: catalog and name
    readers: int = 1  # threads that decode images
    split: str | None = None  # several are joined by +
    slices: tuple[str, ...] = ()  # columns that are read later; a plan checks that they exist


class Limits(NamedTuple):
    """How large a shard may be."""

    examples: int
    bytes: int


def source_of(part: Entry | Piece) -> int:
    """Return 8 bytes of a digest of a part of a shard: equal parts have the same examples, with the same content."""
    content = repr([(name, _plain(value)) for name, value in zip(part._fields, part, strict=True)])
    return int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "little")


def _plain(value: Any) -> Any:
    """Return a value whose text is all of its content."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def in_shards(pieces: Sequence[Piece], sizes: Sequence[tuple[int, int]], limits: Limits) -> list[tuple[Piece, ...]]:
    """Return shards of consecutive pieces within the limits; one piece alone may exceed them.

    ``sizes`` has the examples and bytes of each piece. Adjacent pieces of a file become one. A file that exceeds the
    limits has shards of its own, so that they depend on this file alone.
    """
    shards: list[tuple[Piece, ...]] = []
    together: list[tuple[Piece, tuple[int, int]]] = []  # of files that fit
    for _, own in groupby(zip(pieces, sizes, strict=True), key=lambda each: each[0].entry):
        held = list(own)
        if _total(held).examples <= limits.examples and _total(held).bytes <= limits.bytes:
            together += held
            continue
        shards += _filled(together, limits) + _filled(held, limits)
        together = []
    return shards + _filled(together, limits)


def _total(held: Sequence[tuple[Piece, tuple[int, int]]]) -> Limits:
    return Limits(sum(size[0] for _, size in held), sum(size[1] for _, size in held))


def _filled(held: Sequence[tuple[Piece, tuple[int, int]]], limits: Limits) -> list[tuple[Piece, ...]]:
    """Return shards of consecutive pieces, each filled up to the limits."""
    shards: list[list[Piece]] = []
    examples = num_bytes = 0
    for piece, (more_examples, more_bytes) in held:
        fits = examples + more_examples <= limits.examples and num_bytes + more_bytes <= limits.bytes
        if not shards or not fits:
            shards.append([])
            examples = num_bytes = 0
        own = shards[-1]
        if own and own[-1].entry == piece.entry and own[-1].stop == piece.start:
            own[-1] = own[-1]._replace(stop=piece.stop)
        else:
            own.append(piece)
        examples, num_bytes = examples + more_examples, num_bytes + more_bytes
    return [tuple(shard) for shard in shards]
