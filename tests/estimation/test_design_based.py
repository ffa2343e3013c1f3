"""Estimators: exact unbiasedness by enumeration, intervals against their definition, coverage."""

import itertools

import numpy as np
import pytest
from drawn_rounds import hold
from given_selections import selection_of
from scipy.integrate import trapezoid
from scipy.stats import binom, hypergeom
from unclipped import estimate_sample

import opacc_ray as opacc
from opacc_ray.designs.simple_random import SimpleRandom, Stratified
from opacc_ray.errors import LabelError
from opacc_ray.estimation import intervals
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.intervals import Estimate


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
    chosen = selection_of(design)
    met = np.arange(rest + 1)
    found = []
    for count in met:
        outcome = np.ones(num)
        outcome[:count] = outcome[rest : rest + failures] = 0
        found.append(estimate_outcomes(chosen, outcome))
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
    drawn = (opacc.select(pool, "css", budget, seed) for seed in range(2000))
    assert hold((estimate_outcomes(chosen, correct[chosen.index]) for chosen in drawn), correct.mean())


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
        estimate_outcomes(chosen, outcome)


@pytest.mark.parametrize("level", [0, 1, 95])
def test_refuses_a_level_that_is_no_probability(level: float) -> None:
    chosen = opacc.select(opacc.Pool(ids=list("abcdefgh")), "srs", 5)
    with pytest.raises(LabelError, match=f"level={level}"):
        estimate_outcomes(chosen, np.ones(5), level)


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
