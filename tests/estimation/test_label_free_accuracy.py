"""Guesses without labels: their formulas by hand, and that a drift they cannot see leads them astray."""

import numpy as np
import pytest

from opacc_ray.estimation.failures import label_free_accuracy


def test_by_hand() -> None:
    confidence, reference = np.array([0.9, 0.5, 0.7, 0.6]), np.array([0.55, 0.95, 0.8, 0.65, 1.0])
    outcome = np.array([0.0, 1, 1, 0, 1])  # two fail: the threshold is the third lowest, 0.8
    found = label_free_accuracy(confidence, reference, outcome)
    assert found == pytest.approx(
        {
            "average confidence": 0.675,
            "difference of confidences": 0.6 + 0.675 - 0.79,
            "average thresholded confidence": 0.25,
        }
    )
    assert label_free_accuracy(confidence).keys() == {"average confidence"}


def test_a_reference_that_never_or_always_fails() -> None:
    confidence, reference = np.array([0.2, 0.9]), np.array([0.5, 0.8])
    assert label_free_accuracy(confidence, reference, np.ones(2))["average thresholded confidence"] == 0.5
    assert label_free_accuracy(confidence, reference, np.zeros(2))["average thresholded confidence"] == 0
