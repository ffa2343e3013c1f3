"""Neyman sampling: exact probabilities and unbiasedness by enumeration, coverage, gain, and the trap it must not be."""

import gc
import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from oracles import cube
from oracles import neyman as reference
from oracles.ordered import draw_ordered
from scipy.stats import binom
from whole_plan import WholePlan, whole_plan

import opacc_ray as opacc
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.designs.unequal import inclusion_probabilities
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.estimators.by_design import by_design
from opacc_ray.estimators.rounds import combine
from opacc_ray.parts.view import View, view_of
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import NO_PREVIOUS, Draw, Previous, Task
from opacc_ray.samplers.neyman.directions import find_projection
from opacc_ray.samplers.neyman.failure_model import predict_failure, read_signals
from opacc_ray.samplers.neyman.sampling import uniform_share
from opacc_ray.samplers.neyman.signals import spread_ranks
from opacc_ray.selection import Selection


def test_nothing_made_of_a_pool_stays_when_it_is_drawn() -> None:
    """Without waiting for the garbage collector, for pools are large."""
    pool, _ = make_pool(50_000, 9)
    opacc.select(pool, "neyman", 20)  # compiles
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        opacc.select(pool, "neyman", 20)
        assert tracemalloc.get_traced_memory()[0] < 50_000  # bytes; the signals alone take 16 of each example
    finally:
        tracemalloc.stop()
        gc.enable()


class Scripted:
    """A generator that gives the numbers it is told to."""

    def __init__(self, numbers: tuple[float, ...]) -> None:
        self.numbers = np.array(numbers)

    def random(self, num: int) -> np.ndarray:
        assert num == len(self.numbers)
        return self.numbers


def make_pool(size: int, seed: int, *, useless: bool = False) -> tuple[opacc.Pool, np.ndarray]:
    """A classifier whose failures follow its doubt, mostly confident; or, ``useless``, do not."""
    rng = np.random.default_rng(seed)
    doubt = rng.beta(0.15, 2.0, size)
    outcome = (rng.random(size) >= doubt).astype(float)
    confidence = 1 - (rng.permutation(doubt) if useless else doubt)
    prediction = rng.integers(0, 10, size)
    dsa = rng.gamma(2, 1, size) + doubt
    return opacc.Pool(confidence=confidence, prediction=prediction, dsa=dsa), outcome


def make_selection(size: int, drawn: Draw, number: int = 1) -> Selection:
    ids = tuple(str(i) for i in drawn.chosen)
    return Selection("neyman", {}, 0, size, drawn.chosen, ids, drawn.design, number)


def all_rounds(view: View, previous: Previous, num: int, number: int) -> list[tuple[float, Selection]]:
    """Every batch that can be drawn, with its probability."""
    plan = whole_plan(view, Task(num, neyman.Parameters(), previous))
    expanded = plan.balance[plan.order] / plan.probability[plan.order, None]
    balanced = np.column_stack([np.ones(len(plan.order)), expanded])
    return [
        (chance, make_selection(view.size, plan.draw(plan.order[sorted(batch)]), number))
        for chance, batch, _ in cube.ways(plan.probability[plan.order].tolist(), balanced)
    ]


