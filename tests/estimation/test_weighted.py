"""Weighted Clopper-Pearson intervals: of unlikely draws by enumeration, and where most examples fail."""

import itertools

import numpy as np
import pytest
from drawn_rounds import draw_rounds, hold
from scipy.stats import beta, multinomial
from unclipped import estimate_sample

import opacc_ray as opacc
from opacc_ray.designs.draw_probability import HansenHurwitz
from opacc_ray.estimation.constants import MID_P
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.intervals import outward, weighted_clopper_pearson
from opacc_ray.parts.view import view_of

N = 3000


def test_mid_p_end_halves_the_probability_of_an_unseen_failure() -> None:
    """Without a failure the mixture is half a point at 0, so the end is that of a tail twice as large."""
    for weight in (0.01, 0.2):
        low, high = weighted_clopper_pearson(0.0, 0.0, weight, 0.95, unseen=MID_P)
        assert (low, high) == (0, pytest.approx(weighted_clopper_pearson(0.0, 0.0, weight, 0.9)[1], rel=1e-6))
    y, s2, w = 0.1, 0.001, 0.05
    low, high = weighted_clopper_pearson(y, s2, w, 0.95, unseen=MID_P)
    assert low == weighted_clopper_pearson(y, s2, w, 0.95)[0]
    shrink = (1 + w) ** 2 * (1 + 2 * w)
    tails = []
    for mean, variance in ((y, s2), ((y + w) / (1 + w), (s2 + (w * (1 - y)) ** 2) / shrink)):
        size = mean * (1 - mean) / variance - 1
        tails.append(beta.sf(high, mean * size, (1 - mean) * size))
    assert np.mean(tails) == pytest.approx(0.025)


def _check_unlikely_draws(n: int, ratio: float) -> None:
    """Two halves of a pool, one drawn ``ratio`` times as often: every count of failures in n draws, and its interval.

    All failures are in the half that is seldom drawn, or as many in the other.
    """
    likely = np.array([1, ratio]) / (1 + ratio)  # of a draw to be in each half
    counts = [own for own in itertools.product(range(n + 1), repeat=3) if sum(own) <= n]
    ends = []
    for failing, failing_often, right in counts:
        often = n - failing - right  # draws of the other half, whether they fail or not
        half = np.repeat([0, 1], [failing + right, often])
        outcome = np.concatenate([np.zeros(failing), np.ones(right), np.zeros(failing_often)])
        outcome = np.concatenate([outcome, np.ones(n - len(outcome))])
        design = HansenHurwitz(likely[half] / (N / 2), N, likely[0] / (N / 2))
        found = estimate_sample(design, outcome, 0.95)
        ends.append(outward((found.low, found.high), N))
    low, high = np.array(ends).T
    draws = np.array([(*own, n - sum(own)) for own in counts])
    for seldom, frequent in itertools.product((0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5), (0.0, 0.05, 0.3)):
        rates = np.array([seldom, frequent])
        p = [likely[0] * seldom, likely[1] * frequent, likely[0] * (1 - seldom), likely[1] * (1 - frequent)]
        truth = 1 - rates.mean()
        held = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
        assert multinomial.pmf(draws, n, p) @ held >= 0.94, (seldom, frequent)


def test_failures_where_draws_are_unlikely_are_covered_in_every_cell() -> None:
    _check_unlikely_draws(8, 4.0)


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [3.0, 10.0])
def test_failures_where_draws_are_unlikely_are_covered_with_more_labels(ratio: float) -> None:
    _check_unlikely_draws(24, ratio)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("accuracy", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("method", ["deepest", "sups", "rhcs", "two_ups"])
def test_interval_holds_where_most_fail(method: str, accuracy: float, rounds: int) -> None:
    """100 samples of 50, failures unrelated to confidence; fails above the 1 - 1e-4 quantile of a level of 95 %."""
    rng = np.random.default_rng(1)
    outcome = 1.0 * (rng.random(N) < accuracy)
    view = view_of(opacc.Pool(confidence=1 - rng.beta(0.3, 1.5, N)))
    drawn = (draw_rounds(view, outcome, [50 // rounds] * rounds, seed, method) for seed in range(100))
    assert hold((estimate_outcomes(*own) for own in drawn), outcome.mean())


def test_no_success_excludes_no_accuracy_down_to_0() -> None:
    rng = np.random.default_rng(1)
    pool = opacc.Pool(confidence=1 - rng.beta(0.3, 1.5, N))
    for seed in range(50):
        assert estimate_outcomes(opacc.select(pool, "sups", 50, seed), np.zeros(50)).low == 0
