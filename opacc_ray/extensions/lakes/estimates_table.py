"""Where the table of estimates of many runs is kept: as Parquet files, a Delta table or an Iceberg table.

Each kind has every statement once, however often a run is exported. Parquet files have one name for each statement. A
commit of a Delta table has the last number of the run's log that it appends, as a transaction of the run: of two
commands that append at once, one fails. An Iceberg table is read before each commit, which has the rows whose key the
table lacks, and the catalog refuses it if the table has changed since it was read; then the table is read again.
pyiceberg would repeat such a commit without reading the table again, and so append twice. The number of its repetitions
is set to 0 for this process, not in the table.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from opacc_ray.errors import DataError, SpecError, StorageError, shortened
from opacc_ray.extensions.lakes.catalogs import (
    IcebergTable,
    busy,
    iceberg_catalog,
    iceberg_table,
    load_iceberg,
    refused,
)
from opacc_ray.extensions.lakes.estimate_rows import POPULATION, StatedRows
from opacc_ray.extensions.lakes.table_versions import storage_options
from opacc_ray.lake.parquet_io import encode, pa, pc, read_bytes
from opacc_ray.lake.store_uris import CATALOG, Store, open_store
from opacc_ray.packages import require
from opacc_ray.runs.identity import Population

VIEWS = "views.sql"

OPTIONS = {"compression": "zstd", "write_page_checksum": True}
"""Options of the Parquet files."""

_FOLDER, _LOG = "estimates", "_delta_log/"


@dataclass(frozen=True)
class FolderEstimates:
    """A table of files in a folder."""

    store: Store
    source: ClassVar[str]  # in DuckDB's SQL, of the URI

    @property
    def uri(self) -> str:
        return self.store.uri

    @property
    def sql(self) -> str:
        """The table as a source in DuckDB's SQL."""
        return self.source.format(self.uri.replace("'", "''"))


