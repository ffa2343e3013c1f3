"""Estimators: exact unbiasedness by enumeration, intervals against their definition, coverage."""

import itertools

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import binom, hypergeom

import opacc_ray as opacc
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.designs.stratified import Stratified
from opacc_ray.errors import LabelError
from opacc_ray.estimators import intervals
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.design_based import estimate_sample
from opacc_ray.pool import Pool


def simple_random(outcome: np.ndarray, pool_size: int) -> Estimate:
    return estimate_sample(SimpleRandom(len(outcome), pool_size, replacement=False), outcome, 0.95)


def stratified(outcome: np.ndarray, stratum: np.ndarray, sizes: list[int]) -> Estimate:
    return estimate_sample(Stratified(stratum, np.array(sizes)), outcome, 0.95)


@pytest.mark.parametrize("num", [75, 90])
@pytest.mark.parametrize("sizes", [[100], [80, 10, 10]])
def test_interval_holds_in_a_small_pool_that_is_labelled_for_the_most_part(num: int, sizes: list[int]) -> None:
    """By enumeration, whatever the number of failures: an accuracy of 100 examples is a multiple of 1 %."""
    rest, failures = num - sum(sizes[1:]), 3 * (len(sizes) > 1)  # three failures in strata that are labelled in full
    stratum = np.repeat(np.arange(len(sizes)), [rest, *sizes[1:]])
    design = SimpleRandom(num, 100, False) if len(sizes) == 1 else Stratified(stratum, np.array(sizes))
    chosen = opacc.Selection("css", {}, 0, 100, np.arange(num), tuple(map(str, range(num))), design)
    met = np.arange(rest + 1)
    found = []
    for count in met:
        outcome = np.ones(num)
        outcome[:count] = outcome[rest : rest + failures] = 0
        found.append(opacc.estimate(chosen, outcome))
    low, high = np.array([(item.low, item.high) for item in found]).T
    for total in range(sizes[0] + 1):
        truth = 1 - (total + failures) / 100
        held = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
        assert hypergeom.pmf(met, sizes[0], total, rest) @ held >= 0.95 - 1e-12


@pytest.mark.parametrize(("pool", "size"), [(7, 7), (60, 9), (5000, 400), (10_000_000, 50)])
def test_hypergeometric_interval_inverts_both_tests(pool: int, size: int) -> None:
    """Its ends are the last shares that SciPy's distribution does not reject."""
    for successes in {0, 1, size // 3, size - 1, size}:
        low, high = (round(end * pool) for end in intervals.hypergeometric(successes, size, pool, 0.9))
        possible = range(successes, pool - size + successes + 1)
        for total in {total for total in (low - 1, low, high, high + 1) if total in possible}:
            at_least = hypergeom.sf(successes - 1, pool, total, size)
            at_most = hypergeom.cdf(successes, pool, total, size)
            assert (at_least > 0.05 and at_most > 0.05) == (low <= total <= high), total


def test_srs_is_unbiased_over_all_samples_of_a_tiny_pool() -> None:
    outcome = np.array([1, 0, 1, 0.25, 1, 0.5])
    samples = list(itertools.combinations(range(6), 3))
    values = [simple_random(outcome[list(sample)], 6).value for sample in samples]
    assert np.mean(values) == pytest.approx(outcome.mean(), abs=1e-12)


def test_srs_standard_error_is_unbiased_for_the_variance() -> None:
    outcome = np.array([1, 0, 1, 1, 0, 1.0])
    samples = list(itertools.combinations(range(6), 3))
    estimates = [simple_random(outcome[list(sample)], 6) for sample in samples]
    variance = np.var([estimate.value for estimate in estimates])
    assert np.mean([estimate.standard_error**2 for estimate in estimates]) == pytest.approx(variance, abs=1e-12)


def test_css_is_unbiased_over_all_samples_of_a_tiny_pool() -> None:
    outcome = np.array([1, 0, 1, 0.25, 1, 0.5, 0])
    strata = [[0, 1, 2, 3], [4, 5, 6]]
    draws = itertools.product(itertools.combinations(strata[0], 2), itertools.combinations(strata[1], 1))
    stratum = np.array([0, 0, 1])
    values = [stratified(outcome[[*a, *b]], stratum, [4, 3]).value for a, b in draws]
    assert np.mean(values) == pytest.approx(outcome.mean(), abs=1e-12)


@pytest.mark.parametrize(("successes", "size", "pool"), [(0, 5, 30), (3, 10, 40), (10, 10, 40), (7, 9, 9), (1, 1, 2)])
def test_hypergeometric_interval_is_the_inverted_test(successes: int, size: int, pool: int) -> None:
    kept = [
        total
        for total in range(successes, pool - size + successes + 1)
        if hypergeom.sf(successes - 1, pool, total, size) > 0.025
        and hypergeom.cdf(successes, pool, total, size) > 0.025
    ]
    assert intervals.hypergeometric(successes, size, pool, 0.95) == (kept[0] / pool, kept[-1] / pool)


def test_hypergeometric_interval_covers_every_pool() -> None:
    pool, size = 60, 15
    bounds = np.array([intervals.hypergeometric(x, size, pool, 0.95) for x in range(size + 1)])
    for total in range(pool + 1):
        covers = (bounds[:, 0] <= total / pool) & (total / pool <= bounds[:, 1])
        assert hypergeom.pmf(np.arange(size + 1), pool, total, size) @ covers >= 0.95


def test_wilson_solves_its_equation() -> None:
    low, high = intervals.wilson(0.3, 50, 0.9)
    z = intervals.normal_quantile(0.9)
    for bound in (low, high):
        assert abs(0.3 - bound) == pytest.approx(z * np.sqrt(bound * (1 - bound) / 50))


@pytest.mark.slow
@pytest.mark.parametrize("budget", [50, 100, 200])
def test_stratified_interval_covers(budget: int) -> None:
    """2,000 repetitions; fails under the 1e-4 quantile of a 95 % interval's hits."""
    rng = np.random.default_rng(0)
    confidence = rng.beta(4, 1, 3000)
    correct = (rng.random(3000) < confidence).astype(float)
    pool = opacc.Pool(confidence=confidence)
    hits = 0
    for seed in range(2000):
        chosen = opacc.select(pool, "css", budget, seed)
        estimate = opacc.estimate(chosen, correct[chosen.index])
        hits += estimate.low <= correct.mean() <= estimate.high
    assert hits >= binom.ppf(1e-4, 2000, 0.95)


def test_agreeing_outcomes_leave_an_interval() -> None:
    everything_right = simple_random(np.ones(40), 1000)
    assert everything_right.value == everything_right.high == 1
    assert everything_right.low == pytest.approx(0.914, abs=1e-3)  # 1 - 3.4/40, the rule of three
    assert stratified(np.ones(40), np.repeat([0, 1], 20), [900, 100]).low < 0.97


def test_whole_pool_labelled_leaves_no_doubt() -> None:
    estimate = simple_random(np.array([1, 1, 0, 1.0]), 4)
    assert (estimate.low, estimate.value, estimate.high) == (0.75, 0.75, 0.75)
    estimate = stratified(np.array([1, 1, 0, 1.0]), np.array([0, 0, 1, 1]), [2, 2])
    assert (estimate.low, estimate.value, estimate.high) == (0.75, 0.75, 0.75)


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ([1, 0, 1], r"shape \(3,\) and the selection 5 examples"),
        ([1, 0, 1, 1, 1.5], r"outcome 1.5 of example .* is not in \[0, 1\]"),
        ([1, 0, 1, 1, np.nan], "outcome nan of example"),
    ],
)
def test_refuses_outcomes_that_do_not_fit(outcome: list[float], message: str) -> None:
    chosen = opacc.select(opacc.Pool(ids=list("abcdefgh")), "srs", 5)
    with pytest.raises(LabelError, match=message):
        opacc.estimate(chosen, outcome)


