"""Neyman sampling: what its interval covers, its gain over SRS, and the price of a useless predictor."""

import numpy as np
import pytest
from neyman_case import audit, make_pool, make_selection
from oracles.ordered import draw_ordered
from scipy.stats import binom
from whole_plan import WholePlan, whole_plan

import opacc_ray as opacc
from opacc_ray.estimators.design_based import combine_rounds
from opacc_ray.parts.view import view_of
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import NO_PREVIOUS, Previous, Task
from opacc_ray.samplers.neyman.failure_model import predict_failure, read_signals
from opacc_ray.samplers.neyman.sampling import uniform_share


def exact_variance(plan: WholePlan, outcome: np.ndarray) -> float:
    """Of the share of failures, were examples drawn independently of each other: from π, p and the truth."""
    probability = plan.probability
    error = (1 - outcome)[plan.free] - plan.expected
    return float((error**2 * (1 - probability) / probability).sum()) / len(outcome) ** 2


def price_of(plan: WholePlan) -> float:
    """By how much the design is worse than SRS if p is worthless."""
    return float(np.mean(plan.probability.mean() / plan.probability)) - 1


class TestPrecision:
    @pytest.mark.slow
    @pytest.mark.parametrize(("num", "useless"), [(50, False), (100, False), (200, False), (100, True)])
    def test_interval_covers(self, num: int, useless: bool) -> None:
        pool, outcome = make_pool(4000, 7, useless=useless)
        rng = np.random.default_rng(num)
        task = Task(num, neyman.Parameters(), NO_PREVIOUS)
        plan = whole_plan(view_of(pool), task)
        covered, values = 0, []
        for _ in range(2000):
            drawn = make_selection(4000, plan.draw(draw_ordered(rng, plan.probability, plan.order)))
            estimate = opacc.estimate(drawn, outcome[drawn.index])
            covered += estimate.low <= outcome.mean() <= estimate.high
            values.append(estimate.value)
        assert covered / 2000 >= 0.931
        assert np.mean(values) == pytest.approx(outcome.mean(), abs=4 * np.std(values) / np.sqrt(2000))

    def test_one_round_beats_srs(self) -> None:
        pool, outcome = make_pool(4000, 7)
        plan = whole_plan(view_of(pool), Task(200, neyman.Parameters(), NO_PREVIOUS))
        assert exact_variance(plan, outcome) < 0.6 * outcome.var() / 200

    def test_rounds_find_that_the_confidence_is_useless(self) -> None:
        pool, outcome = make_pool(4000, 8, useless=True)
        selections, outcomes = audit(pool, outcome, (40, 60), seed=3)
        chosen = np.concatenate([drawn.index for drawn in selections])
        order = np.argsort(chosen)
        previous = Previous(chosen[order], np.concatenate(outcomes)[order])
        plan = whole_plan(view_of(pool), Task(100, neyman.Parameters(), previous))
        assert exact_variance(plan, outcome) < 1.15 * outcome.var() / 100

    def test_rounds_find_which_classes_are_swapped(self) -> None:
        """Confident errors, which confidence does not predict: two predicted classes always fail."""
        rng = np.random.default_rng(4)
        prediction = rng.integers(0, 10, 3000)
        outcome = (prediction > 1).astype(float)
        pool = opacc.Pool(confidence=1 - rng.beta(0.15, 5, 3000), prediction=prediction)
        labelled = np.sort(rng.choice(3000, 40, replace=False))
        p = predict_failure(read_signals(view_of(pool), 6), labelled, 1 - outcome[labelled]).failure
        assert p[prediction <= 1].min() > 0.5 > 0.1 > p[prediction > 1].mean()

    @pytest.mark.slow
    @pytest.mark.parametrize("price", [0.02, 0.05, 0.1])
    def test_a_useless_predictor_costs_its_price(self, price: float) -> None:
        """For any confidence: failures independent of p, averaged over random places of the failures."""
        pool, outcome = make_pool(4000, 9)
        task = Task(100, neyman.Parameters(price=price), NO_PREVIOUS)
        plan = whole_plan(view_of(pool), task)
        assert price_of(plan) == pytest.approx(price, abs=1e-3)
        rng = np.random.default_rng(0)
        variance = np.mean([exact_variance(plan, rng.permutation(outcome)) for _ in range(300)])
        assert variance == pytest.approx((1 + price) * outcome.var() / 100, rel=0.06)

    def test_labels_that_support_the_signals_raise_the_price(self) -> None:
        """The price rises with them; where the confidence is useless, it stays."""
        price = {}
        for useless in (False, True):
            pool, outcome = make_pool(4000, 9, useless=useless)
            labelled = np.sort(np.random.default_rng(1).choice(4000, 150, replace=False))
            task = Task(50, neyman.Parameters(), Previous(labelled, outcome[labelled]))
            plan = whole_plan(view_of(pool), task)
            assert plan.probability.sum() == pytest.approx(50)
            price[useless] = price_of(plan)
        assert price[False] > 0.2
        assert price[True] <= 0.1 + 1e-3

    @pytest.mark.parametrize(("least", "most"), [(0.05, 0.3), (0.1, 0.5)])
    def test_price_is_held_where_the_model_states_another_level(self, least: float, most: float) -> None:
        """A random confidence that states that most examples fail, for a model that is right on 99 %."""
        rng = np.random.default_rng(6)
        view = view_of(opacc.Pool(confidence=rng.uniform(least, most, 3000)))
        for num in (10, 30, 60):
            prices = []
            for _ in range(25):
                labelled = np.sort(rng.choice(3000, num, replace=False))
                previous = Previous(labelled, 1.0 - (rng.random(num) < 0.01))
                prices.append(price_of(whole_plan(view, Task(40, neyman.Parameters(), previous))))
            assert np.median(prices) <= 0.07 + 1e-3
            assert np.mean(prices) <= 0.1

    def test_uniform_share_is_the_least_that_keeps_the_price(self) -> None:
        """By hand: half the examples with twice the doubt of the others, 1/(φ + (1-φ)·2/3) and 1/(φ + (1-φ)·4/3)."""
        doubt = np.array([2 / 3, 4 / 3])

        assert uniform_share(doubt, 0.125, floor=0.1) == 0.1  # A(0) = (3/2 + 3/4)/2 = 1.125
        share = uniform_share(doubt, 0.04, floor=0.1)
        assert (1 / (share + (1 - share) * doubt)).mean() == pytest.approx(1.04, abs=1e-4)
        assert uniform_share(doubt, 0.04, floor=0.7) == 0.7

    def test_price_of_zero_gives_equal_probabilities(self) -> None:
        pool, _ = make_pool(4000, 9)
        plan = whole_plan(view_of(pool), Task(50, neyman.Parameters(price=0.0), NO_PREVIOUS))
        assert plan.probability == pytest.approx(np.full(4000, 50 / 4000), rel=1e-3)

    def test_uniform_share_of_one_gives_equal_probabilities(self) -> None:
        pool, _ = make_pool(4000, 9)
        task = Task(50, neyman.Parameters(floor=1.0), NO_PREVIOUS)
        plan = whole_plan(view_of(pool), task)
        assert plan.probability == pytest.approx(np.full(4000, 50 / 4000))

    def test_scores(self) -> None:
        """Regression: no confidence, outcomes in [0, 1], spread that the hidden layer explains."""
        rng = np.random.default_rng(5)
        hidden = rng.normal(size=(2000, 6)).astype(np.float32) * np.array([3, 1, 1, 1, 1, 1], dtype=np.float32)
        failure = np.minimum(0.01 * np.exp(hidden[:, 0] / 2) * rng.chisquare(1, 2000), 1)
        pool = opacc.Pool(hidden=hidden, prediction=rng.normal(size=2000))
        selections, outcomes = audit(pool, 1 - failure, (50, 50), seed=0)
        result = combine_rounds(selections, outcomes, 0.95)
        assert result.low <= 1 - failure.mean() <= result.high
        chosen = np.concatenate([drawn.index for drawn in selections])
        order = np.argsort(chosen)
        previous = Previous(chosen[order], np.concatenate(outcomes)[order])
        plan = whole_plan(view_of(pool), Task(100, neyman.Parameters(), previous))
        assert exact_variance(plan, 1 - failure) < 0.8 * failure.var() / 100

    @pytest.mark.slow
    @pytest.mark.parametrize("sizes", [(30,), (3, 6, 9, 12), (40, 60)], ids=str)
    def test_interval_of_scores_holds_where_large_losses_are_rare(self, sizes: tuple[int, ...]) -> None:
        """1 in 50 loses all, the others next to nothing; 100 samples, fails above the 1 - 1e-4 quantile of 95 %."""
        rng = np.random.default_rng(0)
        hidden = rng.normal(size=(3000, 6)).astype(np.float32)
        outcome = 1 - np.where(rng.random(3000) < 0.02, 1.0, 0.001 * rng.random(3000))
        view = view_of(opacc.Pool(prediction=rng.normal(size=3000), hidden=hidden))
        excluded = np.zeros(2)
        for seed in range(100):
            selections, outcomes = audit(view, outcome, sizes, seed)
            found = (opacc.estimate(selections, outcomes), opacc.estimate(selections, outcomes, pool=view))
            excluded += [not item.low <= outcome.mean() <= item.high for item in found]
        assert excluded.max() <= binom.ppf(1 - 1e-4, 100, 0.05)
