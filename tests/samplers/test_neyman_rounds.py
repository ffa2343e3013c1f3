"""Rounds of neyman: how they are combined, partial labels, rare failures, and nearly exhausted pools."""

import itertools

import numpy as np
import pytest
from drawn_rounds import draw_rounds
from given_selections import selection_of
from neyman_case import make_pool, make_selection
from oracles.ordered import draw_ordered
from unclipped import combine_rounds, estimate_sample
from whole_plan import whole_plan

import opacc_ray as opacc
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.parts.view import view_of
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import NO_PREVIOUS, Task


class TestRounds:
    def test_of_other_methods_combine(self) -> None:
        """By hand: weights 1 / u, each round the known failures and the mean of the rest."""
        two, four = (SimpleRandom(num, 10, replacement=False) for num in (2, 4))
        first, second = selection_of(two), selection_of(four, np.arange(2, 6), number=2)
        outcomes = [np.array([0.0, 1.0]), np.array([1.0, 1.0, 0.0, 1.0])]
        as_srs = np.array([1 / 2 - 1 / 10, (8 / 10) ** 2 * (1 / 4 - 1 / 8)])
        weight = 1 / as_srs
        z = np.array([0.5, (1 + 8 * 0.25) / 10])
        result = combine_rounds([first, second], outcomes, 0.95)
        assert result.value == pytest.approx(1 - weight @ z / weight.sum())
        assert result.low < result.value < result.high

    def test_partial_labels_stay_unbiased_over_which_are_missing(self) -> None:
        pool, outcome = make_pool(200, 3)
        drawn = opacc.select(pool, "neyman", 6, seed=1)
        full = estimate_sample(drawn.design, outcome[drawn.index], 0.95).value
        parts = []
        for kept in itertools.combinations(range(6), 4):
            part = drawn.restrict(np.isin(np.arange(6), kept))
            parts.append(estimate_sample(part.design, outcome[part.index], 0.95).value)
        assert np.mean(parts) == pytest.approx(full, abs=1e-12)

    def test_without_observed_or_foreseen_failures_the_bound_is_exact(self) -> None:
        """Predictions without a failure do not show where failures are: any label could have failed."""
        pool = opacc.Pool(confidence=np.full(5000, 1 - 1e-6))
        drawn = opacc.select(pool, "neyman", 100)
        assert drawn.design.predicted_failure.sum() < 1
        assert estimate_outcomes(drawn, np.ones(100)).low <= 0.025 ** (1 / 100)

    @pytest.mark.slow
    @pytest.mark.parametrize(("level", "least"), [(0.95, 0.924), (0.99, 0.978)])
    def test_rare_failures_anywhere_are_covered(self, level: float, least: float) -> None:
        """One failure in the sample does not exclude a rate of one in a thousand."""
        rng = np.random.default_rng(5)
        pool = opacc.Pool(confidence=1 - rng.beta(0.05, 5, 20000), prediction=rng.integers(0, 10, 20000))
        outcome = np.ones(20000)
        outcome[rng.choice(20000, 20, replace=False)] = 0
        plan = whole_plan(view_of(pool), Task(100, neyman.Parameters(), NO_PREVIOUS))
        covered = 0
        for _ in range(1000):
            drawn = make_selection(20000, plan.draw(draw_ordered(rng, plan.probability, plan.order)))
            estimate = estimate_outcomes(drawn, outcome[drawn.index], level)
            covered += estimate.low <= 0.999 <= estimate.high
        assert covered / 1000 >= least

    def test_interval_does_not_contradict_the_labels(self) -> None:
        """Most of a small pool is labelled, in rounds: what is left can move the accuracy only so far."""
        pool, outcome = make_pool(100, 3)
        selections, outcomes = draw_rounds(pool, outcome, (40, 30, 20), seed=1)
        result = estimate_outcomes(selections, outcomes)
        right = float(np.concatenate(outcomes).sum())
        assert right / 100 <= result.low <= result.high <= (right + 10) / 100

    def test_rounds_that_label_the_whole_pool_have_a_zero_width_interval(self) -> None:
        pool, outcome = make_pool(60, 3)
        result = combine_rounds(*draw_rounds(pool, outcome, (20, 20, 20), seed=1), 0.95)
        assert (result.low, result.value, result.high) == pytest.approx([outcome.mean()] * 3)
