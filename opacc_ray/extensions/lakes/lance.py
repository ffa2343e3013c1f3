"""Pools that are Lance tables: the rows of one version, by fragment.

The package ``lance`` (extra ``lance``: pylance) opens data files, on the driver and on workers, with the credentials of
the environment. The version is ``pool.version``, the newest at ``pool.timestamp``, or the newest when the run is made;
the run keeps its number. Deleted rows are left out. Columns and filters are those of the format ``parquet``. Without a
column of ids, an id is the fragment's first data file and the row's number in it. Numbers count deleted rows, so later
versions keep them. Chosen rows are read without the rest of their shard.

The other files of a fragment, of later columns and deleted rows, are pieces without rows, so that a run notices changes
of them.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC
from typing import Any

import numpy as np

from opacc_ray.errors import DataError, OpaccError, shortened
from opacc_ray.extensions.lakes import catalogs
from opacc_ray.lake.examples import Batch, Cut, Found, Limits, Piece, Rules, Shard, in_shards
from opacc_ray.lake.filters import ALL, check_columns, columns_of, parse_filter, rows_kept
from opacc_ray.lake.formats import TABLE_COLUMNS, Traits, parquet
from opacc_ray.lake.logical_schema import chain_of, selected
from opacc_ray.lake.parquet_io import pa, unless_valid
from opacc_ray.lake.store import Store
from opacc_ray.registry import require

TRAITS = Traits(TABLE_COLUMNS, parquet.TRAITS.needs, ("version", "timestamp"), patterns=False)

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
    entries = catalogs.entries_of(store, paths, version)
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
    """Yield the rows of a shard that the filter keeps, in their order, with the columns of the rules.

    Raises ChangedError if a file has changed since the plan, which lance itself does not notice.
    """
    for entry in shard.entries:
        store.read_range(entry.key, 0, min(1, entry.size), entry)
    table = _open(store, _at(shard.pieces[0].constants, rules), "pool")
    fragments = {_paths(fragment)[0]: fragment for fragment in table.get_fragments()}
    for piece in shard.pieces:
        if piece.stop > piece.start:
            yield from _rows(store.uri_of(piece.entry.key), piece, fragments[piece.entry.key], rules)


def _rows(source: str, piece: Piece, fragment: Any, rules: Rules) -> Iterator[Batch]:
    """Yield the rows of a piece; they are taken by their places, as a scan of damaged pages may end the process."""
    condition = parse_filter(rules.filter)
    step = max(1, BATCH_BYTES // max(1, piece.entry.size // max(1, fragment.physical_rows)))
    with unless_valid(f"{source} is not valid Lance", "; restore it, or write it again", _message):
        addresses = np.concatenate([batch["_rowaddr"].to_numpy() for batch in _scan(piece, fragment, [])])
        rows = (addresses & ROW).astype(np.int64)  # (n,) numbers in the fragment
        places = np.arange(len(rows))
        if condition != ALL:
            tables = _scan(piece, fragment, _roots_of(fragment.schema, columns_of(condition)))
            places = np.flatnonzero(np.concatenate([rows_kept(condition, table) for table in tables]))
        roots = _roots_of(fragment.schema, rules.columns.names)
        for start in range(0, len(places), min(BATCH_ROWS, step)):
            own = places[start : start + min(BATCH_ROWS, step)]
            table = fragment.take((piece.start + own).tolist(), columns=roots)
            table.validate(full=True)
            yield Batch(piece.entry, rows[own], selected(table, rules.columns.names))


def _scan(piece: Piece, fragment: Any, columns: Sequence[str]) -> Iterator[Any]:
    limits = {"offset": piece.start, "limit": piece.stop - piece.start}
    for batch in fragment.scanner(columns=list(columns), with_row_address=True, **limits).to_batches():
        yield pa.Table.from_batches([batch])


def _roots_of(schema: Any, names: Sequence[str]) -> list[str]:
    """Return the columns at the top level that hold the named ones, each once."""
    return list(dict.fromkeys(chain[0].name for name in names if (chain := chain_of(schema, name))))


def _paths(fragment: Any) -> list[str]:
    """Return the keys of a fragment's files: first columns, further columns, deleted rows."""
    files = [f"data/{file.path}" for file in fragment.data_files()]
    deleted = fragment.metadata.deletion_file
    return files if deleted is None else [*files, str(deleted.path(fragment.fragment_id))]


def _open(store: Store, rules: Rules, what: str) -> Any:
    require(f"{what}.format: lance", "lance")
    import lance

    options = {name.lower(): value for name, value in catalogs.storage_options(store).items()}
    try:
        table = lance.dataset(store.uri, version=rules.version, storage_options=options or None)
        if rules.timestamp is None:
            return table
        versions = [(own["timestamp"].astimezone(UTC), own["version"]) for own in table.versions()]
        return table.checkout_version(catalogs.version_at(store, rules.timestamp, versions, what))
    except OpaccError:
        raise
    except (ValueError, OSError) as error:
        if not store.list("_versions/"):
            raise DataError(f"there is no Lance table at {store.uri}; check {what}.uri and {what}.format") from None
        if rules.version is not None:
            reason = f"the newest is {_open(store, Rules(), what).version}"
            raise catalogs.unknown_version(store, f"version {rules.version}", reason, what) from None
        raise DataError(
            f"the Lance table {store.uri} cannot be opened ({shortened(_message(error), 200)}); check {what}.uri"
        ) from None


def _message(error: Exception) -> str:
    """Return the message of lance, without places in its source code."""
    return str(error).partition(", /")[0]


def _at(constants: Sequence[tuple[str, Any]], rules: Rules) -> Rules:
    return rules._replace(version=dict(constants)[VERSION], timestamp=None)
