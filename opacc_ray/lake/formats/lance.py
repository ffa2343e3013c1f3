"""Pools that are Lance tables: the rows of one version, fragment by fragment.

Data files are opened by the package ``lance`` (extra ``lance``: pylance), on the driver and by the workers, with the
credentials of this environment. The version is the one of ``pool.version``, the newest at ``pool.timestamp``, or the
newest of all when the run is made; the run keeps its number. Rows that the version has deleted are not seen. Columns,
filters and ids are those of ``parquet.py``: without a column of ids, an id is the fragment's first data file and the
row's number in it, deleted ones counted, which later versions keep. Chosen rows are read alone, not with their shard.

A fragment's other files, of columns that were added later and of rows that were deleted, belong to the listing as
pieces without rows: a run notices if one of them is another.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, shortened
from opacc_ray.lake.examples import Batch, Cut, Found, Items, Limits, Piece, Rules, Shard, in_shards
from opacc_ray.lake.filters import columns_of, parse_filter, rows_kept
from opacc_ray.lake.formats import FEATURE_COLUMNS, ROW_COLUMNS, Traits, parquet
from opacc_ray.lake.parquet_tables import check_columns
from opacc_ray.lake.row_examples import examples_of, ids_of
from opacc_ray.lake.store import Store
from opacc_ray.lake.table_logs import entries_of, import_package, moment, storage_options, unknown_version

TRAITS = Traits((*ROW_COLUMNS, *FEATURE_COLUMNS), parquet.TRAITS.needs, ("filter", "version", "timestamp"))

DATA = "data/"
VERSION = "_version"
"""The constant of each file by which a worker finds the version that was planned."""

BATCH_BYTES, BATCH_ROWS = 16 << 20, 8192
"""About how much is read at a time, and how many rows at most."""

ROW = 0xFFFFFFFF
"""The bits of a row's address that are its number in the fragment."""


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return the files of a version's fragments."""
    table = _open(store, rules, what)
    version = f"version {table.version}"
    paths = [path for fragment in table.get_fragments() for path in _paths(fragment)]
    if not paths:
        raise DataError(f"{version} of the table {store.uri} holds no row; check {what}.uri and {what}.version")
    entries = entries_of(store, paths, version)
    constants = {entry.key: ((VERSION, table.version),) for entry in entries.values()}
    return Found(tuple(entries[path] for path in paths), constants=constants, version=version)


