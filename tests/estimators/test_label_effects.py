"""The size of the simple random sample that labels are worth: how far a measured variance is trusted."""

import numpy as np
import pytest

from opacc_ray.estimators.difference_estimator import LabelEffects, measured_weight


@pytest.mark.parametrize(("assisted", "prior"), [(True, 1), (False, 2)])
def test_predictions_of_a_model_count_as_one_term_and_a_share_of_the_labels_as_two(assisted: bool, prior: int) -> None:
    effect, expected = np.full(4, 0.1), np.full(4, 0.5)
    labels = LabelEffects(effect, expected, np.array([0.5, -0.5, 0.5, -0.5]), 3, assisted)
    half = 0.5 * 0.1**2
    weight = 4 / (4 + prior)
    assert measured_weight((effect * labels.error) ** 2, prior) == pytest.approx(weight)
    measured, predicted = 0.02 + half, 4 * 0.01 * 0.25 + half
    spread = 0.4 * 0.6  # at the larger of 0.4 and Σ effect · expected = 0.2
    size = 1 / (weight * measured / spread + (1 - weight) * predicted / spread)
    assert labels.size_at(0.4, 0.02) == pytest.approx(size)
