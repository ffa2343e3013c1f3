"""Pools that are Lance tables, written by the lance package: versions, deleted rows, later columns, chosen rows."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tables import read_pool, refusal

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Columns, Example, Rules
from opacc_ray.lake.pools import newest_version, plan_shards, read_chosen
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.lake.table_logs import storage_options

X = Rules(columns=Columns(id="id", array=("x",)))
WITHOUT_IDS = Rules(columns=Columns(array=("x",)))


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    place = str(tmp_path) if request.param == "folder" else request.getfixturevalue("bucket")
    return open_store(f"{place}/table")


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return open_store(f"{tmp_path}/table")


def options(store: Store) -> dict[str, str]:
    return {name.lower(): value for name, value in storage_options(store).items()}


def write(store: Store, start: int, stop: int, rows_of_a_fragment: int = 4) -> lance.LanceDataset:
    numbers = range(start, stop)
    table = pa.table({"id": [*numbers], "x": [[float(i)] for i in numbers], "n": [i % 3 for i in numbers]})
    return lance.write_dataset(
        table, store.uri, mode="append", max_rows_per_file=rows_of_a_fragment, storage_options=options(store)
    )


def ids(store: Store, rules: Rules = X, shard_size: int = 100) -> list[int]:
    found, bad = read_pool(store, "lance", rules, shard_size)
    assert not bad
    assert [float(example.array[0]) for example in found] == [int(example.id) for example in found]
    return [int(example.id) for example in found]


def test_a_version_is_what_it_was(store: Store) -> None:
    write(store, 0, 10)
    table = write(store, 10, 15)
    table.delete("id in (1, 2, 12)")
    table.add_columns({"y": "n * 2"})
    assert ids(store) == [0, *range(3, 12), 13, 14]
    assert ids(store, X._replace(version=2)) == list(range(15))
    assert ids(store, X._replace(version=1)) == list(range(10))
    old = plan_shards(store, "lance", 100, rules=X._replace(version=1))
    assert (old.version, old.num_examples) == ("version 1", 10)
    assert newest_version(store, "lance", X._replace(version=1)) == "version 4"
    digests = [plan_shards(store, "lance", 100, rules=X._replace(version=number)).digest for number in (1, 2, 3, 4)]
    assert len(set(digests)) == 4, "a run must notice rows that were deleted, and columns that came"


def test_workers_read_the_version_that_was_planned(folder: Store) -> None:
    write(folder, 0, 10)
    [shard] = plan_shards(folder, "lance", 100, rules=X).shards
    lance.dataset(folder.uri).delete("id < 5")
    found = [item.id for item in read_chosen(folder, "lance", shard, {"2", "7"}, X)]
    assert found == ["2", "7"]


def test_a_fragment_is_cut_by_its_bytes(folder: Store) -> None:
    write(folder, 0, 1000, rows_of_a_fragment=1000)
    [whole] = plan_shards(folder, "lance", 10_000, rules=X).shards
    size = sum(entry.size for entry in whole.entries)
    parts = plan_shards(folder, "lance", 10_000, size // 4, rules=X).shards
    assert 4 <= len(parts) <= 5
    assert [shard.pieces[0].start for shard in parts[1:]] == [shard.pieces[0].stop for shard in parts[:-1]]
    assert parts[-1].pieces[0].stop == 1000


def test_a_fragment_is_cut_and_small_ones_are_put_together(folder: Store) -> None:
    write(folder, 0, 10, rows_of_a_fragment=10)
    write(folder, 10, 13)
    lance.dataset(folder.uri).delete("id = 4")
    for size in (1, 3, 4, 5, 100):
        shards = plan_shards(folder, "lance", size, rules=X).shards
        assert all(sum(piece.stop - piece.start for piece in shard.pieces) <= size for shard in shards)
        assert ids(folder, shard_size=size) == [i for i in range(13) if i != 4]


def test_ids_of_rows_stay_when_others_are_deleted(folder: Store) -> None:
    write(folder, 0, 6, rows_of_a_fragment=6)
    before = {float(item.array[0]): item.id for item in read_pool(folder, "lance", WITHOUT_IDS)[0]}
    lance.dataset(folder.uri).delete("id in (0, 3)")
    after = {float(item.array[0]): item.id for item in read_pool(folder, "lance", WITHOUT_IDS)[0]}
    assert after == {value: before[value] for value in (1.0, 2.0, 4.0, 5.0)}
    assert before[1.0].startswith("data/")
    assert before[1.0].endswith(".lance#1")


@pytest.mark.parametrize("rules", [X, WITHOUT_IDS], ids=["own ids", "ids of places"])
def test_chosen_rows_are_read_alone(rules: Rules, folder: Store) -> None:
    write(folder, 0, 12)
    lance.dataset(folder.uri).delete("id = 6")
    [shard] = plan_shards(folder, "lance", 100, rules=rules).shards
    every = [item for item in read_pool(folder, "lance", rules)[0] if item.array[0] in (2.0, 7.0, 11.0)]
    found = list(read_chosen(folder, "lance", shard, {item.id for item in every}, rules))
    assert [(item.id, item.uri) for item in found if isinstance(item, Example)] == [(i.id, i.uri) for i in every]


def test_a_filter_leaves_rows(store: Store) -> None:
    write(store, 0, 12)
    assert ids(store, X._replace(filter="n = 2 and id > 2")) == [5, 8, 11]
    assert plan_shards(store, "lance", 100, rules=X._replace(filter="n = 2")).num_examples is None


def test_columns_that_older_rows_lack_are_null(folder: Store) -> None:
    write(folder, 0, 4)
    lance.dataset(folder.uri).add_columns(pa.schema([("score", pa.float64())]))
    found, bad = read_pool(folder, "lance", Rules(columns=Columns(id="id", array=("score",))))
    assert (found, [item.reason for item in bad]) == ([], ["its score is null"] * 4)


def test_a_missing_table_or_version_is_one_sentence(folder: Store) -> None:
    assert refusal(folder, "lance", X) == f"there is no Lance table at {folder.uri}; check pool.uri and pool.format"
    write(folder, 0, 10)
    said = refusal(folder, "lance", X._replace(version=7))
    assert said == (
        f"the table {folder.uri} has no version 7 (the newest is 1); correct pool.version or pool.timestamp"
    )
    said = refusal(folder, "lance", X._replace(timestamp="2020-01-01T00:00:00Z"))
    assert "has no version at 2020-01-01T00:00:00Z (version 1, the oldest, was written at " in said
    assert ids(folder, X._replace(timestamp="2999-01-01")) == list(range(10))
    assert "has no column 'y'; it has id, x, n" in refusal(folder, "lance", Rules(columns=Columns(array=("y",))))
    lance.dataset(folder.uri).delete("id >= 0")
    assert f"version 2 of the table {folder.uri} has no row" in refusal(folder, "lance", X)
    first = next(entry.key for entry in folder.list() if entry.key.startswith("data/"))
    folder.delete(first)
    said = refusal(folder, "lance", X._replace(version=1))
    assert f"version 1 of the table {folder.uri} needs the file {first}, which is gone" in said


def test_a_damaged_file_is_named(folder: Store) -> None:
    write(folder, 0, 4)
    [key] = [entry.key for entry in folder.list() if entry.key.startswith("data/")]
    folder.write(key, folder.read(key)[:-20])
    [shard] = plan_shards(folder, "lance", 100, rules=X).shards
    with pytest.raises(DataError, match=r"\.lance is not valid Lance \(.*; restore it, or write it again$"):
        list(read_chosen(folder, "lance", shard, {"2"}, X))


def test_fields_of_structs_are_columns(tmp_path: Path) -> None:
    metas = [{"id": f"n{row}", "x": [row], "kind": "ab"[row % 2]} for row in range(6)]
    lance.write_dataset(pa.table({"meta": metas}), f"{tmp_path}/t")
    rules = Rules(columns=Columns(id="meta.id", array=("meta.x",)), filter="meta.kind like 'b' and meta.id <> 'n1'")
    found, bad = read_pool(open_store(f"{tmp_path}/t"), "lance", rules)
    assert [(example.id, example.array.tolist()) for example in found] == [("n3", [3]), ("n5", [5])]
    assert not bad
