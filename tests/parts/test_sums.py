"""Sums that do not depend on how a pool is cut."""

import math
from itertools import pairwise

import numpy as np
import pytest

from opacc_ray.parts.sums import as_float, exact_sum, mean_of, sum_as_one
from opacc_ray.parts.view import LocalParts, View
from opacc_ray.pool import Pool


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e290])
def test_sums_are_exact_and_rounded_once_however_they_are_cut(scale: float) -> None:
    rng = np.random.default_rng(3)
    values = rng.standard_cauchy(100_000) * scale
    for cuts in ([], [1, 70_000], [40_000, 40_000, 40_001]):
        totals = [exact_sum(part) for part in np.split(values, cuts)]
        assert as_float(sum(totals)) == math.fsum(values)
    assert mean_of(totals, 100_000) == pytest.approx(math.fsum(values) / 100_000, rel=1e-15)


def test_what_cancels_is_gone() -> None:
    values = np.array([1e300, 5e-324, -1e300, 0.0, -0.25])
    assert as_float(exact_sum(values)) == -0.25
    assert as_float(exact_sum(np.array([5e-324, 5e-324]))) == 1e-323


@pytest.mark.parametrize("num", [1, 7, 8, 9, 127, 128, 129, 255, 1000, 4103, 70_001])
def test_a_sum_of_parts_is_the_one_that_numpy_gives_of_all(num: int) -> None:
    rng = np.random.default_rng(num)
    values = rng.standard_normal(num) * 10.0 ** rng.integers(-9, 9, num)
    for places in ([], [1], [1, 1, 2], [64], list(range(3, num, 50))[:700], [num // 3, num - 1]):
        cuts = [place for place in places if place < num]
        edges = [0, *cuts, num]
        view = View(LocalParts([Pool(dsa=values[a:b]) if b > a else Pool(dsa=values[:1]) for a, b in pairwise(edges)]))
        arguments = [(b - a,) for a, b in pairwise(edges)]  # a part may have nothing to add
        assert sum_as_one(view, part_values, arguments, [own for (own,) in arguments]) == values.sum()


def part_values(part: Pool, num: int) -> np.ndarray:
    assert part.dsa is not None
    return part.dsa[:num].astype(np.float64)
