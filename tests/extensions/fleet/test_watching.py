"""Watching a life of windows: bets are fair, false alarms are as rare as promised, and drops are noticed."""

from itertools import combinations

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom, hypergeom

from opacc_ray.extensions.fleet.watching import (
    LOWEST,
    Reference,
    adjusted,
    begin,
    bets_on_counts,
    bets_on_draws,
    bets_on_interval,
    counted_reference,
    interval_reference,
    labels_to_draw,
    windows_to_alarm,
    without_labels,
)


def known_reference(share: float | np.ndarray) -> Reference:
    """A reference whose share of failures (...) is known."""
    upper = np.asarray(share, dtype=np.float64)[..., None]
    return Reference(upper, np.zeros_like(upper))


@pytest.mark.parametrize("limit", [0.02, 0.3])
def test_bets_are_fair_at_the_limit_and_lose_below(limit: float) -> None:
    counts = np.arange(41)
    capital = np.exp(bets_on_counts(counts, 40, limit))  # (counts, stakes)
    np.testing.assert_allclose(binom.pmf(counts, 40, limit) @ capital, 1)
    assert (binom.pmf(counts, 40, limit / 2) @ capital < 1).all()
    few = np.arange(21)
    without = hypergeom.pmf(few, 100, round(100 * limit), 20) @ np.exp(bets_on_counts(few, 20, limit))
    assert (without <= 1 + 1e-12).all()


def test_bets_on_draws_are_those_on_counts_for_equal_probabilities() -> None:
    values = np.array([1.0, 0, 0, 1, 0])
    np.testing.assert_allclose(bets_on_draws(values, np.array([0.2, 0.4])), bets_on_counts(2, 5, np.array([0.2, 0.4])))


def test_bets_with_a_control_variate_are_fair_and_gain_more() -> None:
    """Every simple random sample of a window of 8 examples, whose predictions know something of its failures."""
    failure, predicted = np.array([1.0, 0, 0, 1, 0, 0, 0, 1]), np.array([0.5, 0.1, 0.2, 0.4, 0.3, 0.0, 0.1, 0.4])

    def bets(share: float) -> tuple[np.ndarray, np.ndarray]:
        found = []
        for own in map(list, combinations(range(8), 3)):
            values = adjusted(failure[own], predicted[own], predicted.mean(), 0.5, 1.0, np.array([share]))
            assert (values / share >= LOWEST - 1e-9).all()
            found.append([bets_on_draws(each, np.array([share]))[0] for each in (values, failure[own])])
        with_help, without = np.moveaxis(np.array(found), 1, 0)  # (samples, stakes)
        return with_help, without

    fair, _ = bets(failure.mean())
    assert (np.exp(fair).mean(axis=0) <= 1 + 1e-12).all()
    with_help, without = bets(0.2)
    assert (with_help.mean(axis=0) > without.mean(axis=0)).all()


def test_bets_on_intervals_are_fair_where_intervals_hold() -> None:
    """An estimate with a normal error, whose intervals are exact."""
    random, limit = np.random.default_rng(0), np.array([0.2])

    def bets(error: float) -> float:
        accuracy = 0.8 + error

        def interval_at(level: float) -> tuple[float, float]:
            half = 0.03 * float(ndtri((1 + level) / 2))
            return accuracy - half, accuracy + half

        return float(np.exp(bets_on_interval(interval_at, limit))[0, 0])

    assert np.mean([bets(error) for error in random.normal(0, 0.03, 2000)]) < 1
    assert bets(-0.15) > 1000


def lives(
    share: np.ndarray, known: np.ndarray | None, least: int, most: int, num: int = 1000, tolerance: float = 0.0
) -> np.ndarray:
    """The week of each life's alarm at the rate .05, or 0."""
    random = np.random.default_rng(1)
    reference = known_reference(np.full(num, share[0])) if known is None else counted_reference(known, 1000)
    state, alarm = begin(reference, tolerance), np.zeros(num, dtype=int)
    for week, own in enumerate(share.tolist(), start=1):
        labels = labels_to_draw(state, least, most)
        failures = random.binomial(labels, own)
        state = state.after(bets_on_counts(failures[:, None], labels[:, None], state.limits))
        alarm[(alarm == 0) & (state.evidence >= 20)] = week
    return alarm


@pytest.mark.slow
def test_lives_without_a_drop_have_few_false_alarms() -> None:
    """1,000 lives of 260 looks, whose labels depend on what was seen; .05 plus four standard errors of 1,000."""
    still = np.full(260, 0.17)
    assert np.mean(lives(still, None, 25, 100) > 0) <= 0.05
    estimated = np.random.default_rng(2).binomial(1000, 0.17, 1000)
    assert np.mean(lives(still, estimated, 50, 50) > 0) <= 0.05


def test_drops_are_noticed_about_when_it_is_foreseen() -> None:
    alarms = lives(np.where(np.arange(80) < 13, 0.17, 0.27), None, 50, 50, num=200)
    assert np.mean(alarms < 14) < 0.05
    state = begin(known_reference(0.17), 0.0)
    for _ in range(13):
        state = state.after(bets_on_counts(0.17 * 50, 50, state.limits))
    foreseen = windows_to_alarm(state, 0.27, 50, 0.05)
    assert abs(np.median(alarms) - 13 - foreseen) <= 3
    assert windows_to_alarm(state, 0.17, 50, 0.05) is None


def test_reference_that_is_poorly_known_asks_for_more_evidence() -> None:
    bets = [begin(reference, 0.0) for reference in (known_reference(0.2), counted_reference(200, 1000))]
    bets.append(begin(counted_reference(20, 100), 0.0))
    found = [float(state.after(bets_on_counts(80, 200, state.limits)).evidence) for state in bets]
    assert found[0] > found[1] > found[2]


def test_reference_by_intervals_agrees_with_that_of_a_sample() -> None:
    error = np.sqrt(0.2 * 0.8 / 1000)

    def interval_at(level: float) -> tuple[float, float]:
        half = error * float(ndtri((1 + level) / 2))
        return 0.8 - half, 0.8 + half

    own = [begin(item, 0.0) for item in (counted_reference(200, 1000), interval_reference(interval_at, 0.8, error))]
    first, second = (float(state.after(bets_on_counts(120, 300, state.limits)).evidence) for state in own)
    assert 0.05 < np.log(first) / np.log(second) < 5


def test_confidences_say_the_accuracy_where_they_mean_the_same() -> None:
    random = np.random.default_rng(0)
    confidence = random.uniform(0.5, 1, 20_000)
    right = (random.random(20_000) < confidence**2).astype(float)  # too sure of itself
    found = without_labels(random.uniform(0.6, 0.9, 5000), confidence, right, np.ones(20_000))
    truth = np.mean(random.uniform(0.6, 0.9, 100_000) ** 2)
    assert found == pytest.approx(truth, abs=0.02)
