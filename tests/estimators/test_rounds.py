"""Rounds with the interval of one round: it holds where some labels weigh more, and simple random samples are one."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

import opacc_ray as opacc
from opacc_ray.estimators.design_based import combine_rounds, design_based_estimate
from opacc_ray.estimators.intervals import MID_P, hypergeometric, outward, weighted_clopper_pearson
from opacc_ray.estimators.rounds import known_outcomes, round_weights
from opacc_ray.estimators.stratified_interval import Strata, stratified_interval
from opacc_ray.pool import Pool

N = 2000
Rounds = tuple[list[opacc.Selection], list[NDArray[np.float64]]]


def confident_pool() -> tuple[Pool, NDArray[np.float64]]:
    """One in eleven fails, half of them where the model is sure."""
    rng = np.random.default_rng(0)
    confidence = rng.beta(6, 1, N)
    fails = rng.random(N) < np.where(confidence < np.quantile(confidence, 0.2), 0.2, 0.06)
    return Pool(confidence=confidence), 1.0 - fails


def draw(pool: Pool, outcome: NDArray[np.float64], methods: list[str], sizes: list[int], seed: int) -> Rounds:
    rounds: list[tuple[opacc.Selection, NDArray[np.float64]]] = []
    for method, size in zip(methods, sizes, strict=True):
        chosen = opacc.select(pool, method, size, seed, previous=rounds)
        rounds.append((chosen, outcome[chosen.index]))
    return [chosen for chosen, _ in rounds], [values for _, values in rounds]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[15, 30, 45, 60], [100, 100]], ids=str)
@pytest.mark.parametrize("method", ["css", "deepest", "sups", "rhcs", "two_ups"])
def test_interval_over_rounds_holds(method: str, sizes: list[int]) -> None:
    """100 samples; fails above the 1 - 1e-4 quantile of what a level of 95 % allows."""
    pool, outcome = confident_pool()
    excluded = []
    for seed in range(100):
        found = opacc.estimate(*draw(pool, outcome, [method] * len(sizes), sizes, seed), 0.95)
        excluded.append(not found.low <= outcome.mean() <= found.high)
    assert sum(excluded) <= binom.ppf(1 - 1e-4, 100, 0.05)


@pytest.mark.slow
def test_the_interval_of_rounds_of_any_designs_does_not_hold_where_some_labels_weigh_more() -> None:
    """What `rounds.py` alone would state of DeepEST, and why more is known here."""
    pool, outcome = confident_pool()
    excluded = []
    for seed in range(250):
        found = combine_rounds(*draw(pool, outcome, ["deepest"] * 4, [15, 30, 45, 60], seed), 0.95)
        excluded.append(not found.low <= outcome.mean() <= found.high)
    assert sum(excluded) > binom.ppf(1 - 1e-4, 250, 0.05)


def test_strata_of_all_rounds_are_those_of_one_score_interval() -> None:
    """Two rounds by hand: what the second knows of the first is a constant, and each stratum weighs as its round."""
    pool, outcome = confident_pool()
    (first, second), (one, two) = rounds = draw(pool, outcome, ["css", "css"], [30, 60], seed=1)
    weight, left = round_weights([first, second]), 1 - 30 / N
    assert weight == pytest.approx([30 * (N - 90), 60 * N] / np.float64(30 * (N - 90) + 60 * N))
    drawn = np.array([*first.design.num, *second.design.num], dtype=np.float64)
    sizes = np.array([*first.design.sizes, *second.design.sizes], dtype=np.float64)
    right = [values[part.design.stratum == j].sum() for part, values in ((first, one), (second, two)) for j in range(3)]
    shares = np.array([*(weight[0] * first.design.shares), *(weight[1] * left * second.design.shares)])
    before = weight[1] * one.sum() / N
    found = opacc.estimate(*rounds, 0.9)
    low, high = stratified_interval(Strata(np.array(right), drawn, sizes, shares), found.standard_error**2, 0.9)
    assert (found.low, found.high) == pytest.approx(outward((before + low, before + high), N))
    alone = [design_based_estimate(part, values, 0.9) for part, values in zip(*rounds, strict=True)]
    scale = weight * [1, left]
    assert found.value == pytest.approx(before + scale @ [item.value for item in alone])
    assert found.standard_error == pytest.approx(np.linalg.norm(scale * [item.standard_error for item in alone]))


@pytest.mark.parametrize("methods", [["deepest", "sups"], ["css", "srs"], ["neyman", "two_ups"]])
def test_mixed_rounds_have_the_wider_end_on_each_side(methods: list[str]) -> None:
    pool, outcome = confident_pool()
    rounds = draw(pool, outcome, methods, [40, 60], seed=2)
    plain, found = combine_rounds(*rounds, 0.95), opacc.estimate(*rounds, 0.95)
    assert found.low <= plain.low < plain.high < found.high
    assert found.interval == "weighted Clopper-Pearson, or adjusted Wilson"
    first, second = rounds[0]
    scale = round_weights([first, second]) * [1, 1 - 40 / N]
    weight = max(scale[0] * first.design.weight_bound, scale[1] * second.design.weight_bound)
    few, many = weighted_clopper_pearson(1 - plain.value, plain.standard_error**2, weight, 0.95, unseen=MID_P)
    ends = outward((min(plain.low, 1 - many), max(plain.high, 1 - few)), N)
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-9)


@pytest.mark.parametrize("methods", [["neyman", "srs"], ["neyman", "neyman"], ["ces", "srs"]])
def test_rounds_of_equal_labels_are_left_as_they_are(methods: list[str]) -> None:
    rng = np.random.default_rng(1)
    pool, outcome = Pool(confidence=rng.random(400), hidden=rng.random((400, 3))), 1.0 * (rng.random(400) < 0.8)
    rounds = draw(pool, outcome, methods, [40, 30], seed=3)
    assert design_based_estimate(*rounds, 0.95) == known_outcomes(*rounds).clip(combine_rounds(*rounds, 0.95))


def test_rounds_of_simple_random_samples_are_one() -> None:
    pool, outcome = confident_pool()
    (first, second), outcomes = draw(pool, outcome, ["srs", "srs"], [40, 60], seed=3)
    found = opacc.estimate([first, second], outcomes, 0.95)
    right = int(np.concatenate(outcomes).sum())
    assert found.value == right / 100 == pytest.approx(combine_rounds([first, second], outcomes, 0.95).value)
    assert (found.low, found.high) == hypergeometric(right, 100, N, 0.95)
    again = opacc.select(pool, "srs", 30, seed=4, replacement=True)
    mixed = [first, again], [outcomes[0], outcome[again.index]]
    assert opacc.estimate(*mixed, 0.95) == known_outcomes(*mixed).clip(combine_rounds(*mixed, 0.95))


def test_interval_closes_when_all_is_labelled_and_never_leaves_what_is_certain() -> None:
    rng = np.random.default_rng(1)
    pool, outcome = Pool(confidence=rng.random(100)), 1.0 * (rng.random(100) < 0.8)
    whole = opacc.estimate(*draw(pool, outcome, ["css", "css"], [40, 60], seed=3), 0.95)
    assert (whole.low, whole.high) == pytest.approx((outcome.mean(), outcome.mean()))
    nearly = draw(pool, outcome, ["css", "deepest"], [40, 58], seed=3)
    found, right = opacc.estimate(*nearly, 0.9999), sum(values.sum() for values in nearly[1])
    assert right / 100 - 1e-12 <= found.low <= found.high <= (right + 2) / 100 + 1e-12


def test_rounds_that_label_the_whole_pool_state_its_accuracy() -> None:
    """Strata of rounds have an unbiased estimate, which is not the mean of all labels."""
    pool = Pool(confidence=np.linspace(0.1, 0.9, 12))
    outcome = np.array([0, 1, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1], dtype=np.float64)
    found = opacc.estimate(*draw(pool, outcome, ["ssrs", "ssrs"], [10, 2], seed=1), 0.95)
    assert (found.value, found.standard_error) == (pytest.approx(8 / 12), 0)
    assert found.low == found.high == found.value


@pytest.mark.parametrize("method", ["srs", "css", "sups", "rhcs", "deepest"])
def test_labels_that_came_after_a_later_round_was_drawn_are_said(method: str) -> None:
    pool, outcome = confident_pool()
    first = opacc.select(pool, method, 60, 1)
    early = first.restrict(np.arange(60) < 40)
    second = opacc.select(pool, method, 60, 1, previous=[(early, outcome[early.index])])
    assert opacc.estimate([early, second], [outcome[early.index], outcome[second.index]]).design_based
    found = opacc.estimate([first, second], [outcome[first.index], outcome[second.index]])
    late = len(np.unique(first.index)) - len(np.unique(early.index))
    assert not found.design_based
    assert found.reason == f"{late} labels of earlier rounds came after round 2 was drawn"