class ParquetEstimates(FolderEstimates):
    """A file for each statement, ``run=NAME/ID.parquet``."""

    source = "read_parquet('{}/*/*.parquet', hive_partitioning = true, union_by_name = true)"

    def append(self, owner: str, stated: Sequence[StatedRows]) -> None:
        """Append the statements that the table lacks; ``owner`` is the digest that names their run."""
        for item in stated:
            run = item.rows["run"][0].as_py()
            self.store.write(f"run={run}/{item.id}.parquet", encode(item.rows.drop_columns(["run"]), **OPTIONS))

    def read(self, audit: str) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the rows of an audit, and the URIs of files that cannot be read."""
        keys = [entry.key for entry in self.store.list(f"run={audit}-") if entry.key.endswith(".parquet")]
        rows, unread = [], []
        for key, data in zip(keys, self.store.read_many(keys), strict=True):
            try:
                rows += read_bytes(data).to_pylist()
            except (DataError, pa.ArrowException, OSError):
                unread.append(self.store.uri_of(key))
        return rows, unread


class DeltaEstimates(FolderEstimates):
    """A Delta table."""

    source = "delta_scan('{}')"

    def append(self, owner: str, stated: Sequence[StatedRows]) -> None:
        require("a Delta table", "deltalake")
        import deltalake
        from deltalake.exceptions import DeltaError

        options, app = storage_options(self.store), f"opacc-{owner}"
        there = deltalake.DeltaTable.is_deltatable(self.uri, storage_options=options)
        table = deltalake.DeltaTable(self.uri, storage_options=options) if there else None
        before = (table and table.transaction_version(app)) or 0
        new = [item for item in stated if item.number > before]
        if not new:
            return
        done = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(app, new[-1].number)])
        rows = pa.concat_tables([item.rows for item in new])
        access = {"schema_mode": "merge"} if table else {"storage_options": options}
        try:
            deltalake.write_deltalake(table or self.uri, rows, mode="append", commit_properties=done, **access)
        except DeltaError as error:
            reason = shortened(str(error), 200)
            raise StorageError(
                f"cannot append to the table {self.uri} ({reason}); run the same command again"
            ) from None

    def read(self, audit: str) -> tuple[list[dict[str, Any]], list[str]]:
        require("a Delta table", "deltalake")
        from deltalake import DeltaTable

        table = DeltaTable(self.uri, storage_options=storage_options(self.store))
        return table.to_pyarrow_table(filters=[("audit", "=", audit)]).to_pylist(), []


@dataclass(frozen=True)
class IcebergEstimates:
    """An Iceberg table in a catalog."""

    catalog: str
    name: str

    @property
    def uri(self) -> str:
        return f"{CATALOG}{self.catalog}/{self.name}"

    @property
    def sql(self) -> str:
        parts = self.catalog, *self.name.split(".")
        return ".".join(part if part.isidentifier() else f'"{part}"' for part in parts)

    def append(self, owner: str, stated: Sequence[StatedRows]) -> None:
        require("an Iceberg table", "pyiceberg")
        if stated:
            table = iceberg_table(self.catalog, self.name)
            append_missing(table, pa.concat_tables([item.rows for item in stated]), key="estimate")

    def read(self, audit: str) -> tuple[list[dict[str, Any]], list[str]]:
        require("an Iceberg table", "pyiceberg")
        from pyiceberg.expressions import EqualTo

        table = load_iceberg(iceberg_table(self.catalog, self.name))
        return table.scan(EqualTo("audit", audit)).to_arrow().to_pylist(), []


EstimatesTable = ParquetEstimates | DeltaEstimates | IcebergEstimates

_FIX = {
    "parquet": "Parquet files; use neither --delta nor --iceberg",
    "delta": "a Delta table; use --delta",
    "iceberg": "an Iceberg table; use --iceberg",
}
"""What each kind of table is, and what a command needs for it."""


def estimates_of(target: Store, *, delta: bool = False, iceberg: str | None = None) -> EstimatesTable:
    """Return the table of estimates of exported tables; raises SpecError for an address that is none.

    Raises DataError if the estimates there are kept in another kind of table.
    """
    if delta and iceberg is not None:
        raise SpecError("--delta and --iceberg cannot be combined; remove one")
    kind, there = "iceberg" if iceberg is not None else "delta" if delta else "parquet", _kind_at(target)
    if there not in (None, kind):
        raise DataError(f"the estimates of {target.uri} are in {_FIX[there]}, or export to another place")
    return _in_folder(target, kind) if iceberg is None else _in_catalog(iceberg)


def read_estimates(uri: str, audit: str) -> tuple[str, list[dict[str, Any]], list[str]]:
    """Return the URI of a table of estimates, its rows of an audit, and files that cannot be read.

    ``uri`` is that of exported tables, or an Iceberg table: catalog://CATALOG/TABLE. Each row has its
    :class:`Population` in addition, under the key ``stated_for``.
    """
    table = _estimates_at(uri)
    rows, unread = table.read(audit)
    own = [row for row in rows if row["audit"] == audit]
    own.sort(key=lambda row: (row["run_created"], row["uri"], row["log_entry"]))
    for row in own:
        row["stated_for"] = Population.named(**{key: row[column] for key, column in POPULATION.items()})
    return table.uri, own, unread


def _estimates_at(uri: str) -> EstimatesTable:
    if uri.startswith(CATALOG):
        return _in_catalog(uri)
    target = open_store(uri)
    kind = _kind_at(target) or "parquet"
    if kind == "iceberg":
        raise DataError(f"the estimates of {uri} are in an Iceberg table; give its address, catalog://CATALOG/TABLE")
    return _in_folder(target, kind)


def _in_catalog(address: str) -> EstimatesTable:
    catalog, _, name = address.removeprefix(CATALOG).partition("/")
    if not (address.startswith(CATALOG) and catalog and "." in name):
        raise SpecError(f"{address} is not the address of an Iceberg table; write catalog://CATALOG/NAMESPACE.TABLE")
    return IcebergEstimates(catalog, name)


def _in_folder(target: Store, kind: str) -> ParquetEstimates | DeltaEstimates:
    kept = target.store(_FOLDER)
    return DeltaEstimates(kept) if kind == "delta" else ParquetEstimates(kept)


def _kind_at(target: Store) -> str | None:
    """Return the kind of table that keeps the estimates of exported tables; None if there is none yet."""
    keys = [entry.key for entry in target.list(f"{_FOLDER}/")]
    if keys:
        return "delta" if any(key.startswith(f"{_FOLDER}/{_LOG}") for key in keys) else "parquet"
    views = target.read_if_there(VIEWS)
    is_iceberg = views is not None and b"_scan(" not in views and b"read_parquet(" not in views
    return "iceberg" if is_iceberg else None


ATTEMPTS, PAUSE, MOST_PAUSE = 10, 0.2, 2.0  # of a commit that meets others, and seconds between them

_NO_REPETITION = {"commit.retry.num-retries": "0"}


def append_missing(table: IcebergTable, rows: Any, key: str) -> None:
    """Append those of some rows, an Arrow table, whose key the table lacks; create it, and add columns, if need be.

    Raises SpecError, or StorageError if the catalog is not reached or other commits come first again and again.
    """
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    with refused(table):
        catalog = iceberg_catalog(table)
        for attempt in range(ATTEMPTS):
            try:
                return _append(_made(catalog, table.name, rows.schema), rows, key)
            except (CommitFailedException, CommitStateUnknownException, *busy()) as error:
                reason = shortened(" ".join(str(error).split()), 200)
            time.sleep(min(PAUSE * 2**attempt, MOST_PAUSE))
    raise StorageError(
        f"cannot append to the table {table.name} of the catalog {table.catalog!r} ({reason}); run the same command "
        "again, which appends what is missing"
    )


def _made(catalog: Any, name: str, schema: Any) -> Any:
    """Return a table with at least the columns of a schema."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    wanted = pa.schema([field.with_metadata({"doc": (field.metadata or {}).get(b"comment", b"")}) for field in schema])
    try:
        found = catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        space = name.rpartition(".")[0]
        _unless(partial(catalog.namespace_exists, space), partial(catalog.create_namespace, space))
        _unless(partial(catalog.table_exists, name), partial(catalog.create_table, name, wanted))
        found = catalog.load_table(name)
    if not set(schema.names) <= set(found.schema().column_names):
        with found.update_schema() as update:
            update.union_by_name(wanted)
    return found


def _unless(there: Callable[[], bool], make: Callable[[], Any]) -> None:
    """Make something that another process may make now; the error of the later one depends on the catalog."""
    try:
        make()
    except Exception:
        if not there():
            raise


def _append(table: Any, rows: Any, key: str) -> None:
    from pyiceberg.expressions import In

    wanted = rows[key].unique()
    there = table.scan(In(key, wanted.to_pylist()), selected_fields=(key,)).to_arrow()[key].unique()
    new = rows.filter(pc.invert(pc.is_in(rows[key], there.cast(wanted.type))))
    if len(new):
        properties = {**table.metadata.properties, **_NO_REPETITION}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        table.append(new)
