"""The bound of Godambe and Joshi: by its formula, and below what methods reach."""

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.extensions.study.measures import least_variance
from opacc_ray.parts.view import View, view_of
from opacc_ray.samplers.neyman.failure_model import predict_failure, read_signals


def make(size: int) -> tuple[View, np.ndarray]:
    rng = np.random.default_rng(1)
    doubt = rng.beta(0.2, 1.5, size)
    outcome = (rng.random(size) >= doubt).astype(float)
    return view_of(opacc.Pool(confidence=1 - doubt)), outcome


def test_is_the_formula_where_no_probability_is_1() -> None:
    view, outcome = make(2000)
    p = predict_failure(read_signals(view, 0), np.arange(2000), 1 - outcome).failure
    sigma = np.sqrt(p * (1 - p))
    assert 20 * sigma.max() < sigma.sum()
    expected = (sigma.sum() ** 2 / 20 - (sigma**2).sum()) / 2000**2
    assert least_variance(view, outcome, [20])[20] == pytest.approx(expected)


def test_scores_have_none() -> None:
    view, outcome = make(50)
    assert least_variance(view, 0.5 * outcome, [5]) == {}
