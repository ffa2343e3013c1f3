"""Pools that are Iceberg tables, written by the pyiceberg package: snapshots, renamed columns, what is not there."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_deletes import as_version_3
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DoubleType, StringType
from tables import X, parquet, read_ids, read_pool, read_table, refusal

from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.pools import newest_version, plan_shards
from opacc_ray.lake.store_uris import Store, open_store


def rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    kinds = ["even" if i % 2 == 0 else "odd" for i in numbers]
    return pa.table({"id": pa.array(numbers, pa.int64()), "x": [[float(i)] for i in numbers], "kind": kinds})


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    found = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    found.create_namespace("db")
    return found


@pytest.fixture
def make(catalog: SqlCatalog) -> Callable[..., tuple[Any, Store]]:
    def made(first: pa.Table, *more: pa.Table) -> tuple[Any, Store]:
        table = catalog.create_table("db.pool", schema=first.schema)
        for part in (first, *more):
            table.append(part)
        return table, open_store(table.location())

    return made


def values(store: Store, name: str) -> list[object]:
    """A column of all rows, in the order of their ids."""
    rules = Rules(columns=Columns(id="id", features=(("confidence", (name,)),)))
    return [row[name] for row in sorted(read_table(store, "iceberg", rules), key=lambda row: row["id"])]


def as_pyiceberg_reads(table: Any, name: str) -> list[object]:
    return [row[name] for row in sorted(table.refresh().scan().to_arrow().to_pylist(), key=lambda row: row["id"])]


def test_a_renamed_column_is_read_by_its_new_name_alone(make: Callable[..., tuple[Any, Store]]) -> None:
    table, store = make(rows(0, 4))
    with table.update_schema() as update:
        update.rename_column("x", "pixels")
    table.append(rows(4, 6).rename_columns(["id", "pixels", "kind"]))
    found, bad = read_pool(store, "iceberg", Rules(columns=Columns(id="id", array=("pixels",))))
    assert not bad
    assert sorted(float(item.array[0]) for item in found) == [0, 1, 2, 3, 4, 5]
    said = refusal(store, "iceberg", Rules(columns=Columns(array=("x",))))
    assert said.endswith("has no column 'x'; it has id, pixels, kind")


def test_a_reused_name_has_none_of_the_old_values(make: Callable[..., tuple[Any, Store]]) -> None:
    table, store = make(rows(0, 4).append_column("conf", pa.array([0.1, 0.2, 0.3, 0.4])))
    with table.update_schema() as update:
        update.rename_column("conf", "old_conf")
    with table.update_schema() as update:
        update.add_column("conf", DoubleType())
    assert values(store, "conf") == as_pyiceberg_reads(table, "conf") == [None] * 4
    assert values(store, "old_conf") == as_pyiceberg_reads(table, "old_conf") == [0.1, 0.2, 0.3, 0.4]
    assert read_ids(store, "iceberg", X._replace(filter="conf is null and old_conf > 0.15")) == [1, 2, 3]
    with table.update_schema() as update:
        update.delete_column("old_conf")
    with table.update_schema() as update:
        update.add_column("old_conf", DoubleType())
    more = rows(4, 6).append_column("conf", pa.array([0.5, None])).append_column("old_conf", pa.array([None, 0.6]))
    table.append(more)
    for name in ("conf", "old_conf"):
        assert values(store, name) == as_pyiceberg_reads(table, name)
    assert read_ids(store, "iceberg", X._replace(filter="old_conf is null")) == [0, 1, 2, 3, 4]


def test_files_without_field_ids_are_read_by_the_tables_name_mapping(
    make: Callable[..., tuple[Any, Store]],
) -> None:
    table, store = make(rows(0, 4))
    store.write("data/imported.parquet", parquet(rows(4, 8)))
    table.add_files([store.uri_of("data/imported.parquet")])  # sets the property
    with table.update_schema() as update:
        update.rename_column("kind", "sort")
    assert read_ids(store, "iceberg", X._replace(filter="sort = 'even'")) == [0, 2, 4, 6]
    assert as_pyiceberg_reads(table, "sort") == values(store, "sort")
    with table.update_schema() as update:
        update.add_column("kind", StringType())  # which takes the name in files without numbers, too
    for name in ("kind", "sort"):
        assert values(store, name) == as_pyiceberg_reads(table, name)
    with table.transaction() as changed:
        changed.remove_properties("schema.name-mapping.default")
    said = refusal(store, "iceberg", X)
    assert "imported.parquet has no field ids, and its table has no schema.name-mapping.default" in said


@pytest.mark.parametrize("column", ["day", "price", "seen", "number", "time"])
def test_partitions_of_any_type_by_identity_pass_over_files(column: str, catalog: SqlCatalog) -> None:
    more = {
        "day": [datetime.date(2026, 1, 5), None, datetime.date(2026, 1, 6)],
        "price": [Decimal("4.35"), None, Decimal("-2.00")],
        "seen": [True, None, False],
        "number": [7, None, 8],
        "time": [datetime.datetime(2026, 1, 5, 12), None, datetime.datetime(2026, 1, 6)],
    }
    first = rows(0, 3).append_column(column, pa.array(more[column]))
    table = catalog.create_table("db.pool", schema=first.schema)
    with table.update_spec() as update:
        update.add_field(column, IdentityTransform(), column)
    table.append(first)
    store = open_store(table.location())
    literal = {"day": "'2026-01-05'", "price": "4.35", "seen": "true", "number": "7", "time": "'2026-01-05 12:00'"}
    asked = X._replace(filter=f"{column} = {literal[column]}")
    assert len(plan_shards(store, "iceberg", 1, rules=asked).entries) == 1
    assert read_ids(store, "iceberg", asked) == [0]
    assert read_ids(store, "iceberg", X._replace(filter=f"not {column} = {literal[column]}")) == [2]
    assert read_ids(store, "iceberg", X._replace(filter=f"{column} is null")) == [1]
    with table.update_spec() as update:
        update.remove_field(column)
    with table.update_schema() as update:
        update.delete_column(column)
    assert read_ids(store, "iceberg") == [0, 1, 2]


def test_hidden_partitions_and_bounds_pass_over_files(make: Callable[..., tuple[Any, Store]]) -> None:
    times = pa.array([datetime.datetime(2026, 1, 1 + i // 2) for i in range(10)], pa.timestamp("us"))
    table, store = make(rows(0, 10).append_column("time", times).slice(0, 0))
    with table.update_spec() as update:
        update.add_field("time", DayTransform(), "day")
    table.append(rows(0, 10).append_column("time", times))

    def kept(text: str) -> tuple[int, list[int]]:
        asked = X._replace(filter=text)
        return len(plan_shards(store, "iceberg", 100, rules=asked).entries), read_ids(store, "iceberg", asked)

    assert kept("time >= '2026-01-04'") == (2, [6, 7, 8, 9])
    assert kept("not (time < '2026-01-05' or id = 9)") == (1, [8])
    assert kept("id between 2 and 3 or kind = 'zero'") == (1, [2, 3])
    assert kept("kind like 'ev%' and id > 5") == (2, [6, 8])
    said = refusal(store, "iceberg", X._replace(filter="id > 9"))
    assert f"snapshot {table.current_snapshot().snapshot_id} of the table" in said
    assert "is empty: pool.filter 'id > 9' excludes all of its files" in said


def test_an_initial_default_is_the_value_in_files_without_the_column_and_in_no_other(
    make: Callable[..., tuple[Any, Store]],
) -> None:
    table, store = make(rows(0, 4))
    with table.update_schema() as update:
        update.add_column("tier", StringType())
    table.append(rows(4, 8).append_column("tier", pa.array(["gold", "silver", None, "iron"])))
    as_version_3(table, {"tier": "gold"})
    assert values(store, "tier") == ["gold"] * 5 + ["silver", None, "iron"]
    assert read_ids(store, "iceberg", X._replace(filter="tier = 'gold'")) == [0, 1, 2, 3, 4]
    assert read_ids(store, "iceberg", X._replace(filter="tier = 'silver'")) == [5]
    assert read_ids(store, "iceberg", X._replace(filter="tier is null")) == [6]
    assert read_ids(store, "iceberg", X._replace(filter="not tier = 'gold'")) == [5, 7]
    plan = plan_shards(store, "iceberg", 100, rules=X._replace(filter="tier like 'i%'"))
    assert [len(shard.pieces) for shard in plan.shards] == [1]


def test_branches_and_tags_have_names(make: Callable[..., tuple[Any, Store]]) -> None:
    table, store = make(rows(0, 10))
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    plan = plan_shards(store, "iceberg", 100, rules=X._replace(version="audit"))
    assert plan.version == newest_version(store, "iceberg", X._replace(version="audit"))
    table.append(rows(10, 12), branch="audit")
    assert newest_version(store, "iceberg", X._replace(version="audit")) != plan.version
    assert newest_version(store, "iceberg", X) == plan.version
    said = refusal(store, "iceberg", X._replace(version="q1"))
    assert said.endswith("has no branch or tag 'q1'; its branches and tags are audit, main")


def test_a_metadata_file_that_is_not_there_is_one_sentence(make: Callable[..., tuple[Any, Store]]) -> None:
    _, store = make(rows(0, 10))
    said = refusal(store, "iceberg", X._replace(file=store.uri_of("metadata/none.metadata.json")))
    assert "there is no Iceberg table" in said
