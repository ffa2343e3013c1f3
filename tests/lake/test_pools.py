"""Pools in storage: plans from the listing alone, and files that are not what they say."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from encoded_files import image, npy, npz
from tables import read_pool

from opacc_ray.lake.examples import Ignored, Rules
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store_uris import Store


def test_images_are_cut_by_count_and_others_passed_over(folder: Store) -> None:
    for name in ("b.PNG", "a.png", "c/d.jpeg", "notes.txt", "e.jpg"):
        folder.write(name, b"x")
    plan = plan_shards(folder, "images", 3)
    assert [shard.keys for shard in plan.shards] == [("a.png", "b.PNG", "c/d.jpeg"), ("e.jpg",)]
    assert plan == plan_shards(folder, "images", 3)
    folder.write("a.png", b"changed")
    assert plan_shards(folder, "images", 3).digest != plan.digest


def test_what_is_not_read_is_counted_and_named(folder: Store, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.png", "b.avif", "c.AVIF", "d.avif", "e/f.avif", "README"):
        folder.write(name, b"x")
    plan = plan_shards(folder, "images", 3)
    assert plan.ignored == (Ignored(".avif", 4, ("b.avif", "c.AVIF", "d.avif")), Ignored("no suffix", 1, ("README",)))
    assert "4 x .avif (b.avif, c.AVIF, d.avif, ...), 1 x no suffix (README)" in caplog.text


def test_hidden_files_are_no_examples(folder: Store) -> None:
    for name in ("a.png", "_b/c.png", "d=_/.e=1/f.png", ".ipynb_checkpoints/g.png", "h/._a.png", "__MACOSX/i.png"):
        folder.write(name, b"x")
    plan = plan_shards(folder, "images", 10)
    assert [shard.keys for shard in plan.shards] == [("_b/c.png", "a.png", "d=_/.e=1/f.png")]
    assert str(plan.ignored[0]) == "3 x .png (.ipynb_checkpoints/g.png, __MACOSX/i.png, h/._a.png)"


def test_image_without_a_rule_or_too_large_is_a_bad_item(folder: Store) -> None:
    glass = np.full((4, 4, 4), 128, dtype=np.uint8)
    folder.write("a.png", image(np.zeros((4, 4), dtype=np.uint8), "PNG"))
    folder.write("glass.png", image(glass, "PNG"))
    folder.write("large.png", image(np.zeros((40, 40), dtype=np.uint8), "PNG"))
    folder.write("long.bmp", image(np.zeros((30, 30), dtype=np.uint8), "BMP"))
    found, bad = read_pool(folder, "images", Rules(max_pixels=1000, max_bytes=900))
    assert [example.id for example in found] == ["a.png"]
    assert [item.id for item in bad] == ["glass.png", "large.png", "long.bmp"]
    assert "set pool.alpha" in bad[0].reason
    assert bad[1].reason.startswith("40 x 40 pixels, and at most 1000 are read")
    assert bad[2].reason == f"{len(folder.read('long.bmp'))} bytes, and at most 900 are read"
    found, bad = read_pool(folder, "images", Rules(alpha="white"))
    assert (len(found), bad) == (4, [])
    found, bad = read_pool(folder, "images", Rules(alpha="white", max_bytes=len(folder.read("long.bmp"))))
    assert (len(found), bad) == (4, [])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not numpy", "is not a valid NumPy file"),
        (npy(np.arange(3)), "has shape (3,); store one example per row"),
        (npz(a=np.zeros((2, 2)), b=np.zeros((2, 2))), "has the arrays a, b; name that of the examples 'x'"),
        (npz(x=np.zeros((2, 2)), ids=np.array(["one"])), "2 rows and 1 ids"),
        (npz(x=np.zeros((2, 2)))[:-9], "rows.npz is not a valid .npz archive"),
        (npy(np.zeros((2, 0))), "its rows are empty"),
        (npy(np.zeros((200, 2000))), "3200128 bytes, and at most 2000000 are read"),
    ],
)
def test_array_file_that_cannot_be_used_is_a_bad_item(folder: Store, content: bytes, message: str) -> None:
    folder.write("rows.npz", content)
    found, bad = read_pool(folder, "npy", Rules(max_bytes=2_000_000))
    assert (found, [item.id for item in bad]) == ([], ["rows.npz"])
    assert message in bad[0].reason


def test_ids_from_files_are_distinguished_from_ids_from_keys(folder: Store) -> None:
    folder.write("made.npz", npz(x=np.zeros((2, 2))))
    folder.write("own.npz", npz(x=np.zeros((2, 2)), ids=np.array(["one", "two"])))
    found, _ = read_pool(folder, "npy")
    assert [(example.id, example.own_id) for example in found] == [
        ("made.npz:0", False),
        ("made.npz:1", False),
        ("one", True),
        ("two", True),
    ]


def test_the_time_of_the_data_is_that_of_the_newest_file(folder: Store) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    folder.write("a.npy", npy(np.zeros((2, 3))))
    found = plan_shards(folder, "npy", 10).data_as_of
    assert found is not None
    assert before <= found <= datetime.now(UTC) + timedelta(seconds=1)
