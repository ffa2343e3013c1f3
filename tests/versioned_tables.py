"""Tables with versions, as the packages write them that own their formats."""

from collections.abc import Callable

import deltalake
import lance
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from opacc_ray.extensions.lakes.catalogs import access, storage_options
from opacc_ray.lake.store import S3_OPTIONS, Store

Append = Callable[[pa.Table], int]
"""Function that appends rows as a version, and returns its number."""


def delta_table(store: Store) -> Append:
    settings = storage_options(store)
    settings = settings and settings | {"aws_conditional_put": "etag"}

    def append(rows: pa.Table) -> int:
        deltalake.write_deltalake(store.uri, rows, mode="append", storage_options=settings)
        return deltalake.DeltaTable(store.uri, storage_options=settings).version()

    return append


def lance_table(store: Store) -> Append:
    settings = {name.lower(): value for name, value in storage_options(store).items()}

    def append(rows: pa.Table) -> int:
        return lance.write_dataset(rows, store.uri, mode="append", storage_options=settings).version

    return append


def iceberg_table(store: Store) -> Append:
    catalog = SqlCatalog("test", uri="sqlite:///:memory:", **access(store, S3_OPTIONS))
    catalog.create_namespace("db")

    def append(rows: pa.Table) -> int:
        table = catalog.create_table_if_not_exists("db.pool", schema=rows.schema, location=store.uri)
        table.append(rows)
        return table.current_snapshot().snapshot_id

    return append


TABLES = {"delta": delta_table, "iceberg": iceberg_table, "lance": lance_table}
VERSION = {"delta": "version {}", "iceberg": "snapshot {}", "lance": "version {}"}
"""How a plan names a version, by format."""
