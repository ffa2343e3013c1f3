"""Stored features of a pool: only the columns, and the ids of the rows, that are needed are read.

Files are read and decoded on a few threads, some ahead, and only the requested columns of each are kept.

Values derived from all features of a pool are cached next to them: expensive to compute or read, safe to lose.

    derived/directions-6-DIGEST.parquet     the hidden layer of each example along six directions, in whole numbers
    derived/confidence-DIGEST.parquet       a column of many small files, in one
    derived/prediction-DIGEST-00000.parquet …     for a pool of more than `ROWS` examples

DIGEST is a digest of the files that the value was derived from, so other features have another one.

Slices name each different value once, so memory is one small number per example.
"""

import hashlib
import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from opacc_ray.errors import OpaccError, SpecError
from opacc_ray.extract.shards import SOURCE, FeatureFile, digest_of, read_table
from opacc_ray.lake.parquet_io import encode, numbers, read_bytes, read_footer, texts, to_numpy
from opacc_ray.lake.store import in_order
from opacc_ray.lake.store_uris import Store
from opacc_ray.parts.view import Call, Located, add_up, answers, locate, starts_of
from opacc_ray.pool import COLUMNS, FEATURES, HAS_TAG, MOST, Pool, SliceRule, Slicing, joined

MOST_THREADS = 16
EXAMPLES_AT_A_TIME = 1 << 18
"""Files that are read at a time, and the examples in them: many small files, since each waits for its server, but few
large ones, since each takes memory. Twice as many decoded files may wait."""

MOST_PARTS = 128  # parts of a pool, at most; more files are grouped
PIECE = 1 << 13  # examples of a small file, at most, for which a request costs more than its bytes
MOST_OF = 0.75  # share of the files above which a column is read from all of them, and cached in one file
KEPT_BYTES = 64 << 20  # a column up to this size stays in memory

SLICES = "slices"
"""The slices of a pool among what is added to its features, and what a part keeps."""

Result = TypeVar("Result")

log = logging.getLogger(__name__)

ROWS = 1 << 19  # examples per file, so that memory is bounded
HELD_BYTES = 1 << 20  # a file up to this size stays in memory

_LAYOUT = "columns"  # part of the digest, so that another layout has other file names


