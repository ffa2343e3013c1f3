"""Pools that are Delta tables, written by the deltalake package: versions, partitions, and what is not there."""

import datetime
import json
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from delta_logs import vector, write_mapped
from tables import X, read_ids, refusal

from opacc_ray.errors import SpecError
from opacc_ray.extensions.lakes.catalogs import storage_options
from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store_uris import Store


def rows(start: int, stop: int, **more: object) -> pa.Table:
    numbers = range(start, stop)
    days = ["a b" if i % 2 else "c/d" for i in numbers]
    return pa.table({"id": [*numbers], "x": [[float(i)] for i in numbers], "day": days, "n": [i % 3 for i in numbers]})


def write(store: Store, table: pa.Table, **options: object) -> None:
    settings = storage_options(store)
    settings = settings and settings | {"aws_conditional_put": "etag"}
    deltalake.write_deltalake(store.uri, table, mode="append", storage_options=settings, **options)


def test_partitions_have_the_types_of_the_table(folder: Store) -> None:
    prices = pa.array([Decimal("4.35"), None, Decimal("10.00"), Decimal("4.35")], pa.decimal128(9, 2))
    write(folder, rows(0, 4).append_column("price", prices), partition_by=["price"])
    assert read_ids(folder, "delta", X._replace(filter="price = 4.35")) == [0, 3]
    assert read_ids(folder, "delta", X._replace(filter="not price < 10")) == [2]
    assert len(plan_shards(folder, "delta", 1, rules=X._replace(filter="price > 4.35")).entries) == 1


def test_a_damaged_log_is_named_with_the_version_that_was_asked_for(folder: Store) -> None:
    write(folder, rows(0, 10))
    folder.write("_delta_log/00000000000000000000.json", b"{")
    newest, first = refusal(folder, "delta", X), refusal(folder, "delta", X._replace(version=0))
    assert newest.startswith(f"the Delta table {folder.uri} cannot be opened (")
    assert first.startswith(f"the table {folder.uri} has no version 0 (")
    folder.delete("_delta_log/00000000000000000000.json")
    write(folder, rows(0, 10))
    with pytest.raises(SpecError, match=r"pool\.version 'main' is a name"):
        plan_shards(folder, "delta", 9, rules=X._replace(version="main"))


def test_statistics_exclude_files_but_not_by_rounded_decimals(folder: Store) -> None:
    for start in (0, 10):
        numbers = pa.array([Decimal(2**53 + 1 + start)] * 10, pa.decimal128(38, 0))
        times = pa.array([datetime.datetime(2026, 1, 1, start, 0, 0, 999)] * 10, pa.timestamp("us", "UTC"))
        write(folder, rows(start, start + 10).append_column("long", numbers).append_column("time", times))

    def files(text: str) -> int:
        return len(plan_shards(folder, "delta", 100, rules=X._replace(filter=text)).entries)

    assert files("id >= 10") == files("id between 3 and 4") == 1
    assert read_ids(folder, "delta", X._replace(filter="long = 9007199254740993")) == list(range(10))
    assert files("time <= '2026-01-01 05:00:00'") == 1
    assert read_ids(folder, "delta", X._replace(filter="time > '2026-01-01 10:00:00.000998'")) == list(range(10, 20))
    assert "excludes all of its rows" in refusal(folder, "delta", X._replace(filter="id > 19"))


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
    assert read_ids(folder, "delta", rules) == [0, 2]


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("m is null", [2]),
        ("m is not null", [0, 1, 3]),
        ("m.cam is null", [1, 2]),
        ("m is null or x1 > 2", [2, 3]),
        ("m.deep is not null", [0, 3]),
    ],
)
def test_a_struct_may_be_null(condition: str, kept: list[int], folder: Store) -> None:
    structs = [{"cam": "a", "deep": {"z": 1}}, {"cam": None, "deep": None}, None, {"cam": "b", "deep": {"z": None}}]
    for part in ([0, 1], [2], [3]):
        table = pa.table({"id": part, "x": [[float(i)] for i in part], "x1": part})
        kind = pa.struct({"cam": pa.string(), "deep": pa.struct({"z": pa.int64()})})
        write(folder, table.append_column("m", pa.array([structs[i] for i in part], kind)))
    assert read_ids(folder, "delta", X._replace(filter=condition)) == kept
