"""Rounds until an interval is narrow enough: what they cost, and that the interval which is stated still holds."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import until
from scipy.stats import binom

import opacc_ray as opacc
from opacc_ray.errors import LabelError
from opacc_ray.estimators import interim_analyses
from opacc_ray.estimators.design_based import confidence_sequence
from opacc_ray.estimators.interim_analyses import InterimAnalysis
from opacc_ray.parts.view import view_of
from opacc_ray.pool import Pool

ENDLESS = 10**9


def a_case(size: int, failures: float) -> until.Case:
    """A pool whose confidence is right about itself, more or less."""
    rng = np.random.default_rng(0)
    confidence = np.clip(1 - failures * rng.gamma(0.5, 2, size), 0.3, 1)
    outcome = (rng.random(size) < confidence).astype(float)
    return SimpleNamespace(view=view_of(Pool(confidence=confidence)), outcome=outcome)


# -- the look ------------------------------------------------------------------------------------------------


def test_a_look_spends_a_twentieth_less_than_alpha() -> None:
    assert interim_analyses.interim_level(0.95) == pytest.approx(0.9525)
    assert interim_analyses.interim_level(0.8) == pytest.approx(0.81)


def test_the_interval_of_a_look_is_between_the_ordinary_one_and_the_sequence() -> None:
    case = a_case(2000, 0.2)
    first = opacc.select(case.view, "srs", 100, seed=1)
    second = opacc.select(case.view, "srs", 200, seed=1, previous=[(first, case.outcome[first.index])])
    rounds, outcomes = [first, second], [case.outcome[item.index] for item in (first, second)]
    now, found = interim_analyses.analyse(rounds, outcomes)
    ordinary, sequence = opacc.estimate(rounds, outcomes), confidence_sequence(rounds, outcomes)
    assert ordinary.high - ordinary.low < found.high - found.low < sequence.high - sequence.low
    assert (now.labels, now.half_width) == (300, (found.high - found.low) / 2)
    assert now.met == (np.concatenate(outcomes) == 0).sum()


def test_few_failures_and_few_successes_ask_for_caution_and_many_do_not() -> None:
    decides = [InterimAnalysis(100, 1.0, met).cautious_half_width for met in (0, 1, 9, 99)]
    assert decides == pytest.approx([np.sqrt(2), np.sqrt(1.25), np.sqrt(1.01), 1.00005])
    pool = Pool(ids=[str(i) for i in range(500)])
    chosen = opacc.select(pool, "srs", 50, seed=1)
    wrong = np.arange(50) < 48
    assert interim_analyses.analyse([chosen], [1.0 - wrong])[0].met == 2
    assert interim_analyses.analyse([chosen], [1.0 * wrong])[0].met == 2


def test_scores_count_as_many_failures_as_it_takes_to_make_their_loss() -> None:
    chosen = opacc.select(Pool(ids=[str(i) for i in range(500)]), "srs", 50, seed=1)
    even, one = np.full(50, 0.99), np.where(np.arange(50) == 7, 0.5, 1.0)
    assert interim_analyses.analyse([chosen], [even])[0].met == pytest.approx(50)
    assert interim_analyses.analyse([chosen], [one])[0].met == pytest.approx(1)


# -- the forecast --------------------------------------------------------------------------------------------


def test_labels_for_a_half_width_by_the_root_law() -> None:
    assert interim_analyses.labels_for(0.02, 100, 0.04, ENDLESS) == pytest.approx(400, rel=1e-5)
    assert interim_analyses.labels_for(0.02, 100, 0.04, 1000) == pytest.approx(
        1000 / 3.25
    )  # 1/n - 1/1000 a quarter of what it is
    assert interim_analyses.labels_for(1e-6, 100, 0.04, 1000) == pytest.approx(1000, rel=1e-6)


def test_labels_for_a_half_width_at_the_rate_of_the_run() -> None:
    assert interim_analyses.labels_for(0.02, 100, 0.04, ENDLESS, rate=1.0) == pytest.approx(200, rel=1e-5)


def test_rate_is_drawn_from_the_usual_one_to_the_own_one_as_rounds_tell() -> None:
    run = [InterimAnalysis(n, 0.1 * (50 / n) ** 1.0, 99) for n in (50, 100, 200, 400, 800)]
    rates = [interim_analyses.shrinkage_rate(run[:k], ENDLESS) for k in range(1, 6)]
    assert rates[0] == pytest.approx(0.605)
    assert all(low < high for low, high in itertools.pairwise(rates))
    squares = 2 * np.log(2) ** 2
    assert rates[2] == pytest.approx((0.6 * 0.605 + squares) / (0.6 + squares), rel=1e-6)
    assert interim_analyses.shrinkage_rate([InterimAnalysis(50, 0.1, 0)], ENDLESS) == pytest.approx(
        1.1
    )  # no failure: almost as 1/n


def test_rounds_from_a_tenth_are_of_twenty_thirty_and_forty_percent() -> None:
    assert interim_analyses.planned_rounds(100, 1000, ENDLESS) == [200, 300, 450]  # 5 % on top


@pytest.mark.parametrize("labels", [1, 20, 30, 55, 100, 1000])
def test_rounds_pay_for_their_look_and_end_beyond_the_forecast_in_the_pool(labels: int) -> None:
    for total in np.geomspace(labels / 3, 100 * labels, 60):
        for pool_size in (ENDLESS, 3 * labels + 7):
            sizes = interim_analyses.planned_rounds(labels, min(total, pool_size), pool_size)
            ends = labels + np.cumsum(sizes)
            assert ends[-1] == pool_size or ends[-1] >= total
            assert all(end - size < total for end, size in zip(ends[1:], sizes[1:], strict=True))  # none is needless
            for size, end in zip(sizes, ends, strict=True):
                before = end - size
                assert size >= max(10, 0.1 * before - 1e-9) or end == pool_size
                assert end <= max(3 * before + 1, before + 10, 1.8 * 1.05 * before + 1)


def test_goal_that_is_reached_needs_nothing_and_one_that_is_not_needs_a_round() -> None:
    narrow = interim_analyses.forecast([InterimAnalysis(100, 0.02, 50)], 0.021, ENDLESS)
    assert (narrow.reached, narrow.total, narrow.sizes) == (True, 100, ())
    by_luck = interim_analyses.forecast(
        [InterimAnalysis(100, 0.02, 0)], 0.021, ENDLESS
    )  # one failure would make it wide
    assert (by_luck.reached, by_luck.total) == (False, 100 + sum(by_luck.sizes))
    just_not = interim_analyses.forecast([InterimAnalysis(3000, 0.0201, 300)], 0.02, 10_000)
    assert just_not.sizes == (300,)
    with pytest.raises(LabelError, match="half_width=0: give a number above 0"):
        interim_analyses.forecast([InterimAnalysis(100, 0.02, 50)], 0, ENDLESS)


def test_forecast_falls_with_the_goal_and_stays_in_the_pool() -> None:
    run = [InterimAnalysis(50, 0.1, 8), InterimAnalysis(150, 0.06, 20)]
    totals = [interim_analyses.forecast(run, goal, 5000).total for goal in (0.05, 0.04, 0.03, 0.02, 0.01, 0.001)]
    assert all(few < many for few, many in itertools.pairwise(totals))
    assert totals[0] > 150
    assert 4900 < totals[-1] <= 5000


def test_a_price_that_is_not_sensible_is_told_in_one_sentence() -> None:
    run = [InterimAnalysis(200, 0.05, 40)]
    near, far = interim_analyses.forecast(run, 0.04, 2000), interim_analyses.forecast(run, 0.01, 2000)
    assert interim_analyses.advice(near, 300, run[-1], 2000) is None
    told = interim_analyses.advice(far, 1900, run[-1], 2000)
    assert told is not None
    assert told.startswith(f"that is {far.total / 2000:.0%} of the pool; 400 labels, twice as many as now, would give")
    assert float(told.rpartition("±")[2]) == pytest.approx(0.05 * (0.002 / 0.0045) ** far.rate, abs=5e-4)
    assert (
        interim_analyses.advice(interim_analyses.forecast(run, 0.01, 350), 340, run[-1], 350)
        == "that is 100% of the pool"
    )
    dear = interim_analyses.forecast(run, 0.035, 2000)  # 349 labels
    other = interim_analyses.advice(dear, 100, run[-1], 2000)
    assert other == "that is more than simple random sampling takes; go on with --method srs"


# -- what it comes to ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failures", "goal", "first"), [(0.06, 0.03, 60), (0.1, 0.05, 60), (0.04, 0.02, 100), (0.3, 0.05, 30)]
)
def test_stated_interval_excludes_the_truth_in_five_percent_at_most(failures: float, goal: float, first: int) -> None:
    """Exact intervals of counts, where luck with few failures would harm most; 1,000 runs, to the 1 - 1e-4 quantile."""
    stops = [until.as_it_is(np.random.default_rng(seed), failures, goal, first) for seed in range(1000)]
    assert sum(stop.error for stop in stops) <= binom.ppf(1 - 1e-4, 1000, 0.05)


@pytest.mark.slow
def test_interval_that_spends_twice_alpha_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interim_analyses, "INTERIM_SHARE", 2.2)
    stops = [until.as_it_is(np.random.default_rng(seed), 0.3, 0.05, 30) for seed in range(1000)]
    assert sum(stop.error for stop in stops) > binom.ppf(1 - 1e-4, 1000, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["srs", "css", "neyman"])
def test_labels_are_few_more_than_planned_in_advance_and_the_interval_holds(method: str) -> None:
    """50 runs on a pool of 4,000 with a tenth of failures; half of them within 15 % of what a plan takes."""
    case = a_case(4000, 0.1)
    goal = 0.03
    plan = until.planned(until.ladder(case, method, goal, repetitions=9), goal)
    stops = [until.run_until(case, method, goal, seed) for seed in range(50)]
    assert np.median([stop.labels for stop in stops]) <= 1.15 * plan
    assert sum(stop.error for stop in stops) <= binom.ppf(1 - 1e-4, 50, 0.05)
    assert np.median([stop.rounds for stop in stops]) <= 6
