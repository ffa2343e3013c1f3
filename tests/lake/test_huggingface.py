"""Pools of the Hugging Face library on disk: Arrow files as `save_to_disk` writes them, and Parquet files."""

import io
from pathlib import Path

import pyarrow as pa
import pytest
from tables import parquet, read_pool, refusal

from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.pools import plan_shards, read_rows
from opacc_ray.lake.storage import Store, open_store

X = Rules(columns=Columns(array=("x",)))


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(str(tmp_path) if request.param == "folder" else request.getfixturevalue("bucket"))


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"x": [[float(i)] for i in range(start, stop)], "n": [*range(start, stop)]})


def arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    return sink.getvalue()


def write(store: Store) -> None:
    store.write("data-00000-of-00002.arrow", arrow(rows(0, 35)))
    store.write("data-00001-of-00002.arrow", arrow(rows(35, 60)))
    store.write("cache-0123456789abcdef.arrow", arrow(rows(0, 3)))
    store.write("state.json", b"{}")


def test_arrow_files_are_read_batch_after_batch(store: Store) -> None:
    write(store)
    plan = plan_shards(store, "huggingface", 5, rules=X)
    assert [shard.keys for shard in plan.shards] == [("data-00000-of-00002.arrow",), ("data-00001-of-00002.arrow",)]
    found, bad = read_pool(store, "huggingface", X)
    assert not bad
    assert [example.array[0] for example in found] == list(range(60))
    assert found[40].id == "data-00001-of-00002.arrow#5"
    left, _ = read_pool(store, "huggingface", X._replace(filter="n in (3, 34, 35)"))
    assert [example.id for example in left] == [found[row].id for row in (3, 34, 35)]


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_the_columns_of_the_rows_that_count_are_read_alone(kind: str, store: Store) -> None:
    write(store) if kind == "arrow" else store.write("test/0000.parquet", parquet(rows(0, 60), row_group_size=20))
    rules = Rules(columns=Columns(features=(("prior", ("n",)),)), filter="n > 30")
    found = [
        batch
        for shard in plan_shards(store, "huggingface", 20, rules=rules).shards
        for batch in read_rows(store, "huggingface", shard, rules)
    ]
    assert {name for batch in found for name in batch.columns.column_names} == {"n"}
    assert [value for batch in found for value in batch.columns["n"].to_pylist()] == list(range(31, 60))


def test_parquet_files_are_cut_in_row_groups(store: Store) -> None:
    store.write("test/0000.parquet", parquet(rows(0, 60), row_group_size=20))
    assert len(plan_shards(store, "huggingface", 20, rules=X).shards) == 3
    assert [example.array[0] for example in read_pool(store, "huggingface", X)[0]] == list(range(60))


def test_what_does_not_fit_is_one_sentence(store: Store) -> None:
    write(store)
    assert refusal(store, "huggingface", Rules(columns=Columns(array=("y",)))).endswith(
        "has no column 'y'; it has x, n"
    )
    whole = arrow(rows(0, 35))
    store.write("data-00000-of-00002.arrow", whole[: len(whole) // 2])
    _, bad = read_pool(store, "huggingface", X)
    assert [item.id for item in bad] == ["data-00000-of-00002.arrow"]
    assert "the Arrow file breaks off" in bad[0].reason
    store.write("data-00000-of-00002.arrow", whole[:-8])
    _, bad = read_pool(store, "huggingface", X)
    assert bad[0].reason == "the Arrow file breaks off (it has no end); write it again"
    store.write("data-00000-of-00002.arrow", b"no arrow")
    assert "does not read as a stream of Arrow" in refusal(store, "huggingface", X)
    store.write("a.parquet", parquet(rows(0, 60)))
    assert "holds Arrow and Parquet files; name the folder of one" in refusal(store, "huggingface", X)
