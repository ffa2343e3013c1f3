"""Sums that do not depend on how a pool is cut."""

import math

import numpy as np
import pytest

from opacc_ray.parts.sums import as_float, exact_sum, mean_of


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
