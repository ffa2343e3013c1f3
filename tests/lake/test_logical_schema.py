"""One logical schema for all files of a pool: nested columns, ids of every type, structs as arrays, common types."""

import datetime
import logging
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from tables import parquet, read_pool, refusal

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.logical_schema import common_type
from opacc_ray.lake.store_uris import Store

X = Columns(id="id", array=("x",))
NOON = datetime.datetime(2026, 1, 31, 12)


def ids(folder: Store, values: pa.Array, *more: pa.Array) -> list[str]:
    columns = {f"id{number}": column for number, column in enumerate((values, *more))}
    folder.write("a.parquet", parquet(pa.table({**columns, "x": [[1.0]] * len(values)})))
    found, bad = read_pool(folder, "parquet", Rules(columns=X._replace(id=tuple(columns))))
    assert not bad
    return [example.id for example in found]


UUID = uuid.UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array(["7", "a/b%"]), ["7", "a/b%"]),
        (pa.array([7, 2**64 - 1], pa.uint64()), ["7", "18446744073709551615"]),
        (pa.array([Decimal("7"), Decimal(-(10**30))], pa.decimal128(38, 0)), ["7", "-1" + 30 * "0"]),
        (pa.array([Decimal("4.30"), Decimal("0.01"), Decimal("100.00")], pa.decimal128(9, 2)), ["4.3", "0.01", "100"]),
        (pa.array([Decimal("0.000000001")], pa.decimal128(12, 9)), ["0.000000001"]),
        (pa.array([NOON.date()]), ["2026-01-31"]),
        (pa.array([NOON.replace(microsecond=120_000)], pa.timestamp("us")), ["2026-01-31T12:00:00.12"]),
        (pa.array([NOON], pa.timestamp("ns", "Europe/Berlin")), ["2026-01-31T12:00:00Z"]),
        (pa.array([NOON], pa.timestamp("ms")), ["2026-01-31T12:00:00"]),
        (pa.array([datetime.time(12, 0, 1, 500_000)]), ["12:00:01.5"]),
        (pa.array([b"\x00\xff", b"a"]), ["00ff", "61"]),
        (pa.array([bytes(range(16))], pa.binary(16)), [bytes(range(16)).hex()]),
        (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID.bytes], pa.binary(16))), [str(UUID)]),
        (pa.array(["b", "a", "b"]).dictionary_encode().take([0, 1]), ["b", "a"]),
    ],
)  # fmt: skip
def test_each_id_has_one_text(values: pa.Array, texts: list[str], folder: Store) -> None:
    assert ids(folder, values) == texts


@pytest.mark.parametrize("values", [pa.array([0.5]), pa.array([True]), pa.array([[1]]), pa.array([{"a": 1}])])
def test_what_has_no_text_is_no_id(values: pa.Array, folder: Store) -> None:
    with pytest.raises(DataError, match=r"pool.columns.id: 'id0' is .*; choose a column of text, whole numbers, deci"):
        ids(folder, values)


def test_several_columns_make_one_id(folder: Store) -> None:
    doors, days = pa.array(["door-3", "a/b", "a", "5%"]), pa.array([NOON.date()] * 4)
    found = ids(folder, doors, days, pa.array([1, 2, 3, 4]))
    assert found == [f"{door}/2026-01-31/{n}" for n, door in enumerate(("door-3", "a%2Fb", "a", "5%25"), 1)]
    folder.write("a.parquet", parquet(pa.table({"a": ["x", None], "b": [1, 2], "x": [[1.0]] * 2})))
    kept, bad = read_pool(folder, "parquet", Rules(columns=X._replace(id=("a", "b"))))
    assert [example.id for example in kept] == ["x/1"]
    assert [(item.id, item.reason) for item in bad] == [("a.parquet#1", "its a is null")]


def test_fields_of_structs_are_columns(folder: Store) -> None:
    metas = [{"key": {"id": f"n{row}"}, "camera": "ab"[row % 2], "x": [row, 1]} for row in range(6)]
    metas[4] = None
    folder.write("a.parquet", parquet(pa.table({"meta": metas, "meta.dots": range(6)}), row_group_size=2))
    rules = Rules(columns=Columns(id="meta.key.id", array=("meta.x",)), filter="meta.camera = 'a' and `meta.dots` < 5")
    found, bad = read_pool(folder, "parquet", rules)
    assert [(example.id, example.array.tolist()) for example in found] == [("n0", [0, 1]), ("n2", [2, 1])]
    assert not bad
    found, bad = read_pool(folder, "parquet", rules._replace(filter="meta.camera is null"))
    assert [(item.id, item.reason) for item in bad] == [("a.parquet#4", "its meta.key.id is null")]
    said = refusal(folder, "parquet", rules._replace(columns=Columns(array=("meta.camra",))))
    assert said.endswith("a.parquet has no column 'meta.camra' (did you mean 'camera'?); it has key, camera, x")


