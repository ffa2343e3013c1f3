"""Test loops over rows: sums by code, and examples on a line."""

import numpy as np

from opacc_ray.parts.loops import Line, key_bits, sums_by


def test_sums_by_code_are_those_of_all_rows_whatever_the_blocks() -> None:
    rng, size = np.random.default_rng(0), 200_000
    codes, weights = rng.integers(0, 7, size).astype(np.uint8), rng.integers(0, 9, size).astype(float)
    assert sums_by(codes, 9).tolist() == np.bincount(codes, minlength=9).tolist()
    assert sums_by(codes, 9, weights).tolist() == np.bincount(codes, weights, 9).tolist()


def test_examples_on_a_line_are_those_along_its_sorted_keys() -> None:
    """With equal keys, the largest key, and lengths of 0, over several blocks."""
    rng, size = np.random.default_rng(0), 100_000
    keys = rng.integers(0, 1 << 12, size, endpoint=True) << (key_bits(size) - 1 - 12)
    lengths = rng.integers(0, 50, size)
    line = Line(size, lambda rows: keys[rows], lambda rows: lengths[rows])
    order = np.argsort(keys, kind="stable")
    ends = np.cumsum(lengths[order])
    at = rng.permutation(np.append(rng.integers(0, ends[-1], 500), [0, ends[-1] - 1]))
    place = np.searchsorted(ends, at, side="right")
    found = line.find(at)
    assert line.total == ends[-1]
    assert found.place.tolist() == order[place].tolist()
    assert found.end.tolist() == ends[place].tolist()
    assert found.begin.tolist() == (ends - lengths[order])[place].tolist()
