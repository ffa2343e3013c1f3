"""Pools of the Hugging Face library on disk: Arrow files as `save_to_disk` writes them, and Parquet files."""

import io

import pyarrow as pa
import pytest
from tables import parquet, read_pool, read_table, refusal

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store_uris import Store, open_store

X = Rules(columns=Columns(array=("x",)))


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
def test_the_columns_of_the_rows_that_count_are_read_alone(kind: str, folder: Store) -> None:
    write(folder) if kind == "arrow" else folder.write("test/0000.parquet", parquet(rows(0, 60), row_group_size=20))
    rules = Rules(columns=Columns(features=(("judges", ("n",)),)), filter="n > 30")
    found = read_table(folder, "huggingface", rules, 20)
    assert found == [{"n": n} for n in range(31, 60)]


def test_of_several_splits_one_is_asked_for(folder: Store) -> None:
    for split, first in (("train", 0), ("test", 40)):
        folder.write(f"{split}/data-00000-of-00001.arrow", arrow(rows(first, first + 20)))
    assert refusal(folder, "huggingface", X) == (
        f"the pool {folder.uri} has several splits: test, train; choose one, such as pool.split: train"
    )
    assert [item.array[0] for item in read_pool(folder, "huggingface", X._replace(split="test"))[0]] == [*range(40, 60)]
    assert len(read_pool(folder, "huggingface", X._replace(split="train+test"))[0]) == 40
    said = refusal(folder, "huggingface", X._replace(split="val"))
    assert said == f"the pool {folder.uri} has no split 'val'; its splits are test, train; correct pool.split"
    inside = open_store(folder.uri_of("test"))
    assert len(read_pool(inside, "huggingface", X)[0]) == 20
    assert "has no split 'test'; its splits are none" in refusal(inside, "huggingface", X._replace(split="test"))


@pytest.mark.parametrize(
    ("train", "test", "names"),
    [
        ("data/train-00000-of-00002.parquet", "data/test-00000-of-00001.parquet", "test, train"),
        (
            "data/train-00000-of-00001-a09b74b3ef9c3b56.parquet",
            "data/validation-00000-of-00001.parquet",
            "train, validation",
        ),
        ("default/train/0000.parquet", "default/test/0000.parquet", "test, train"),
        ("train.parquet", "test.parquet", "test, train"),
        ("my_training_set.parquet", "eval1.parquet", "eval, training"),
        ("data/other.clean-00000-of-00001.parquet", "data/fold_a-00000-of-00001.parquet", "fold_a, other.clean"),
        ("train/part-0.parquet", "more/part-0.parquet", "train and files without a split"),
    ],
)
def test_splits_are_found_as_the_hub_names_them(train: str, test: str, names: str, folder: Store) -> None:
    folder.write(train, parquet(rows(0, 40)))
    assert len(read_pool(folder, "huggingface", X)[0]) == 40  # the only split there is
    folder.write(test, parquet(rows(40, 60)))
    assert f"has several splits: {names}; choose one" in refusal(folder, "huggingface", X)
    for name in names.partition(" and ")[0].split(", "):
        assert len(read_pool(folder, "huggingface", X._replace(split=name))[0]) in (20, 40)


def test_a_later_arrow_file_without_a_column_is_named(folder: Store) -> None:
    write(folder)
    folder.write("data-00001-of-00002.arrow", arrow(rows(35, 60).drop_columns(["n"])))
    with pytest.raises(DataError, match=r"data-00001-of-00002\.arrow has no column 'n'; it has x"):
        read_pool(folder, "huggingface", X._replace(filter="n > 3"))


def test_what_does_not_fit_is_one_sentence(folder: Store) -> None:
    write(folder)
    assert refusal(folder, "huggingface", Rules(columns=Columns(array=("y",)))).endswith(
        "has no column 'y'; it has x, n"
    )
    whole = arrow(rows(0, 35))
    folder.write("data-00000-of-00002.arrow", whole[: len(whole) // 2])
    with pytest.raises(
        DataError, match=r"00000-of-00002\.arrow is not a valid Arrow stream \(.*; write it again, or re"
    ):
        read_pool(folder, "huggingface", X)
    folder.write("data-00000-of-00002.arrow", whole[:-8])
    with pytest.raises(DataError, match=r"is not a valid Arrow stream \(it has no end\)"):
        read_pool(folder, "huggingface", X)
    folder.write("data-00000-of-00002.arrow", b"no arrow")
    assert "is not a valid Arrow stream" in refusal(folder, "huggingface", X)
    folder.write("a.parquet", parquet(rows(0, 60)))
    assert "has Arrow and Parquet files; give the folder of one" in refusal(folder, "huggingface", X)


CONFIGS = """---
configs:
- config_name: en
  data_files: [{split: learn, path: "en/a-*.parquet"}, {split: hold, path: en/b.parquet}]
- config_name: nl
  data_files: nl/*.parquet
---
# A dataset
"""


def test_several_configurations_of_the_hub_are_several_datasets(folder: Store) -> None:
    """Before, both languages were one pool, and the splits that the README names were not known."""
    for place, start in (("en/a-0", 0), ("en/a-1", 10), ("en/b", 20), ("nl/a", 30)):
        folder.write(f"{place}.parquet", parquet(rows(start, start + 10)))
    folder.write("README.md", CONFIGS.encode())
    columns = Columns(array=("x",))
    told = refusal(folder, "huggingface", Rules(columns=columns))
    assert told == (
        f"the pool {folder.uri} has several configurations: en, nl; give the files of one as pool.uri, such as "
        f"{folder.uri}/en/*"
    )
    told = refusal(folder, "huggingface", Rules(columns=columns, only="en/*"))
    assert "has several splits: hold, learn; choose one, such as pool.split: learn" in told
    found, _ = read_pool(folder, "huggingface", Rules(columns=columns, only="en/*", split="hold"))
    assert [example.array.tolist() for example in found] == [[float(i)] for i in range(20, 30)]
    assert len(read_pool(folder, "huggingface", Rules(columns=columns, only="nl/*"))[0]) == 10


def test_a_readme_without_configurations_changes_nothing(folder: Store) -> None:
    folder.write("a.parquet", parquet(rows(0, 10)))
    for text in (b"# Data", b"---\nlicense: mit\n---\n", b"---\n: [\n---", b"---\nconfigs: 3\n---"):
        folder.write("README.md", text)
        assert len(read_pool(folder, "huggingface", Rules(columns=Columns(array=("x",))))[0]) == 10
