"""Label noise: the bound by hand, and by simulation the truth covered where annotators err, also where it is hard."""

import numpy as np
import pytest
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.estimation.adjustments import Circumstances, SecondOpinions, disagreement, widen
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.intervals import Estimate, weighted_clopper_pearson
from opacc_ray.estimation.sample import Rounds
from opacc_ray.samplers.select import select

N, BUDGET, REPETITIONS = 3000, 300, 400
LEAST = 0.905
"""Share of 400 covered by a 95% interval, with probability 1 - 1e-4."""


def estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(value, 0.0, low, high, 0.95, "made up", 100, True)


def test_by_hand() -> None:
    # √(0.03² + 0.04²) = 0.05 on both sides, and δ = 0.05 beside it.
    assert widen(estimate(0.8, 0.77, 0.83), estimate(0.05, 0.02, 0.09)) == pytest.approx((0.7, 0.9))


def test_too_few_opinions_to_widen_by_still_show_that_annotators_agree_only_by_chance() -> None:
    opinions = SecondOpinions(9, 4, estimate(0.4, 0.1, 0.7), alpha=0.05)
    chance, few = Circumstances(0.95, opinions=opinions).statement(estimate(0.8, 0.7, 0.9)).notes
    assert chance.startswith("Annotators agree no better than chance (alpha 0.05)")
    assert "too few to widen" in few


@pytest.mark.parametrize("method", ["neyman", "ssrs"])
def test_a_part_that_has_no_design_of_its_own_is_weighted_as_the_whole_sample_is(method: str) -> None:
    """Round 2 of `neyman` builds on labels that have one opinion, and a stratum of `ssrs` has nothing else."""
    pool = opacc.Pool(confidence=np.linspace(0.2, 0.99, 200))
    first = opacc.select(pool, method, 20)
    rounds = [first, select(pool, method, 20, previous=[(first, np.ones(20))])]
    twice = [np.arange(20) < 6, np.arange(20) < 4]
    d = [np.array([0, 0, 1, 0, 0, 0.0]), np.array([0, 1, 0, 0.0])]
    weight = Rounds(rounds).weights[[*range(6), *range(20, 24)]]
    weight = weight / weight.sum()
    found = disagreement(Rounds(rounds), np.concatenate(twice), np.concatenate(d), 0.95)
    assert found.value == pytest.approx(weight[2] + weight[7])
    variance = 10 / 9 * np.sum((weight * (np.concatenate(d) - found.value)) ** 2)
    assert found.standard_error == pytest.approx(variance**0.5)
    assert (found.low, found.high) == pytest.approx(weighted_clopper_pearson(found.value, variance, weight.max(), 0.95))


def test_a_part_that_has_a_design_is_estimated_by_it() -> None:
    chosen = opacc.select(opacc.Pool(confidence=np.linspace(0.2, 0.99, 200)), "srs", 20)
    twice, d = np.arange(20) < 6, np.array([0, 0, 1, 0, 0, 0.0])
    assert disagreement(Rounds([chosen]), twice, d, 0.95) == estimate_outcomes(chosen.restrict(twice), d)


@pytest.mark.parametrize("method", ["neyman", "sups"])
def test_differences_weigh_as_examples_do_where_failures_were_looked_for(method: str) -> None:
    """The design would state 1 - Σ w (1 - d): far off where the weights happen to sum to more or less than 1."""
    pool, twice = opacc.Pool(confidence=np.linspace(0.2, 0.99, 200)), np.arange(20) < 6
    chosen, d = opacc.select(pool, method, 20), np.array([0, 0, 1, 0, 0, 0.0])
    weight = Rounds([chosen]).weights[twice]
    assert disagreement(Rounds([chosen]), twice, d, 0.95).value == pytest.approx(weight[2] / weight.sum())
    assert disagreement(Rounds([chosen]), twice, 0 * d, 0.95).value == 0


def error_rates(kind: str, correct: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.float64]:
    """How often one opinion is wrong, for each example: at most half the time."""
    if kind == "alike":
        return np.full(N, 0.05)
    if kind == "evenly split":  # the worst case: a tenth of the pool, where opinions are a coin's
        return np.where(rng.random(N) < 0.1, 0.4999, 0.0)
    return np.where(correct, 0.08, 0.0)  # only right answers are taken for wrong ones


@pytest.mark.slow
@pytest.mark.parametrize("method", ["srs", "sups"])
@pytest.mark.parametrize("kind", ["alike", "evenly split", "one-sided"])
def test_the_truth_is_covered_though_annotators_err(kind: str, method: str) -> None:
    rng = np.random.default_rng(7)
    confidence = rng.beta(6, 2, N)
    correct = rng.random(N) < confidence
    wrong = error_rates(kind, correct, rng)
    pool = opacc.Pool(confidence=confidence)
    plain, widened = 0, 0
    for seed in range(REPETITIONS):
        selection = opacc.select(pool, method, BUDGET, seed)
        y = correct[selection.index] ^ (rng.random(BUDGET) < wrong[selection.index])
        again = correct[selection.index] ^ (rng.random(BUDGET) < wrong[selection.index])
        twice = rng.permutation(BUDGET) < 150
        accuracy = estimate_outcomes(selection, y.astype(float))
        low, high = widen(accuracy, disagreement(Rounds([selection]), twice, (y != again)[twice].astype(float), 0.95))
        plain += accuracy.low <= correct.mean() <= accuracy.high
        widened += low <= correct.mean() <= high
    assert widened >= LEAST * REPETITIONS
    if kind == "one-sided" and method == "srs":
        assert plain < 0.5 * REPETITIONS  # what the labels alone state is of another accuracy