def test_structs_of_numbers_are_arrays_of_their_fields(folder: Store) -> None:
    boxes = [[{"x": 1, "y": 2}, {"x": 3, "y": 4}], [{"x": 5, "y": 6}, {"x": 7, "y": 8}]]
    folder.write("a.parquet", parquet(pa.table({"boxes": boxes, "size": [{"w": 1.5, "h": 2.0}, None]})))
    found, _ = read_pool(folder, "parquet", Rules(columns=Columns(array=("boxes",))))
    assert [example.array.tolist() for example in found] == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    found, bad = read_pool(folder, "parquet", Rules(columns=Columns(array=("size",))))
    assert [example.array.tolist() for example in found] == [[1.5, 2.0]]
    assert [item.reason for item in bad] == ["its size is null"]


def test_list_views_are_refused(folder: Store) -> None:
    """The cast of pyarrow 26 from them empties lists."""
    column = pa.array([[1, 2], [3, 4]], pa.list_view(pa.int64()))
    folder.write("1.parquet", parquet(pa.table({"id": ["a", "b"], "x": column})))
    with pytest.raises(DataError, match=r"'x' is list_view.*, not numbers or lists of numbers"):
        read_pool(folder, "parquet", Rules(columns=X))


def test_a_column_that_some_files_lack_is_null_there_and_said(folder: Store, caplog: pytest.LogCaptureFixture) -> None:
    folder.write("1.parquet", parquet(pa.table({"id": ["a"], "x": [[1.0]]})))
    folder.write("2.parquet", parquet(pa.table({"id": ["b"], "x": [[2.0]], "score": [0.5]})))
    with caplog.at_level(logging.WARNING):
        found, _ = read_pool(folder, "parquet", Rules(columns=X, filter="score is null"))
    assert [example.id for example in found] == ["a"]
    assert "1 of 2 files of the pool lack the column 'score', which is null there: 1.parquet" in caplog.text


def test_a_value_that_the_common_type_cannot_hold_is_named(folder: Store) -> None:
    year = datetime.datetime(3000, 1, 1)
    folder.write("1.parquet", parquet(pa.table({"id": ["a"], "x": [[1.0]], "t": pa.array([year], pa.timestamp("us"))})))
    folder.write("2.parquet", parquet(pa.table({"id": ["b"], "x": [[1.0]], "t": pa.array([NOON], pa.timestamp("ns"))})))
    with pytest.raises(
        DataError, match=r"1.parquet has 't' as timestamp\[us\], which does not fit timestamp\[ns\], its"
    ):
        read_pool(folder, "parquet", Rules(columns=X, filter="t > '2026-01-01'"))


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (pa.int8(), pa.uint8(), pa.int16()),
        (pa.int64(), pa.uint64(), pa.decimal128(20, 0)),
        (pa.uint16(), pa.uint32(), pa.uint32()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.float16(), pa.float32(), pa.float32()),
        (pa.decimal128(9, 2), pa.decimal128(12, 6), pa.decimal128(13, 6)),
        (pa.decimal128(38, 2), pa.int64(), pa.decimal128(38, 2)),
        (pa.string(), pa.string_view(), pa.string()),
        (pa.string(), pa.int64(), pa.string()),
        (pa.dictionary(pa.int32(), pa.string()), pa.large_string(), pa.string()),
        (pa.binary(), pa.binary(16), pa.binary()),
        (pa.timestamp("ms"), pa.timestamp("us", "Etc/UTC"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("ms"), pa.timestamp("ms")),
        (pa.list_(pa.int32()), pa.list_(pa.int64(), 3), pa.list_(pa.int64())),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())]), pa.struct([("a", pa.int8()), ("b", pa.int8())])),
        (pa.null(), pa.bool_(), pa.bool_()),
        (pa.bool_(), pa.int64(), pa.int64()),
        (pa.bool_(), pa.string(), pa.string()),
        (pa.string(), pa.float64(), pa.string()),
        (pa.string(), pa.binary(), pa.string()),
        (pa.uuid(), pa.large_string(), pa.string()),
        (pa.binary(), pa.int64(), None),
        (pa.date32(), pa.float64(), None),
        (pa.string(), pa.list_(pa.string()), None),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.large_string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.int8(), pa.bool_()), pa.map_(pa.string(), pa.int8())),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.date32()), None),
        (pa.list_(pa.int64()), pa.int64(), None),
    ],
)
def test_two_types_have_a_common_one(first: pa.DataType, second: pa.DataType, common: pa.DataType | None) -> None:
    assert common_type(first, second) == common_type(second, first) == common or pa.types.is_struct(first)
