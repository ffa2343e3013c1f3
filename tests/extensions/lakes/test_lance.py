"""Pools that are Lance tables, written by the lance package: deleted rows, later columns, damage."""

import lance
import pyarrow as pa
from tables import read_pool, refusal

from opacc_ray.extensions.lakes.catalogs import storage_options
from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.pools import plan_shards, read_chosen
from opacc_ray.lake.store_uris import Store

X = Rules(columns=Columns(id="id", array=("x",)))
WITHOUT_IDS = Rules(columns=Columns(array=("x",)))


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


def test_deleted_rows_and_later_columns_are_other_versions(store: Store) -> None:
    write(store, 0, 10)
    table = write(store, 10, 15)
    table.delete("id in (1, 2, 12)")
    table.add_columns({"y": "n * 2"})
    assert ids(store) == [0, *range(3, 12), 13, 14]
    digests = [plan_shards(store, "lance", 100, rules=X._replace(version=number)).digest for number in (1, 2, 3, 4)]
    assert len(set(digests)) == 4, "a run must notice rows that were deleted, and columns that came"


def test_workers_read_the_version_that_was_planned(folder: Store) -> None:
    write(folder, 0, 10)
    [shard] = plan_shards(folder, "lance", 100, rules=X).shards
    lance.dataset(folder.uri).delete("id < 5")
    found = [item.id for item in read_chosen(folder, "lance", shard, {"2", "7"}, X)]
    assert found == ["2", "7"]


def test_places_are_ids_whatever_was_deleted(folder: Store) -> None:
    write(folder, 0, 12)
    before = {example.id: float(example.array[0]) for example in read_pool(folder, "lance", WITHOUT_IDS)[0]}
    lance.dataset(folder.uri).delete("id = 6")
    after = {example.id: float(example.array[0]) for example in read_pool(folder, "lance", WITHOUT_IDS)[0]}
    assert after == {id: value for id, value in before.items() if value != 6}


def test_columns_that_older_rows_lack_are_null(folder: Store) -> None:
    write(folder, 0, 4)
    lance.dataset(folder.uri).add_columns(pa.schema([("score", pa.float64())]))
    found, bad = read_pool(folder, "lance", Rules(columns=Columns(id="id", array=("score",))))
    assert (found, [item.reason for item in bad]) == ([], ["its score is null"] * 4)


def test_a_version_without_rows_is_refused(folder: Store) -> None:
    write(folder, 0, 10)
    lance.dataset(folder.uri).delete("id >= 0")
    assert f"version 2 of the table {folder.uri} has no row" in refusal(folder, "lance", X)
