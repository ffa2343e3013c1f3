"""Pools of Parquet files: plans from footers alone, ids that stay, filters, and what does not fit."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from encoded_files import grey
from tables import parquet, read_pool, refusal

from opacc_ray.errors import DataError
from opacc_ray.lake import parquet_io
from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.pools import plan_shards, read_examples
from opacc_ray.lake.store_uris import Store, open_store

X = Rules(columns=Columns(array=("x",)))


def numbers(start: int, stop: int) -> pa.Table:
    rows = np.arange(start, stop)
    x = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(rows, 3).astype(np.float32)), 3)
    return pa.table({"x": x, "name": [f"n{row}" for row in rows], "score": rows / 100})


def test_one_large_file_is_many_shards_and_small_files_are_one(store: Store) -> None:
    store.write("a/large.parquet", parquet(numbers(0, 1000), row_group_size=100))
    store.write("b.parquet", parquet(numbers(1000, 1010)))
    store.write("c.parquet", parquet(numbers(1010, 1020)))
    store.write("_metadata/x.parquet", b"not read")
    plan = plan_shards(store, "parquet", 250, rules=X)
    assert [[(p.entry.key, p.start, p.stop) for p in shard.pieces] for shard in plan.shards] == [
        [("a/large.parquet", 0, 2)],
        [("a/large.parquet", 2, 4)],
        [("a/large.parquet", 4, 6)],
        [("a/large.parquet", 6, 8)],
        [("a/large.parquet", 8, 10)],
        [("b.parquet", 0, 1), ("c.parquet", 0, 1)],
    ]
    assert (plan.num_examples, [entry.key for entry in plan.entries]) == (
        1020,
        ["a/large.parquet", "b.parquet", "c.parquet"],
    )
    found, bad = read_pool(store, "parquet", X, 250)
    assert not bad
    assert [example.array[0] for example in found] == list(range(1020))
    assert (found[999].id, found[1000].id) == ("a/large.parquet#999", "b.parquet#0")
    assert found[999].uri == f"{store.uri}/a/large.parquet#row=999"


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("n = 4", [0]),
        ("n = 7", []),
        ("n != 4", [0, 1]),
        ("n > 5", [1]),
        ("n >= 5", [0, 1]),
        ("n < 1", []),
        ("n in (0, 5)", [0]),
        ("n is null", [0]),
        ("not (n > 5 or n < 10)", []),
        ("n > 5 and (other = 1 or other > 1)", [1]),
        ("n > 4.5 and n < 10.0000000001", [0, 1]),
        ("s >= 'n' or s = 'b_'", [0, 1]),
        ("x > 2", [0, 1]),  # NaN, which statistics leave out
        ("x < 1", []),
        ("e = 1", [1]),
        ("m.n is not null and m.n <= 2", [0]),
        ("day = '2026-01-05' and n = 11", [1]),
        ("day > '2026-01-05' or n = 11", [1]),
        ("day = '2026-01-06'", []),
    ],
)
def test_row_groups_without_a_row_that_the_filter_keeps_are_not_read(
    text: str, groups: list[int], folder: Store
) -> None:
    table = {
        "n": [1, None, 5, 10, 11, 20],
        "s": ["a", "b", "c", "l", "m", "n"],
        "x": [1.0, float("nan"), 1.0] * 2,
        "e": pa.array([None, None, None, None, 1, 2]),
        "m": [{"n": number} for number in range(6)],
        "other": range(6),
    }
    folder.write("day=2026-01-05/a.parquet", parquet(pa.table(table), row_group_size=3))
    rules = Rules(columns=Columns(array=("other",)), filter=text)
    if not groups:
        assert "excludes all of its" in refusal(folder, "parquet", rules)
        return
    [shard] = plan_shards(folder, "parquet", 100, rules=rules).shards
    assert [number for piece in shard.pieces for number in range(piece.start, piece.stop)] == groups


def test_folders_are_columns_and_a_filter_on_them_opens_no_other_file(folder: Store) -> None:
    for day in (1, 2, 3):
        folder.write(f"day={day}/kind=a%20b/part.parquet", parquet(numbers(10 * day, 10 * day + 10)))
    folder.write("day=4/kind=c/part.parquet", b"this file is never opened")
    rules = X._replace(filter="day in (2, 3) and kind = 'a b' and score < 0.32")
    plan = plan_shards(folder, "parquet", 5, rules=rules)
    assert [entry.key for entry in plan.entries] == ["day=2/kind=a%20b/part.parquet", "day=3/kind=a%20b/part.parquet"]
    assert [example.array[0] for example in read_pool(folder, "parquet", rules)[0]] == [*range(20, 30), 30, 31]
    assert plan_shards(folder, "parquet", 5, rules=X._replace(filter="day = 2")).num_examples == 10


def test_images_are_bytes_or_what_hugging_face_makes_of_them(folder: Store) -> None:
    levels = [grey(level) for level in (10, 20)]
    struct = pa.array([{"bytes": data, "path": None} for data in levels])
    folder.write("a.parquet", parquet(pa.table({"image": pa.array(levels), "hf": struct, "key": [7, 8]})))
    for column in ("image", "hf"):
        found, bad = read_pool(folder, "parquet", Rules(columns=Columns(id="key", image=column)))
        assert not bad
        assert [(example.id, int(example.array[0, 0]), example.own_id) for example in found] == [
            ("7", 10, True),
            ("8", 20, True),
        ]


def test_named_images_are_read_from_the_pool_and_from_s3_alone(bucket: str, tmp_path: Path) -> None:
    store = open_store(bucket)
    store.write("images/a.png", grey(10))
    store.write("b.png", grey(20))
    (tmp_path / "secret.png").write_bytes(grey(30))
    uris = [
        "images/a.png",
        f"{bucket}/b.png",
        str(tmp_path / "secret.png"),
        "../x.png",
        "c.png",
        None,
        "http://x/y.png",
    ]
    store.write("index.parquet", parquet(pa.table({"uri": uris})))
    found, bad = read_pool(store, "parquet", Rules(columns=Columns(uri="uri")))
    assert [(int(example.array[0, 0]), example.uri) for example in found] == [
        (10, f"{bucket}/images/a.png"),
        (20, f"{bucket}/b.png"),
    ]
    assert [item.id for item in bad] == [f"index.parquet#{row}" for row in (2, 3, 4, 5, 6)]
    reasons = [item.reason for item in bad]
    assert "neither at s3:// nor below" in reasons[0]
    assert "is not a key below" in reasons[1]
    assert reasons[2] == f"there is no object {bucket}/c.png"
    assert reasons[3] == "its uri is null"


def test_named_images_are_not_read_through_symbolic_links(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(grey(30))
    store = open_store(str(tmp_path / "pool"))
    store.write("real/a.png", grey(10))
    (tmp_path / "pool" / "link.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "pool" / "out").symlink_to(tmp_path)
    store.write("index.parquet", parquet(pa.table({"uri": ["real/a.png", "link.png", "out/secret.png"]})))
    rules = Rules(columns=Columns(uri="uri"))
    found, bad = read_pool(store, "parquet", rules)
    assert [int(example.array[0, 0]) for example in found] == [10]
    assert all("is a symbolic link; give the file itself, or set" in item.reason for item in bad)
    assert len(bad) == 2
    found, _ = read_pool(open_store(store.uri, follow_links=True), "parquet", rules)
    assert [int(example.array[0, 0]) for example in found] == [10, 30, 30]


def test_arrays_are_nested_lists_or_columns_of_numbers(folder: Store) -> None:
    nested = [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [1, 1, 1]]]
    table = pa.table({"nested": nested, "ragged": [[1.0], [1.0, 2.0]], "a": [1, 2], "b": [0.5, 1.5]})
    folder.write("a.parquet", parquet(table))
    for names, wanted in {
        ("nested",): nested,
        ("ragged",): [[1.0], [1.0, 2.0]],
        ("a", "b"): [[1.0, 0.5], [2.0, 1.5]],
    }.items():
        found, _ = read_pool(folder, "parquet", Rules(columns=Columns(array=names)))
        assert [example.array.tolist() for example in found] == wanted
    with pytest.raises(
        DataError, match=r"each of several columns must hold one number per row, and 'nested' is list.*; give one"
    ):
        read_pool(folder, "parquet", Rules(columns=Columns(array=("nested", "a"))))


def test_nulls_are_bad_items_with_their_reasons(folder: Store) -> None:
    table = pa.table({"id": ["p", None, "r"], "image": [grey(1), grey(2), None], "x": [[1.0], None, [2.0]]})
    folder.write("a.parquet", parquet(table))
    found, bad = read_pool(folder, "parquet", Rules(columns=Columns(id="id", image="image")))
    assert [example.id for example in found] == ["p"]
    assert [(item.id, item.reason) for item in bad] == [("a.parquet#1", "its id is null"), ("r", "its image is null")]
    found, bad = read_pool(folder, "parquet", X)
    assert [example.array.tolist() for example in found] == [[1.0], [2.0]]
    assert [(item.id, item.reason) for item in bad] == [("a.parquet#1", "its x is null")]


def test_what_does_not_fit_is_one_sentence(folder: Store) -> None:
    folder.write("a.parquet", parquet(numbers(0, 10)))
    with pytest.raises(DataError, match=r"pool.columns.uri: 'score' is .*; choose a column of text"):
        read_pool(folder, "parquet", X._replace(columns=Columns(uri="score", array=("x",))))
    folder.write("b.parquet", parquet(numbers(0, 10).set_column(0, "x", pa.array([{"a": 1.0}] * 10))))
    said = refusal(folder, "parquet", X)
    assert "b.parquet has 'x' as struct<a: double>, and other files, such as a.parquet, as fixed_size_list<" in said
    assert said.endswith("no type holds both; write the files with one schema")
    folder.delete("b.parquet")
    folder.write("day=1/a.parquet", parquet(numbers(0, 10)))
    folder.delete("a.parquet")
    assert "pool.filter 'day = 2' excludes all of its files" in refusal(folder, "parquet", X._replace(filter="day = 2"))


@pytest.mark.slow
def test_a_row_group_of_images_is_streamed_in_bounded_memory(folder: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_io, "HELD_BYTES", 1 << 20)
    monkeypatch.setattr(parquet_io, "BATCH_BYTES", 1 << 20)
    rng = np.random.default_rng(0)
    rows = [rng.bytes(200_000) for _ in range(200)]
    pages = {"use_dictionary": False, "write_batch_size": 1, "data_page_size": 1 << 20}
    folder.write("a.parquet", parquet(pa.table({"image": rows}), row_group_size=200, **pages))
    rules = Rules(columns=Columns(image="image"))
    shard = plan_shards(folder, "parquet", 1000, rules=rules).shards[0]
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    most = count = 0
    for item in read_examples(folder, "parquet", shard, rules):
        count += 1
        assert "not an image in" in item.reason
        most = max(most, tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before)
    tracemalloc.stop()
    assert count == 200
    assert most < 10 << 20  # of 40 MB


@pytest.mark.parametrize("make", [lambda blob: blob, lambda blob: {"bytes": blob, "path": None}])
def test_one_image_that_thousands_of_rows_hold_takes_its_bytes_once(
    folder: Store, make: Callable[[bytes], object]
) -> None:
    blob = np.random.default_rng(0).bytes(100_000)
    folder.write("a.parquet", parquet(pa.table({"image": [make(blob)] * 1000})))
    assert folder.list()[0].size < 200_000
    rules = Rules(columns=Columns(image="image"))
    shard = plan_shards(folder, "parquet", 1000, rules=rules).shards[0]
    before = pa.total_allocated_bytes()
    most = [pa.total_allocated_bytes() - before for _ in read_examples(folder, "parquet", shard, rules)]
    assert len(most) == 1000
    assert max(most) < 10 << 20  # of 100 MB
