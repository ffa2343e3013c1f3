"""Documents as people read them."""

import pytest

from opacc_ray.cli.texts import accuracy, interval
from opacc_ray.runs.estimate_documents import StatedEstimate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0123, "1.0000, 95% interval 0.9000 to 1.0000 (Wilson, 50 labels)"),
        (0.8998, "0.9000, 95% interval 0.9000 to 1.0000 (Wilson, 50 labels)"),
        (0.95, "0.9500, 95% interval 0.9000 to 1.0000 (Wilson, 50 labels)"),
    ],
)
def test_accuracy_stays_in_its_interval(value: float, text: str) -> None:
    assert accuracy(stated(value)) == text


def test_cost_may_lie_outside_of_its_interval_and_a_difference_has_a_sign() -> None:
    assert interval(stated(1.0123)).startswith("1.0123, 95% interval 0.9000 to 1.0000")
    assert interval(stated(0.95), "+.4f").startswith("+0.9500, 95% interval +0.9000 to +1.0000")


def stated(value: float) -> StatedEstimate:
    return StatedEstimate(
        value=value,
        standard_error=0.02,
        low=0.9,
        high=1.0,
        level=0.95,
        interval="Wilson",
        n=50,
        design_based=True,
        reason=None,
    )
