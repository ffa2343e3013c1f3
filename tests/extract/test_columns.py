"""Columns of features: what comes with the forward pass, and rows that are not finite."""

import numpy as np
import pytest

from opacc_ray.extract.columns import compute_columns, confidence, not_finite

RNG = np.random.default_rng(0)


def test_confidence_is_the_largest_softmax_probability() -> None:
    logits = RNG.normal(0, 5, (50, 7)).astype(np.float32)
    exponential = np.exp(logits.astype(np.float64))
    expected = (exponential / exponential.sum(axis=1, keepdims=True)).max(axis=1)
    assert np.allclose(confidence(logits), expected, rtol=1e-12)


def test_confidence_of_huge_logits_does_not_overflow() -> None:
    logits = np.array([[3e38, -3e38, 0], [1e4, 1e4, -1e4]], dtype=np.float32)
    assert confidence(logits).tolist() == [1.0, 0.5]


def test_probabilities_are_taken_as_they_are() -> None:
    assert confidence(np.array([[0.2, 0.8]], dtype=np.float32), "probabilities") == pytest.approx([0.8])


def test_regression_has_a_prediction_and_no_confidence() -> None:
    hidden, output = np.zeros((2, 3), np.float32), np.array([[1.5], [-2]], np.float32)
    columns = compute_columns(hidden, output, task="regression", output_kind="logits")
    assert columns["prediction"].tolist() == [1.5, -2]


def test_not_finite_names_rows_and_the_first_feature_of_each() -> None:
    nan, inf = np.nan, np.inf
    columns = {"confidence": np.array([1, 0.5, nan]), "output": np.array([[1, 2], [3, inf], [nan, 4]])}
    assert list(not_finite(columns).items()) == [(1, "output"), (2, "confidence")]
    assert not_finite({"prediction": np.ones(2, int), "coverage": np.ones((2, 3), np.uint8)}) == {}
