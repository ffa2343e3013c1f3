"""Pools that are Delta tables: the Parquet files of one version.

The package ``deltalake`` (extra ``delta``) reads the log, on the driver only. Data files are read as in the format
``parquet``. The version is ``pool.version``, the newest at ``pool.timestamp``, or the newest when the run is made; the
run keeps its number. Columns that older files lack are null. Tables with deletion vectors or column mapping are
refused, since their rows and columns are not determined by the files.
"""

from datetime import UTC, datetime
from typing import Any

from opacc_ray.errors import DataError, StorageError, shortened
from opacc_ray.lake.examples import Found, Rules
from opacc_ray.lake.formats import FEATURE_COLUMNS, ROW_COLUMNS, Traits, parquet
from opacc_ray.lake.store import Store
from opacc_ray.lake.table_logs import entries_of, import_package, moment, storage_options, too_early, unknown_version

TRAITS = Traits((*ROW_COLUMNS, *FEATURE_COLUMNS), parquet.TRAITS.needs, ("filter", "version", "timestamp"))

cut = parquet.cut
batches = parquet.batches


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return the data files of a version, with the values of each file's partition."""
    import pyarrow as pa

    table = _open(store, rules, what)
    version = f"version {table.version()}"
    _refuse_unfit(table, store, version)
    added = pa.table(table.get_add_actions(flatten=False))
    if not len(added):
        raise DataError(f"{version} of the table {store.uri} has no file; check {what}.uri and {what}.version")
    paths = added["path"].to_pylist()
    entries = entries_of(store, paths, version)
    values = added["partition"] if "partition" in added.column_names else [{}] * len(paths)
    constants = {entries[path].key: tuple(own.items()) for path, own in zip(paths, values, strict=True)}
    names = frozenset(pa.schema(table.schema().to_arrow()).names)
    written = datetime.fromtimestamp(max(added["modification_time"].to_pylist()) / 1000, UTC)
    return Found(
        tuple(sorted(entries.values())), constants=constants, version=version, optional=names, data_as_of=written
    )


def newest(store: Store, rules: Rules, what: str) -> str:
    """Return the version that the table has now."""
    return f"version {_open(store, Rules(), what).version()}"


def _open(store: Store, rules: Rules, what: str) -> Any:
    deltalake = import_package("deltalake", "delta", what)
    exceptions = import_package("deltalake.exceptions", "delta", what)
    try:
        table = deltalake.DeltaTable(store.uri, storage_options=storage_options(store))
        if rules.version is not None:
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


def _refuse_unfit(table: Any, store: Store, version: str) -> None:
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise DataError(
            f"the table {store.uri} maps its columns by {mapping}, so names differ in its files; "
            "write it again without delta.columnMapping.mode"
        )
    if "deletionVectors" in (table.protocol().reader_features or []) and table.deletion_vectors().read_all().num_rows:
        raise DataError(
            f"{version} of the table {store.uri} has deletion vectors: its files have deleted rows; "
            "purge them (REORG TABLE ... APPLY (PURGE)) and choose that version"
        )
