"""Types of pools: files, shards and plans; examples, bad items and rows; the rules for reading them.

Rows of tables become examples by the columns that the spec names: ids, places, images and arrays.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError
from opacc_ray.lake import decode
from opacc_ray.lake.decode import DecodedImage
from opacc_ray.lake.logical_schema import Placed, id_texts
from opacc_ray.lake.parquet_io import is_list, numbers, numbers_of, to_numpy
from opacc_ray.lake.store import Entry, Store, in_order
from opacc_ray.lake.store_uris import open_store, split

Constants = tuple[tuple[str, Any], ...]
"""Columns with one value for a whole file, from its folder or the table: name, Arrow scalar."""


class Piece(NamedTuple):
    """Consecutive row groups, or rows, of one file: what a shard reads of it."""

    entry: Entry
    start: int  # the first unit
    stop: int  # the one after the last
    constants: Constants = ()
    layout: tuple[Placed, ...] = ()  # the columns that are read, in a Parquet file
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

    @classmethod
    def of(cls, number: int, parts: Sequence[Entry | Piece]) -> "Shard":
        """Return a shard of whole files, or of pieces of files."""
        pieces = tuple(part for part in parts if isinstance(part, Piece))
        entries = dict.fromkeys(part.entry if isinstance(part, Piece) else part for part in parts)
        return cls(number, tuple(entries), pieces)

    def only(self, numbers: Sequence[int]) -> "Shard":
        """Return a shard of some parts, by their numbers; none of them is carried."""
        return Shard.of(self.number, [self.parts[number] for number in numbers])

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
    mode: str | None = None  # of an image file, as Pillow names it
    is_turned: bool = False  # whether an image file states an orientation that is not upright


Decoded = NDArray[Any] | DecodedImage | str
"""The array of an example, its image file, or why there is none."""


def item_of(id: str, uri: str, value: Decoded, own_id: bool = False) -> Example | BadItem:
    """Return an example of what was decoded, or a bad item with the reason."""
    if isinstance(value, str):
        return BadItem(id, value)
    if isinstance(value, DecodedImage):
        return Example(id, uri, value.pixels, own_id, value.mode, value.is_turned)
    return Example(id, uri, value, own_id)


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

    alpha: decode.Alpha = "refuse"
    max_pixels: int = decode.MAX_PIXELS
    max_bytes: int = 8 << 30
    columns: Columns = Columns()
    filter: str | None = None
    version: int | str | None = None  # number, or name of a branch or tag; None: the newest
    timestamp: str | None = None  # or the newest at that time
    file: str | None = None  # URI of the file that the pool's URI names, if it names one
    only: str | None = None  # pattern of the keys that belong to the pool; None: all
    catalog: tuple[str, str] | None = None  # of an Iceberg table: catalog and name
    split: str | None = None  # several are joined by +
    slices: tuple[str, ...] = ()  # columns that are read later; a plan checks that they exist
    orientation: decode.Orientation = "ignore"  # in the metadata of an image file


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
    shards: list[list[Piece]] = []
    examples = num_bytes = 0  # of the last shard
    was_large = True  # whether the file before exceeds the limits
    for _, group in groupby(zip(pieces, sizes, strict=True), key=lambda each: each[0].entry):
        file = list(group)
        is_large = sum(size[0] for _, size in file) > limits.examples or sum(size[1] for _, size in file) > limits.bytes
        begins = is_large or was_large
        for piece, (rows, size) in file:
            examples, num_bytes = examples + rows, num_bytes + size
            if begins or examples > limits.examples or num_bytes > limits.bytes:
                shards.append([])
                examples, num_bytes = rows, size
            shard, begins = shards[-1], False
            if shard and shard[-1].entry == piece.entry and shard[-1].stop == piece.start:
                shard[-1] = shard[-1]._replace(stop=piece.stop)
            else:
                shard.append(piece)
        was_large = is_large
    return [tuple(shard) for shard in shards]


def examples_of(store: Store, batch: Batch, rules: Rules) -> Items:
    """Yield the rows of a batch as examples, each decoded when its turn comes."""
    names = ids_of(batch, rules.columns.id)
    places = uris_of(store, batch, rules.columns.uri)
    own = rules.columns.id is not None
    for name, place, value in zip(names, places, _values(store, batch, rules), strict=True):
        yield name if isinstance(name, BadItem) else item_of(name, place, value, own)


def ids_of(batch: Batch, column: str | Sequence[str] | None) -> list[str | BadItem]:
    """Return the id of each row; a null, empty or too long id is a bad item, named by the row's place.

    Several columns make one id, ``door-3/2026-01-31``; a slash or a percent sign in one of them is written as in URLs.
    """
    places = [f"{batch.entry.key}#{row}" for row in batch.rows.tolist()]
    if not column:
        return [*places]
    names = [column] if isinstance(column, str) else column
    rows = zip(*(_id_texts(batch.columns[name], name) for name in names), strict=True)
    return [_id_of(place, names, row) for place, row in zip(places, rows, strict=True)]


def _id_of(place: str, names: Sequence[str], parts: Sequence[str | None]) -> str | BadItem:
    given = [part for part in parts if part is not None]
    if len(given) < len(parts):
        return BadItem(place, f"its {names[parts.index(None)]} is null")
    several = len(given) > 1
    found = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in given) if several else given[0]
    fault = fault_of_id(found)
    return BadItem(place, fault) if fault else found


def _id_texts(column: Any, name: str) -> list[str | None]:
    found = id_texts(column)
    if found is None:
        raise DataError(
            f"pool.columns.id: {name!r} is {column.type}; choose a column of text, whole numbers, decimals, dates, "
            "times, bytes or UUIDs"
        )
    return list(found.to_pylist())


def uris_of(store: Store, batch: Batch, column: str | None) -> list[str]:
    """Return the URI of each row: the value of a column, or the file and the row's number."""
    own = [f"{store.uri_of(batch.entry.key)}#row={row}" for row in batch.rows.tolist()]
    if column is None:
        return own
    found = batch.columns[column].to_pylist()
    if not all(value is None or isinstance(value, str) for value in found):
        raise DataError(f"pool.columns.uri: {column!r} is {batch.columns[column].type}; choose a column of text")
    whole = (text if not text or "://" in text or text.startswith("/") else store.uri_of(text) for text in found)
    return [uri or place for uri, place in zip(whole, own, strict=True)]


