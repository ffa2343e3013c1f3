"""A part against the rest: exact p-values by enumeration, intervals by hand, and how many statements hold together."""

from itertools import combinations
from math import comb, erfc, sqrt
from typing import NamedTuple

import numpy as np
import pytest

from opacc_ray.estimation.intervals import level_of_each, normal_quantile
from opacc_ray.extensions.discovery import Contrast, fisher, q_values
from opacc_ray.metrics.metric import tells


class Known(NamedTuple):
    """A share with a normal interval."""

    value: float
    error: float = 0.0
    size: float = 1000.0
    num: int = 50

    def interval(self, level: float) -> tuple[float, float]:
        half = normal_quantile(level) * self.error
        return max(self.value - half, 0.0), min(self.value + half, 1.0)


class TestFisher:
    def test_is_the_tail_of_the_hypergeometric_distribution(self) -> None:
        by_hand = sum(comb(5, k) * comb(15, 8 - k) for k in (4, 5)) / comb(20, 8)
        assert fisher(4, 8, 5, 20) == pytest.approx(by_hand)

    def test_is_one_without_failures(self) -> None:
        assert fisher(0, 8, 0, 20) == 1

    @pytest.mark.parametrize("part", [4, 6])
    def test_is_valid_in_a_pool_of_12(self, part: int) -> None:
        """All samples of 6 of 12: the part has the same share of failures as the rest."""
        failure = np.zeros(12, dtype=int)
        failure[: part // 2] = failure[part : part + (12 - part) // 2] = 1
        found = []
        for chosen in combinations(range(12), 6):
            own, index = failure[list(chosen)], np.array(chosen)
            found.append(fisher(own[index < part].sum(), (index < part).sum(), own.sum(), 6))
        for bound in np.unique(found):
            assert np.mean(np.array(found) <= bound + 1e-12) <= bound + 1e-12


class TestContrast:
    def test_difference_of_normal_shares_has_a_normal_interval(self) -> None:
        contrast = Contrast(Known(0.4, 0.03), Known(0.2, 0.04))
        low, high = contrast.interval(0.95)
        assert (low, high) == pytest.approx((0.2 - 1.959964 * 0.05, 0.2 + 1.959964 * 0.05), abs=1e-6)

    def test_p_value_is_the_tail_at_which_the_lower_end_is_zero(self) -> None:
        contrast = Contrast(Known(0.4, 0.05), Known(0.2, 0.04))
        assert contrast.p_value() == pytest.approx(erfc(0.2 / sqrt(0.05**2 + 0.04**2) / sqrt(2)) / 2, rel=1e-4)

    @pytest.mark.parametrize("part", [Known(0.1, 0.01), Known(0.9, 0.01, num=0)])
    def test_p_value_is_one_where_labels_do_not_say_that_the_part_is_worse(self, part: Known) -> None:
        assert Contrast(part, Known(0.2, 0.01)).p_value() == 1


class TestSeveral:
    def test_q_values_of_benjamini_and_hochberg(self) -> None:
        """q_(k) is the least of m·p_(j)/j over j >= k."""
        assert q_values([0.02, 0.001, 0.5, 0.021]) == pytest.approx([0.028, 0.004, 0.5, 0.028])

    def test_level_of_each(self) -> None:
        assert level_of_each(0.95, 20) == pytest.approx(0.9975)
        assert level_of_each(0.95, 0) == 0.95


@pytest.mark.parametrize(
    ("low", "high", "n", "enough"),
    [(0.6, 0.8, 30, True), (0.6, 0.8, 4, False), (0.3, 0.81, 30, False), (0.7, 0.7, 3, True)],
)
def test_too_few_labels_to_tell(low: float, high: float, n: int, enough: bool) -> None:
    """Fewer than 5, or wider than ± 0.25; what is known exactly needs no more."""
    assert tells(low, high, n) == enough