class Derived:
    """A cache of one row of numbers, or one text, per example; a lost or damaged value is computed again.

    ``digests`` returns those of the files that a value is derived from, by its name; None for an unknown one.
    """

    def __init__(self, folder: Store, size: int, digests: Callable[[str], Sequence[str | None]]) -> None:
        self._store, self._size, self._digests = folder, size, digests
        self._held: dict[str, bytes] = {}

    def recall(self, name: str, starts: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        """Yield the (n, d) numbers under a name, for the examples from each of ``starts`` to the next.

        It ends early if a file is missing or damaged.
        """
        files = self._keys(name)
        held: NDArray[Any] = np.empty((0, 0))  # the rows of the last file
        begin = 0  # the first of them
        for start, stop in pairwise(starts.tolist()):
            rows = [held[start - begin : stop - begin]]
            while begin + len(held) < stop:
                begin += len(held)
                found = self._read(files[begin // ROWS], _decode) if files else None
                if found is None or len(found) != min(ROWS, self._size - begin):
                    return
                held = found
                rows.append(held[max(0, start - begin) : stop - begin])
            yield np.concatenate(rows[1:] if not len(rows[0]) and len(rows) > 1 else rows)

    def keep(self, name: str, size: int, blocks: Iterator[NDArray[Any]]) -> None:
        """Write numbers of 8 bytes of all examples; a failed write is no error."""
        rows: list[NDArray[Any]] = []
        for key in self._keys(name):
            while (num := sum(map(len, rows))) < min(ROWS, size):
                rows.append(next(blocks))
                if not rows[-1].shape[1] or rows[-1].dtype.itemsize != 8:
                    return
            whole = np.concatenate(rows)
            if not self._write(key, _encode(key, whole[:ROWS])):
                return
            rows, size = [whole[ROWS:]] if num > ROWS else [], size - ROWS

    def recall_texts(self, name: str) -> Any:
        """Return a column of texts, (N,) in Arrow; None if it is missing or damaged."""
        keys = self._keys(name)
        found = self._read(keys[0], _decode_texts) if len(keys) == 1 else None
        return None if found is None or len(found) != self._size else found

    def keep_texts(self, name: str, values: Any) -> None:
        """Write a column of texts, (N,) in Arrow, for a pool of up to `ROWS` examples."""
        for key in self._keys(name):
            self._write(key, _packed({"text": values}, digest_of([key, *values.to_pylist()])))

    def _write(self, key: str, data: bytes) -> bool:
        self._held.pop(key, None)
        try:
            self._store.write(key, data)
        except OpaccError as error:
            log.warning("%s", error)
            return False
        return True

    def _read(self, key: str, decode: Callable[[str, bytes], Any]) -> Any:
        try:
            data = self._held.get(key) or self._store.read_if_there(key)
            found = None if data is None else decode(key, data)
            if data is not None and len(data) <= HELD_BYTES:
                self._held[key] = data
            return found
        except Exception as error:  # Arrow and storage raise many kinds, and the value can be computed again
            log.warning("%s cannot be read (%s); it is computed again", self._store.uri_of(key), type(error).__name__)
            return None

    def _keys(self, name: str) -> list[str]:
        """Return the files of a value: one for every `ROWS` examples; none if its digest is unknown."""
        digests = self._digests(name)
        if None in digests:
            return []
        digest = hashlib.sha256("\n".join([_LAYOUT, *map(str, digests)]).encode()).hexdigest()
        first = f"{name}-{digest[:16]}"
        num = -(-self._size // ROWS)
        return [f"{first}.parquet"] if num == 1 else [f"{first}-{number:05d}.parquet" for number in range(num)]


def _encode(key: str, values: NDArray[Any]) -> bytes:
    """Return numbers (n, d) of 8 bytes as a Parquet file: differences of whole ones, and others split by byte."""
    columns = {str(place): numbers(np.ascontiguousarray(column)) for place, column in enumerate(values.T)}
    encoding = "DELTA_BINARY_PACKED" if values.dtype.kind in "iu" else "BYTE_STREAM_SPLIT"
    return _packed(columns, _digest(key, values), column_encoding=dict.fromkeys(columns, encoding))


def _packed(columns: dict[str, Any], sha256: str, **options: Any) -> bytes:
    """Return a Parquet file; level 1 of zstd packs these as well as level 15."""
    options |= {"use_dictionary": False, "write_statistics": False, "compression": "zstd", "compression_level": 1}
    return encode(pa.table(columns, metadata={"sha256": sha256}), write_page_checksum=True, **options)


def _decode(key: str, data: bytes) -> NDArray[Any]:
    table = read_bytes(data)
    found = np.stack([to_numpy(column) for column in table.columns], axis=1)
    if table.schema.metadata[b"sha256"].decode() != _digest(key, found):
        raise ValueError("it does not match its digest")
    return found


def _digest(key: str, values: NDArray[Any]) -> str:
    return hashlib.sha256(f"{key} {values.dtype.str} {values.shape} ".encode() + values.tobytes()).hexdigest()


def _decode_texts(key: str, data: bytes) -> Any:
    table = read_bytes(data)
    if table.schema.metadata[b"sha256"].decode() != digest_of([key, *table["text"].to_pylist()]):
        raise ValueError("it does not match its digest")
    return table["text"].combine_chunks()


def slicing_of(rule: SliceRule, column: Any) -> Slicing:
    """Return the slices of a column as it is stored, (n,), with codes of the smallest type."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if rule.cuts is not None:
        return Slicing.of(rule.name, to_numpy(whole.cast(pa.float64()).fill_null(math.nan)), rule.cuts).packed()
    encoded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    if rule.levels is not None:
        values = ["/".join(value.split("/")[: rule.levels]) for value in values]
    indices = encoded.indices
    if indices.null_count:
        indices, values = indices.fill_null(len(values)), [*values, None]
    if rule.tag is not None:
        has = np.array(
            [rule.tag in map(str.strip, re.split(r"[|;,]", value or "")) for value in values], dtype=np.uint8
        )
        return Slicing(HAS_TAG, has[to_numpy(indices)])
    few = Slicing.of(rule.name, values, most=math.inf if rule.is_cluster else MOST).packed()
    return Slicing(few.names, few.codes[to_numpy(indices)])


def as_stored(column: Any) -> Any:
    """Return a column with each text once, (n,) in Arrow; numbers, booleans and times are unchanged.

    A list of texts becomes one, with | between them.
    """
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_decode()
    if _is_list(whole.type):
        whole = pa.array(["|".join(filter(None, own)) if own else None for own in whole.to_pylist()], pa.string())
    return whole.cast(pa.string()).dictionary_encode() if _is_text(whole.type) else whole


def check_type(rule: SliceRule, kind: Any) -> None:
    """Raise SpecError if a column of an Arrow type cannot make the slices of a rule."""
    types = pa.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_temporal(kind) and (rule.tag is not None or rule.cuts is not None):
        raise SpecError(
            f"pool.slices: {rule.column!r} is {kind}, and times have neither tags nor cuts; add a column of texts with "
            "the day, week or month of each example, such as 2026-W40, and name that"
        )
    if rule.tag is not None:
        if not (_is_text(kind) or _is_list(kind)):
            raise SpecError(
                f"pool.slices: {rule.column!r} is {kind}, and tags are texts, such as night|rain, or lists of texts"
            )
        return
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind)
    if rule.cuts is not None and not is_number:
        raise SpecError(f"pool.slices: {rule.column!r} is {kind}, and only numbers have cuts; remove its cuts")
    if not (is_number or _is_text(kind) or types.is_boolean(kind) or types.is_temporal(kind)):
        raise SpecError(
            f"pool.slices: {rule.column!r} is {kind}; name a column with one text, number, date or truth value per row"
        )


def _is_list(kind: Any) -> bool:
    return bool((pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_text(kind.value_type))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


@dataclass(frozen=True)
class Features:
    """Files of features in the order of the pool, each with at least one example: small enough to send to actors."""

    store: Store
    files: tuple[FeatureFile, ...]
    footers: dict[str, bytes] | None = field(default=None, compare=False, repr=False)  # by file, if they are kept
    derived: Derived | None = field(default=None, compare=False, repr=False)  # None for a part of a pool
    slices: tuple[SliceRule, ...] = ()  # made of the files that are added under SLICES

    @classmethod
    def of(cls, store: Store, files: Sequence[FeatureFile]) -> "Features":
        """Return the features of a folder's files."""
        return cls(store, tuple(files))._as_pool()

    def _as_pool(self) -> "Features":
        """Return the features of a whole pool: a derived value depends on the files of its feature, or else on all."""

        def digests(name: str) -> list[str | None]:
            return [dict(file.added).get(name, file).sha256 for file in self.files]

        return replace(self, derived=Derived(self.store.store("derived"), sum(self.sizes), digests))

    def holding(self) -> "Features":
        """Return the same features, with the footer of each file read once."""
        return replace(self, footers={})

    def with_added(self, name: str, place: str, files: Sequence[FeatureFile]) -> "Features":
        """Return the same features with one more, whose files are in the folder ``place``."""
        own = [file._replace(name=f"{place}/{file.name}") for file in files]
        pairs = zip(self.files, own, strict=True)
        return replace(
            self, files=tuple(file._replace(added=(*file.added, (name, new))) for file, new in pairs)
        )._as_pool()

    def with_slices(self, rules: Sequence[SliceRule], place: str, files: Sequence[FeatureFile]) -> "Features":
        """Return the same features with slices, whose columns are in the folder ``place``."""
        return replace(self.with_added(SLICES, place, files), slices=tuple(rules))

    def slicings(self) -> Iterator[dict[str, Slicing]]:
        """Yield the slices of the examples of each file, by name."""

        def read(file: FeatureFile) -> dict[str, Slicing]:
            table = self._read_file(dict(file.added)[SLICES], None) if self.slices else {}
            return {rule.name: slicing_of(rule, table[rule.column]) for rule in self.slices}

        return in_order(read, self.files, self._threads)

    @property
    def sizes(self) -> list[int]:
        """Examples in each file."""
        return [file.num_examples for file in self.files]

    @property
    def are_many(self) -> bool:
        """Whether the files are so many and small that a cached column is worth its storage."""
        return len(self.files) > 1 and sum(self.sizes) <= PIECE * len(self.files)

    def parts(self) -> list["Features"]:
        """Return the pool in parts: its files, or at most `MOST_PARTS` groups of consecutive ones."""
        if len(self.files) <= MOST_PARTS:
            return [self.part((file,)) for file in self.files]
        number = starts_of(self.sizes)[:-1] * MOST_PARTS // sum(self.sizes)  # (files,) of the part
        cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(self.files)]
        return [self.part(self.files[start:stop]) for start, stop in pairwise(cuts)]

    def part(self, files: tuple[FeatureFile, ...]) -> "Features":
        """Return features of some of the files."""
        return replace(self, files=files, derived=None)

    def column(self, name: str) -> NDArray[Any]:
        """Return one number per example of the pool, (N,)."""
        return self.joined(self.each(name))

    def each(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield one feature, file by file; a column of many small files is cached in one file."""
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
        """Join the next ``values`` of all files in one array, (N, ...), with one of them in memory in addition."""
        first = next(values)
        if len(self.files) == 1:
            return first
        whole = np.empty((sum(self.sizes), *first.shape[1:]), dtype=first.dtype)
        place = 0
        for part in chain([first], islice(values, len(self.files) - 1)):
            whole[place : place + len(part)] = part
            place += len(part)
        return whole

    def take(self, names: Sequence[str], index: NDArray[np.int64]) -> Any:
        """Return the named columns, which may be id and uri, of the examples at ``index`` (k,), in that order.

        They are an Arrow table.
        """
        located = locate(starts_of(self.sizes), index) or [Located(0, index, index)]  # of none: types without rows
        are_most = self.are_many and len(located) > MOST_OF * len(self.files) and sum(self.sizes) <= ROWS
        if self.derived and are_most and {*names} <= {"id", "uri", "prediction"}:
            return pa.table({name: self._whole(self.derived, name).take(numbers(index)) for name in names})

        def read(own: Located) -> Any:
            return self._read(self.files[own.part], names).select(names).take(numbers(own.rows))

        found = [table.replace_schema_metadata() for table in in_order(read, located, self._threads)]
        order = np.argsort(np.concatenate([own.places for own in located]))
        return pa.concat_tables(found).take(numbers(order))

    def _whole(self, derived: Derived, name: str) -> Any:
        """Return one column of all examples as an Arrow array, cached in one file."""
        if name not in ("id", "uri"):
            return numbers(self.column(name))
        found = derived.recall_texts(name)
        if found is None:
            found = pa.concat_arrays(self._each(lambda table: table[name].combine_chunks(), [name]))
            derived.keep_texts(name, found)
        return found

    def tables(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield the named columns of the pool, part by part, as Arrow tables."""
        return self._each(lambda table: table.select(names).replace_schema_metadata(), names)

    def ids(self, part: int) -> list[str]:
        """Return all ids of one part."""
        return list(self._read(self.files[part], ["id"])["id"].to_pylist())

    def sources(self) -> Iterator[NDArray[np.uint64]]:
        """Yield the digests of the parts of the pool, one per example, file by file; nothing if files lack them."""
        first = self.files[0]
        if SOURCE in read_footer(self.store, first.name, size=first.size).metadata.schema.names:
            yield from self._each(lambda table: to_numpy(table[SOURCE]), [SOURCE])

    def places(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the places in the pool of those ``ids`` that it has."""
        wanted, start, found = texts(list(dict.fromkeys(ids))), 0, dict[str, int]()
        for own in self._each(lambda table: table["id"], ["id"]):
            rows = np.flatnonzero(to_numpy(pc.is_in(own, value_set=wanted)))
            found |= zip(own.take(numbers(rows)).to_pylist(), (start + rows).tolist(), strict=True)
            start += len(own)
        return found

    def _each(self, work: Callable[[Any], Result], names: Sequence[str]) -> Iterator[Result]:
        """Yield ``work(table)`` of every file, in order."""
        return in_order(lambda file: work(self._read(file, names)), self.files, self._threads)

    @property
    def _threads(self) -> int:
        return min(MOST_THREADS, max(2, EXAMPLES_AT_A_TIME // max(self.sizes)))

    def _read(self, file: FeatureFile, names: Sequence[str]) -> Any:
        added = dict(file.added)
        own = [name for name in names if name not in added]
        if len(own) == len(names):
            return self._read_file(file, names)
        tables = {name: self._read_file(added[name], [name]) for name in names if name in added}
        tables |= dict.fromkeys(own, self._read_file(file, own) if own else None)
        return pa.table({name: tables[name][name] for name in names})

    def _read_file(self, file: FeatureFile, names: Sequence[str] | None) -> Any:
        return read_table(self.store, file, names, self.footers)


class TooLarge(Exception):
    """The feature is too large for the memory of this process."""


class StoredPool(Pool):
    """A part of a pool that reads a feature at its first use, and keeps it; without ids."""

    def __init__(self, size: int, names: Sequence[str], load: Callable[[str], None]) -> None:
        self.size = size
        self._names = frozenset(names)
        self._load = load  # sets the feature of that name, in this part and the others
        self._ids = None
        self.judges = {}
        self.kept = {}

    @property
    def fields(self) -> frozenset[str]:
        return self._names

    def __getattr__(self, name: str) -> Any:
        if name not in (*FEATURES, SLICES):
            raise AttributeError(name)
        if name not in (*self._names, SLICES):
            return None
        self._load(name)
        return self.__dict__[name]


def _joined(parts: Sequence[dict[str, Slicing]]) -> dict[str, Slicing]:
    """Return the slices of consecutive examples, by name."""
    return {name: joined(part[name] for part in parts).packed() for name in parts[0]}


class StoredParts:
    """Parts of a view over stored features: see :mod:`opacc_ray.parts.view`.

    A feature is read at its first use, for all parts at once, and ids only for the requested rows. The use of a feature
    that is ``too_large`` raises :class:`TooLarge`. The parts are those of the features, unless they are given.
    """

    def __init__(
        self,
        features: Features,
        names: Sequence[str],
        too_large: Sequence[str] = (),
        parts: Sequence[Features] | None = None,
    ) -> None:
        self.fields = frozenset(names)
        self.named = True
        self._features, self._names, self._too_large = features, tuple(names), too_large
        self._parts = features.parts() if parts is None else parts
        self._pools = [StoredPool(sum(part.sizes), names, self._load) for part in self._parts]
        self.sizes = [pool.size for pool in self._pools]
        self._columns: dict[str, NDArray[Any]] = {}

    def _load(self, name: str) -> None:
        if name in self._too_large:
            raise TooLarge(name)
        if name == SLICES:
            found = self._features.slicings()
            for pool, part in zip(self._pools, self._parts, strict=True):
                pool.slices = _joined(list(islice(found, len(part.files))))
            return
        values = self._features.each(name)
        for pool, part in zip(self._pools, self._parts, strict=True):
            setattr(pool, name, part.joined(values))

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
        return list(self._features.take(["id"], index)["id"].to_pylist())
