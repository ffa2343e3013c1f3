"""What a pool's listing is cut into, and what a piece of it holds once it is read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.lake.decode import Alpha
from opacc_ray.lake.store import Entry

Constants = tuple[tuple[str, Any], ...]
"""Columns of which all rows of a file have one value, which its folder or its table says: name, scalar of Arrow."""


class Piece(NamedTuple):
    """Consecutive units of one file, which is what a shard reads of it: row groups, or rows."""

    entry: Entry
    start: int  # the first unit
    stop: int  # the one after the last
    constants: Constants = ()
    names: tuple[tuple[str, str | None], ...] = ()  # columns that the file calls otherwise; None: it has none of them


class Shard(NamedTuple):
    """The unit of work, of failure and of resume: consecutive files of a listing, or pieces of files."""

    number: int
    entries: tuple[Entry, ...]
    pieces: tuple[Piece, ...] = ()  # what is read of the entries; none: all of each

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(entry.key for entry in self.entries)

    @property
    def name(self) -> str:
        return f"part-{self.number:06d}"

    @property
    def file(self) -> str:
        """The key of its features."""
        return f"{self.name}.parquet"


class Ignored(NamedTuple):
    """What a pool's prefix holds beside the files of its format."""

    kind: str  # a suffix such as ".txt", "no suffix", or what is no regular file: "symbolic link", "FIFO"
    num_files: int
    first: tuple[str, ...]  # some of their names

    def __str__(self) -> str:
        more = ", ..." if self.num_files > len(self.first) else ""
        return f"{self.num_files} x {self.kind} ({', '.join(self.first)}{more})"


class Plan(NamedTuple):
    """A pool's shards, a digest of its listing (keys, sizes, change tokens), and what else its prefix holds."""

    shards: tuple[Shard, ...]
    digest: str
    ignored: tuple[Ignored, ...] = ()
    num_examples: int | None = None  # if metadata tell
    version: str | None = None  # of a table: the one that was planned

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The listing of the pool's files, each once."""
        return tuple(dict.fromkeys(entry for shard in self.shards for entry in shard.entries))


class Found(NamedTuple):
    """The files of a pool, before they are cut."""

    entries: tuple[Entry, ...]
    ignored: tuple[Ignored, ...] = ()
    constants: Mapping[str, Constants] = {}  # key -> what its folder or the table says of all its rows
    version: str | None = None  # of a table
    optional: frozenset[str] = frozenset()  # columns of a table that its older files may lack
    field_ids: Mapping[str, int] = {}  # of the columns of a table, where names may change
    imported: Mapping[str, int] = {}  # such a number by the name in files that came to the table without numbers


class Cut(NamedTuple):
    """The files of a pool in shards, by metadata alone."""

    shards: Sequence[tuple[Entry, ...] | tuple[Piece, ...]]
    num_examples: int | None = None  # if metadata tell


class BadItem(NamedTuple):
    """An example, or a file of them, that could not be used."""

    id: str
    reason: str


class Example(NamedTuple):
    """One decoded example."""

    id: str
    uri: str  # where it lies; a row of a file as a fragment, ``digits.npy#row=7``
    array: NDArray[Any]  # (H, W) or (H, W, channels) of an image, or what the file holds
    own_id: bool = False  # whether the id is the file's own; ids made of keys are unique without a check


class Batch(NamedTuple):
    """Some rows of one file."""

    entry: Entry
    rows: NDArray[np.int64]  # (k,) their numbers in the file
    columns: Any  # pyarrow.Table of k rows, with the columns that the rules name


LONGEST_ID = 4096
"""Characters that an id may have."""


def fault_of_id(id: str) -> str | None:
    """Say why a text is no id, which a label could never name; None if it is one."""
    if not id:
        return "its id is empty"
    return f"its id has {len(id)} characters, and {LONGEST_ID} are the most" if len(id) > LONGEST_ID else None


Items = Iterator[Example | BadItem]
"""The examples of one shard, and those that cannot be used with their reasons, in the order of files."""


class Columns(NamedTuple):
    """Which columns of a table are what; None: none is. Several columns of numbers make one array."""

    id: str | None = None
    uri: str | None = None
    image: str | None = None
    array: tuple[str, ...] = ()
    features: tuple[tuple[str, tuple[str, ...]], ...] = ()  # name of a feature, and its columns

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are read, each once."""
        single = (self.id, self.uri, self.image)
        several = (name for _, columns in self.features for name in columns)
        return tuple(dict.fromkeys(name for name in (*single, *self.array, *several) if name is not None))


class Rules(NamedTuple):
    """How a pool is read, and what is too large to be: see ``PoolSpec``."""

    alpha: Alpha = "refuse"
    max_pixels: int = 1 << 26
    max_bytes: int = 8 << 30
    columns: Columns = Columns()
    filter: str | None = None
    version: int | None = None  # of a table; None: the newest
    timestamp: str | None = None  # or the newest at that time
    file: str | None = None  # URI of the file that the pool's URI names, if it names one
    catalog: tuple[str, str] | None = None  # or its catalog, and its name there
    readers: int = 1  # threads that decode images
    split: str | None = None  # of a Hugging Face dataset; several are joined by +


class Limits(NamedTuple):
    """How large a shard may be."""

    examples: int
    bytes: int


def in_shards(pieces: Sequence[Piece], sizes: Sequence[tuple[int, int]], limits: Limits) -> list[tuple[Piece, ...]]:
    """Put consecutive pieces together while they stay within the limits; one piece alone may exceed them.

    ``sizes``: examples and bytes of each piece. Pieces that follow one another in a file become one.
    """
    shards: list[list[Piece]] = []
    examples = num_bytes = 0
    for piece, (more_examples, more_bytes) in zip(pieces, sizes, strict=True):
        fits = examples + more_examples <= limits.examples and num_bytes + more_bytes <= limits.bytes
        if not shards or not fits:
            shards.append([])
            examples = num_bytes = 0
        held = shards[-1]
        if held and held[-1].entry == piece.entry and held[-1].stop == piece.start:
            held[-1] = held[-1]._replace(stop=piece.stop)
        else:
            held.append(piece)
        examples, num_bytes = examples + more_examples, num_bytes + more_bytes
    return [tuple(shard) for shard in shards]
