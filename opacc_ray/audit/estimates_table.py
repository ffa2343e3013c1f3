"""Where the table of estimates of many runs is kept: as Parquet files, a Delta table or an Iceberg table.

Each kind has every statement once, however often a run is exported. Parquet files have one name for each statement. A
commit of a Delta table has the last number of the run's log that it appends, as a transaction of the run: of two
commands that append at once, one fails. An Iceberg table is read before each commit
(:mod:`opacc_ray.lake.iceberg_append`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from opacc_ray.audit.estimate_rows import StatedRows
from opacc_ray.errors import DataError, SpecError, StorageError, shortened
from opacc_ray.lake.catalogs import load_iceberg
from opacc_ray.lake.iceberg_append import append_missing
from opacc_ray.lake.parquet_io import encode, pa, read_bytes
from opacc_ray.lake.store_uris import CATALOG, Store, catalog_table, open_store
from opacc_ray.lake.table_logs import import_package, storage_options

VIEWS = "views.sql"

OPTIONS = {"compression": "zstd", "write_page_checksum": True}
"""Options of the Parquet files."""

_FOLDER, _LOG = "estimates", "_delta_log/"


class EstimatesTable(ABC):
    """A table of estimates."""

    kind: ClassVar[str]
    fix: ClassVar[str]  # what a command needs for this kind

    @property
    @abstractmethod
    def uri(self) -> str:
        """The URI of the table."""

    @property
    @abstractmethod
    def sql(self) -> str:
        """The table as a source in DuckDB's SQL."""

    @abstractmethod
    def append(self, owner: str, stated: Sequence[StatedRows]) -> None:
        """Append the statements that the table lacks; ``owner`` is the digest that names their run."""

    @abstractmethod
    def read(self, audit: str) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the rows of an audit, and the URIs of files that cannot be read."""


@dataclass(frozen=True)
class _InFolder(EstimatesTable):
    """A table of files in a folder."""

    store: Store
    source: ClassVar[str]  # in DuckDB's SQL, of the URI

    @property
    def uri(self) -> str:
        return self.store.uri

    @property
    def sql(self) -> str:
        return self.source.format(self.uri.replace("'", "''"))


class ParquetEstimates(_InFolder):
    """A file for each statement, ``run=NAME/ID.parquet``."""

    kind, fix = "Parquet files", "use neither --delta nor --iceberg"
    source = "read_parquet('{}/*/*.parquet', hive_partitioning = true, union_by_name = true)"

    def append(self, owner: str, stated: Sequence[StatedRows]) -> None:
        for item in stated:
            run = item.rows["run"][0].as_py()
            self.store.write(f"run={run}/{item.id}.parquet", encode(item.rows.drop_columns(["run"]), **OPTIONS))

    def read(self, audit: str) -> tuple[list[dict[str, Any]], list[str]]:
        keys = [entry.key for entry in self.store.list(f"run={audit}-") if entry.key.endswith(".parquet")]
        rows, unread = [], []
        for key, data in zip(keys, self.store.read_many(keys), strict=True):
            try:
                found = read_bytes(data)
            except DataError:
                found = None
            if found is None or "metric" not in found.column_names:  # the latter: of an earlier version
                unread.append(self.store.uri_of(key))
            else:
                rows += found.to_pylist()
        return rows, unread


class DeltaEstimates(_InFolder):
    """A Delta table."""

    kind, fix = "a Delta table", "use --delta"
    source = "delta_scan('{}')"

    def append(self, owner: str, stated: Sequence[StatedRows]) -> None:
        deltalake, options, app = import_package("deltalake", "delta"), storage_options(self.store), f"opacc-{owner}"
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
        except import_package("deltalake.exceptions", "delta").DeltaError as error:
            reason = shortened(str(error), 200)
            raise StorageError(
                f"cannot append to the table {self.uri} ({reason}); run the same command again"
            ) from None

    def read(self, audit: str) -> tuple[list[dict[str, Any]], list[str]]:
        table = import_package("deltalake", "delta").DeltaTable(self.uri, storage_options=storage_options(self.store))
        return table.to_pyarrow_table(filters=[("audit", "=", audit)]).to_pylist(), []


@dataclass(frozen=True)
class IcebergEstimates(EstimatesTable):
    """An Iceberg table in a catalog."""

    kind, fix = "an Iceberg table", "use --iceberg"
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
        import_package("pyiceberg.catalog", "iceberg")
        if stated:
            table = catalog_table("iceberg", self.catalog, self.name)
            append_missing(table, pa.concat_tables([item.rows for item in stated]), key="estimate")

    def read(self, audit: str) -> tuple[list[dict[str, Any]], list[str]]:
        expressions = import_package("pyiceberg.expressions", "iceberg")
        table = load_iceberg(catalog_table("iceberg", self.catalog, self.name))
        return table.scan(expressions.EqualTo("audit", audit)).to_arrow().to_pylist(), []


def estimates_of(target: Store, *, delta: bool = False, iceberg: str | None = None) -> EstimatesTable:
    """Return the table of estimates of exported tables; raises SpecError for an address that is none.

    Raises DataError if the estimates there are kept in another kind of table.
    """
    if delta and iceberg is not None:
        raise SpecError("--delta and --iceberg cannot be combined; remove one")
    found = _in_catalog(iceberg) if iceberg is not None else _in_folder(target, delta)
    there = _kind_at(target)
    if there not in (None, type(found)):
        raise DataError(f"the estimates of {target.uri} are in {there.kind}; {there.fix}, or export to another place")
    return found


def estimates_at(uri: str) -> EstimatesTable:
    """Return the table of estimates at the URI of exported tables, or of an Iceberg table: catalog://CATALOG/TABLE."""
    if uri.startswith(CATALOG):
        return _in_catalog(uri)
    target = open_store(uri)
    kind = _kind_at(target)
    if kind is IcebergEstimates:
        raise DataError(f"the estimates of {uri} are in an Iceberg table; give its address, catalog://CATALOG/TABLE")
    return _in_folder(target, kind is DeltaEstimates)


def _in_catalog(address: str) -> EstimatesTable:
    catalog, _, name = address.removeprefix(CATALOG).partition("/")
    if not (address.startswith(CATALOG) and catalog and "." in name):
        raise SpecError(f"{address} is not the address of an Iceberg table; write catalog://CATALOG/NAMESPACE.TABLE")
    return IcebergEstimates(catalog, name)


def _in_folder(target: Store, delta: bool) -> EstimatesTable:
    return (DeltaEstimates if delta else ParquetEstimates)(target.store(_FOLDER))


def _kind_at(target: Store) -> type[EstimatesTable] | None:
    """Return the kind of table that keeps the estimates of exported tables; None if there is none yet."""
    keys = [entry.key for entry in target.list(f"{_FOLDER}/")]
    if keys:
        return DeltaEstimates if any(key.startswith(f"{_FOLDER}/{_LOG}") for key in keys) else ParquetEstimates
    views = target.read_if_there(VIEWS)
    is_iceberg = views is not None and b"_scan(" not in views and b"read_parquet(" not in views
    return IcebergEstimates if is_iceberg else None
