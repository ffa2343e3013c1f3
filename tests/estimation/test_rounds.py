"""Rounds with the interval of one round: it holds where some labels weigh more, and simple random samples are one."""

import numpy as np
import pytest
from drawn_rounds import draw_rounds, hold
from numpy.typing import NDArray
from unclipped import combine_rounds

import opacc_ray as opacc
from opacc_ray.estimation.constants import MID_P
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.intervals import hypergeometric, outward, weighted_clopper_pearson
from opacc_ray.estimation.sample import Rounds
from opacc_ray.pool import Pool
from opacc_ray.samplers.select import select

N = 2000


def confident_pool() -> tuple[Pool, NDArray[np.float64]]:
    """One in eleven fails, half of them where the model is sure."""
    rng = np.random.default_rng(0)
    confidence = rng.beta(6, 1, N)
    fails = rng.random(N) < np.where(confidence < np.quantile(confidence, 0.2), 0.2, 0.06)
    return Pool(confidence=confidence), 1.0 - fails


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[15, 30, 45, 60], [100, 100]], ids=str)
@pytest.mark.parametrize("method", ["css", "deepest", "sups", "rhcs", "two_ups"])
def test_interval_over_rounds_holds(method: str, sizes: list[int]) -> None:
    """100 samples; fails above the 1 - 1e-4 quantile of what a level of 95 % allows."""
    pool, outcome = confident_pool()
    drawn = (draw_rounds(pool, outcome, sizes, seed, method) for seed in range(100))
    assert hold((estimate_outcomes(*rounds, 0.95) for rounds in drawn), outcome.mean())


@pytest.mark.slow
def test_the_interval_of_rounds_of_any_designs_does_not_hold_where_some_labels_weigh_more() -> None:
    """What `rounds.py` alone would state of DeepEST, and why more is known here."""
    pool, outcome = confident_pool()
    drawn = (draw_rounds(pool, outcome, (15, 30, 45, 60), seed, "deepest") for seed in range(250))
    assert not hold((combine_rounds(*rounds, 0.95) for rounds in drawn), outcome.mean())


@pytest.mark.parametrize("methods", [["deepest", "sups"], ["css", "srs"], ["neyman", "two_ups"]])
def test_mixed_rounds_have_the_wider_end_on_each_side(methods: list[str]) -> None:
    pool, outcome = confident_pool()
    rounds = draw_rounds(pool, outcome, (40, 60), 2, methods)
    plain, found = combine_rounds(*rounds, 0.95), estimate_outcomes(*rounds, 0.95)
    assert found.low <= plain.low < plain.high < found.high
    assert found.method == "weighted Clopper-Pearson, or adjusted Wilson"
    first, second = rounds[0]
    scale = Rounds([first, second]).weight * [1, 1 - 40 / N]
    weight = max(scale[0] * first.design.weight_bound, scale[1] * second.design.weight_bound)
    few, many = weighted_clopper_pearson(1 - plain.value, plain.standard_error**2, weight, 0.95, unseen=MID_P)
    ends = outward((min(plain.low, 1 - many), max(plain.high, 1 - few)), N)
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-9)


def test_rounds_of_simple_random_samples_are_one() -> None:
    pool, outcome = confident_pool()
    (first, second), outcomes = draw_rounds(pool, outcome, (40, 60), 3, "srs")
    found = estimate_outcomes([first, second], outcomes, 0.95)
    right = int(np.concatenate(outcomes).sum())
    assert found.value == right / 100 == pytest.approx(combine_rounds([first, second], outcomes, 0.95).value)
    assert (found.low, found.high) == hypergeometric(right, 100, N, 0.95)
    again = opacc.select(pool, "srs", 30, seed=4, replacement=True)
    mixed = [first, again], [outcomes[0], outcome[again.index]]
    assert estimate_outcomes(*mixed, 0.95).method == combine_rounds(*mixed, 0.95).method == "adjusted Wilson"


@pytest.mark.parametrize("method", ["srs", "css", "sups", "rhcs", "deepest"])
def test_labels_that_came_after_a_later_round_was_drawn_are_said(method: str) -> None:
    pool, outcome = confident_pool()
    first = opacc.select(pool, method, 60, 1)
    early = first.restrict(np.arange(60) < 40)
    second = select(pool, method, 60, 1, previous=[(early, outcome[early.index])])
    assert estimate_outcomes([early, second], [outcome[early.index], outcome[second.index]]).design_based
    found = estimate_outcomes([first, second], [outcome[first.index], outcome[second.index]])
    late = len(np.unique(first.index)) - len(np.unique(early.index))
    assert not found.design_based
    assert found.reason == f"{late} labels of earlier rounds came after round 2 was drawn"
