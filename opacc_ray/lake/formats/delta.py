"""Pools that are Delta tables: the Parquet files of one version.

The package ``deltalake`` (extra ``delta``) reads the log, on the driver only. Data files are read as in the format
``parquet``, by the schema of the version: columns that older files lack are null, and columns that the log maps are
found by their physical names or numbers. Rows that deletion vectors name are left out. The version is ``pool.version``,
the newest at ``pool.timestamp``, or the newest when the run is made; the run keeps its number.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from opacc_ray.errors import DataError, StorageError, shortened
from opacc_ray.lake.columns import chain_of
from opacc_ray.lake.examples import Found, Rules
from opacc_ray.lake.filter_parser import columns_of, parse_filter
from opacc_ray.lake.filters import Bounds
from opacc_ray.lake.formats import FEATURE_COLUMNS, ROW_COLUMNS, Traits, parquet
from opacc_ray.lake.logical_schema import keeps_order, numbered, physical_name, rebuilt
from opacc_ray.lake.parquet_io import pa, pc, to_numpy
from opacc_ray.lake.store import Entry, Store
from opacc_ray.lake.table_logs import entries_of, import_package, moment, storage_options, too_early, unknown_version

TRAITS = Traits(
    (*ROW_COLUMNS, "answer", *FEATURE_COLUMNS),
    parquet.TRAITS.needs,
    ("filter", "version", "timestamp", "catalog", "table"),
    patterns=False,
)

_EXACT_DIGITS = 15  # of decimals: logs may have them as floating-point numbers, which round longer ones

_NUMBER = b"delta.columnMapping.id"

cut = parquet.cut
batches = parquet.batches


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return the data files of a version, with the values of each file's partition."""
    table = _open(store, rules, what)
    version = f"version {table.version()}"
    added = pa.table(table.get_add_actions(flatten=False))
    if not len(added):
        raise DataError(f"{version} of the table {store.uri} has no file; check {what}.uri and {what}.version")
    paths = added["path"].to_pylist()
    entries = entries_of(store, paths, version)
    order = sorted(range(len(paths)), key=lambda row: entries[paths[row]])
    values = added["partition"] if "partition" in added.column_names else [{}] * len(paths)
    schema = _schema_of(table)
    return Found(
        tuple(entries[paths[row]] for row in order),
        constants={entries[path].key: tuple(own.items()) for path, own in zip(paths, values, strict=True)},
        version=version,
        schema=schema,
        bounds=_bounds(added.take(order), schema, columns_of(parse_filter(rules.filter, f"{what}.filter"))),
        deleted=_deleted(table, entries),
        data_as_of=datetime.fromtimestamp(max(added["modification_time"].to_pylist()) / 1000, UTC),
    )


def _schema_of(table: Any) -> Any:
    """Return the schema of a table, with the numbers of its columns if its files are read by them."""
    schema = pa.schema(table.schema().to_arrow())
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "id":
        return schema
    return pa.schema(rebuilt(schema, lambda field, _: numbered(field, (field.metadata or {}).get(_NUMBER))))


def _bounds(added: Any, schema: Any, names: tuple[str, ...]) -> dict[str, Bounds]:
    """Return the bounds in the log of columns in each file."""
    found = {}
    for name in names:
        path = [physical_name(field) for field in chain_of(schema, name)]
        least, most, nulls = (_statistic(added, kind, path) for kind in ("min", "max", "null_count"))
        if least is None or most is None:
            continue
        kind = chain_of(schema, name)[-1].type
        rows = to_numpy(added["num_records"].fill_null(-1))
        num_nulls = np.full(len(rows), -2) if nulls is None else to_numpy(nulls.fill_null(-2))
        is_rounded = pa.types.is_decimal(kind) and kind.precision > _EXACT_DIGITS
        if keeps_order(least.type, kind) and not is_rounded:
            least, most = least.cast(kind), _rounded_up(most.cast(kind))
            found[name] = Bounds(least, most, num_nulls != 0, num_nulls != rows)
    return found


def _rounded_up(column: Any) -> Any:
    """Return the greatest values of times, which logs cut to milliseconds, as the next millisecond."""
    if not pa.types.is_timestamp(column.type):
        return column
    return pc.add(column, pa.scalar(timedelta(milliseconds=1), pa.duration(column.type.unit)))


def _statistic(added: Any, kind: str, path: list[str]) -> Any:
    """Return a statistic of a column in each file, as an Arrow array; None if the log has none."""
    if kind not in added.column_names:
        return None
    column = added[kind].combine_chunks()
    for name in path:
        names = getattr(column.type, "names", [])
        if name not in names:
            return None
        column = pc.struct_field(column, [names.index(name)])
    return column


def _deleted(table: Any, entries: Mapping[str, Entry]) -> dict[str, bytes]:
    """Return the numbers of the rows that deletion vectors name, by key of the file."""
    if "deletionVectors" not in (table.protocol().reader_features or []):
        return {}
    vectors = pa.table(table.deletion_vectors().read_all()).combine_chunks()
    uris, kept = vectors["filepath"].to_pylist(), vectors["selection_vector"].combine_chunks()
    root, keys = urlsplit(table.table_uri).path.rstrip("/"), {entry.key for entry in entries.values()}
    found = {}
    for number, uri in enumerate(uris):
        key = urlsplit(uri).path.removeprefix(root).lstrip("/")
        deleted = np.flatnonzero(~to_numpy(kept[number].values)).astype(np.int64)
        found[key if key in keys else unquote(key)] = deleted.tobytes()
    return found


def newest(store: Store, rules: Rules, what: str) -> str:
    """Return the version that the table has now."""
    return f"version {_open(store, Rules(), what).version()}"


def _open(store: Store, rules: Rules, what: str) -> Any:
    deltalake = import_package("deltalake", "delta", what)
    exceptions = import_package("deltalake.exceptions", "delta", what)
    try:
        table = deltalake.DeltaTable(store.uri, storage_options=storage_options(store))
        if rules.version is not None:
            assert isinstance(rules.version, int)  # the spec refuses names
            if rules.version > table.version():
                raise unknown_version(store, f"version {rules.version}", f"the newest is {table.version()}", what)
            table.load_as_version(rules.version)
        elif rules.timestamp is not None:
            _go_to(table, store, rules.timestamp, what)
        return table
    except exceptions.TableNotFoundError:
        raise DataError(f"there is no Delta table at {store.uri}; check {what}.uri and {what}.format") from None
    except exceptions.DeltaError as error:
        reason = shortened(str(error), 200)
        if rules.version is not None:
            raise unknown_version(store, f"version {rules.version}", reason, what) from None
        raise DataError(f"the Delta table {store.uri} cannot be opened ({reason}); check {what}.uri") from None
    except OSError as error:
        raise StorageError(f"cannot read the log of {store.uri}: {shortened(str(error), 200)}") from None


def _go_to(table: Any, store: Store, timestamp: str, what: str) -> None:
    """Load the newest version at a time; deltalake would load the first one for an earlier time."""
    wanted = moment(timestamp, what)
    history = table.history()
    first = datetime.fromtimestamp(history[-1]["timestamp"] / 1000, UTC)
    if first > wanted:
        raise too_early(store, timestamp, history[-1].get("version", 0), first, what)
    table.load_as_version(wanted)
