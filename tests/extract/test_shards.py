"""Files of features: columns return unchanged, reports describe the file, reads are partial; ids are unique."""

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from opacc_ray.errors import DataError
from opacc_ray.extract.shards import (
    FeatureFile,
    FeatureShard,
    Machine,
    digest_of,
    encode_shard,
    find_repeated,
    hashes_of,
    joined,
    read_report,
    read_table,
    report_on,
)
from opacc_ray.lake.examples import BadItem
from opacc_ray.lake.parquet_io import to_numpy
from opacc_ray.lake.store_uris import Store, open_store

RNG = np.random.default_rng(0)
MACHINE = Machine(processor="a chip", capability="AVX2", torch="2.9", opacc="0.3.0 (code 1a)", python="3.11")
COLUMNS = {
    "hidden": RNG.normal(size=(3, 5)).astype(np.float32),
    "confidence": RNG.random(3),
    "prediction": np.array([4, 0, 4]),
    "coverage": RNG.integers(0, 256, (3, 2), dtype=np.uint8),
}
SHARD = FeatureShard(["a", "b, c", "ü\n"], ["s3://x/a", "y", "z"], COLUMNS, [BadItem("d", "no image")])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def test_shard_comes_back_as_it_was(store: Store) -> None:
    data = encode_shard(SHARD, MACHINE)
    assert data == encode_shard(SHARD, MACHINE)
    store.write("a.parquet", data)
    table = read_table(store, FeatureFile("a.parquet", 3), ["id", "uri", *COLUMNS])
    assert (table["id"].to_pylist(), table["uri"].to_pylist()) == (SHARD.ids, SHARD.uris)
    for name, values in COLUMNS.items():
        found = to_numpy(table[name])
        assert np.array_equal(found, values)
        assert found.dtype == values.dtype


def test_only_the_wanted_columns_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    num = 2000
    columns = {
        "hidden": RNG.normal(size=(num, 512)).astype(np.float32),
        "prediction": RNG.integers(0, 10, num),
    }
    ids = [f"{i:06d}.png" for i in range(num)]
    shard = FeatureShard(ids, ids, columns, [])
    data = encode_shard(shard)
    report = report_on(shard, data, "a.parquet")
    store.write("a.parquet", data)
    asked: list[int] = []
    plain = type(store).read_range
    monkeypatch.setattr(type(store), "read_range", lambda own, key, a, b: asked.append(b - a) or plain(own, key, a, b))
    file = FeatureFile("a.parquet", num, report.size, report.footer_size)
    table = read_table(store, file, ["prediction"])
    assert np.array_equal(to_numpy(table["prediction"]), columns["prediction"])
    assert len(asked) == 2
    assert sum(asked) < 0.001 * len(data)
    asked.clear()
    read_table(store, file, ["id", "uri", "hidden", "prediction"])
    assert len(asked) == 2
    assert sum(asked) == len(data) - 4  # all but the format's name at the beginning


def test_flipped_bits_are_noticed(store: Store) -> None:
    hidden = RNG.normal(size=(60, 16)).astype(np.float32)
    names = [str(i) for i in range(60)]
    shard = FeatureShard(names, names, {"hidden": hidden}, [])
    data = encode_shard(shard)
    places = range(4, len(data) - report_on(shard, data, "a.parquet").footer_size, 17)
    noticed = unnoticed = 0
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        store.write("a.parquet", bytes(damaged))
        try:
            table = read_table(store, FeatureFile("a.parquet", 60), ["id", "uri", "hidden"])
        except DataError:
            noticed += 1
        else:
            same = table["id"].to_pylist() == table["uri"].to_pylist() == names
            unnoticed += not (same and np.array_equal(to_numpy(table["hidden"]), hidden))
    assert noticed > 0.9 * len(places)  # the rest are statistics, which are not read
    assert unnoticed <= 0.01 * len(places)  # a page's header has no checksum


