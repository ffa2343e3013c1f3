"""Slices: names in one order however a pool is cut, gaps as a slice of their own, crossings of any size."""

import numpy as np
import pytest

from opacc_ray import pool as pool_module
from opacc_ray.errors import DataError
from opacc_ray.pool import NOT_GIVEN, Slicing, joined


def names_of(slicing: Slicing) -> list[str]:
    return [slicing.names[code] for code in slicing.codes.tolist()]


def test_numbers_are_ordered_by_value_and_gaps_come_last() -> None:
    values = [10, None, 9, "front", 2.5, "nan", None]
    found = Slicing.of("mixed", np.array(values, dtype=object))
    assert found.names == ("2.5", "9", "10", "front", "nan", NOT_GIVEN)
    assert names_of(found) == ["10", NOT_GIVEN, "9", "front", "2.5", "nan", NOT_GIVEN]


def test_numbers_in_text_are_ordered_by_value() -> None:
    assert Slicing.of("week", ["W10", "W9", "W2", "2026-W11", "W9b"]).names == ("2026-W11", "W2", "W9", "W9b", "W10")


@pytest.mark.parametrize("cuts", [None, [3, 5]])
@pytest.mark.parametrize("stops", [(1, 4), (2, 3), (5, 6)])
def test_joined_parts_are_the_slices_of_the_whole(cuts: list[float] | None, stops: tuple[int, int]) -> None:
    values = np.array([7, np.nan, 3, 11, 2, np.nan, 4])
    whole = Slicing.of("size", values, cuts)
    parts = [Slicing.of("size", part, cuts).packed() for part in np.split(values, stops)]
    found = joined(parts)
    assert parts[0].codes.dtype == np.uint8
    assert found.names == whole.names
    assert np.array_equal(found.codes, whole.codes)
    assert found.codes.dtype == np.int32


def test_a_crossing_is_the_same_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    first = Slicing(tuple("abcdefg"), rng.integers(0, 6, 50).astype(np.int32))
    second = Slicing(tuple("uvwxyz"), rng.integers(0, 6, 50).astype(np.int32))
    pairs = [f"{a}, {b}" for a, b in zip(names_of(first), names_of(second), strict=True)]
    assert names_of(first.cross(second)) == pairs
    monkeypatch.setattr(pool_module, "_BLOCK", 7)
    assert names_of(first.cross(second)) == pairs
    assert first.cross(second).names == tuple(sorted(set(pairs)))
    few = [Slicing(own.names, own.codes[:9]) for own in (first, second)]  # more pairs are possible than examples
    assert names_of(few[0].cross(few[1])) == pairs[:9]


def test_names_of_examples_are_no_slices() -> None:
    with pytest.raises(DataError, match="slices 'id' have 1001 different values, such as \"0\": cut numbers, as in"):
        Slicing.of("id", np.arange(1001))
    days = np.arange("2020-01-01", "2023-01-01", dtype="datetime64[D]").astype(str)
    with pytest.raises(DataError, match="times have no cuts, so name a column with the day or week, such as 2026-W40"):
        Slicing.of("time", days)
