"""Parquet by the bytes of what is wanted, processes that end in peace after it, and columns without pandas."""

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from tables import parquet

from opacc_ray.errors import StorageError
from opacc_ray.lake.parquet_io import TAIL, WHOLE, numbers, read_bytes, read_columns, read_footer, texts, to_numpy
from opacc_ray.lake.store_uris import Store, open_store

RNG = np.random.default_rng(0)
ROWS = 40_000
TABLE = pa.table(
    {
        "id": [str(i) for i in range(ROWS)],
        "wide": pa.FixedSizeListArray.from_arrays(pa.array(RNG.normal(size=ROWS * 8)), 8),
        "narrow": RNG.integers(0, 5, ROWS),
        "text": pa.array([None if i % 3 else f"word {i}" for i in range(ROWS)]),
        "apart": RNG.normal(size=ROWS),
    }
)


@cache
def encoded(**options: object) -> bytes:
    return parquet(TABLE, **({"compression": "zstd"} | options))


class Ranges:
    """Which ranges of an object are read."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, int]] = []
        plain = type(store).read_range

        def read_range(own: Store, key: str, start: int, stop: int) -> bytes:
            self.seen.append((start, stop))
            return plain(own, key, start, stop)

        monkeypatch.setattr(type(store), "read_range", read_range)


@pytest.mark.parametrize("names", [None, ["narrow"], ["apart", "id"], ["text", "wide"], [], ["narrow", "none"]])
@pytest.mark.parametrize("options", [{}, {"row_group_size": 7000}, {"use_dictionary": False}, {"compression": "none"}])
def test_columns_come_back_as_they_were(folder: Store, names: Sequence[str] | None, options: dict[str, object]) -> None:
    folder.write("a.parquet", encoded(**options))
    expected = TABLE if names is None else TABLE.select([name for name in names if name in TABLE.column_names])
    assert read_columns(folder, "a.parquet", names).equals(expected)


def test_two_requests_bring_footer_and_column(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded()
    store.write("a.parquet", data)
    ranges = Ranges(store, monkeypatch)
    assert read_columns(store, "a.parquet", ["wide"], size=len(data)).equals(TABLE.select(["wide"]))
    (tail, column) = ranges.seen
    assert tail == (len(data) - TAIL, len(data))
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(0).column(1)
    assert column[1] - column[0] == chunk.total_compressed_size
    footer = read_footer(store, "a.parquet", size=len(data))
    ranges.seen.clear()
    read_columns(store, "a.parquet", ["narrow"], size=len(data), footer_size=len(footer.data))
    assert ranges.seen[0] == (len(data) - len(footer.data), len(data))
    assert sum(stop - start for start, stop in ranges.seen) < 0.02 * len(data)


def test_small_file_is_read_whole_in_one_request(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = parquet(TABLE.slice(0, 50))
    assert len(data) < WHOLE
    store.write("a.parquet", data)
    ranges = Ranges(store, monkeypatch)
    assert read_columns(store, "a.parquet", ["narrow"], size=len(data)).num_rows == 50
    assert read_footer(store, "a.parquet", size=len(data)).metadata.num_rows == 50
    assert ranges.seen == [(0, len(data))] * 2


def test_all_columns_come_in_one_request(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded()
    store.write("a.parquet", data)
    ranges = Ranges(store, monkeypatch)
    assert read_columns(store, "a.parquet", size=len(data)).equals(TABLE)
    assert ranges.seen == [(0, len(data))]


def test_footer_larger_than_what_is_read_at_first(store: Store) -> None:
    table = TABLE.slice(0, 30_000).replace_schema_metadata({"big": "x" * 3 * TAIL})
    store.write("a.parquet", parquet(table))
    footer = read_footer(store, "a.parquet")
    assert len(footer.data) > 3 * TAIL
    assert footer.metadata.metadata[b"big"] == b"x" * 3 * TAIL
    assert b"small" not in footer.metadata.metadata
    assert read_columns(store, "a.parquet", ["apart"]).equals(table.select(["apart"]))


@pytest.mark.parametrize("left", [slice(0), slice(3), slice(8, 70_000), slice(-9), slice(70_000, None)])
def test_what_is_not_parquet_is_an_error(tmp_path: Path, left: slice) -> None:
    store, data = open_store(str(tmp_path)), encoded()[left]
    store.write("a.parquet", data)
    with pytest.raises((pa.ArrowException, OSError, StorageError)):
        read_columns(store, "a.parquet", ["narrow"])
    with pytest.raises((pa.ArrowException, OSError)):
        read_bytes(data)


def test_error_of_the_store_comes_as_it_is(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    with pytest.raises(StorageError, match="cannot read"):
        read_columns(store, "gone.parquet", ["narrow"])
    store.write("a.parquet", encoded())
    with pytest.raises(StorageError, match="has changed or is cut short"):
        read_columns(store, "a.parquet", ["narrow"], size=10_000_000)


READERS = """
import os, sys
from opacc_ray.lake.parquet_io import read_bytes, read_columns
from opacc_ray.lake.store_uris import open_store
import pyarrow.parquet