class TestDrawing:
    @pytest.mark.parametrize(
        "quarters", [(1, 2, 2, 3, 2, 2), (3, 3, 3, 3), (1, 1, 1, 1, 4, 2, 2), (2, 2, 2, 2), (3, 2, 3, 1, 3)]
    )
    def test_is_ordered_pivotal_sampling(self, quarters: tuple[int, ...]) -> None:
        """All steps of probability lie on multiples of 1/24, so a grid of midpoints integrates them exactly."""
        probability, grid = np.array(quarters) / 4, (np.arange(24) + 0.5) / 24
        num_random = round(probability[probability < 1].sum())
        found: dict[frozenset[int], float] = {}
        for numbers in itertools.product(grid, repeat=num_random):
            rng: Any = Scripted(numbers)
            sample = frozenset(draw_ordered(rng, probability, np.arange(len(quarters))).tolist())
            found[sample] = found.get(sample, 0) + len(grid) ** -num_random
        expected = reference.samples(probability.tolist())
        assert found.keys() == expected.keys()
        assert [found[sample] for sample in expected] == pytest.approx(list(expected.values()), abs=1e-12)
        assert all(len(sample) == probability.sum() for sample in found)

    def test_probabilities_and_spread_on_a_large_pool(self) -> None:
        rng = np.random.default_rng(3)
        size = rng.gamma(0.3, 1, 200)
        probability = inclusion_probabilities(size, 60)
        order = np.argsort(size)
        drawn = np.array([draw_ordered(rng, probability, order) for _ in range(4000)])
        assert all(len(set(sample)) == 60 for sample in drawn.tolist())
        share = np.bincount(drawn.ravel(), minlength=200) / 4000
        assert np.abs(share - probability).max() < 5 * np.sqrt(0.25 / 4000)
        below = (np.cumsum(probability[order]) <= 30.5).sum()  # a stretch of the order holds its share, within 1
        place = np.empty(200, dtype=int)
        place[order] = np.arange(200)
        assert set((place[drawn] < below).sum(axis=1)) <= {29, 30, 31}

    def test_inclusion_probabilities_are_capped(self) -> None:
        size = [100.0, 1, 1, 30, 1, 2]
        assert inclusion_probabilities(np.array(size), 3) == pytest.approx([1, 0.2, 0.2, 1, 0.2, 0.4])
        assert inclusion_probabilities(np.array(size), 6) == pytest.approx(np.ones(6))
        rng = np.random.default_rng(0)
        for num in range(1, 12):
            sizes = rng.gamma(0.2, 1, 12) + 1e-9
            probability = inclusion_probabilities(sizes, num)
            assert probability == pytest.approx(reference.inclusion(sizes.tolist(), num))
            assert probability.sum() == pytest.approx(num, abs=1e-9)

    def test_inclusion_probabilities_of_several_alike_are_those_of_each(self) -> None:
        rng = np.random.default_rng(0)
        for num in range(1, 40):
            sizes, count = rng.gamma(0.2, 1, 9) + 1e-9, np.array([7, 0, 12, 1, 1, 0, 3, 9, 7])
            each = inclusion_probabilities(np.repeat(sizes, count), num)
            found = inclusion_probabilities(sizes, num, count)
            assert np.repeat(found, count) == pytest.approx(each, rel=1e-12)


class TestUnbiased:
    def test_one_round_over_all_samples(self) -> None:
        pool, _ = make_pool(7, 1)
        outcome = np.array([1, 0, 1, 0.25, 1, 0.5, 0])
        rounds = all_rounds(view_of(pool), NO_PREVIOUS, 3, 1)
        assert len(rounds) > 10
        assert sum(chance for chance, _ in rounds) == pytest.approx(1, abs=1e-12)
        mean = sum(chance * opacc.estimate(drawn, outcome[drawn.index]).value for chance, drawn in rounds)
        assert mean == pytest.approx(outcome.mean(), abs=1e-12)

    def test_two_rounds_over_all_samples(self) -> None:
        """The second design depends on the first labels, and the combination is unbiased all the same."""
        pool, _ = make_pool(7, 2)
        outcome = np.array([1, 0, 1, 1, 1, 0, 1.0])
        view, mean, designs = view_of(pool), 0.0, set()
        for chance, first in all_rounds(view, NO_PREVIOUS, 2, 1):
            labelled = np.sort(first.index)
            for again, second in all_rounds(view, Previous(labelled, outcome[labelled]), 3, 2):
                both = [first, second]
                value = combine(both, [outcome[drawn.index] for drawn in both], 0.95).value
                mean += chance * again * value
                designs.add(second.design.predicted_failures)
        assert len(designs) > 5
        assert mean == pytest.approx(outcome.mean(), abs=1e-12)

    def test_inclusion_probabilities_are_those_of_the_enumeration(self) -> None:
        pool, _ = make_pool(8, 3)
        chance_of = np.zeros(8)
        stated = np.zeros(8)
        for chance, drawn in all_rounds(view_of(pool), NO_PREVIOUS, 3, 1):
            chance_of[drawn.index] += chance
            stated[drawn.index] = drawn.design.inclusion_probability
        assert chance_of == pytest.approx(stated, abs=1e-12)


