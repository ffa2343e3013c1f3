"""Pools that are Delta tables: the Parquet files of one version.

The package ``deltalake`` (extra ``delta``) reads the log, on the driver only. Data files are read as in the format
``parquet``, by the schema of the version: columns that older files lack are null, and columns that the log maps are
found by their physical names or numbers. Rows that deletion vectors name are left out. The version is ``pool.version``,
the newest at ``pool.timestamp``, or the newest when the run is made; the run keeps its number.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from opacc_ray.errors import DataError, SpecError, StorageError, shortened
from opacc_ray.extensions.lakes import catalogs
from opacc_ray.lake.examples import Found, Rules
from opacc_ray.lake.formats import TABLE_COLUMNS, Traits, parquet
from opacc_ray.lake.logical_schema import numbered, rebuilt
from opacc_ray.lake.parquet_io import pa, to_numpy, unless_valid
from opacc_ray.lake.store import Entry, Store
from opacc_ray.registry import require

TRAITS = Traits(TABLE_COLUMNS, parquet.TRAITS.needs, ("version", "timestamp", "catalog", "table"), patterns=False)

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
    entries = catalogs.entries_of(store, paths, version)
    values = added["partition"] if "partition" in added.column_names else [{}] * len(paths)
    with unless_valid(f"the schema of the Delta table {store.uri} is none of Arrow", "; write its UUIDs as text"):
        schema = _schema_of(table)
    return Found(
        tuple(sorted(entries.values())),
        constants={entries[path].key: tuple(own.items()) for path, own in zip(paths, values, strict=True)},
        version=version,
        schema=schema,
        deleted=_deleted(table, entries),
        data_as_of=catalogs.time_of(max(added["modification_time"].to_pylist())),
    )


def _schema_of(table: Any) -> Any:
    """Return the schema of a table, with the numbers of its columns if its files are read by them."""
    schema = pa.schema(table.schema().to_arrow())
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "id":
        return schema
    return pa.schema(rebuilt(schema, lambda field, _: numbered(field, (field.metadata or {}).get(_NUMBER))))


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
    require(f"{what}.format: delta", "deltalake")
    import deltalake
    from deltalake import exceptions

    try:
        table = deltalake.DeltaTable(store.uri, storage_options=catalogs.storage_options(store))
        if rules.version is not None:
            if isinstance(rules.version, str):
                raise SpecError(f"{what}.version {rules.version!r} is a name, and Delta has numbers only; give one")
            if rules.version > table.version():
                raise catalogs.unknown_version(
                    store, f"version {rules.version}", f"the newest is {table.version()}", what
                )
            table.load_as_version(rules.version)
        elif rules.timestamp is not None:
            versions = ((catalogs.time_of(own["timestamp"]), own.get("version", 0)) for own in table.history())
            # deltalake itself would load the first version for an earlier time
            table.load_as_version(catalogs.version_at(store, rules.timestamp, versions, what))
        return table
    except exceptions.TableNotFoundError:
        raise DataError(f"there is no Delta table at {store.uri}; check {what}.uri and {what}.format") from None
    except exceptions.DeltaError as error:
        reason = shortened(str(error), 200)
        if rules.version is not None:
            raise catalogs.unknown_version(store, f"version {rules.version}", reason, what) from None
        raise DataError(f"the Delta table {store.uri} cannot be opened ({reason}); check {what}.uri") from None
    except OSError as error:
        raise StorageError(f"cannot read the log of {store.uri}: {shortened(str(error), 200)}") from None