def newest(store: Store, rules: Rules, what: str) -> str:
    """Return the table's version as it is now."""
    return f"version {_open(store, Rules(), what).version}"


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return rows of fragments for each shard, by the table's metadata alone."""
    entries = {entry.key: entry for entry in found.entries}
    table = _open(store, _at(found.constants[found.entries[0].key], rules), what)
    check_columns(table.schema, rules, store.uri, what)
    pieces, sizes = [], []
    for fragment in table.get_fragments():
        first, *others = (entries[path] for path in _paths(fragment))
        constants = found.constants[first.key]
        rows = fragment.count_rows()
        num_bytes = sum(entries[path].size for path in _paths(fragment)) // max(1, fragment.physical_rows)
        step = max(1, min(limits.examples, limits.bytes // max(1, num_bytes)))
        for start in range(0, rows, step):
            stop = min(rows, start + step)
            pieces.append(Piece(first, start, stop, constants))
            sizes.append((stop - start, (stop - start) * num_bytes))
        pieces += [Piece(other, 0, 0, constants) for other in others]
        sizes += [(0, 0)] * len(others)
    return Cut(in_shards(pieces, sizes, limits), None if rules.filter else sum(rows for rows, _ in sizes))


def read(store: Store, shard: Shard, rules: Rules) -> Items:
    """Yield the examples of a shard's rows in their order."""
    for batch in batches(store, shard, rules):
        yield from examples_of(store, batch, rules)


def batches(store: Store, shard: Shard, rules: Rules) -> Iterator[Batch]:
    """Yield the rows of a shard that the filter leaves, in their order, with the columns of the rules."""
    for part in _parts(store, shard, rules):
        yield from part.taken(_kept(part, rules), rules)


def read_chosen(store: Store, shard: Shard, rules: Rules, ids: Collection[str]) -> Items:
    """Yield those examples of a shard that have these ids, in their order; of other rows the ids alone are read."""
    column = rules.columns.id
    for part in _parts(store, shard, rules):
        names = [name for batch in part.scanned([column] if column else []) for name in ids_of(batch, column)]
        places = np.flatnonzero([name in ids for name in names])
        for batch in part.taken(places, rules):
            yield from examples_of(store, batch, rules)


def _paths(fragment: Any) -> list[str]:
    """Keys of a fragment's files: of its first columns, of further ones, of the rows that were deleted."""
    files = [f"{DATA}{file.path}" for file in fragment.data_files()]
    deleted = fragment.metadata.deletion_file
    return files if deleted is None else [*files, str(deleted.path(fragment.fragment_id))]


def _open(store: Store, rules: Rules, what: str) -> Any:
    """The table at the version that the rules ask for."""
    lance = import_package("lance", "lance", what)
    options = {name.lower(): value for name, value in (storage_options(store) or {}).items()}
    try:
        table = lance.dataset(store.uri, version=rules.version, storage_options=options or None)
        return table if rules.timestamp is None else _at_time(table, store, rules.timestamp, what)
    except (ValueError, OSError) as error:
        if not store.list("_versions/"):
            raise DataError(f"there is no Lance table at {store.uri}; check {what}.uri and {what}.format") from None
        if rules.version is not None:
            reason = f"the newest is {_open(store, Rules(), what).version}"
            raise unknown_version(store, f"version {rules.version}", reason, what) from None
        raise DataError(f"the Lance table {store.uri} does not open ({_reason(error)}); check {what}.uri") from None


def _at_time(table: Any, store: Store, timestamp: str, what: str) -> Any:
    """The table as of the newest version at a time."""
    wanted = moment(timestamp, what)
    times = [(each["timestamp"].astimezone(UTC), each["version"]) for each in table.versions()]
    before = [number for time, number in times if time <= wanted]
    if not before:
        time, number = min(times)
        oldest = f"version {number}, the oldest, is of {time.isoformat(timespec='seconds')}"
        raise unknown_version(store, f"version at {timestamp}", oldest, what)
    return table.checkout_version(max(before))


def _reason(error: Exception) -> str:
    """What lance says, without the places in its own source."""
    return shortened(str(error).partition(", /")[0], 200)


def _at(constants: Sequence[tuple[str, Any]], rules: Rules) -> Rules:
    """The rules, for the version that a file was planned of."""
    return rules._replace(version=dict(constants)[VERSION], timestamp=None)


class _Part:
    """The rows of a piece, by their places in it: those that the version has, from 0."""

    def __init__(self, store: Store, piece: Piece, fragment: Any) -> None:
        self._source, self._piece, self._fragment = store.uri_of(piece.entry.key), piece, fragment
        addresses = [batch["_rowaddr"].to_numpy() for batch in self._scan([])]
        self.rows = (np.concatenate(addresses) & ROW).astype(np.int64)  # (n,) numbers in the fragment

    def scanned(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Some columns of all rows, in their order."""
        start = 0
        for table in self._scan(columns):
            yield Batch(self._piece.entry, self.rows[start : start + len(table)], table)
            start += len(table)

    def taken(self, places: NDArray[np.int64], rules: Rules) -> Iterator[Batch]:
        """Some rows, with the columns of the rules."""
        each = max(1, self._piece.entry.size // max(1, self._fragment.physical_rows))
        step = min(BATCH_ROWS, max(1, BATCH_BYTES // each))
        for start in range(0, len(places), step):
            own = places[start : start + step]
            with _lance(self._source):
                table = self._fragment.take((self._piece.start + own).tolist(), columns=list(rules.columns.names))
                table.validate(full=True)
            yield Batch(self._piece.entry, self.rows[own], table)

    def _scan(self, columns: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa

        limit = self._piece.stop - self._piece.start
        with _lance(self._source):
            scanner = self._fragment.scanner(
                columns=list(columns), offset=self._piece.start, limit=limit, with_row_address=True
            )
            for batch in scanner.to_batches():
                yield pa.Table.from_batches([batch])


def _parts(store: Store, shard: Shard, rules: Rules) -> Iterator[_Part]:
    """Yield the rows of each piece of a shard; raises ChangedError if a file has changed since the plan."""
    for entry in shard.entries:
        store.read_entry_range(entry, 0, min(1, entry.size))  # lance itself does not compare files with the plan
    table = _open(store, _at(shard.pieces[0].constants, rules), "pool")
    fragments = {_paths(fragment)[0]: fragment for fragment in table.get_fragments()}
    for piece in shard.pieces:
        if piece.stop > piece.start:
            yield _Part(store, piece, fragments[piece.entry.key])


def _kept(part: _Part, rules: Rules) -> NDArray[np.int64]:
    """Places of the rows that the filter leaves."""
    if not rules.filter:
        return np.arange(len(part.rows))
    condition = parse_filter(rules.filter)
    return np.flatnonzero(
        np.concatenate([rows_kept(condition, batch.columns) for batch in part.scanned(columns_of(condition))])
    )


@contextmanager
def _lance(source: str) -> Iterator[None]:
    """Raise DataError, which names the file, where lance says in its ways that it is damaged."""
    try:
        yield
    except (OpaccError, MemoryError):
        raise
    except Exception as error:
        raise DataError(f"{source} does not read as Lance ({_reason(error)}); restore it, or write it again") from None
