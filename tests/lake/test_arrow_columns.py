"""Arrow arrays made and read without pandas are those of Arrow's own conversions."""

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from opacc_ray.lake.parquet_io import numbers, texts, to_numpy

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
