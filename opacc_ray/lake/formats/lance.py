"""Pools that are Lance tables: the rows of one version, by fragment.

The package ``lance`` (extra ``lance``: pylance) opens data files, on the driver and on workers, with the credentials of
the environment. The version is ``pool.version``, the newest at ``pool.timestamp``, or the newest when the run is made;
the run keeps its number. Deleted rows are left out. Columns and filters are those of the format ``parquet``. Without a
column of ids, an id is the fragment's first data file and the row's number in it. Numbers count deleted rows, so later
versions keep them. Chosen rows are read without the rest of their shard.

The other files of a fragment, of later columns and deleted rows, are pieces without rows, so that a run notices changes
of them.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, shortened
from opacc_ray.lake.columns import roots_of, selected
from opacc_ray.lake.examples import Batch, Cut, Found, Items, Limits, Piece, Rules, Shard, in_shards
from opacc_ray.lake.filter_parser import ALL, columns_of, parse_filter
from opacc_ray.lake.filters import rows_kept
from opacc_ray.lake.formats import FEATURE_COLUMNS, ROW_COLUMNS, Traits, parquet
from opacc_ray.lake.formats.parquet import check_columns
from opacc_ray.lake.parquet_io import pa, unless_valid
from opacc_ray.lake.row_examples import examples_of, ids_of
from opacc_ray.lake.store import Store
from opacc_ray.lake.table_logs import entries_of, import_package, moment, storage_options, too_early, unknown_version

TRAITS = Traits(
    (*ROW_COLUMNS, "answer", *FEATURE_COLUMNS),
    parquet.TRAITS.needs,
    ("filter", "version", "timestamp"),
    True,
    patterns=False,
)

VERSION = "_version"  # constant of each file with the planned version, for workers
BATCH_BYTES, BATCH_ROWS = 16 << 20, 8192  # approximate bytes that are read at a time, and most rows
ROW = 0xFFFFFFFF  # bits of a row's address for its number in the fragment


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return the files of a version's fragments."""
    table = _open(store, rules, what)
    version = f"version {table.version}"
    paths = [path for fragment in table.get_fragments() for path in _paths(fragment)]
    if not paths:
        raise DataError(f"{version} of the table {store.uri} has no row; check {what}.uri and {what}.version")
    entries = entries_of(store, paths, version)
    constants = {entry.key: ((VERSION, table.version),) for entry in entries.values()}
    written = None
    with suppress(OSError):  # a server that does not send parts of these files
        times = {item["version"]: item["timestamp"] for item in table.versions()}
        written = times[table.version].astimezone(UTC)
    return Found(tuple(entries[path] for path in paths), constants=constants, version=version, data_as_of=written)


def newest(store: Store, rules: Rules, what: str) -> str:
    """Return the version that the table, or the tag in the rules, has now."""
    tag = rules.version if isinstance(rules.version, str) else None
    return f"version {_open(store, Rules(version=tag), what).version}"


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return the rows of each shard, by the table's metadata alone."""
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


def batches(store: Store, shard: Shard, rules: Rules) -> Iterator[Batch]:
    """Yield the rows of a shard that the filter keeps, in their order, with the columns of the rules."""
    condition = parse_filter(rules.filter)
    for part in _parts(store, shard, rules):
        places = np.arange(len(part.rows))
        if condition != ALL:
            masks = [rows_kept(condition, batch.columns) for batch in part.scanned(columns_of(condition))]
            places = np.flatnonzero(np.concatenate(masks))
        yield from part.taken(places, rules)


def read_chosen(store: Store, shard: Shard, rules: Rules, ids: Collection[str]) -> Items:
    """Yield the examples of a shard with these ids, in their order; of other rows, only the ids are read."""
    column = rules.columns.id
    for part in _parts(store, shard, rules):
        names = [name for batch in part.scanned(rules.columns.ids) for name in ids_of(batch, column)]
        places = np.flatnonzero([name in ids for name in names])
        for batch in part.taken(places, rules):
            yield from examples_of(store, batch, rules)