class TestReference:
    @pytest.mark.parametrize("features", [("confidence", "dsa", "prediction"), ("dsa", "prediction")])
    def test_prediction(self, features: tuple[str, ...]) -> None:
        """p, and how far the labels speak for the signals."""
        full, outcome = make_pool(60, 5)
        columns = {name: getattr(full, name) for name in features}
        view = view_of(opacc.Pool(**columns))
        plain = {name: view.column(name).tolist() for name in features}
        for num in (0, 1, 30):
            labelled = np.arange(num)
            failure = 1 - outcome[labelled]
            p, bayes_factor = reference.predicted_failure(plain, dict(zip(range(num), failure.tolist(), strict=True)))
            forecast = predict_failure(read_signals(view, 6), labelled, failure)
            assert forecast.failure == pytest.approx(p, abs=1e-5)
            assert forecast.bayes_factor == pytest.approx(bayes_factor, rel=1e-4)

    def test_combined_rounds(self) -> None:
        pool, outcome = make_pool(300, 6)
        selections, outcomes = audit(pool, outcome, (10, 20, 30), seed=1)
        rounds = [
            {
                int(i): (1 - float(y), float(p), float(pi))
                for i, y, p, pi in zip(
                    drawn.index,
                    labels,
                    drawn.design.predicted_failure,
                    drawn.design.inclusion_probability,
                    strict=True,
                )
            }
            for drawn, labels in zip(selections, outcomes, strict=True)
        ]
        totals = [drawn.design.predicted_failures for drawn in selections]
        value, variance = reference.combined(300, rounds, totals)
        result = combine(selections, outcomes, 0.95)
        assert result.value == pytest.approx(1 - value, abs=1e-12)
        assert result.standard_error**2 == pytest.approx(variance, rel=1e-9)
        assert result.design_based
        assert result.n == 60

    def test_directions_are_the_principal_ones(self) -> None:
        hidden = np.random.default_rng(0).normal(size=(500, 5)) * [5, 3, 1, 1, 0]
        hidden = hidden.astype(np.float32)
        _, _, axes = np.linalg.svd(hidden - hidden.mean(axis=0), full_matrices=False)
        expected = (hidden - hidden.mean(axis=0)) @ axes[:2].T
        view = view_of(opacc.Pool(hidden=hidden))
        for found, axis in zip(find_projection(view, 2).coordinates, expected.T, strict=True):
            assert abs(np.corrcoef(found, axis)[0, 1]) == pytest.approx(1, abs=1e-4)
            assert [found.mean(), found.std()] == pytest.approx([0, 1])
        assert len(find_projection(view, 9).coordinates) == 4  # one neuron is constant


def audit(
    pool: opacc.Pool | View, outcome: np.ndarray, budgets: tuple[int, ...], seed: int
) -> tuple[list[Selection], list[np.ndarray]]:
    selections: list[Selection] = []
    for budget in budgets:
        previous = [(drawn, outcome[drawn.index]) for drawn in selections]
        selections.append(opacc.select(pool, "neyman", budget, seed=seed, previous=previous))
    return selections, [outcome[drawn.index] for drawn in selections]


def exact_variance(plan: WholePlan, outcome: np.ndarray) -> float:
    """Of the share of failures, were examples drawn independently of each other: from π, p and the truth."""
    probability = plan.probability
    error = (1 - outcome)[plan.free] - plan.expected
    return float((error**2 * (1 - probability) / probability).sum()) / len(outcome) ** 2


