"""The cube method: every way of its walk, exact probabilities and size, and balance."""

import numpy as np
import pytest
from oracles.cube import ways
from oracles.ordered import draw_ordered

from opacc_ray.designs.inclusion_probability import inclusion_probabilities
from opacc_ray.samplers.neyman.compiled import draw_balanced, walk


def make_start(size: int, num: int, num_variables: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """π (N,) and h/π (N, 1 + q)."""
    rng = np.random.default_rng(seed)
    probability = inclusion_probabilities(rng.gamma(1, 1, size) + 0.1, num)
    return probability, np.column_stack([np.ones(size), rng.normal(size=(size, num_variables))])


@pytest.mark.parametrize(("size", "num", "num_variables"), [(6, 2, 0), (7, 3, 1), (8, 4, 2), (6, 5, 3), (5, 5, 1)])
def test_every_way_of_the_walk(size: int, num: int, num_variables: int) -> None:
    probability, balanced = make_start(size, num, num_variables, size + num)
    mean, total = np.zeros(size), 0.0
    for share, sample, numbers in ways(probability.tolist(), balanced):
        uniform = np.array(numbers + [0.5] * (size + 1 - len(numbers)))
        assert set(np.flatnonzero(walk(probability, balanced, uniform)).tolist()) == sample
        assert len(sample) == num
        mean[list(sample)] += share
        total += share
    assert total == pytest.approx(1, abs=1e-12)
    assert mean == pytest.approx(probability, abs=1e-12)


def draw_thinned(
    rng: np.random.Generator, probability: np.ndarray, variables: np.ndarray, order: np.ndarray, kept: int
) -> np.ndarray:
    """A balanced sample that starts from ``kept`` examples along an order."""
    before = inclusion_probabilities(probability, kept)
    order = order[np.isin(order, draw_ordered(rng, before, order))]
    return order[draw_balanced(rng, probability[order], before[order], variables[order])]


class TestDraw:
    @pytest.mark.slow
    def test_probabilities_hold_on_a_thinned_pool(self) -> None:
        rng = np.random.default_rng(2)
        probability = inclusion_probabilities(rng.gamma(0.4, 1, 120), 15)
        variables = rng.normal(size=(120, 3)) * probability[:, None]
        share = np.zeros(120)
        for _ in range(3000):
            drawn = draw_thinned(rng, probability, variables, np.arange(120), kept=60)
            assert len(set(drawn.tolist())) == 15
            share[drawn] += 1 / 3000
        error = np.abs(share - probability)
        assert (error <= 5 * np.sqrt(probability * (1 - probability) / 3000) + 1e-12).all()

    @pytest.mark.slow
    def test_totals_are_nearly_those_of_the_pool(self) -> None:
        """Draws that are independent of each other spread them three times as far, or more."""
        rng = np.random.default_rng(3)
        probability = inclusion_probabilities(rng.gamma(1, 1, 3000), 100)
        variables = rng.normal(size=(3000, 4)) * probability[:, None]
        order, spread = rng.permutation(3000), np.sqrt((variables**2 / probability[:, None]).sum(axis=0))
        drawn = [draw_thinned(rng, probability, variables, order, kept=2500) for _ in range(200)]
        error = [
            (variables[sample] / probability[sample, None]).sum(axis=0) - variables.sum(axis=0) for sample in drawn
        ]
        assert (np.std(error, axis=0) < 0.3 * spread).all()

    def test_everything_is_drawn_where_it_must_be(self) -> None:
        rng = np.random.default_rng(4)
        drawn = draw_balanced(rng, np.ones(9), np.ones(9), rng.normal(size=(9, 2)))
        assert drawn.tolist() == list(range(9))
