"""Neyman sampling: what its interval covers, its gain over SRS, and the price of a useless predictor."""

import numpy as np
import pytest
from drawn_rounds import draw_rounds
from neyman_case import make_pool, make_selection
from oracles.ordered import draw_ordered
from scipy.special import expit
from scipy.stats import binom
from unclipped import combine_rounds
from whole_plan import WholePlan, whole_plan

import opacc_ray as opacc
from opacc_ray.estimation.estimate import KnownPool, estimate_outcomes, numbers_of
from opacc_ray.estimation.intervals import zero_failure_bound
from opacc_ray.estimation.sample import join
from opacc_ray.metrics.metric import parse_metric
from opacc_ray.parts.view import view_of
from opacc_ray.samplers import neyman, parse_parameters
from opacc_ray.samplers.base import NO_PREVIOUS, Previous, Task
from opacc_ray.samplers.neyman.sampling import least_share


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
            estimate = estimate_outcomes(drawn, outcome[drawn.index])
            covered += estimate.low <= outcome.mean() <= estimate.high
            values.append(estimate.value)
        assert covered / 2000 >= 0.931
        assert np.mean(values) == pytest.approx(outcome.mean(), abs=4 * np.std(values) / np.sqrt(2000))

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
            assert np.median(prices) <= 0.2 + 1e-3
            assert np.mean(prices) <= 0.23

    def test_scores(self) -> None:
        """Regression: no confidence, outcomes in [0, 1], spread that the hidden layer explains."""
        rng = np.random.default_rng(5)
        hidden = rng.normal(size=(2000, 6)).astype(np.float32) * np.array([3, 1, 1, 1, 1, 1], dtype=np.float32)
        failure = np.minimum(0.01 * np.exp(hidden[:, 0] / 2) * rng.chisquare(1, 2000), 1)
        pool = opacc.Pool(hidden=hidden, prediction=rng.normal(size=2000))
        selections, outcomes = draw_rounds(pool, 1 - failure, (50, 50), seed=0)
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
            selections, outcomes = draw_rounds(view, outcome, sizes, seed)
            found = (estimate_outcomes(selections, outcomes), estimate_outcomes(selections, outcomes, pool=view))
            excluded += [not item.low <= outcome.mean() <= item.high for item in found]
        assert excluded.max() <= binom.ppf(1 - 1e-4, 100, 0.05)

    @pytest.mark.slow
    def test_interval_of_scores_is_as_wide_as_errors_where_large_losses_are_foreseen(self) -> None:
        """If each label counted once in φ, it would be 1.4 times as wide as 1.96 root mean squared errors."""
        rng = np.random.default_rng(0)
        logit = 5 * rng.standard_normal(3000)
        p = expit(logit - np.quantile(logit, 0.985))
        outcome = 1 - np.where(rng.random(3000) < p, 1.0, 0.05 * rng.random(3000))
        view, true = view_of(opacc.Pool(confidence=1 - p)), outcome.mean()
        found = [
            estimate_outcomes(*draw_rounds(view, outcome, (20, 40, 60, 80), seed), pool=view) for seed in range(80)
        ]
        excluded = sum(not own.low <= true <= own.high for own in found)
        error = np.sqrt(np.mean([(own.value - true) ** 2 for own in found]))
        assert excluded <= binom.ppf(1 - 1e-4, 80, 0.05)
        assert np.mean([own.high - own.low for own in found]) / 2 <= 1.3 * 1.96 * error

    @pytest.mark.parametrize(("first", "second"), [(4, 1), (8, 2)])
    def test_end_of_perfect_answers_is_between_those_of_failures_anywhere_and_where_fewest_are_drawn(
        self, first: float, second: float
    ) -> None:
        """All labels are right, and the model is unsure of a fifth: what a draw with these π can rule out.

        In random places, so many failures are met with 97.5 % or more; where fewest are drawn they are not, so no
        narrower end can hold there.
        """
        rng = np.random.default_rng(1)
        view = view_of(opacc.Pool(confidence=rng.beta(first, second, 3000)))
        plan = whole_plan(view, Task(100, neyman.Parameters(), NO_PREVIOUS))
        [selection], outcomes = draw_rounds(view, np.ones(3000), (100,), 0)
        num = round(3000 * (1 - estimate_outcomes(selection, outcomes[0], pool=view).low))
        anywhere = np.mean(1 - plan.probability) ** num
        hardly = np.prod(1 - np.sort(plan.probability)[:num])
        assert anywhere <= 0.025 < hardly
        assert num <= 1.25 * 3000 * zero_failure_bound(100, 0.95)

    def test_no_interval_of_f1_that_holds_wherever_positives_hide_is_narrower(self) -> None:
        """One pair in 200 matches, in truth as the model says: more could hide than the lower end allows.

        Of as many in random places among those predicted not to match, no label meets one with more than 2.5 %.
        """
        rng = np.random.default_rng(2)
        logit = 7 * rng.standard_normal(10_000)
        logit -= np.quantile(logit, 0.995)
        truth, predicted = (rng.random(10_000) < expit(logit)).astype(np.int64), (logit > 0).astype(np.int64)
        correct, missed = (truth == predicted).astype(np.float64), np.ones(10_000)
        view = view_of(opacc.Pool(prediction=predicted, confidence=expit(np.abs(logit))))
        selections, outcomes = draw_rounds(view, correct, (100, 200, 300, 400), 0, serve=["f1@1"])
        for selection in selections:
            before = np.asarray(selection.design.labelled_before)
            given = parse_parameters("neyman", selection.parameters)
            plan = whole_plan(view, Task(len(selection), given, Previous.of(before, correct[before])))
            missed[plan.free] *= 1 - plan.probability
        index = np.concatenate([selection.index for selection in selections])
        sample, f1 = join(selections, outcomes, truth=truth[index]), parse_metric("f1@1")
        found = numbers_of(KnownPool(view, predicted, "01"), sample, [f1]).estimate(f1, 0.95)
        unlabelled = np.setdiff1d(np.flatnonzero(predicted == 0), index)
        hidden = int(np.log(0.025) / np.log(missed[unlabelled].mean()))
        matched = 2 * float(truth @ predicted)
        assert matched / float(predicted.sum() + truth.sum() + hidden) < found.low < found.value
        assert found.if_predicted is not None
        assert found.if_predicted.low > found.low


@pytest.mark.parametrize("least", [0.0, 0.1, 0.1001, 0.2, 1 / 3, 0.55, 0.7, 0.99, 1.0])
def test_the_least_share_is_found_to_1e_4_in_few_evaluations(least: float) -> None:
    asked: list[float] = []

    def is_cheap(share: float) -> bool:
        asked.append(share)
        return share >= least

    found = least_share(is_cheap, 0.1)
    assert found == 0.1 if least <= 0.1 else least <= found < least + 1e-4
    assert all(0.1 <= share <= 1 for share in asked)
    assert len(asked) <= 15  # the floor, and 0.9 / 2**14 < 1e-4