@pytest.mark.parametrize("level", [0, 1, 95])
def test_refuses_a_level_that_is_no_probability(level: float) -> None:
    chosen = opacc.select(opacc.Pool(ids=list("abcdefgh")), "srs", 5)
    with pytest.raises(LabelError, match=f"level={level}"):
        opacc.estimate(chosen, np.ones(5), level)


def test_ces_says_what_its_interval_rests_on() -> None:
    rng = np.random.default_rng(0)
    chosen = opacc.select(opacc.Pool(hidden=rng.normal(size=(300, 4))), "ces", 40)
    outcome = np.arange(40) % 5 > 0
    estimate, plain = opacc.estimate(chosen, outcome), simple_random(outcome.astype(float), 300)
    assert not estimate.design_based
    assert "no design-based variance" in (estimate.reason or "")
    assert (estimate.value, estimate.low, estimate.high) == (plain.value, plain.low, plain.high)


@pytest.mark.slow
def test_no_interval_is_narrow_where_few_failures_are_expected() -> None:
    """The numbers of docs/intervals.md: half-widths of 200 labels over 1.96 standard deviations.

    Of the exact interval, and the least mean that any interval can have which always covers: J. W. Pratt, "Length of
    confidence intervals", JASA 56 (1961).
    """
    exact = [intervals.hypergeometric(x, 200, 10**6, 0.95) for x in range(40)]
    for expected, of_exact, least in ((0.05, 4.27, 2.43), (0.2, 2.29, 1.37), (1, 1.35, 0.93), (3, 1.15, 0.87)):
        share = expected / 200
        scale = 2 * 1.96 * np.sqrt(share * (1 - share) / 200)
        widths = np.array([high - low for low, high in exact])
        assert binom.pmf(np.arange(40), 200, share) @ widths / scale == pytest.approx(of_exact, abs=0.01)
        shares = np.linspace(0, 0.25, 1001)
        assert trapezoid([_kept(other, share) for other in shares], shares) / scale == pytest.approx(least, abs=0.01)


def _kept(share: float, truth: float) -> float:
    """Probability with which the most powerful test of ``share`` against ``truth``, at 5 %, does not reject it."""
    count = np.arange(201) if share > truth else np.arange(200, -1, -1)  # the most telling first
    likely, under_truth = binom.pmf(count, 200, share), binom.pmf(count, 200, truth)
    before = np.cumsum(likely) - likely
    return float(1 - np.clip((0.05 - before) / np.maximum(likely, 1e-300), 0, 1) @ under_truth)


@pytest.mark.parametrize("method", ["srs", "css"])
def test_one_large_loss_that_most_of_the_pool_did_not_show_is_reckoned_with(method: str) -> None:
    """Four fifths of 100 scores are seen, and the one that loses all is not in a fifth of samples: 200 of them."""
    score = 1 - 0.001 * np.random.default_rng(0).random(100)
    score[-1] = 0
    pool, hits = Pool(confidence=np.linspace(0.5, 1, 100)), 0
    for seed in range(200):
        chosen = opacc.select(pool, method, 80, seed)
        found = opacc.estimate(chosen, score[chosen.index])
        hits += found.low <= score.mean() <= found.high
    assert hits >= 190
