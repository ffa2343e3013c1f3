"""Averages over classes: of which classes failures are, and what few labels leave open."""

import numpy as np
import pytest

from opacc_ray.estimation.class_averages import expected_average, exponent, rivals
from opacc_ray.metrics.metric import Metric, Parts, slopes


@pytest.mark.parametrize("beta", [-1.0, 0.0, 1.0])
def test_the_exponent_is_that_of_the_misses(beta: float) -> None:
    rng = np.random.default_rng(2)
    size, failed = 1000 / np.arange(1, 61), np.full(60, 20.0)
    met = rng.poisson(rng.gamma(5, 1 / 5, 60) * (rivals(size, beta) @ failed))
    assert exponent(size, met.astype(float), failed) == pytest.approx(beta, abs=0.25)
    assert exponent(size, np.zeros(60), np.zeros(60)) == pytest.approx(0)  # without labels


def test_failures_are_of_other_classes_that_exist() -> None:
    found = rivals(np.array([30.0, 0.0, 10.0, 0.2]), 1.0)
    assert found.sum(axis=0) == pytest.approx(1)
    assert not found[1].any()
    assert not np.diag(found).any()
    assert found[:, 0] == pytest.approx([0, 0, 10 / 10.5, 0.5 / 10.5])


@pytest.mark.parametrize("name", ["macro_f1", "macro_recall", "macro_precision"])
def test_an_average_is_that_of_the_totals_once_nothing_is_left_open(name: str) -> None:
    inside, tp, missed = np.array([[40.0, 9, 0, 3], [30, 9, 0, 0], [4, 0, 2, 1]])
    size = Parts(inside, inside.sum() - inside)
    value, by_tp, by_fn = slopes(Metric(name), tp, missed, size)
    found = expected_average(Metric(name), size, tp, missed, np.zeros(4))
    assert (found.value, found.variance) == (pytest.approx(value), 0)
    large = expected_average(Metric(name), Parts(*(400 * own for own in size)), 400 * tp, 400 * missed, np.zeros(4))
    predicted = inside > 0
    assert 400 * large.by_tp[predicted] == pytest.approx(by_tp[predicted], abs=1e-3)
    assert 400 * large.by_fn[predicted] == pytest.approx(by_fn[predicted], abs=1e-3)


def test_what_is_missed_has_the_variance_of_a_count_around_a_rate_that_differs() -> None:
    rng = np.random.default_rng(0)
    size, tp, left = Parts(np.array([40.0]), np.array([960.0])), np.array([35.0]), np.array([6.0])
    missed = rng.poisson(rng.gamma(5, 6 / 5, 200_000))
    found = expected_average(Metric("macro_recall"), size, tp, np.zeros(1), left)
    assert found.value == pytest.approx((35 / (35 + missed)).mean(), abs=2e-3)


def test_a_class_that_may_not_exist_makes_a_mean_uncertain() -> None:
    size, tp = Parts(np.array([50.0, 0.0]), np.array([0.0, 50.0])), np.array([48.0, 0.0])
    found = expected_average(Metric("macro_recall"), size, tp, np.zeros(2), np.array([0.0, 1.0]))
    assert 0.5 < found.value < 1
    assert found.variance > 0.01
    assert expected_average(Metric("macro_recall"), size, tp, np.array([0.0, 2.0]), np.zeros(2)).value == 0.5
