"""Pools of tar files, made by the webdataset library: keys, extensions, and tar files that break off."""

import gzip
import io
import tarfile

import numpy as np
import pytest
import webdataset
from encoded_files import grey, tar
from tables import read_pool

from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.formats import webdataset as webdataset_format
from opacc_ray.lake.formats.webdataset import UnsortedError
from opacc_ray.lake.pools import plan_shards, read_examples
from opacc_ray.lake.store_uris import Store


def samples(start: int, stop: int, **more: object) -> bytes:
    sink = io.BytesIO()
    with webdataset.TarWriter(sink) as writer:
        for i in range(start, stop):
            picture = np.full((6, 5, 3), i, np.uint8)
            writer.write({"__key__": f"train/{i:04d}", "cls": i % 3, "png": picture, "seg.png": 0 * picture} | more)
    return sink.getvalue()


def test_samples_are_read_in_the_order_of_the_tar(store: Store) -> None:
    store.write("a-000.tar", samples(0, 20))
    store.write("a-001.tar", samples(20, 30))
    plan = plan_shards(store, "webdataset", 5)
    assert [shard.keys for shard in plan.shards] == [("a-000.tar",), ("a-001.tar",)]
    found, bad = read_pool(store, "webdataset")
    assert not bad
    assert [int(example.array[0, 0, 0]) for example in found] == list(range(30))
    assert (found[25].id, found[25].uri) == ("a-001.tar/train/0025", f"{store.uri}/a-001.tar#train/0025.png")


def test_the_extension_may_be_named(folder: Store) -> None:
    folder.write("a.tar", samples(1, 4, npy=np.arange(4.0)))
    found, _ = read_pool(folder, "webdataset", Rules(columns=Columns(image="seg.png")))
    assert [example.array.max() for example in found] == [0, 0, 0]
    found, _ = read_pool(folder, "webdataset", Rules(columns=Columns(array=("npy",))))
    assert [example.array.tolist() for example in found] == [[0, 1, 2, 3]] * 3
    _, bad = read_pool(folder, "webdataset", Rules(columns=Columns(image="jpg")))
    assert tuple(bad[0])[:2] == (
        "a.tar/train/0001",
        "it has no member jpg, only cls, npy, png, seg.png; if that comes later, sort the tar file by name",
    )


@pytest.mark.parametrize("kept", [10, 1000, 1536, 10 * 1024, -10240])
def test_a_truncated_tar_is_a_bad_item_after_its_examples(folder: Store, kept: int) -> None:
    whole = samples(0, 20)
    folder.write("a.tar", whole[:kept])
    [shard] = plan_shards(folder, "webdataset", 5).shards
    items = list(read_examples(folder, "webdataset", shard))
    assert items[-1].id == "a.tar"
    assert f"is cut short after {len(items) - 1} examples" in items[-1].reason
    assert items[-1].reason.endswith("; write it again")
    assert len(items) - 1 < 20 or kept == -10240


def test_a_tar_that_ends_between_two_members_is_noticed(folder: Store) -> None:
    whole = tar(*((f"{i}.npy", b"") for i in range(4)))
    folder.write("a.tar", whole[: 3 * 512])
    _, bad = read_pool(folder, "webdataset")
    assert bad[-1].id == "a.tar"
    assert "it has no end" in bad[-1].reason


def test_a_member_with_holes_is_refused_before_they_take_memory(folder: Store) -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as file:
        info = tarfile.TarInfo("a.png")
        info.size = 512
        sparse = {"major": "1", "minor": "0", "name": "a.png", "realsize": str(4 << 30)}
        info.pax_headers = {f"GNU.sparse.{key}": value for key, value in sparse.items()}
        file.addfile(info, io.BytesIO(b"0\n".ljust(512, b"\0")))
    folder.write("a.tar", sink.getvalue())
    found, [bad] = read_pool(folder, "webdataset")
    assert (found, bad.id) == ([], "a.tar")
    assert "is cut short after 0 examples (a.png is sparse)" in bad.reason


def test_members_that_cannot_be_used_are_bad_items(folder: Store) -> None:
    content = tar(("a.png", b"no image"), ("b.txt", b"x"), ("c.npy", b"no array"), ("d.png", b"x" * 3000))
    folder.write("a.tar", content)
    found, bad = read_pool(folder, "webdataset", Rules(max_bytes=2000))
    assert not found
    assert [item.id for item in bad] == ["a.tar/a", "a.tar/b", "a.tar/c", "a.tar/d"]
    assert "not an image in" in bad[0].reason
    assert "only txt;" in bad[1].reason
    assert "is not a valid NumPy file" in bad[2].reason
    assert bad[3].reason == "d.png has 3000 bytes, and at most 2000 are read"


@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz"])
def test_compressed_tar_files_are_read_as_plain_ones(suffix: str, store: Store) -> None:
    store.write("a-000.tar", samples(0, 10))
    store.write(f"a-001{suffix}", gzip.compress(samples(10, 20)))
    found, bad = read_pool(store, "webdataset")
    assert not bad
    assert [int(example.array[0, 0, 0]) for example in found] == list(range(20))
    assert found[12].id == f"a-001{suffix}/train/0012"


def test_a_compressed_tar_file_that_is_damaged_is_a_bad_item(folder: Store) -> None:
    whole = gzip.compress(samples(0, 10))
    cut = gzip.compress(samples(0, 10)[:3000])
    flipped = whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:]
    for name, content in (("cut", cut), ("torn", whole[: len(whole) // 2]), ("flipped", flipped), ("none", b"x" * 100)):
        folder.write(f"{name}.tar.gz", content)
    _, bad = read_pool(folder, "webdataset")
    assert [item.id for item in bad] == ["cut.tar.gz", "flipped.tar.gz", "none.tar.gz", "torn.tar.gz"]
    assert all("the tar file is cut short after" in item.reason for item in bad)


PNG, JSON = [f"{i}.png" for i in range(6)], [f"{i}.json" for i in range(6)]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["x.png", "x.cls", "x.png", "x.cls", "y.png"], r"holds 'x\.png' twice"),
        (["x.png", "y.png", "x.PNG"], r"holds 'x\.PNG' twice"),
        (["x.png", "x.cls", "x.cls"], r"holds 'x\.cls' twice"),
        (PNG + JSON, r"is not sorted: '0\.json' comes after members of '5'.*sort the members by name"),
        (JSON + PNG, r"is not sorted: '0\.png' comes after members of '5'.*sort the members by name"),
    ],
)
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_members_that_make_no_whole_examples_are_refused(
    folder: Store, names: list[str], reason: str, suffix: str
) -> None:
    content = tar(*((name, grey(7)) for name in names))
    folder.write(f"a{suffix}", content if suffix == ".tar" else gzip.compress(content))
    [shard] = plan_shards(folder, "webdataset", 5).shards
    for read in (read_examples(folder, "webdataset", shard), webdataset_format.keys(folder, shard.entries[0])):
        with pytest.raises(UnsortedError, match=rf"a{suffix} {reason}"):
            list(read)
