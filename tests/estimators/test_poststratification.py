"""Weights made to agree with the pool's predicted classes: worked by hand, and where they are left alone."""

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import LabelError
from opacc_ray.estimators.domain import calibrate, design_for_classes
from opacc_ray.estimators.rounds import linear_estimator
from opacc_ray.pool import Pool

N, n = 100, 20


def simple_sample() -> opacc.Selection:
    return opacc.select(Pool(confidence=np.linspace(0, 1, N)), "srs", n)


def test_classes_with_five_labels_have_a_weight_of_their_own_and_the_others_one_together() -> None:
    predicted = np.repeat(["a", "b", "c", "d"], [11, 5, 3, 1])
    design = calibrate(simple_sample(), predicted, {"a": 50, "b": 30, "c": 13, "d": 1, "e": 6})
    expected = np.repeat([50 / 11, 30 / 5, 20 / 4], [11, 5, 4]) / N  # e has no label: it counts with c and d
    np.testing.assert_allclose(design.weights, expected, rtol=1e-12)
    assert design.mean(np.ones(n)) == pytest.approx(1)


def test_a_class_of_few_without_any_label_of_few_leaves_the_shares_of_the_others() -> None:
    predicted = np.repeat(["a", "b"], [12, 8])
    design = calibrate(simple_sample(), predicted, {"a": 60, "b": 36, "e": 4})
    np.testing.assert_allclose(design.weights, np.repeat([60 / 96 / 12, 36 / 96 / 8], [12, 8]), rtol=1e-12)


def test_if_no_class_has_five_labels_nothing_is_calibrated() -> None:
    """A class of one label would be known without any doubt otherwise."""
    sample, x = simple_sample(), np.random.default_rng(0).random(n)
    design = calibrate(sample, np.arange(n) % 5, {0: 10, 1: 20, 2: 30, 3: 25, 4: 15})  # four of each
    np.testing.assert_allclose(design.weights, linear_estimator(sample).weights, rtol=1e-12)
    assert design.variance(x) == pytest.approx(linear_estimator(sample).variance(x - x.mean()))


def test_variance_is_of_what_is_left_within_the_classes() -> None:
    predicted, x = np.repeat(["a", "b"], [12, 8]), np.random.default_rng(0).normal(size=n)
    sample = simple_sample()
    design = calibrate(sample, predicted, {"a": 60, "b": 40})
    left = np.concatenate([x[:12] - x[:12].mean(), x[12:] - x[12:].mean()])
    ratio = design.weights / linear_estimator(sample).weights
    assert design.variance(x) == pytest.approx(linear_estimator(sample).variance(ratio * left), rel=1e-9)
    by_class = np.where(predicted == "a", 3.0, -5.0)
    assert design.variance(by_class) == pytest.approx(0, abs=1e-15)


def test_a_class_that_the_pool_does_not_have_is_named() -> None:
    with pytest.raises(LabelError, match=r"^a label has the predicted class 'b', which pool_count does not count$"):
        calibrate(simple_sample(), np.repeat(["a", "b"], 10), {"a": 100, "b": 0})


def test_without_counts_and_for_draws_by_belief_the_design_stays_as_it_is() -> None:
    predicted, counts = np.repeat(["a", "b"], 10), {"a": 30, "b": 70}
    by_belief = opacc.select(Pool(confidence=np.linspace(0.2, 1, N)), "sups", n)
    for sample, pool_count in ((simple_sample(), None), (by_belief, counts)):
        design = design_for_classes([sample], predicted, pool_count)
        np.testing.assert_array_equal(design.weights, linear_estimator(sample).weights)
    calibrated = design_for_classes([simple_sample()], predicted, counts)
    np.testing.assert_allclose(calibrated.weights, np.repeat([0.03, 0.07], 10))