def _paths(fragment: Any) -> list[str]:
    """Return the keys of a fragment's files: first columns, further columns, deleted rows."""
    files = [f"data/{file.path}" for file in fragment.data_files()]
    deleted = fragment.metadata.deletion_file
    return files if deleted is None else [*files, str(deleted.path(fragment.fragment_id))]


def _open(store: Store, rules: Rules, what: str) -> Any:
    lance = import_package("lance", "lance", what)
    options = {name.lower(): value for name, value in storage_options(store).items()}
    try:
        table = lance.dataset(store.uri, version=rules.version, storage_options=options or None)
        return table if rules.timestamp is None else _at_time(table, store, rules.timestamp, what)
    except OpaccError:
        raise
    except (ValueError, OSError) as error:
        if not store.list("_versions/"):
            raise DataError(f"there is no Lance table at {store.uri}; check {what}.uri and {what}.format") from None
        if rules.version is not None:
            reason = f"the newest is {_open(store, Rules(), what).version}"
            raise unknown_version(store, f"version {rules.version}", reason, what) from None
        raise DataError(
            f"the Lance table {store.uri} cannot be opened ({shortened(_message(error), 200)}); check {what}.uri"
        ) from None


def _at_time(table: Any, store: Store, timestamp: str, what: str) -> Any:
    wanted = moment(timestamp, what)
    times = [(each["timestamp"].astimezone(UTC), each["version"]) for each in table.versions()]
    before = [number for time, number in times if time <= wanted]
    if not before:
        time, number = min(times)
        raise too_early(store, timestamp, number, time, what)
    return table.checkout_version(max(before))


def _message(error: Exception) -> str:
    """Return the message of lance, without places in its source code."""
    return str(error).partition(", /")[0]


def _at(constants: Sequence[tuple[str, Any]], rules: Rules) -> Rules:
    return rules._replace(version=dict(constants)[VERSION], timestamp=None)


class _Part:
    """The rows of a piece, by their places among its rows that are not deleted."""

    def __init__(self, store: Store, piece: Piece, fragment: Any) -> None:
        self._source, self._piece, self._fragment = store.uri_of(piece.entry.key), piece, fragment
        addresses = [batch["_rowaddr"].to_numpy() for batch in self._scan([])]
        self.rows = (np.concatenate(addresses) & ROW).astype(np.int64)  # (n,) numbers in the fragment

    def scanned(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Yield some columns of all rows, in their order."""
        start = 0
        for table in self._scan(roots_of(self._fragment.schema, columns)):
            yield Batch(self._piece.entry, self.rows[start : start + len(table)], selected(table, columns))
            start += len(table)

    def taken(self, places: NDArray[np.int64], rules: Rules) -> Iterator[Batch]:
        """Yield some rows, with the columns of the rules."""
        each = max(1, self._piece.entry.size // max(1, self._fragment.physical_rows))
        step = min(BATCH_ROWS, max(1, BATCH_BYTES // each))
        for start in range(0, len(places), step):
            own = places[start : start + step]
            with _lance(self._source):
                roots = roots_of(self._fragment.schema, rules.columns.names)
                table = self._fragment.take((self._piece.start + own).tolist(), columns=roots)
                table.validate(full=True)
            yield Batch(self._piece.entry, self.rows[own], selected(table, rules.columns.names))

    def _scan(self, columns: Sequence[str]) -> Iterator[Any]:
        limit = self._piece.stop - self._piece.start
        with _lance(self._source):
            rows = {"offset": self._piece.start, "limit": limit, "with_row_address": True}
            for batch in self._fragment.scanner(columns=list(columns), **rows).to_batches():
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


def _lance(source: str) -> AbstractContextManager[None]:
    return unless_valid(f"{source} is not valid Lance", "; restore it, or write it again", _message)
