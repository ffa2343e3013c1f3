"""Confidence sequences: never wrong at any look, to within their level."""

import itertools

import numpy as np
import pytest
from drawn_rounds import draw_rounds, hold
from given_selections import selection_of
from numpy.typing import NDArray
from scipy.stats import binom

import opacc_ray as opacc
from opacc_ray.designs.design import DrawSequence
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.sample import join
from opacc_ray.estimation.sequential import (
    BETTING,
    SPENDING,
    confidence_sequence,
    draw_sequence,
    largest_capital,
    lower_bound,
)
from opacc_ray.pool import Pool
from opacc_ray.samplers.select import select

N = 2000
TAIL = -np.log(0.025)
Outcomes = NDArray[np.float64]


def _pool(rate: float) -> tuple[Pool, Outcomes]:
    """A pool with a share of failures, which confidence hints at."""
    rng = np.random.default_rng(0)
    confidence = rng.beta(8, 1, N)
    outcome = np.ones(N)
    outcome[np.argsort(confidence + 0.1 * rng.standard_normal(N))[: round(rate * N)]] = 0
    return Pool(confidence=confidence), outcome


def _ever_excluded(stream: DrawSequence | None, true: float) -> bool:
    assert stream is not None
    below = largest_capital(stream, true) >= TAIL
    return below or largest_capital(stream.mirrored(), 1 - true) >= TAIL


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("method", ["srs", "sups", "deepest"])
def test_the_truth_is_hardly_ever_excluded_between_20_and_400_labels(method: str, rate: float) -> None:
    """1,000 sequences; fails above the 1 - 1e-4 quantile of what a level of 95 % allows."""
    pool, outcome = _pool(rate)
    excluded = 0
    for seed in range(1000):
        chosen = opacc.select(pool, method, 400, seed)
        excluded += _ever_excluded(draw_sequence(join([chosen], [outcome[chosen.index]])), 1 - outcome.mean())
    assert excluded <= binom.ppf(1 - 1e-4, 1000, 0.05)


def test_the_capital_of_every_gambler_is_fair_over_all_orders_of_a_tiny_pool() -> None:
    """Its expectation under the truth is 1, from below and, mirrored, from above."""
    failure = np.array([0, 1, 0.5, 0, 1.0])
    orders = [np.array(order) for order in itertools.permutations(range(5), 4)]
    for mirror in (False, True):
        capital = []
        for order in orders:
            drawn = selection_of(SimpleRandom(len(order), 5, replacement=False), order)
            stream = draw_sequence(join([drawn], [1 - failure[order]]))
            assert stream is not None
            stream = stream.mirrored() if mirror else stream
            share = 1 - failure.mean() if mirror else failure.mean()
            expected = stream.pool_size * share - stream.drawn  # 0 once all failures are drawn: nothing is left to win
            odds = np.divide(stream.value, expected, out=np.ones(4), where=expected > 1e-9)
            capital.append(np.prod(1 + 0.7 * (odds - 1)))
        assert np.mean(capital) == pytest.approx(1, abs=1e-12)


@pytest.mark.slow
def test_unequal_draws_are_fair_whatever_was_drawn_before() -> None:
    """E[g_k | before] = N·m - D_k, for both draws with and without replacement, and in a second round."""
    pool, outcome = _pool(0.2)
    for method in ("srs", "sups", "deepest"):
        gaps = []
        for seed in range(300):
            stream = draw_sequence(join(*draw_rounds(pool, outcome, (10, 10), seed, method)))
            assert stream is not None
            assert (stream.value <= stream.bound * (1 + 1e-9)).all()
            gaps.append((stream.value + stream.drawn) / N - 0.2)
        gap = np.array(gaps).mean(axis=1)
        assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(300)


def test_intervals_nest_and_close_when_all_is_labelled() -> None:
    outcome = (np.random.default_rng(1).random(80) < 0.7).astype(float)
    chosen = opacc.select(Pool(ids=[str(i) for i in range(80)]), "srs", 80, seed=1)
    y = outcome[chosen.index]
    looks = [confidence_sequence(join(_first(chosen, n), y[:n])) for n in (5, 20, 50, 80)]
    for wide, narrow in itertools.pairwise(looks):
        assert wide.low <= narrow.low <= narrow.high <= wide.high
    assert looks[-1].method == BETTING
    assert (looks[-1].low, looks[-1].high) == pytest.approx((outcome.mean(), outcome.mean()))


def test_bound_solves_its_equation() -> None:
    pool = Pool(ids=[str(i) for i in range(200)])
    stream = draw_sequence(join([opacc.select(pool, "srs", 8, seed=1)], [[1, 0, 1, 1, 0, 0, 1, 1]]))
    assert stream is not None
    low = lower_bound(stream, 0.4)
    assert 0 < low < 3 / 8
    assert largest_capital(stream, low + 1e-9) == pytest.approx(-np.log(0.4), abs=1e-6)


def test_other_methods_spend_their_level_over_rounds() -> None:
    pool, outcome = _pool(0.1)
    rounds, outcomes = draw_rounds(pool, outcome, (60, 60), method="css")
    one = estimate_outcomes(rounds[0], outcomes[0], 1 - 0.05 * 6 / np.pi**2)
    two = estimate_outcomes(rounds, outcomes, 1 - 0.05 * 6 / np.pi**2 / 4)
    found = confidence_sequence(join(rounds, outcomes))
    assert (found.low, found.high) == (max(one.low, two.low), min(one.high, two.high))
    assert found.method == SPENDING
    assert confidence_sequence(join(rounds[0], outcomes[0])).low == one.low


@pytest.mark.slow
@pytest.mark.parametrize("method", ["css", "neyman"])
def test_the_truth_is_hardly_ever_excluded_over_rounds(method: str) -> None:
    """100 runs of three rounds; fails above the 1 - 1e-4 quantile of what a level of 95 % allows."""
    pool, outcome = _pool(0.1)
    drawn = (draw_rounds(pool, outcome, (40, 40, 40), seed, method) for seed in range(100))
    assert hold((confidence_sequence(join(*rounds)) for rounds in drawn), outcome.mean())


def test_gaps_in_a_design_that_builds_on_its_draws_go_round_by_round() -> None:
    pool, outcome = _pool(0.1)
    chosen = opacc.select(pool, "deepest", 40, seed=1).restrict(np.arange(40) != 7)
    assert confidence_sequence(join(chosen, outcome[chosen.index])).method == SPENDING
    chosen = opacc.select(pool, "sups", 40, seed=1).restrict(np.arange(40) != 7)  # independent draws
    assert confidence_sequence(join(chosen, outcome[chosen.index])).method == BETTING


def _first(selection: opacc.Selection, num: int) -> opacc.Selection:
    return selection.restrict(np.arange(len(selection)) < num)


@pytest.mark.slow
def test_ends_are_in_order_whatever_the_labels_say() -> None:
    """Labels in no random order, and rounding where all of a pool is labelled."""
    chosen = opacc.select(Pool(ids=[str(i) for i in range(N)]), "srs", 1000, seed=1)
    for outcome in (np.arange(1000) >= 200, np.arange(1000) < 200):
        found = confidence_sequence(join(chosen, outcome.astype(float)))
        assert 0 <= found.low <= found.high <= 1
    three = Pool(confidence=[0.9, 0.8, 0.7])
    first = opacc.select(three, "neyman", 2)
    second = select(three, "neyman", 1, previous=[(first, np.ones(2))])
    whole = confidence_sequence(join([first, second], [np.ones(2), np.zeros(1)]))
    assert whole.low == whole.high == 2 / 3
