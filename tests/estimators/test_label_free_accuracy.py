"""Guesses without labels: their formulas by hand, and that a drift they cannot see leads them astray."""

import numpy as np
import pytest

from opacc_ray.estimators.prediction_powered import label_free_accuracy


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


def test_they_are_right_without_a_drift_and_blind_to_one_that_leaves_the_confidence() -> None:
    rng = np.random.default_rng(1)
    doubt = rng.beta(0.5, 3, 40_000)
    right = (rng.random(40_000) >= doubt).astype(float)
    same = label_free_accuracy(1 - doubt[:20_000], 1 - doubt[20_000:], right[20_000:])
    assert list(same.values()) == pytest.approx([right[:20_000].mean()] * 3, abs=0.01)
    drifted = right[:20_000] * (rng.random(20_000) > 0.3)
    assert min(abs(value - drifted.mean()) for value in same.values()) > 0.2
