"""Pools of NumPy files: rows of one file in many shards, each reading its own bytes."""

import numpy as np
import pytest
from encoded_files import npy, npz
from tables import read_pool

from opacc_ray.lake.examples import Rules
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store_uris import Store

ROWS = np.arange(1000 * 6, dtype=np.int32).reshape(1000, 2, 3)


def test_rows_of_one_file_are_many_shards(store: Store) -> None:
    store.write("a.npy", npy(ROWS))
    store.write("b.npy", npy(ROWS[:5]))
    plan = plan_shards(store, "npy", 300)
    assert [[(piece.start, piece.stop) for piece in shard.pieces] for shard in plan.shards] == [
        [(0, 300)],
        [(300, 600)],
        [(600, 900)],
        [(900, 1000)],
        [(0, 5)],
    ]
    assert (plan.num_examples, len(plan.entries)) == (1005, 2)
    found, bad = read_pool(store, "npy", shard_size=300)
    assert not bad
    assert np.array_equal(np.stack([example.array for example in found[:1000]]), ROWS)
    assert (found[700].id, found[700].uri) == ("a.npy:700", f"{store.uri}/a.npy#row=700")


def test_shards_are_cut_by_bytes_too(store: Store) -> None:
    store.write("a.npy", npy(ROWS))
    plan = plan_shards(store, "npy", 1000, shard_bytes=100 * 24)
    assert [shard.pieces[0].start for shard in plan.shards] == list(range(0, 1000, 100))


def test_a_file_larger_than_memory_allows_is_read_in_slices(store: Store) -> None:
    store.write("a.npy", npy(ROWS))
    found, bad = read_pool(store, "npy", Rules(max_bytes=1000), shard_size=10)
    assert (len(found), bad) == (1000, [])


@pytest.mark.parametrize("content", [b"x", npy(ROWS)[:-1], npy(np.zeros((0, 3)))])
def test_a_file_without_sound_rows_is_left_to_its_reader(store: Store, content: bytes) -> None:
    store.write("a.npy", content)
    plan = plan_shards(store, "npy", 100)
    assert (len(plan.shards), plan.num_examples) == (1, None)


def test_an_empty_id_is_a_bad_item(store: Store) -> None:
    store.write("a.npz", npz(x=np.zeros((2, 3)), ids=np.array(["a", ""])))
    found, bad = read_pool(store, "npy")
    assert ([item.id for item in found], [item[:2] for item in bad]) == (["a"], [("a.npz:1", "its id is empty")])
