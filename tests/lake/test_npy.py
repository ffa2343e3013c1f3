"""NumPy files: rows of one file in many shards, each reading its own bytes; and no header is believed."""

import io
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from encoded_files import npy, npz
from tables import read_pool

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Rules
from opacc_ray.lake.formats.npy import read_npy, read_npz
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


def test_shards_are_cut_by_bytes_too(folder: Store) -> None:
    folder.write("a.npy", npy(ROWS))
    plan = plan_shards(folder, "npy", 1000, shard_bytes=100 * 24)
    assert [shard.pieces[0].start for shard in plan.shards] == list(range(0, 1000, 100))


def test_a_file_larger_than_memory_allows_is_read_in_slices(folder: Store) -> None:
    folder.write("a.npy", npy(ROWS))
    found, bad = read_pool(folder, "npy", Rules(max_bytes=1000), shard_size=10)
    assert (len(found), bad) == (1000, [])


@pytest.mark.parametrize("content", [b"x", npy(ROWS)[:-1], npy(np.zeros((0, 3)))])
def test_a_file_without_sound_rows_is_left_to_its_reader(folder: Store, content: bytes) -> None:
    folder.write("a.npy", content)
    plan = plan_shards(folder, "npy", 100)
    assert (len(plan.shards), plan.num_examples) == (1, None)


def test_an_empty_id_is_a_bad_item(folder: Store) -> None:
    folder.write("a.npz", npz(x=np.zeros((2, 3)), ids=np.array(["a", ""])))
    found, bad = read_pool(folder, "npy")
    assert ([item.id for item in found], [item[:2] for item in bad]) == (["a"], [("a.npz:1", "its id is empty")])


# -- limits ----------------------------------------------------------------------------------------------------


def header(text: str, body: bytes = b"") -> bytes:
    padded = text.encode() + b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + body


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        np.asfortranarray(np.random.default_rng(0).normal(size=(5, 3))),
        np.array([["a", "ü"], ["", "long text"]]),
        np.array([True, False]),
        np.empty((0, 3), dtype=np.float32),
        np.arange(6, dtype=">i4").reshape(2, 3),
    ],
)
def test_arrays_come_back_as_they_were(array: np.ndarray) -> None:
    found = read_npy(npy(array), "a.npy")
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)
    for compressed in (False, True):
        archive = read_npz(npz(compressed, x=array, ids=np.arange(3)), "a.npz")
        assert set(archive) == {"x", "ids"}
        assert np.array_equal(archive["x"], array)


def test_nothing_is_allocated_by_the_header_alone() -> None:
    files = [
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (5000000, 0), }"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000,), }", b"x" * 80),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1000000), }", b"x" * 80),
        header("{'descr': '|S1500000000', 'fortran_order': False, 'shape': (1,), }", b"x" * 80),
        header("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", b"x" * 16),
        header("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,), }", b"x" * 16),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (-2,), }", b"x" * 16),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (2.5,), }", b"x" * 20),
        header("[" * 900),
        header("-" * 9000 + "1"),
        npy(np.arange(9))[:-3],
        npy(np.arange(9)) + b"more",
        b"",
        b"\x93NUMPY\x09\x00",
    ]
    tracemalloc.start()
    for content in files:
        with pytest.raises(DataError, match=r"^bad\.npy "):
            read_npy(content, "bad.npy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_array_above_the_limit_is_refused() -> None:
    with pytest.raises(DataError, match=r"announces 8000 bytes .* at most 7999 are read"):
        read_npy(npy(np.zeros(1000)), "big.npy", max_bytes=7999)


def test_archive_that_expands_a_thousand_times_is_refused() -> None:
    content = npz(True, x=np.zeros((100, 1 << 20), dtype=np.uint8))
    assert len(content) < 1 << 20
    with pytest.raises(DataError, match=r"x\.npy expands from \d+ to \d+ bytes, more than 200 times"):
        read_npz(content, "bomb.npz")
    with pytest.raises(DataError, match=r"has \d+ bytes of arrays, and at most 1000 are read"):
        read_npz(npz(x=np.zeros(200)), "big.npz", max_bytes=1000)


def test_member_is_not_believed_about_its_size() -> None:
    content = bytearray(npz(True, x=np.zeros(100_000)))
    central = content.rindex(b"PK\x01\x02")
    content[central + 24 : central + 28] = struct.pack("<I", 500)  # its size, in the directory
    with pytest.raises(DataError, match=r"^a\.npz"):
        read_npz(bytes(content), "a.npz")


def test_archive_with_two_arrays_of_one_name_is_refused() -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("x.npy", npy(np.arange(3)))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x.npy", npy(np.arange(3)))
    with pytest.raises(DataError, match="two arrays of one name"):
        read_npz(sink.getvalue(), "a.npz")
