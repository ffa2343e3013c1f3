"""Pools in storage: plans from the listing alone, and files that are not what they say."""

import io
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import deltalake
import lance
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyiceberg.catalog.sql import SqlCatalog

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import BadItem, Columns, Example, Ignored, Rules
from opacc_ray.lake.formats import FORMATS
from opacc_ray.lake.pools import DEFAULTS, plan_shards, read_examples
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.spec import PoolSpec


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def read(store: Store, kind: str, rules: Rules = DEFAULTS) -> tuple[list[Example], list[BadItem]]:
    """The examples and the bad items of a whole pool."""
    shards = plan_shards(store, kind, 100).shards
    items = [item for shard in shards for item in read_examples(store, kind, shard, rules)]
    return [item for item in items if isinstance(item, Example)], [item for item in items if isinstance(item, BadItem)]


def image(kind: str, pixels: np.ndarray, **options: object) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, format=kind, **options)
    return sink.getvalue()


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


def test_shards_are_cut_by_bytes_too(store: Store) -> None:
    for name, size in {"a.png": 40, "b.png": 40, "c.png": 30, "d.png": 200, "e.png": 1}.items():
        store.write(name, b"x" * size)
    plan = plan_shards(store, "images", 3, shard_bytes=80)
    assert [shard.keys for shard in plan.shards] == [("a.png", "b.png"), ("c.png",), ("d.png",), ("e.png",)]


def test_what_is_not_read_is_counted_and_named(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.png", "b.avif", "c.AVIF", "d.avif", "e/f.avif", "README"):
        store.write(name, b"x")
    plan = plan_shards(store, "images", 3)
    assert plan.ignored == (Ignored(".avif", 4, ("b.avif", "c.AVIF", "d.avif")), Ignored("no suffix", 1, ("README",)))
    assert "4 x .avif (b.avif, c.AVIF, d.avif, ...), 1 x no suffix (README)" in caplog.text


def test_hidden_files_are_no_examples(store: Store) -> None:
    for name in ("a.png", "_b/c.png", "d=_/.e=1/f.png", ".ipynb_checkpoints/g.png", "h/._a.png", "__MACOSX/i.png"):
        store.write(name, b"x")
    plan = plan_shards(store, "images", 10)
    assert [shard.keys for shard in plan.shards] == [("_b/c.png", "a.png", "d=_/.e=1/f.png")]
    assert str(plan.ignored[0]) == "3 x .png (.ipynb_checkpoints/g.png, __MACOSX/i.png, h/._a.png)"


def test_the_error_for_an_empty_pool_names_the_files_it_needs(store: Store) -> None:
    store.write("notes.txt", b"x")
    with pytest.raises(DataError, match=r"holds no \.png or .* file; it holds 1 x \.txt \(notes\.txt\)"):
        plan_shards(store, "images", 10)


def test_image_formats_are_read_as_what_they_hold(store: Store) -> None:
    colour = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    deep = np.arange(30, dtype=np.uint16).reshape(6, 5) * 2000
    for suffix, kind in {"bmp": "BMP", "png": "PNG", "tif": "TIFF", "tiff": "TIFF"}.items():
        store.write(f"{suffix}.{suffix}", image(kind, colour))
    store.write("deep.png", image("PNG", deep))
    store.write("exact.webp", image("WEBP", colour, lossless=True))
    store.write("photo.WEBP", image("WEBP", np.full((6, 5, 3), 200, dtype=np.uint8), quality=80))
    frames = [np.full((6, 5), grey, dtype=np.uint8) for grey in (7, 90)]
    store.write("two.gif", image("GIF", frames[0], save_all=True, append_images=[Image.fromarray(frames[1])]))
    found, bad = read(store, "images")
    arrays = {example.id: example.array for example in found}
    assert not bad
    assert all(np.array_equal(arrays[f"{suffix}.{suffix}"], colour) for suffix in ("bmp", "png", "tif", "tiff"))
    assert arrays["deep.png"].dtype == np.uint16
    assert np.array_equal(arrays["deep.png"], deep)
    assert np.array_equal(arrays["exact.webp"], colour)
    assert np.abs(arrays["photo.WEBP"].astype(int) - 200).max() <= 2  # lossy
    assert (arrays["two.gif"] == 7).all(), "the first frame is the example"


def test_image_without_a_rule_or_too_large_is_a_bad_item(store: Store) -> None:
    glass = np.full((4, 4, 4), 128, dtype=np.uint8)
    store.write("a.png", image("PNG", np.zeros((4, 4), dtype=np.uint8)))
    store.write("glass.png", image("PNG", glass))
    store.write("large.png", image("PNG", np.zeros((40, 40), dtype=np.uint8)))
    store.write("long.bmp", image("BMP", np.zeros((30, 30), dtype=np.uint8)))
    found, bad = read(store, "images", Rules(max_pixels=1000, max_bytes=900))
    assert [example.id for example in found] == ["a.png"]
    assert [item.id for item in bad] == ["glass.png", "large.png", "long.bmp"]
    assert "set pool.alpha" in bad[0].reason
    assert bad[1].reason.startswith("40 x 40 pixels, and pool.max_pixels is 1000")
    assert bad[2].reason == f"{len(store.read('long.bmp'))} bytes, and pool.max_bytes is 900"
    found, bad = read(store, "images", Rules(alpha="white"))
    assert (len(found), bad) == (4, [])
    found, bad = read(store, "images", Rules(alpha="white", max_bytes=len(store.read("long.bmp"))))
    assert (len(found), bad) == (4, [])


def test_rows_have_ids_and_places(store: Store) -> None:
    store.write("rows.npy", npy(np.arange(12).reshape(3, 4)))
    found, _ = read(store, "npy")
    assert [example.id for example in found] == ["rows.npy:0", "rows.npy:1", "rows.npy:2"]
    assert found[2].uri == f"{store.uri}/rows.npy#row=2"
    assert [example.array.tolist() for example in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not numpy", "is not a valid NumPy file"),
        (npy(np.arange(3)), "has shape (3,); store one example per row"),
        (npz(a=np.zeros((2, 2)), b=np.zeros((2, 2))), "has the arrays a, b; name that of the examples 'x'"),
        (npz(x=np.zeros((2, 2)), ids=np.array(["one"])), "2 rows and 1 ids"),
        (npz(x=np.zeros((2, 2)))[:-9], "rows.npz is not a valid .npz archive"),
        (npy(np.zeros((2, 0))), "its rows are empty"),
        (npy(np.zeros((200, 2000))), "3200128 bytes, and pool.max_bytes is 2000000"),
    ],
)
def test_array_file_that_cannot_be_used_is_a_bad_item(store: Store, content: bytes, message: str) -> None:
    store.write("rows.npz", content)
    found, bad = read(store, "npy", Rules(max_bytes=2_000_000))
    assert (found, [item.id for item in bad]) == ([], ["rows.npz"])
    assert message in bad[0].reason


