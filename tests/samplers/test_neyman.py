"""Neyman sampling: exact probabilities and unbiasedness by enumeration, and an independent implementation."""

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from drawn_rounds import draw_rounds
from neyman_case import make_pool, make_selection
from oracles import cube
from oracles import neyman as reference
from oracles.ordered import draw_ordered
from unclipped import combine_rounds
from whole_plan import whole_plan

import opacc_ray as opacc
from opacc_ray.designs.inclusion_probability import inclusion_probabilities
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimation.distribution import shrunk_variance
from opacc_ray.estimation.failures import failures_by_design
from opacc_ray.estimation.sample import join
from opacc_ray.parts.view import View, view_of
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import NO_PREVIOUS, Previous, Task
from opacc_ray.samplers.neyman.failure_model import predict_failure, read_signals
from opacc_ray.samplers.neyman.signals import find_projection
from opacc_ray.selection import Selection


def test_memory_is_some_numbers_per_example() -> None:
    """With ranks of confidence and DSA: documented as 0.3 to 1.7 GB for 10^7 examples."""
    pool, _ = make_pool(200_000, 9)
    opacc.select(pool, "neyman", 20)  # compiles
    tracemalloc.start()
    try:
        opacc.select(pool, "neyman", 20)
        assert tracemalloc.get_traced_memory()[1] / 200_000 < 150  # bytes
    finally:
        tracemalloc.stop()


class Scripted:
    """A generator that returns given numbers."""

    def __init__(self, numbers: tuple[float, ...]) -> None:
        self.numbers = np.array(numbers)

    def random(self, num: int) -> np.ndarray:
        assert num == len(self.numbers)
        return self.numbers


def all_rounds(view: View, previous: Previous, num: int, number: int) -> list[tuple[float, Selection]]:
    """Every batch that can be drawn, with its probability."""
    plan = whole_plan(view, Task(num, neyman.Parameters(), previous))
    expanded = plan.balance[plan.order] / plan.probability[plan.order, None]
    balanced = np.column_stack([np.ones(len(plan.order)), expanded])
    return [
        (share, make_selection(view.size, plan.draw(plan.order[sorted(batch)]), number))
        for share, batch, _ in cube.ways(plan.probability[plan.order].tolist(), balanced)
    ]


class TestDrawing:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "quarters", [(1, 2, 2, 3, 2, 2), (3, 3, 3, 3), (1, 1, 1, 1, 4, 2, 2), (2, 2, 2, 2), (3, 2, 3, 1, 3)]
    )
    def test_is_ordered_pivotal_sampling(self, quarters: tuple[int, ...]) -> None:
        """All steps of probability are multiples of 1/24, so a grid of midpoints integrates them exactly."""
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

    @pytest.mark.slow
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

    def test_inclusion_probabilities_of_several_alike_are_those_of_each(self) -> None:
        rng = np.random.default_rng(0)
        for num in range(1, 40):
            sizes, count = rng.gamma(0.2, 1, 9) + 1e-9, np.array([7, 0, 12, 1, 1, 0, 3, 9, 7])
            each = inclusion_probabilities(np.repeat(sizes, count), num)
            found = inclusion_probabilities(sizes, num, count)
            assert np.repeat(found, count) == pytest.approx(each, rel=1e-12)


class TestUnbiased:
    def test_one_round_over_all_samples(self) -> None:
        """What is stated is also cut to what the labels prove, here in one sample of a hundred."""
        pool, _ = make_pool(7, 1)
        outcome = np.array([1, 0, 1, 0.25, 1, 0.5, 0])
        rounds = all_rounds(view_of(pool), NO_PREVIOUS, 3, 1)
        assert len(rounds) > 10
        assert sum(share for share, _ in rounds) == pytest.approx(1, abs=1e-12)
        failure = 1 - outcome
        mean = 1 - sum(share * drawn.design.failure_share(failure[drawn.index]) for share, drawn in rounds)
        assert mean == pytest.approx(outcome.mean(), abs=1e-12)

    @pytest.mark.slow
    def test_two_rounds_over_all_samples(self) -> None:
        """The second design depends on the first labels, and the combination is unbiased all the same."""
        pool, _ = make_pool(7, 2)
        outcome = np.array([1, 0, 1, 1, 1, 0, 1.0])
        view, mean, designs = view_of(pool), 0.0, set()
        for share, first in all_rounds(view, NO_PREVIOUS, 2, 1):
            labelled = np.sort(first.index)
            for again, second in all_rounds(view, Previous(labelled, outcome[labelled]), 3, 2):
                both = [first, second]
                value = combine_rounds(both, [outcome[drawn.index] for drawn in both], 0.95).value
                mean += share * again * value
                designs.add(second.design.predicted_failures)
        assert len(designs) > 5
        assert mean == pytest.approx(outcome.mean(), abs=1e-12)

    def test_inclusion_probabilities_are_those_of_the_enumeration(self) -> None:
        pool, _ = make_pool(8, 3)
        drawn_share = np.zeros(8)
        stated = np.zeros(8)
        for share, drawn in all_rounds(view_of(pool), NO_PREVIOUS, 3, 1):
            drawn_share[drawn.index] += share
            stated[drawn.index] = drawn.design.inclusion_probability
        assert drawn_share == pytest.approx(stated, abs=1e-12)


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
        selections, outcomes = draw_rounds(pool, outcome, (10, 20, 30), seed=1)
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
        result = combine_rounds(selections, outcomes, 0.95)
        assert result.value == pytest.approx(1 - value, abs=1e-12)
        labels = failures_by_design(join(selections, outcomes)).labels
        shrunk = shrunk_variance(variance, labels.predicted_variance, 60, labels.agreement)
        assert result.standard_error**2 == pytest.approx(shrunk, rel=1e-9)
        assert result.design_based
        assert result.n == 60

    def test_directions_are_the_principal_ones(self) -> None:
        hidden = np.random.default_rng(0).normal(size=(500, 5)) * [5, 3, 1, 1, 0]
        hidden = hidden.astype(np.float32)
        _, _, axes = np.linalg.svd(hidden - hidden.mean(axis=0), full_matrices=False)
        expected = (hidden - hidden.mean(axis=0)) @ axes[:2].T
        view = view_of(opacc.Pool(hidden=hidden))
        for packed, axis in zip(find_projection(view, 2).packed, expected.T, strict=True):
            found = packed[:]
            assert abs(np.corrcoef(found, axis)[0, 1]) == pytest.approx(1, abs=1e-4)
            assert [found.mean(), found.std()] == pytest.approx([0, 1])
        assert len(find_projection(view, 9).packed) == 4  # one neuron is constant


@pytest.mark.parametrize(("name", "value"), [("floor", 0.0), ("price", -0.1), ("directions", -1)])
def test_error_names_the_invalid_parameter(name: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"{name}={value}"):
        neyman.Parameters(**{name: value})


def test_error_names_the_neuron_that_is_not_finite() -> None:
    hidden = np.ones((20, 3))
    hidden[4, 1] = np.nan
    with pytest.raises(DataError, match="neuron 1 of hidden"):
        opacc.select(opacc.Pool(hidden=hidden), "neyman", 5)