def _values(store: Store, batch: Batch, rules: Rules) -> Iterator[Decoded]:
    """Yield the array of each row, or why there is none."""
    columns = rules.columns
    if columns.image is not None:
        return (_image(value, columns.image, rules) for value in batch.columns[columns.image])
    if columns.array:
        return _arrays(batch.columns, columns.array)
    assert columns.uri is not None  # the spec has one of them
    contents = in_order(partial(_read_named, store), batch.columns[columns.uri].to_pylist())
    return (content if isinstance(content, str) else decoded(content, rules) for content in contents)


def _image(cell: Any, name: str, rules: Rules) -> DecodedImage | str:
    value = cell.as_py()
    if isinstance(value, dict):
        value = value.get("bytes")
    if value is None:
        return f"its {name} is null"
    if not isinstance(value, bytes):
        return f"its {name} is {cell.type}, not the bytes of an image file"
    return decoded(value, rules)


def decoded(content: bytes, rules: Rules) -> DecodedImage | str:
    """Return an image file as the rules decode it, or why it cannot be used."""
    if len(content) > rules.max_bytes:
        return f"{len(content)} bytes, and at most {rules.max_bytes} are read"
    try:
        return decode.decode_image(
            content, alpha=rules.alpha, orientation=rules.orientation, max_pixels=rules.max_pixels
        )
    except decode.ImageError as error:
        return str(error)


def _arrays(table: Any, names: Sequence[str]) -> Iterator[NDArray[Any] | str]:
    """Yield the numbers of each row: those of one column, or one number from each of several."""
    columns = [table[name].combine_chunks() for name in names]
    several = next((f"{n!r} is {c.type}" for n, c in zip(names, columns, strict=True) if is_list(c.type)), None)
    if len(names) > 1 and several:
        raise DataError(
            f"pool.columns.array: each of several columns must hold one number per row, and {several}; give one column"
        )
    absent = [to_numpy(column.is_null()) for column in columns]
    null = np.logical_or.reduce(absent)
    sound = numbers(~null)
    found = [_rows(column.filter(sound), name) for column, name in zip(columns, names, strict=True)]
    values = iter(found[0] if len(found) == 1 else np.stack(found, axis=1))
    for row in range(len(null)):
        lacks = next((name for name, own in zip(names, absent, strict=True) if own[row]), None)
        yield next(values) if lacks is None else f"its {lacks} is null"


def _rows(column: Any, name: str) -> Any:
    """Return the rows of a column without nulls, as one array or, if they differ in length, one by one."""
    whole = numbers_of(column, name)
    if whole is not None:
        return whole
    single = (numbers_of(column.slice(row, 1), name) for row in range(len(column)))
    return (f"its {name} holds lists of different lengths" if row is None else row[0] for row in single)


def _read_named(store: Store, text: str | None) -> bytes | str:
    """Return the content of the object that a column names by URI, or why there is none.

    Tables are data from others, so they must not lead to arbitrary files. A URI is s3://, or a key below the pool's
    prefix, or a path that begins with that prefix. Raises StorageError if the object cannot be read.
    """
    if not text:
        return "its uri is null"
    try:
        place, key = locate(store, text)
    except OpaccError as error:
        return str(error)
    content = place.read_if_there(key)
    return f"there is no object {place.uri_of(key)}" if content is None else content


def locate(store: Store, text: str) -> tuple[Store, str]:
    """Return the store and the key of an object that a column names by URI; raises DataError for any other place."""
    key = text.removeprefix(f"{store.uri}/")
    if key.startswith("s3://"):
        parent, name = split(key)
        return open_store(parent), name
    if "://" in key or key.startswith("/"):
        raise DataError(f"its uri {text!r} is neither at s3:// nor below {store.uri}")
    store.check_key(key)
    if store.is_linked(key):
        raise DataError(f"its uri {text!r} is a symbolic link; give the file itself, or set pool.follow_links: true")
    return store, key