for _ in range(40):
    child = os.fork()
    if not child:
        break
    if status := os.waitpid(child, 0)[1]:
        sys.exit(f"a reader ended with {status}")
else:
    sys.exit()
store = open_store(sys.argv[1])
table = read_columns(store, "a.parquet", ["wide", "id"])
assert read_bytes(store.read("a.parquet")).num_rows == len(table)
"""


@pytest.mark.slow
def test_processes_that_read_end_in_peace(tmp_path: Path) -> None:
    """Arrow's threads must not hold what Python owns when the interpreter ends.

    Each reader is a fork of a process that has not read, and ends its interpreter as any process does.
    """
    open_store(str(tmp_path)).write("a.parquet", parquet(TABLE.slice(0, 5000)))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", READERS, str(tmp_path)], env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


# -- columns ---------------------------------------------------------------------------------------------------


ARRAYS = [
    np.arange(5, dtype=np.uint8),
    np.arange(20, dtype=np.int64)[::3],
    np.array([0.5, np.nan, -np.inf], dtype=np.float32),
    np.array([1.5, -0.25], dtype=np.float16),
    np.arange(3, dtype=">i4"),
    np.arange(11) % 3 == 0,
    np.zeros(0),
    np.zeros(0, dtype=bool),
]


@pytest.mark.parametrize("values", ARRAYS, ids=lambda values: f"{values.dtype}-{len(values)}")
def test_numbers_come_back_whole_in_pieces_and_from_the_middle(values: NDArray[np.generic]) -> None:
    made = numbers(values)
    np.testing.assert_array_equal(to_numpy(made), values)
    np.testing.assert_array_equal(to_numpy(made[1:]), values[1:])
    np.testing.assert_array_equal(to_numpy(pa.chunked_array([made[2:], made[:2]])), np.r_[values[2:], values[:2]])


def test_rows_come_back_whole_in_pieces_and_from_the_middle() -> None:
    rows = np.arange(12.0).reshape(4, 3)
    made = numbers(rows)
    assert made.type == pa.list_(pa.float64(), 3)
    np.testing.assert_array_equal(to_numpy(made), rows)
    np.testing.assert_array_equal(to_numpy(pa.chunked_array([made[3:], made[1:3]])), rows[[3, 1, 2]])


@pytest.mark.parametrize("values", [[], ["a", "", "bc"], ["ä\n", "€", "a"], ["a", None, "ü", None], [None] * 9])
def test_texts_are_those_of_arrow(values: list[str | None]) -> None:
    made = texts(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.string()))


def test_nulls_of_numbers_are_nan() -> None:
    np.testing.assert_array_equal(to_numpy(pa.array([1, None, 3])), [1, np.nan, 3])
