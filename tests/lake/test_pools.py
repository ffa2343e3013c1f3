"""Pools in storage: plans from the listing alone, and files that are not what they say."""

import io
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Shard
from opacc_ray.lake.pools import FORMATS, plan_shards, read_examples
from opacc_ray.lake.storage import Store, open_store
from opacc_ray.spec import PoolSpec


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def npz(**arrays: np.ndarray) -> bytes:
    sink = io.BytesIO()
    np.savez(sink, **arrays)
    return sink.getvalue()


def npy(array: np.ndarray) -> bytes:
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def test_images_are_cut_by_count_and_others_passed_over(store: Store) -> None:
    for name in ("b.PNG", "a.png", "c/d.jpeg", "notes.txt", "e.jpg"):
        store.write(name, b"x")
    plan = plan_shards(store, "images", 3)
    assert [shard.keys for shard in plan.shards] == [("a.png", "b.PNG", "c/d.jpeg"), ("e.jpg",)]
    assert plan == plan_shards(store, "images", 3)
    store.write("a.png", b"changed")
    assert plan_shards(store, "images", 3).digest != plan.digest


def test_one_array_file_is_one_shard(store: Store) -> None:
    for name in ("a.npy", "b.npz"):
        store.write(name, b"x")
    assert [shard.keys for shard in plan_shards(store, "npy", 1000).shards] == [("a.npy",), ("b.npz",)]


def test_empty_pool_says_what_it_looked_for(store: Store) -> None:
    store.write("notes.txt", b"x")
    with pytest.raises(DataError, match=r"holds no \.png or \.jpg or \.jpeg file among its 1 objects"):
        plan_shards(store, "images", 10)


def test_rows_have_ids_and_places(store: Store) -> None:
    store.write("rows.npy", npy(np.arange(12).reshape(3, 4)))
    found = read_examples(store, "npy", Shard(0, ("rows.npy",)))
    assert found.ids == ["rows.npy:0", "rows.npy:1", "rows.npy:2"]
    assert found.uris[2] == f"{store.uri}/rows.npy#row=2"
    assert [row.tolist() for row in found.arrays] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not numpy", "does not read as a NumPy file"),
        (npy(np.arange(3)), r"has shape \(3,\); give one example per row"),
        (npz(a=np.zeros((2, 2)), b=np.zeros((2, 2))), "holds the arrays a, b; name the examples 'x'"),
        (npz(x=np.zeros((2, 2)), ids=np.array(["one"])), "2 rows and 1 ids"),
    ],
)
def test_array_file_that_cannot_be_used(store: Store, content: bytes, message: str) -> None:
    store.write("rows.npz", content)
    with pytest.raises(DataError, match=message):
        read_examples(store, "npy", Shard(0, ("rows.npz",)))


def test_pickled_objects_are_not_loaded(store: Store, tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    sink = io.BytesIO()
    np.save(sink, np.array([[Attack()]], dtype=object), allow_pickle=True)
    store.write("rows.npy", sink.getvalue())
    with pytest.raises(DataError, match="does not read as a NumPy file"):
        read_examples(store, "npy", Shard(0, ("rows.npy",)))
    assert not (tmp_path / "owned").exists()


def test_ids_of_the_files_are_told_from_ids_made_of_keys(store: Store) -> None:
    store.write("made.npz", npz(x=np.zeros((2, 2))))
    store.write("own.npz", npz(x=np.zeros((2, 2)), ids=np.array(["one", "two"])))
    assert not read_examples(store, "npy", Shard(0, ("made.npz",))).own_ids
    own = read_examples(store, "npy", Shard(1, ("own.npz",)))
    assert (own.own_ids, own.ids) == (True, ["one", "two"])


def test_every_format_of_a_spec_has_a_reader() -> None:
    assert set(FORMATS) == set(get_args(PoolSpec.model_fields["format"].annotation))
