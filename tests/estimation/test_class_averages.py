"""Averages over classes: of which classes failures are, and what few labels leave open."""

import numpy as np
import pytest

from opacc_ray.estimation.class_averages import derivatives, expected_average, exponent, missed, rivals
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
    inside, tp, known = np.array([[40.0, 9, 0, 3], [30, 9, 0, 0], [4, 0, 2, 1]])
    size = Parts(inside, inside.sum() - inside)
    value, by_tp, by_fn = slopes(Metric(name), tp, known, size)
    fn = missed(known, np.zeros(4), np.zeros(4))
    assert expected_average(Metric(name), size, tp, fn) == (pytest.approx(value), 0)
    large = derivatives(Metric(name), Parts(*(400 * own for own in size)), 400 * tp, 400 * fn)
    predicted = inside > 0
    assert 400 * np.array(large)[:, predicted] == pytest.approx(np.array([by_tp, by_fn])[:, predicted], abs=1e-3)


@pytest.mark.parametrize("expected", [0.0, 20.0])
def test_what_is_missed_is_a_count_around_a_rate_that_labels_know_in_part(expected: float) -> None:
    rng = np.random.default_rng(0)
    size, tp, left, shape = Parts(np.array([40.0]), np.array([960.0])), np.array([35.0]), np.array([6.0]), 5 + expected
    counts = rng.poisson(rng.gamma(shape, 6 / shape, 200_000))
    fn = missed(np.zeros(1), left, np.array([expected]))
    assert expected_average(Metric("macro_recall"), size, tp, fn)[0] == pytest.approx(
        (35 / (35 + counts)).mean(), abs=2e-3
    )


def test_a_class_that_may_not_exist_makes_a_mean_uncertain() -> None:
    metric, size, tp = (
        Metric("macro_recall"),
        Parts(np.array([50.0, 0.0]), np.array([0.0, 50.0])),
        np.array([48.0, 0.0]),
    )
    value, variance = expected_average(metric, size, tp, missed(np.zeros(2), np.array([0.0, 1.0]), np.zeros(2)))
    assert 0.5 < value < 1
    assert variance > 0.01
    assert expected_average(metric, size, tp, missed(np.array([0.0, 2.0]), np.zeros(2), np.zeros(2))) == (0.5, 0)
