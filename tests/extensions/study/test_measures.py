"""Measures of a study, worked by hand."""

import math

import numpy as np
import pytest

from opacc_ray.extensions.study.measures import measure
from opacc_ray.extensions.study.trials import Trial, truth_of


def test_measures_worked_by_hand() -> None:
    truth = truth_of(np.array([1.0] * 6 + [0.0] * 4))  # θ = 0.6, S² = 10/9 · 0.24
    assert truth.variance == pytest.approx(0.8 / 3)
    deviation = math.sqrt(0.8 / 3 * (1 / 2 - 1 / 10))
    plain = Trial(0.5, 0.1, 0.6, 2, 2, 1.0, 0.001, "some", True)  # holds θ at its end
    far = plain._replace(value=1.0, low=0.7, high=1.0, failures=0.0, seconds=0.003)
    found = measure([plain, plain, far, far], truth)
    assert found["mean"] == 0.75
    assert found["bias"] == pytest.approx(0.15 / deviation)
    assert found["bias_standard_error"] == pytest.approx(0.5 / math.sqrt(3) / deviation / 2)
    assert found["mse"] == pytest.approx((0.01 + 0.16) / 2)
    assert found["efficiency"] == pytest.approx(0.085 / deviation**2)
    half = 1.959964 * (0.15 / math.sqrt(3)) / 0.085 / 2
    assert found["efficiency_interval"] == pytest.approx([found["efficiency"] * math.exp(x) for x in (-half, half)])
    assert (found["coverage"], found["failures"]) == (0.5, 0.5)
    assert found["width"] == pytest.approx(0.4)
    assert found["milliseconds"] == 2.0
    alone = measure([plain, plain], truth)  # as of a method without chance
    assert alone["efficiency_interval"] is alone["bias_standard_error"] is alone["coverage_interval"] is None
    assert measure([plain], truth_of(np.array([0.2, 0.9, 0.7])))["failures"] is None  # scores do not fail
