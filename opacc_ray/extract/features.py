"""The features of a pool where they are stored: a column costs its own bytes, and ids are fetched for the rows in hand.

What is read is decoded on a few threads, some files ahead, and only what was asked for is kept of each file.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from opacc_ray.extract.derived import ROWS, Derived
from opacc_ray.extract.index import Index, IndexedShard
from opacc_ray.extract.shards import read_table
from opacc_ray.lake.arrow_columns import numbers, texts, to_numpy
from opacc_ray.lake.read_ahead import in_order
from opacc_ray.lake.store_uris import Store
from opacc_ray.parts.view import Call, Located, add_up, answers, locate, starts_of
from opacc_ray.pool import COLUMNS, FEATURES, Pool

MOST_THREADS = 16
EXAMPLES_AT_A_TIME = 1 << 18
"""Files that are read at a time, and the examples in them: many small files, since each waits for its server, but few
large ones, since each takes memory while it is decoded. Twice as many files may wait to be used."""

MOST_PARTS = 128
"""Parts that a pool is seen in; files that are more are seen together."""

DERIVED = "derived"
"""The folder of what is made of all features."""

TEXTS = ("id", "uri")

PIECE = 1 << 13
"""Examples of a file, at most, whose columns are so short that a request costs more than what it brings."""

MOST_OF = 0.75
"""Share of the files beyond which a column is read of all of them, and kept in one piece for the next time."""

KEPT_BYTES = 64 << 20
"""A column up to this size is kept for the next time that it is asked for."""

Result = TypeVar("Result")


class FeatureFile(NamedTuple):
    """One shard's file; None is what the index does not say."""

    name: str
    num_examples: int
    size: int | None  # in bytes
    footer_size: int | None
    sha256: str | None  # of the footer
    added: tuple[tuple[str, "FeatureFile"], ...] = ()  # by feature: the file that holds it for the same examples


