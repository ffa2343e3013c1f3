"""Measures of a study, worked by hand, and the bound of Godambe and Joshi."""

import math

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.extensions.study.measures import least_variance, measure
from opacc_ray.extensions.study.trials import Trial, Truth
from opacc_ray.parts.view import View, view_of
from opacc_ray.samplers.neyman.failure_model import predict_failure, read_signals


def test_measures_worked_by_hand() -> None:
    truth = Truth(10, 0.6, 0.8 / 3, binary=True)  # six of ten are right
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
    assert measure([plain], truth._replace(binary=False))["failures"] is None  # scores do not fail


def make(size: int) -> tuple[View, np.ndarray]:
    rng = np.random.default_rng(1)
    doubt = rng.beta(0.2, 1.5, size)
    outcome = (rng.random(size) >= doubt).astype(float)
    return view_of(opacc.Pool(confidence=1 - doubt)), outcome


def test_the_bound_is_its_formula_where_no_probability_is_1() -> None:
    view, outcome = make(2000)
    p = predict_failure(read_signals(view, 0), np.arange(2000), 1 - outcome).failure
    sigma = np.sqrt(p * (1 - p))
    assert 20 * sigma.max() < sigma.sum()
    expected = (sigma.sum() ** 2 / 20 - (sigma**2).sum()) / 2000**2
    assert least_variance(view, outcome, [20])[20] == pytest.approx(expected)


def test_scores_have_no_bound() -> None:
    view, outcome = make(50)
    assert least_variance(view, 0.5 * outcome, [5]) == {}
