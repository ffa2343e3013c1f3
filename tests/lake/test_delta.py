"""Pools that are Delta tables, written by the deltalake package: versions, partitions, and what is not there."""

import datetime
import json
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from delta_logs import vector, write_mapped
from tables import read_pool, refusal

from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.pools import newest_version, plan_shards
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.lake.table_logs import storage_options

X = Rules(columns=Columns(id="id", array=("x",)))


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    place = str(tmp_path) if request.param == "folder" else request.getfixturevalue("bucket")
    return open_store(f"{place}/table")


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return open_store(f"{tmp_path}/table")


def rows(start: int, stop: int, **more: object) -> pa.Table:
    numbers = range(start, stop)
    days = ["a b" if i % 2 else "c/d" for i in numbers]
    return pa.table({"id": [*numbers], "x": [[float(i)] for i in numbers], "day": days, "n": [i % 3 for i in numbers]})


def write(store: Store, table: pa.Table, **options: object) -> None:
    settings = storage_options(store)
    settings = settings and settings | {"aws_conditional_put": "etag"}
    deltalake.write_deltalake(store.uri, table, mode="append", storage_options=settings, **options)


def ids(store: Store, rules: Rules = X) -> list[int]:
    found, bad = read_pool(store, "delta", rules)
    assert not bad
    return sorted(int(example.id) for example in found)


def test_a_version_is_what_it_was(store: Store) -> None:
    write(store, rows(0, 10))
    write(store, rows(10, 15))
    assert ids(store) == list(range(15))
    assert ids(store, X._replace(version=0)) == list(range(10))
    assert plan_shards(store, "delta", 100, rules=X).version == "version 1"
    old = plan_shards(store, "delta", 100, rules=X._replace(version=0))
    assert (old.version, old.num_examples) == ("version 0", 10)
    assert newest_version(store, "delta", X._replace(version=0)) == "version 1"


def test_a_time_names_the_newest_version_before_it(folder: Store) -> None:
    write(folder, rows(0, 10))
    write(folder, rows(10, 15))
    assert ids(folder, X._replace(timestamp="2999-01-01")) == list(range(15))
    said = refusal(folder, "delta", X._replace(timestamp="2020-01-01T00:00:00Z"))
    assert "has no version at 2020-01-01T00:00:00Z (version 0, the oldest, was written at " in said
    assert "is not a time; write it as" in refusal(folder, "delta", X._replace(timestamp="yesterday"))


def test_partitions_are_columns_whatever_their_values(store: Store) -> None:
    write(store, rows(0, 12), partition_by=["day", "n"])
    assert ids(store) == list(range(12))
    assert ids(store, X._replace(filter="day = 'c/d' and n = 2")) == [2, 8]
    assert len(plan_shards(store, "delta", 1, rules=X._replace(filter="day = 'c/d' and n = 2")).entries) == 1


def test_partitions_have_the_types_of_the_table(folder: Store) -> None:
    prices = pa.array([Decimal("4.35"), None, Decimal("10.00"), Decimal("4.35")], pa.decimal128(9, 2))
    write(folder, rows(0, 4).append_column("price", prices), partition_by=["price"])
    assert ids(folder, X._replace(filter="price = 4.35")) == [0, 3]
    assert ids(folder, X._replace(filter="not price < 10")) == [2]
    assert len(plan_shards(folder, "delta", 1, rules=X._replace(filter="price > 4.35")).entries) == 1


def test_columns_that_older_files_lack_are_null(folder: Store) -> None:
    write(folder, rows(0, 4))
    more = rows(4, 8).append_column("score", pa.array([0.1, 0.2, 0.3, None]))
    write(folder, more, schema_mode="merge")
    assert ids(folder) == list(range(8))
    assert ids(folder, X._replace(filter="score >= 0.2")) == [5, 6]
    assert ids(folder, X._replace(filter="score is null")) == [0, 1, 2, 3, 7]
    assert ids(folder, X._replace(filter="not score >= 0.2")) == ids(
        folder, X._replace(filter="score not in (0.2, 0.3)")
    )
    assert ids(folder, X._replace(filter="score != 0.2")) == [4, 6]
    found, bad = read_pool(folder, "delta", Rules(columns=Columns(array=("score",))))
    assert (len(found), len(bad)) == (3, 5)