@dataclass(frozen=True)
class Features:
    """Files of features in the order of the pool, each with at least one example. A small value that travels."""

    store: Store
    files: tuple[FeatureFile, ...]
    footers: dict[str, bytes] | None = field(default=None, compare=False, repr=False)  # by file, if they are held
    derived: Derived | None = field(default=None, compare=False, repr=False)  # None: the files are a part of a pool's

    @classmethod
    def of(cls, store: Store, index: Index) -> "Features":
        """The files of a folder that hold examples."""
        files = tuple(_file_of(shard) for shard in index.shards if shard.examples)
        return cls(store, files, derived=_derived(store.store(DERIVED), files))

    def holding(self) -> "Features":
        """The same, which reads the footer of each file once."""
        return replace(self, footers={})

    def with_added(self, name: str, place: str, index: Index) -> "Features":
        """The same with a feature whose files lie in the folder ``place``, one for each of these."""
        held = (_file_of(shard) for shard in index.shards if shard.examples)
        own = [file._replace(name=f"{place}/{file.name}") for file in held]
        files = zip(self.files, own, strict=True)
        found = tuple(file._replace(added=(*file.added, (name, each))) for file, each in files)
        return replace(self, files=found, derived=_derived(self.store.store(DERIVED), found))

    @property
    def sizes(self) -> list[int]:
        """Examples in each file."""
        return [file.num_examples for file in self.files]

    @property
    def are_many(self) -> bool:
        """Whether a column lies in so many pieces that one of all of them is worth its place."""
        return len(self.files) > 1 and sum(self.sizes) <= PIECE * len(self.files)

    def parts(self) -> list["Features"]:
        """The pool in parts: its files, or, if there are more than `MOST_PARTS`, as many runs of consecutive ones."""
        if len(self.files) <= MOST_PARTS:
            return [self.part((file,)) for file in self.files]
        number = starts_of(self.sizes)[:-1] * MOST_PARTS // sum(self.sizes)  # (files,) of the part
        cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(self.files)]
        return [self.part(self.files[start:stop]) for start, stop in pairwise(cuts)]

    def part(self, files: tuple[FeatureFile, ...]) -> "Features":
        """Some of the files."""
        return replace(self, files=files, derived=None)

    def pools(self, names: Sequence[str]) -> list[Pool]:
        """Each file's examples with the named features, without ids."""
        return list(self._each(lambda table: Pool(**_arrays(table, names)), names))

    def column(self, name: str) -> NDArray[Any]:
        """One number per example of the pool, (N,)."""
        return self.joined(self.each(name))

    def each(self, name: str) -> Iterator[NDArray[Any]]:
        """One feature, file by file; a column that lies in many short pieces is kept in one, and read from there."""
        values = self._each(lambda table: to_numpy(table[name]), [name])
        if self.derived is None or name not in COLUMNS or not self.are_many:
            return values
        starts = starts_of(self.sizes)
        found = [own[:, 0] for own in self.derived.recall(name, starts)]
        if len(found) < len(self.files):
            found = list(values)
            self.derived.keep(name, int(starts[-1]), (own[:, None] for own in found))
        return iter(found)

    def joined(self, values: Iterator[NDArray[Any]]) -> NDArray[Any]:
        """The next ``values`` of all files in one array, (N, ...)."""
        first = next(values)
        if len(self.files) == 1:
            return first
        whole = np.empty((sum(self.sizes), *first.shape[1:]), dtype=first.dtype)
        whole[: len(first)] = first
        place = len(first)
        for _ in self.files[1:]:
            part = next(values)
            whole[place : place + len(part)] = part
            place += len(part)
        return whole

    def take(self, names: Sequence[str], index: NDArray[np.int64]) -> list[list[Any]]:
        """The values of each name (ids and places are names, too) for ``index`` (k,)."""
        located = locate(starts_of(self.sizes), index)
        if self.derived and self.are_many and len(located) > MOST_OF * len(self.files) and sum(self.sizes) <= ROWS:
            return [self._whole(name).take(numbers(index)).to_pylist() for name in names]
        found: list[list[Any]] = [[None] * len(index) for _ in names]

        def read(own: Located) -> list[list[Any]]:
            table = self._read(self.files[own.part], names).take(numbers(own.rows))
            return [table[name].to_pylist() for name in names]

        for own, rows in zip(located, in_order(read, located, self._threads), strict=True):
            for values, some in zip(found, rows, strict=True):
                for place, value in zip(own.places, some, strict=True):
                    values[place] = value
        return found

    def _whole(self, name: str) -> Any:
        """One column of all examples as an Arrow array, kept in one piece."""
        import pyarrow as pa

        assert self.derived is not None
        if name not in TEXTS:
            return numbers(self.column(name))
        found = self.derived.recall_texts(name)
        if found is None:
            found = pa.concat_arrays(self._each(lambda table: table[name].combine_chunks(), [name]))
            self.derived.keep_texts(name, found)
        return found

    def rows(self, names: Sequence[str], index: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """The named features of the examples at ``index`` (k,), each (k, ...), in that order."""
        located = locate(starts_of(self.sizes), index)
        found: dict[str, NDArray[Any]] = {}

        def read(own: Located) -> dict[str, NDArray[Any]]:
            return _arrays(self._read(self.files[own.part], names).take(numbers(own.rows)), names)

        for own, arrays in zip(located, in_order(read, located, self._threads), strict=True):
            for name, values in arrays.items():
                whole = found.setdefault(name, np.empty((len(index), *values.shape[1:]), values.dtype))
                whole[own.places] = values
        return found

    def tables(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield the named columns of the pool, part by part, as Arrow tables."""
        return self._each(lambda table: table.select(names).replace_schema_metadata(), names)

    def ids(self, part: int) -> list[str]:
        """All ids of one part."""
        return list(self._read(self.files[part], ["id"])["id"].to_pylist())

    def search(self, ids: Sequence[str], name: str) -> dict[str, Any]:
        """The values of ``name`` for those of the ``ids`` that are in the pool."""
        import pyarrow.compute as pc

        wanted = texts(list(dict.fromkeys(ids)))

        def found(table: Any) -> dict[str, Any]:
            own = table.filter(pc.is_in(table["id"], value_set=wanted))
            return dict(zip(own["id"].to_pylist(), own[name].to_pylist(), strict=True))

        return {key: value for part in self._each(found, ["id", name]) for key, value in part.items()}

    def _each(self, work: Callable[[Any], Result], names: Sequence[str]) -> Iterator[Result]:
        """``work(table)`` of every file, in order."""
        return in_order(lambda file: work(self._read(file, names)), self.files, self._threads)

    @property
    def _threads(self) -> int:
        return min(MOST_THREADS, max(2, EXAMPLES_AT_A_TIME // max(self.sizes)))

    def _read(self, file: FeatureFile, names: Sequence[str]) -> Any:
        """A table with these columns, from the files that hold them."""
        import pyarrow as pa

        added = dict(file.added)
        if not added.keys() & set(names):
            return self._read_file(file, names)
        own = [name for name in names if name not in added]
        tables = {name: self._read_file(added[name], [name]) for name in names if name in added}
        tables |= dict.fromkeys(own, self._read_file(file, own) if own else None)
        return pa.table({name: tables[name][name] for name in names})

    def _read_file(self, file: FeatureFile, names: Sequence[str]) -> Any:
        return read_table(
            self.store,
            file.name,
            names,
            file.size,
            file.footer_size,
            num_examples=file.num_examples,
            sha256=file.sha256,
            footers=self.footers,
        )


class TooLarge(Exception):
    """A feature that was asked for is not to be read in this process."""


class StoredPool(Pool):
    """A part of a pool whose features are read when one is first asked for, and then kept; without ids."""

    def __init__(self, size: int, names: Sequence[str], load: Callable[[str], None]) -> None:
        self.size = size
        self._names = frozenset(names)
        self._load = load  # sets the feature of that name, here and in the parts beside this one
        self._ids = None
        self.kept = {}

    @property
    def fields(self) -> frozenset[str]:
        return self._names

    def __getattr__(self, name: str) -> Any:
        if name not in FEATURES:
            raise AttributeError(name)
        if name not in self._names:
            return None
        self._load(name)
        return self.__dict__[name]


def stored_pools(
    parts: Sequence[Features], names: Sequence[str], too_large: Sequence[str] = (), whole: Features | None = None
) -> list[Pool]:
    """Consecutive parts of a pool with the named features; each is read for all of them at once.

    One that is ``too_large`` raises :class:`TooLarge` where a function asks for it. ``whole`` is the pool, if these are
    all of its parts.
    """
    together = whole or parts[0].part(tuple(file for part in parts for file in part.files))

    def load(name: str) -> None:
        if name in too_large:
            raise TooLarge(name)
        values = together.each(name)
        for pool, part in zip(pools, parts, strict=True):
            setattr(pool, name, part.joined(values))

    pools: list[Pool] = [StoredPool(sum(part.sizes), names, load) for part in parts]
    return pools


class StoredParts:
    """Parts of a view whose rows are read when they are needed: see :mod:`opacc_ray.parts.view`.

    A feature is read when it is first asked for, ids for the rows in hand.
    """

    def __init__(self, features: Features, names: Sequence[str], too_large: Sequence[str] = ()) -> None:
        self.fields = frozenset(names)
        self.named = True
        self._features = features
        self._names = tuple(names)
        self._pools = stored_pools(features.parts(), names, too_large, features)
        self.sizes = [pool.size for pool in self._pools]
        self._columns: dict[str, NDArray[Any]] = {}

    def call(self, calls: Sequence[Call]) -> list[Any]:
        return list(answers(self._pools, calls))

    def total(self, calls: Sequence[Call]) -> Any:
        return add_up(answers(self._pools, calls))

    def column(self, name: str) -> NDArray[Any]:
        if name in self._columns:
            return self._columns[name].copy()
        values = self._features.column(name)
        if values.nbytes > KEPT_BYTES:
            return values
        self._columns[name] = values
        return values.copy()

    def identify(self, index: NDArray[np.int64]) -> list[str]:
        return self._features.take(["id"], index)[0]


def _file_of(shard: IndexedShard) -> FeatureFile:
    return FeatureFile(shard.file, shard.examples, shard.bytes, shard.footer_bytes, shard.sha256)


def _derived(folder: Store, files: Sequence[FeatureFile]) -> Derived:
    """What is kept of a pool: of the file that holds a feature, or of what is made of the files themselves."""

    def digests(name: str) -> list[str | None]:
        return [dict(file.added).get(name, file).sha256 for file in files]

    return Derived(folder, sum(file.num_examples for file in files), digests)


def _arrays(table: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: to_numpy(table[name]) for name in names}
