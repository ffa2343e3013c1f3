"""The plain interval and the effective sample size beside an estimate."""

import numpy as np
import pytest
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.estimation import intervals
from opacc_ray.estimation.adjustments import baseline
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.sample import join
from opacc_ray.pool import Pool

N = 2000


@pytest.fixture(scope="module")
def pool() -> Pool:
    rng = np.random.default_rng(0)
    return Pool(hidden=rng.normal(size=(N, 4)), confidence=rng.beta(3, 1, N))


@pytest.fixture(scope="module")
def outcome(pool: Pool) -> NDArray[np.float64]:
    return (np.random.default_rng(1).random(N) < pool.confidence).astype(float)


def test_effective_size_by_hand() -> None:
    """v = 0.2 · 0.8 · 100/99 · (1/400 - 1/1000) is the variance of a simple random sample of 400."""
    chosen = opacc.select(Pool(ids=[str(i) for i in range(1000)]), "srs", 100, seed=1)
    values = np.r_[np.zeros(20), np.ones(80)]
    error = np.sqrt(0.16 * 100 / 99 * (1 / 400 - 1 / 1000))
    plain = baseline(join(chosen, values), Estimate(0.8, error, 0.76, 0.84, 0.95, "any", 100, True))
    assert plain.effective_size == pytest.approx(400)
    assert (plain.low, plain.high) == intervals.hypergeometric(80, 100, 1000, 0.95)


@pytest.mark.slow
def test_effective_size_is_the_gain_of_the_design(pool: Pool, outcome) -> None:
    """Mean over 100 samples of strata, against the ratio of the true variances."""
    values, sizes = [], []
    for seed in range(100):
        chosen = opacc.select(pool, "css", 200, seed, fractions=(0.5, 0.5), allocation=(0.35, 0.65))
        estimate = estimate_outcomes(chosen, outcome[chosen.index])
        values.append(estimate.value)
        sizes.append(baseline(join(chosen, outcome[chosen.index]), estimate).effective_size)
    true = outcome.var(ddof=1) / (np.mean((np.array(values) - outcome.mean()) ** 2) + outcome.var(ddof=1) / N)
    assert np.mean(sizes) == pytest.approx(true, rel=0.35)
    assert np.mean(sizes) > 200


def test_without_a_variance_there_is_no_effective_size(pool: Pool) -> None:
    chosen = opacc.select(pool, "ces", 60, seed=1)
    ones = np.ones(60)
    assert baseline(join(chosen, ones), estimate_outcomes(chosen, ones)).effective_size is None
    chosen = opacc.select(pool, "srs", 60, seed=1)
    plain = baseline(join(chosen, ones), estimate_outcomes(chosen, ones))  # no failure met
    assert plain.effective_size is None
    assert plain.to_dict()["low"] == plain.low < plain.high == 1


@pytest.mark.parametrize("outcomes", [np.zeros(60), np.ones(60), np.full(60, 0.999), np.r_[np.zeros(2), np.ones(58)]])
def test_labels_that_hardly_differ_do_not_tell_what_they_are_worth(pool: Pool, outcomes) -> None:
    """Predictions that have learned this leave no variance, yet the interval is wider than that of 60 at random."""
    with_predictions = Pool(confidence=pool.confidence, prediction=np.arange(N) % 4)
    chosen = opacc.select(with_predictions, "neyman", 60, seed=1)
    estimate = estimate_outcomes(chosen, outcomes, pool=with_predictions)
    assert baseline(join(chosen, outcomes), estimate).effective_size is None


def test_no_gain_is_stated_beside_an_interval_that_shows_none() -> None:
    chosen = opacc.select(Pool(ids=[str(i) for i in range(1000)]), "srs", 100, seed=1)
    values, error = np.r_[np.zeros(20), np.ones(80)], np.sqrt(0.16 * 100 / 99 * (1 / 400 - 1 / 1000))
    assert baseline(join(chosen, values), Estimate(0.8, error, 0.7, 0.9, 0.95, "any", 100, True)).effective_size is None
    worse = np.sqrt(0.16 * 100 / 99 * (1 / 50 - 1 / 1000))
    plain = baseline(join(chosen, values), Estimate(0.8, worse, 0.7, 0.9, 0.95, "any", 100, True))
    assert plain.effective_size == pytest.approx(50)