@pytest.mark.slow
def test_a_flipped_bit_anywhere_is_noticed_without_an_index(store: Store) -> None:
    data = encode_shard(SHARD, MACHINE)
    end = report_on(SHARD, data, "a.parquet").footer_size
    noticed, noticed_at_the_end = [], []
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        store.write(key := f"{place}.parquet", bytes(damaged))  # a new file: to replace one waits for the disk
        for whole, found in ((True, noticed), (False, noticed_at_the_end)):
            try:
                read_report(store, key, len(data), whole=whole)
            except DataError:
                found.append(place)
    assert noticed == list(range(len(data)))
    assert noticed_at_the_end == list(range(len(data) - end, len(data)))


@pytest.mark.parametrize("data", [b"", b"PAR1 and no more", b"x" * 70_000, encode_shard(SHARD)[:-30]])
def test_damaged_file_is_named(data: bytes, store: Store) -> None:
    store.write("part-7.parquet", data)
    with pytest.raises(DataError, match=r"part-7\.parquet is not a shard of features \(.*\); run the spec again"):
        read_table(store, FeatureFile("part-7.parquet", 3), ["id"])
    with pytest.raises(DataError, match=r"part-7\.parquet is not a shard of features"):
        read_report(store, "part-7.parquet", len(data))


INVALID = [{"predicted": [1]}, {"predicted": {"x": 1}}, {"bad": [{}]}, {"bad": 3}, {"machine": "m"}, {"bad": [[1, 2]]}]


@pytest.mark.parametrize("said", INVALID)
def test_invalid_report_names_the_file(said: dict[str, Any], store: Store) -> None:
    data = encode_shard(SHARD)
    table = pq.read_table(io.BytesIO(data))
    report = json.loads(pq.read_metadata(io.BytesIO(data)).metadata[b"opacc"]) | said
    del report["end_sha256"]
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"opacc": json.dumps(report)}), sink)
    store.write("part-7.parquet", sink.getvalue())
    with pytest.raises(DataError, match=r"part-7\.parquet is not a shard of features"):
        read_report(store, "part-7.parquet", len(sink.getvalue()))


def test_batches_are_joined_if_they_are_alike() -> None:
    def batch(rows: int, width: int) -> dict[str, np.ndarray]:
        return {"output": np.ones((rows, width)), "prediction": np.ones(rows)}

    assert {name: found.shape for name, found in joined([batch(2, 3), batch(4, 3)]).items()} == {
        "output": (6, 3),
        "prediction": (6,),
    }
    assert joined([]) == {}
    with pytest.raises(DataError, match="output has 3 values for some examples and 4 for others; the model"):
        joined([batch(2, 4), batch(2, 3)])
    with pytest.raises(DataError, match="output has no value for any example; the model"):
        joined([batch(2, 0)])


def test_digest_is_of_ids_with_their_lengths() -> None:
    two = b"\x02" + b"\0" * 7
    assert digest_of(["ab", "ü"]) == hashlib.sha256(two + b"ab" + two + b"\xc3\xbc").hexdigest()
    assert digest_of(["ab", "c"]) != digest_of(["a", "bc"])
    assert digest_of(["a", "b"]) != digest_of(["b", "a"])


@pytest.mark.parametrize(
    ("shards", "expected"),
    [
        ([["a", "b"], ["c"]], None),
        ([["a", "b"], [], ["c", "b"]], "b"),
        ([["a", "b", "a"], ["b"]], "a"),
        ([["a"], ["b"], ["c", "c"]], "c"),
        ([[]], None),
    ],
)
def test_first_id_that_appears_twice_is_found(shards: Sequence[Sequence[str]], expected: str | None) -> None:
    asked: list[int] = []
    hashes = [hashes_of(own) for own in shards]
    assert find_repeated(hashes, lambda place: asked.append(place) or shards[place]) == expected
    assert (asked == []) == (expected is None)


def test_equal_hashes_of_different_ids_are_no_repetition() -> None:
    shards = [["a", "b"], ["c", "d"]]
    same = [np.array([7, 1], dtype=np.uint64), np.array([2, 7], dtype=np.uint64)]
    assert find_repeated(same, shards.__getitem__) is None
    shards[1][1] = "a"
    assert find_repeated(same, shards.__getitem__) == "a"
