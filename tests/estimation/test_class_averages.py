"""Averages over classes: of which classes failures are, and what few labels leave open."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import gamma, norm, t

import opacc_ray as opacc
from opacc_ray.estimation.class_averages import derivatives, expected_average, exponent, missed, rivals
from opacc_ray.estimation.sample import join
from opacc_ray.metrics.metric import Metric, Parts, slopes
from opacc_ray.selection import Selection

Array = NDArray[np.float64]


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


FUNCTIONS = {
    "macro_precision": lambda size, tp, fn: tp / size + 0 * fn,
    "macro_recall": lambda size, tp, fn: tp / (tp + fn),
    "macro_f1": lambda size, tp, fn: 2 * tp / (size + tp + fn),
}


def from_the_page(name: str, predicted: NDArray, truth: NDArray, chosen: Selection) -> tuple[float, float, float]:
    """Return an average by a design alone, where few labels are of each class, by the formulas of the module."""
    g, tau2, places = FUNCTIONS[name], 0.2, (np.arange(24) + 0.5) / 24
    y, own = truth[chosen.index], predicted[chosen.index]
    v, num, size = (y != own) * 1.0, int(predicted.max()) + 1, np.bincount(predicted) * 1.0
    rounds = join(chosen, 1 - v, truth=y).rounds
    weight, n = rounds.weights, len(y)

    def by_class(place: NDArray, values: Array) -> Array:
        return np.bincount(place, values, num)

    w = weight / weight.mean()
    labels = by_class(own, w) + 10
    p = (by_class(own, w * v) + 10 * np.mean(w * v)) / labels
    known, met = by_class(own, v), by_class(y, v)
    left = (size - by_class(own, np.ones(n))) * p
    tp = np.maximum(size - known - left, 0)

    def shares(beta: float) -> Array:
        r = np.repeat(np.maximum(tp, 0.5)[:, None] ** beta, num, axis=1)
        np.fill_diagonal(r, 0)
        return r / r.sum(axis=0)

    scale = (w @ p[own]) / (w**2 @ p[own])
    shown, foretold = scale * by_class(y, w * v), scale * by_class(own, w * p[own])
    betas = np.linspace(-1.5, 1.5, 7)
    counts = [shares(beta) @ foretold for beta in betas]
    logs = np.array([(shown * np.log(e) - (1 / tau2 + shown) * np.log(1 / tau2 + e)).sum() for e in counts])
    chance = np.exp(logs - logs.max())
    r = shares(float(betas @ chance / chance.sum()))
    spread = tau2 / (1 + tau2 * (r @ foretold))

    def values(misses: Array, failures: Array) -> Array:
        mean = (r @ failures)[:, None]
        found = gamma.ppf(places, mean / (1 + spread[:, None] * mean))
        return misses[:, None] + mean * found / found.mean(axis=1, keepdims=True)

    def mean_of(right: Array, fn: Array) -> Array:
        return g(size[:, None], right[:, None], fn).mean(axis=1)

    before, low = values(0 * met, known + left), np.maximum(tp - 0.5, 0)
    under = np.maximum(before - 0.5, 0)
    by_tp = (mean_of(tp + 0.5, before) - mean_of(low, before)) / (tp + 0.5 - low) / num
    change = g(size[:, None], tp[:, None], before + 0.5) - g(size[:, None], tp[:, None], under)
    by_fn = (change / (before + 0.5 - under)).mean(axis=1) / num
    moved = by_fn[:, None] - by_tp
    error = (moved[y, own] * v - (p * (r * moved).sum(axis=0))[own]) / (1 - w / labels[own])
    whole = len(predicted)
    step = (whole * weight @ error - error.sum()) * n / (n + 10)
    value = mean_of(tp, values(met, left)).mean() + step
    half = (r * moved**2).sum(axis=0)[own] * (whole * rounds.largest_weight) ** 2
    variance = whole**2 * rounds.variance(error) + 0.5 * (half @ half) / half.sum()
    nearest = min(variance**0.5, 0.5)
    x = min(max(value, nearest), 1 - nearest)
    z, labels_alike = norm.ppf(0.975), x * (1 - x) / variance * (norm.ppf(0.975) / t.ppf(0.975, n - 1)) ** 2
    middle, width = (
        value + z**2 / (2 * labels_alike),
        (value * (1 - value) / labels_alike + (z / labels_alike / 2) ** 2),
    )
    low_end, high_end = ((middle + sign * z * width**0.5) / (1 + z**2 / labels_alike) for sign in (-1, 1))
    return value, low_end, high_end


@pytest.mark.parametrize("method", ["srs", "css"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_average_is_what_the_page_says(method: str, name: str) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        predicted, confidence = (
            rng.choice(40, 2000, p=rng.dirichlet(np.full(40, 2.0))),
            0.4 + 0.6 * rng.beta(3, 1, 2000),
        )
        predicted[:40] = np.arange(40)
        truth = np.where(rng.random(2000) > confidence, (predicted + rng.integers(1, 40, 2000)) % 40, predicted)
        pool = opacc.Pool(confidence=confidence, prediction=[f"{k:02d}" for k in predicted])
        chosen = opacc.select(pool, method, budget=80, seed=seed)
        labels = [f"{k:02d}" for k in truth[chosen.index]]
        found = opacc.estimate(chosen, labels=labels, pool=pool, metric=name)
        assert (found.value, found.low, found.high) == pytest.approx(
            from_the_page(name, predicted, truth, chosen), abs=1e-4
        )
