"""Rounds until an interval is narrow enough: what they cost, and that the interval which is stated still holds."""

from types import SimpleNamespace

import numpy as np
import pytest
import until
from drawn_rounds import draw_rounds
from scipy.stats import binom

import opacc_ray as opacc
from opacc_ray.errors import LabelError
from opacc_ray.estimation import constants, sequential
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.intervals import clopper_pearson
from opacc_ray.estimation.sample import join
from opacc_ray.estimation.sequential import InterimAnalysis
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


def test_scores_count_as_many_failures_as_it_takes_to_make_their_loss() -> None:
    chosen = opacc.select(Pool(ids=[str(i) for i in range(500)]), "srs", 50, seed=1)
    even, one = np.full(50, 0.99), np.where(np.arange(50) == 7, 0.5, 1.0)
    assert sequential.analyse(join(chosen, even), estimate_outcomes(chosen, even)).met == pytest.approx(50)
    assert sequential.analyse(join(chosen, one), estimate_outcomes(chosen, one)).met == pytest.approx(1)


# -- the forecast --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [1, 20, 30, 55, 100, 1000])
def test_rounds_pay_for_their_look_and_end_beyond_the_forecast_in_the_pool(labels: int) -> None:
    for total in np.geomspace(labels / 3, 100 * labels, 60):
        for pool_size in (ENDLESS, 3 * labels + 7):
            sizes = sequential.planned_rounds(labels, min(total, pool_size), pool_size)
            ends = labels + np.cumsum(sizes)
            assert ends[-1] == pool_size or ends[-1] >= total
            assert all(end - size < total for end, size in zip(ends[1:], sizes[1:], strict=True))  # none is needless
            for size, end in zip(sizes, ends, strict=True):
                before = end - size
                assert size >= max(10, 0.1 * before - 1e-9) or end == pool_size
                assert end <= max(3 * before + 1, before + 10, 1.8 * 1.05 * before + 1)


def test_goal_that_is_reached_needs_nothing_and_one_that_is_not_needs_a_round() -> None:
    narrow = sequential.forecast([InterimAnalysis(100, 0.02, 50)], 0.021, ENDLESS)
    assert (narrow.reached, narrow.total, narrow.sizes) == (True, 100, ())
    by_luck = sequential.forecast([InterimAnalysis(100, 0.02, 0)], 0.021, ENDLESS)  # one failure would make it wide
    assert (by_luck.reached, by_luck.total) == (False, 100 + sum(by_luck.sizes))
    just_not = sequential.forecast([InterimAnalysis(3000, 0.0201, 300)], 0.02, 10_000)
    assert just_not.sizes == (300,)
    with pytest.raises(LabelError, match="half_width=0: give a number above 0"):
        sequential.forecast([InterimAnalysis(100, 0.02, 50)], 0, ENDLESS)


def test_a_price_that_is_not_sensible_is_told_in_one_sentence() -> None:
    run = [InterimAnalysis(200, 0.05, 40)]
    near, far = sequential.forecast(run, 0.04, 2000), sequential.forecast(run, 0.01, 2000)
    assert sequential.advice(near, 300, run[-1], 2000) is None
    told = sequential.advice(far, 1900, run[-1], 2000)
    assert told is not None
    assert told.startswith(f"that is {far.total / 2000:.0%} of the pool; 400 labels, twice as many as now, would give")
    assert float(told.rpartition("±")[2]) == pytest.approx(0.05 * (0.002 / 0.0045) ** far.rate, abs=5e-4)
    assert sequential.advice(sequential.forecast(run, 0.01, 350), 340, run[-1], 350) == "that is 100% of the pool"
    dear = sequential.forecast(run, 0.035, 2000)  # 349 labels
    other = sequential.advice(dear, 100, run[-1], 2000)
    assert other == "that is more than simple random sampling takes; go on with --method srs"


# -- what it comes to ----------------------------------------------------------------------------------------


def stop_of_counts(rng: np.random.Generator, share: float, goal: float, size: int) -> until.Stop:
    """Draw rounds from an endless pool, in which so many fail, until the exact interval is narrow enough."""
    seen: list[InterimAnalysis] = []
    labels = failures = 0
    level = sequential.interim_level(0.95)
    while True:
        labels, failures = labels + size, failures + int(rng.binomial(size, share))
        low, high = clopper_pearson(failures, labels, level)
        seen.append(InterimAnalysis(labels, (high - low) / 2, min(failures, labels - failures)))
        ahead = sequential.forecast(seen, goal, 10**9)
        if ahead.reached:
            return until.Stop(labels, len(seen), not low <= share <= high)
        size = ahead.sizes[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failures", "goal", "first"), [(0.06, 0.03, 60), (0.1, 0.05, 60), (0.04, 0.02, 100), (0.3, 0.05, 30)]
)
def test_stated_interval_excludes_the_truth_in_five_percent_at_most(failures: float, goal: float, first: int) -> None:
    """Exact intervals of counts, where luck with few failures would harm most; 1,000 runs, to the 1 - 1e-4 quantile."""
    stops = [stop_of_counts(np.random.default_rng(seed), failures, goal, first) for seed in range(1000)]
    assert sum(stop.error for stop in stops) <= binom.ppf(1 - 1e-4, 1000, 0.05)


@pytest.mark.slow
def test_interval_that_spends_twice_alpha_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "INTERIM_SHARE", 2.2)
    stops = [stop_of_counts(np.random.default_rng(seed), 0.3, 0.05, 30) for seed in range(1000)]
    assert sum(stop.error for stop in stops) > binom.ppf(1 - 1e-4, 1000, 0.05)


def planned(case: until.Case, method: str, goal: float, repetitions: int = 9) -> float:
    """Labels at which the median half-width is the goal, by a cubic through those of 30, 42, … labels."""
    labels, widths = [30.0], list[float]()
    while True:
        last = round(labels[-1])
        cuts = [round(share * last) for share in (0.1, 0.3, 0.6, 1)] if method in until.LEARNS else [last]
        sizes = np.diff([0, *cuts]).tolist()
        drawn = (draw_rounds(case.view, case.outcome, sizes, 10**6 + k, method) for k in range(repetitions))
        found = [estimate_outcomes(*rounds, pool=case.view) for rounds in drawn]
        widths.append(float(np.median([(own.high - own.low) / 2 for own in found])))
        if widths[-1] <= 0.9 * goal:
            break
        labels.append(1.4 * labels[-1])
    x, y = np.log(np.round(labels)), np.log(widths)
    curve, grid = np.poly1d(np.polyfit(x, y - np.log(goal), 3)), np.linspace(x[0], x[-1], 2000)
    return float(np.exp(grid[curve(grid) <= 0][0]))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["srs", "css", "neyman"])
def test_labels_are_few_more_than_planned_in_advance_and_the_interval_holds(method: str) -> None:
    """300 runs on a pool of 4,000 with a tenth of failures; half of them within 15 % of what a plan takes."""
    case = a_case(4000, 0.1)
    goal = 0.03
    plan = planned(case, method, goal)
    stops = [until.run_until(case, method, goal, seed) for seed in range(300)]
    assert np.median([stop.labels for stop in stops]) <= 1.15 * plan
    assert sum(stop.error for stop in stops) <= binom.ppf(1 - 1e-4, len(stops), 0.05)
    assert np.median([stop.rounds for stop in stops]) <= 6