def price_of(plan: WholePlan) -> float:
    """By how much the design is worse than SRS if p is worthless."""
    return float(np.mean(plan.probability.mean() / plan.probability)) - 1


class TestPrecision:
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

    def test_rounds_learn_that_the_confidence_is_useless(self) -> None:
        pool, outcome = make_pool(4000, 8, useless=True)
        selections, outcomes = audit(pool, outcome, (40, 60), seed=3)
        chosen = np.concatenate([drawn.index for drawn in selections])
        order = np.argsort(chosen)
        previous = Previous(chosen[order], np.concatenate(outcomes)[order])
        plan = whole_plan(view_of(pool), Task(100, neyman.Parameters(), previous))
        assert exact_variance(plan, outcome) < 1.15 * outcome.var() / 100

    def test_rounds_learn_which_classes_are_swapped(self) -> None:
        """Confident errors that doubt says nothing about: two predicted classes always fail."""
        rng = np.random.default_rng(4)
        prediction = rng.integers(0, 10, 3000)
        outcome = (prediction > 1).astype(float)
        pool = opacc.Pool(confidence=1 - rng.beta(0.15, 5, 3000), prediction=prediction)
        labelled = np.sort(rng.choice(3000, 40, replace=False))
        p = predict_failure(read_signals(view_of(pool), 6), labelled, 1 - outcome[labelled]).failure
        assert p[prediction <= 1].min() > 0.5 > 0.1 > p[prediction > 1].mean()

    @pytest.mark.parametrize("price", [0.02, 0.05, 0.1])
    def test_a_useless_predictor_costs_its_price(self, price: float) -> None:
        """Whatever the model says of itself: failures that have nothing to do with p, over many ways they may lie."""
        pool, outcome = make_pool(4000, 9)
        task = Task(100, neyman.Parameters(price=price), NO_PREVIOUS)
        plan = whole_plan(view_of(pool), task)
        assert price_of(plan) == pytest.approx(price, abs=1e-3)
        rng = np.random.default_rng(0)
        variance = np.mean([exact_variance(plan, rng.permutation(outcome)) for _ in range(300)])
        assert variance == pytest.approx((1 + price) * outcome.var() / 100, rel=0.06)

    def test_labels_that_speak_for_the_signals_earn_trust(self) -> None:
        """More is staked on p then; where the confidence is useless, the price stays."""
        staked = {}
        for useless in (False, True):
            pool, outcome = make_pool(4000, 9, useless=useless)
            labelled = np.sort(np.random.default_rng(1).choice(4000, 150, replace=False))
            task = Task(50, neyman.Parameters(), Previous(labelled, outcome[labelled]))
            plan = whole_plan(view_of(pool), task)
            assert plan.probability.sum() == pytest.approx(50)
            staked[useless] = price_of(plan)
        assert staked[False] > 0.2
        assert staked[True] <= 0.1 + 1e-3

    @pytest.mark.parametrize(("least", "most"), [(0.05, 0.3), (0.1, 0.5)])
    def test_price_is_held_where_the_model_states_another_level(self, least: float, most: float) -> None:
        """Confidence at random, which says that most examples fail, of a model that is right on 99 %."""
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

    def test_price_of_nothing_is_equal_probabilities(self) -> None:
        pool, _ = make_pool(4000, 9)
        plan = whole_plan(view_of(pool), Task(50, neyman.Parameters(price=0.0), NO_PREVIOUS))
        assert plan.probability == pytest.approx(np.full(4000, 50 / 4000), rel=1e-3)

    def test_uniform_share_of_one_is_equal_probabilities(self) -> None:
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
        result = combine(selections, outcomes, 0.95)
        assert result.low <= 1 - failure.mean() <= result.high
        chosen = np.concatenate([drawn.index for drawn in selections])
        order = np.argsort(chosen)
        previous = Previous(chosen[order], np.concatenate(outcomes)[order])
        plan = whole_plan(view_of(pool), Task(100, neyman.Parameters(), previous))
        assert exact_variance(plan, 1 - failure) < 0.8 * failure.var() / 100

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