def test_pickled_objects_are_not_loaded(store: Store, tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    sink = io.BytesIO()
    np.save(sink, np.array([[Attack()]], dtype=object), allow_pickle=True)
    store.write("rows.npy", sink.getvalue())
    _, [bad] = read(store, "npy")
    assert "store numbers, booleans or short text" in bad.reason
    assert not (tmp_path / "owned").exists()


def test_ids_from_files_are_distinguished_from_ids_from_keys(store: Store) -> None:
    store.write("made.npz", npz(x=np.zeros((2, 2))))
    store.write("own.npz", npz(x=np.zeros((2, 2)), ids=np.array(["one", "two"])))
    found, _ = read(store, "npy")
    assert [(example.id, example.own_id) for example in found] == [
        ("made.npz:0", False),
        ("made.npz:1", False),
        ("one", True),
        ("two", True),
    ]


def test_every_format_of_a_spec_has_a_reader() -> None:
    assert set(FORMATS) == set(get_args(PoolSpec.model_fields["format"].annotation))


def test_the_time_of_the_data_is_that_of_the_newest_file(store: Store) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    store.write("a.npy", npy(np.zeros((2, 3))))
    found = plan_shards(store, "npy", 10).data_as_of
    assert found is not None
    assert before <= found <= datetime.now(UTC) + timedelta(seconds=1)


@pytest.mark.parametrize("kind", ["delta", "iceberg", "lance"])
def test_the_time_of_the_data_of_a_table_is_that_of_its_version(kind: str, tmp_path: Path) -> None:
    """Of an earlier version its own, not that of the newest files."""
    place, rows, marks = str(tmp_path / "table"), pa.table({"id": ["a"], "array": [[1.0, 2.0]]}), []
    catalog = SqlCatalog("c", uri="sqlite://", warehouse=str(tmp_path))
    for version in range(2):
        time.sleep(0.02)
        if kind == "delta":
            deltalake.write_deltalake(place, rows, mode="append")
        elif kind == "lance":
            lance.write_dataset(rows, place, mode="append" if version else "create")
        else:
            if not version:
                catalog.create_namespace("n")
                catalog.create_table("n.t", rows.schema, location=place)
            catalog.load_table("n.t").append(rows)
        marks.append(datetime.now(UTC))
    first = {"delta": 0, "lance": 1}.get(kind)
    if first is None:
        first = catalog.load_table("n.t").history()[0].snapshot_id
    columns = Columns(array=("array",))
    old, new = (
        plan_shards(open_store(place), kind, 10, rules=Rules(columns=columns, version=version)).data_as_of
        for version in (first, None)
    )
    assert old is not None
    assert new is not None
    assert old < marks[0] < new < marks[1]
