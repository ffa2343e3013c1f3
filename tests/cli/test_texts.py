"""Documents as people read them."""

from typing import Any

import pytest

from opacc_ray.report.facts import change, points_apart, stated
from opacc_ray.runs.estimate_documents import StatedEstimate


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0123, ("100 %", "90.0 to 100")), (0.8998, ("90.0 %", "90.0 to 100")), (0.95, ("95.0 %", "90.0 to 100"))],
)
def test_accuracy_stays_in_its_interval(value: float, text: tuple[str, str]) -> None:
    assert stated(estimate(value)) == text


def test_difference_has_a_sign_unless_it_rounds_to_zero() -> None:
    assert change(estimate(0.1, low=-0.05, high=0.2)) == ("+10.0 points", "-5.0 to +20.0")
    assert change(estimate(0.0, low=0.0, high=0.0)) == ("0.0 points", "0.0 to 0.0")
    assert change(estimate(0.1, low=-0.05, high=0.2), "mean score") == ("+0.100", "-0.050 to +0.200")


@pytest.mark.parametrize(
    ("goal", "now", "shown"),
    [
        (0.02, 0.034, ("±2 points", "±3.4 points")),
        (0.02, 0.020004, ("±2 points", "±2.0004 points")),
        (0.1, 0.10004, ("±10 points", "±10.004 points")),
        (0.02, 0.02, ("±2 points", "±2 points")),
    ],
)
def test_half_widths_that_round_alike_have_more_digits(goal: float, now: float, shown: tuple[str, str]) -> None:
    assert points_apart(goal, now) == shown


def estimate(value: float, **ends: Any) -> StatedEstimate:
    settled = {"low": 0.9, "high": 1.0} | ends
    return StatedEstimate(
        value=value,
        standard_error=0.02,
        level=0.95,
        interval="Wilson",
        n=50,
        design_based=True,
        reason=None,
        **settled,
    )