class TestRounds:
    def test_of_other_methods_combine(self) -> None:
        """By hand: weights 1 / u, each round the known failures and the mean of the rest."""
        two, four = (SimpleRandom(num, 10, replacement=False) for num in (2, 4))
        first = Selection("srs", {}, 0, 10, np.array([0, 1]), ("0", "1"), two)
        second = Selection("srs", {}, 0, 10, np.arange(2, 6), tuple("2345"), four, 2)
        outcomes = [np.array([0.0, 1.0]), np.array([1.0, 1.0, 0.0, 1.0])]
        as_srs = np.array([1 / 2 - 1 / 10, (8 / 10) ** 2 * (1 / 4 - 1 / 8)])
        weight = 1 / as_srs
        z = np.array([0.5, (1 + 8 * 0.25) / 10])
        result = combine([first, second], outcomes, 0.95)
        assert result.value == pytest.approx(1 - weight @ z / weight.sum())
        assert result.low < result.value < result.high

    def test_partial_labels_stay_unbiased_over_which_are_missing(self) -> None:
        pool, outcome = make_pool(200, 3)
        drawn = opacc.select(pool, "neyman", 6, seed=1)
        full = by_design(drawn.design, outcome[drawn.index], 0.95).value
        parts = []
        for kept in itertools.combinations(range(6), 4):
            part = drawn.restrict(np.isin(np.arange(6), kept))
            parts.append(by_design(part.design, outcome[part.index], 0.95).value)
        assert np.mean(parts) == pytest.approx(full, abs=1e-12)

    def test_batch_is_in_random_order(self) -> None:
        """So that the first labels, if no more come, are a random part of it."""
        pool, _ = make_pool(4000, 3)
        drawn = opacc.select(pool, "neyman", 400, seed=1)
        order = np.argsort(np.argsort(drawn.design.predicted_failure))
        assert abs(np.corrcoef(order, np.arange(400))[0, 1]) < 4 / np.sqrt(400)

    def test_refuses_a_round_whose_earlier_labels_are_missing(self) -> None:
        pool, outcome = make_pool(200, 3)
        selections, outcomes = audit(pool, outcome, (10, 10), seed=1)
        with pytest.raises(LabelError, match="round 2 was drawn when 10 more examples were labelled"):
            combine(selections[1:], outcomes[1:], 0.95)

    def test_refuses_rounds_of_different_pools(self) -> None:
        (pool, outcome), (other, _) = make_pool(200, 3), make_pool(100, 3)
        drawn = [opacc.select(some, "neyman", 10) for some in (pool, other)]
        with pytest.raises(LabelError, match=r"pools of \[100, 200\] examples"):
            combine(drawn, [outcome[:10], outcome[:10]], 0.95)

    def test_says_when_few_failures_are_foreseen(self) -> None:
        pool, outcome = make_pool(200, 3)
        few, enough = (opacc.select(pool, "neyman", num) for num in (10, 60))
        foreseen = [drawn.design.predicted_failure.sum() for drawn in (few, enough)]
        assert foreseen[0] < 3 < foreseen[1]
        result = opacc.estimate(few, outcome[few.index])
        assert result.design_based
        assert result.reason is not None
        assert "fewer than 3 of the labelled examples were foreseen to fail" in result.reason
        assert opacc.estimate(enough, outcome[enough.index]).reason is None

    def test_without_failures_met_or_foreseen_the_bound_is_the_exact_one(self) -> None:
        """If predictions foresee none, they do not say where failures are: any label could have met one."""
        pool = opacc.Pool(confidence=np.full(5000, 1 - 1e-6))
        drawn = opacc.select(pool, "neyman", 100)
        assert drawn.design.predicted_failure.sum() < 1
        assert opacc.estimate(drawn, np.ones(100)).low <= 0.025 ** (1 / 100)

    @pytest.mark.parametrize(("level", "least"), [(0.95, 0.924), (0.99, 0.978)])
    def test_rare_failures_anywhere_are_covered(self, level: float, least: float) -> None:
        """One failure that is met by chance does not exclude that they are one in a thousand."""
        rng = np.random.default_rng(5)
        pool = opacc.Pool(confidence=1 - rng.beta(0.05, 5, 20000), prediction=rng.integers(0, 10, 20000))
        outcome = np.ones(20000)
        outcome[rng.choice(20000, 20, replace=False)] = 0
        plan = whole_plan(view_of(pool), Task(100, neyman.Parameters(), NO_PREVIOUS))
        covered = 0
        for _ in range(1000):
            drawn = make_selection(20000, plan.draw(draw_ordered(rng, plan.probability, plan.order)))
            estimate = opacc.estimate(drawn, outcome[drawn.index], level)
            covered += estimate.low <= 0.999 <= estimate.high
        assert covered / 1000 >= least

    def test_interval_shrinks_where_no_label_fails(self) -> None:
        """With every label its size grows, though the labels show no spread."""
        pool, _ = make_pool(4000, 3)
        widths = []
        for num in (50, 200, 800):
            drawn = opacc.select(pool, "neyman", num)
            result = opacc.estimate(drawn, np.ones(num))
            assert result.high == 1
            widths.append(result.high - result.low)
        assert widths[1] < 0.6 * widths[0]
        assert widths[2] < 0.6 * widths[1]

    def test_interval_does_not_contradict_the_labels(self) -> None:
        """Most of a small pool is labelled, in rounds: what is left can move the accuracy only so far."""
        pool, outcome = make_pool(100, 3)
        selections, outcomes = audit(pool, outcome, (40, 30, 20), seed=1)
        result = opacc.estimate(selections, outcomes)
        right = float(np.concatenate(outcomes).sum())
        assert right / 100 <= result.low <= result.high <= (right + 10) / 100

    def test_rounds_that_label_the_whole_pool_leave_no_doubt(self) -> None:
        pool, outcome = make_pool(60, 3)
        result = combine(*audit(pool, outcome, (20, 20, 20), seed=1), 0.95)
        assert (result.low, result.value, result.high) == pytest.approx([outcome.mean()] * 3)

    def test_rounds_that_nearly_exhaust_the_pool_rest_on_the_last(self) -> None:
        """What is left unlabelled after the last round decides the error, and not the first round's."""
        pool, outcome = make_pool(200, 3)
        error = [
            combine(*audit(pool, outcome, (19, 38, 57, 76), seed), 0.95).value - outcome.mean() for seed in range(40)
        ]
        of_srs = outcome.var(ddof=1) * (1 / 190 - 1 / 200)
        assert np.mean(np.square(error)) < of_srs

    @pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
    def test_whole_pool_labelled_leaves_no_doubt(self, value: float) -> None:
        pool, outcome = make_pool(30, 3)
        outcome = np.full(30, value) if value != 0.5 else outcome
        drawn = opacc.select(pool, "neyman", 30)
        result = opacc.estimate(drawn, outcome[drawn.index])
        assert (result.low, result.value, result.high) == pytest.approx([outcome.mean()] * 3)


def test_ranks_are_shared_by_equal_values() -> None:
    values = [3.0, 1.0, 3.0, -7.0, 2.0]
    assert spread_ranks(np.array(values)) == pytest.approx(reference.ranks(values))


@pytest.mark.parametrize(("name", "value"), [("floor", 0.0), ("price", -0.1), ("directions", -1)])
def test_names_the_parameter_that_is_wrong(name: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"{name}={value}"):
        neyman.Parameters(**{name: value})


def test_names_the_neuron_that_is_not_finite() -> None:
    hidden = np.ones((20, 3))
    hidden[4, 1] = np.nan
    with pytest.raises(DataError, match="neuron 1 of hidden"):
        opacc.select(opacc.Pool(hidden=hidden), "neyman", 5)
