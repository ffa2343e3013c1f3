"""An id that is a UUID has one text, whoever wrote the table: DuckDB, pyarrow, pyiceberg or lance."""

import uuid
from collections.abc import Callable
from pathlib import Path

import duckdb
import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, NestedField, UUIDType
from tables import read_pool

from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.store_uris import open_store

UUIDS = [uuid.UUID(int=number << 64 | 0xABC) for number in range(4)]
TEXTS = list(map(str, UUIDS))
TABLE = pa.table({"u": pa.array([own.bytes for own in UUIDS], pa.uuid()), "x": [0.0, 1.0, 2.0, 3.0]})


def by_duckdb(folder: Path) -> None:
    rows = ", ".join(f"('{text}'::uuid, {x}::double)" for x, text in enumerate(TEXTS))
    duckdb.sql(f"copy (select * from (values {rows}) t(u, x)) to '{folder}/a.parquet'")


def by_pyiceberg(folder: Path) -> None:
    catalog = SqlCatalog("lake", uri="sqlite://", warehouse=folder.as_uri())
    catalog.create_namespace("db")
    fields = NestedField(1, "u", UUIDType()), NestedField(2, "x", DoubleType())
    catalog.create_table("db.pool", Schema(*fields), location=folder.as_uri()).append(TABLE)


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "duckdb": ("parquet", by_duckdb),
    "pyarrow": ("parquet", lambda folder: pq.write_table(TABLE, folder / "a.parquet")),
    "pyiceberg": ("iceberg", by_pyiceberg),
    "lance": ("lance", lambda folder: lance.write_dataset(TABLE, str(folder), mode="overwrite")),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_uuid_has_one_text(writer: str, tmp_path: Path) -> None:
    kind, write = WRITERS[writer]
    write(tmp_path)
    rules = Rules(columns=Columns(id="u", array=("x",)))
    found, _ = read_pool(open_store(str(tmp_path)), kind, rules)
    assert sorted((example.id, float(example.array)) for example in found) == [*zip(TEXTS, range(4), strict=True)]
    [kept], _ = read_pool(open_store(str(tmp_path)), kind, rules._replace(filter=f"u = '{TEXTS[2]}'"))
    assert kept.id == TEXTS[2]


def test_uuids_in_structs_have_it_too_and_json_stays_text(tmp_path: Path) -> None:
    rows = f"select {{'k': '{TEXTS[1]}'::uuid}} s, '{{\"a\": 1}}'::json j, 1.0::double x"
    duckdb.sql(f"copy ({rows}) to '{tmp_path}/a.parquet'")
    rules = Rules(columns=Columns(id=("s.k", "j"), array=("x",)), filter="j like '%a%'")
    [example], _ = read_pool(open_store(str(tmp_path)), "parquet", rules)
    assert example.id == f'{TEXTS[1]}/{{"a": 1}}'