def test_a_missing_table_or_version_is_one_sentence(folder: Store) -> None:
    assert refusal(folder, "delta", X) == f"there is no Delta table at {folder.uri}; check pool.uri and pool.format"
    write(folder, rows(0, 10))
    said = refusal(folder, "delta", X._replace(version=7))
    assert said == (
        f"the table {folder.uri} has no version 7 (the newest is 0); correct pool.version or pool.timestamp"
    )
    assert "has no column 'y'; it has id, x, day, n" in refusal(folder, "delta", Rules(columns=Columns(array=("y",))))
    [data] = [entry.key for entry in folder.list() if entry.key.endswith(".parquet")]
    folder.delete(data)
    said = refusal(folder, "delta", X)
    assert f"version 0 of the table {folder.uri} needs the file {data}, which is gone" in said


def test_deleted_rows_are_left_out_and_vacuumed_versions_are_errors(folder: Store) -> None:
    write(folder, rows(0, 10))
    table = deltalake.DeltaTable(folder.uri)
    table.delete("id < 5")
    assert ids(folder) == [5, 6, 7, 8, 9]
    assert ids(folder, X._replace(version=0)) == list(range(10))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert "choose a version whose files were not vacuumed" in refusal(folder, "delta", X._replace(version=0))


def test_a_damaged_log_is_named_with_the_version_that_was_asked_for(folder: Store) -> None:
    write(folder, rows(0, 10))
    folder.write("_delta_log/00000000000000000000.json", b"{")
    newest, first = refusal(folder, "delta", X), refusal(folder, "delta", X._replace(version=0))
    assert newest.startswith(f"the Delta table {folder.uri} cannot be opened (")
    assert first.startswith(f"the table {folder.uri} has no version 0 (")


def test_the_log_passes_over_files_but_not_by_rounded_decimals(folder: Store) -> None:
    for start in (0, 10):
        numbers = pa.array([Decimal(2**53 + 1 + start)] * 10, pa.decimal128(38, 0))
        times = pa.array([datetime.datetime(2026, 1, 1, start, 0, 0, 999)] * 10, pa.timestamp("us", "UTC"))
        write(folder, rows(start, start + 10).append_column("long", numbers).append_column("time", times))

    def files(text: str) -> int:
        return len(plan_shards(folder, "delta", 100, rules=X._replace(filter=text)).entries)

    assert files("id >= 10") == files("id between 3 and 4") == 1
    assert ids(folder, X._replace(filter="long = 9007199254740993")) == list(range(10))
    assert files("time <= '2026-01-01 05:00:00'") == 1
    assert ids(folder, X._replace(filter="time > '2026-01-01 10:00:00.000998'")) == list(range(10, 20))
    assert "excludes all of its files" in refusal(folder, "delta", X._replace(filter="id > 19"))


def test_a_plan_depends_on_the_rows_that_are_deleted(folder: Store) -> None:
    columns = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    write_mapped(Path(folder.uri), columns, {"1.parquet": rows(0, 3).select(["id"])}, {"1.parquet": [0]}, "none")
    rules = Rules(columns=Columns(id="id", array=("id",)))
    before = plan_shards(folder, "delta", 100, rules=rules)
    [log] = [entry.key for entry in folder.list("_delta_log/")]
    content = folder.read(log).decode()
    folder.write(log, content.replace(json.dumps(vector([0])), json.dumps(vector([1]))).encode())
    after = plan_shards(folder, "delta", 100, rules=rules)
    assert (before.num_examples, before.entries) == (after.num_examples, after.entries)
    assert before.num_examples == 2
    assert before.digest != after.digest
    assert ids(folder, rules) == [0, 2]
