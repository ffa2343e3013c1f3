"""Linear estimators against every method's own estimator."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.designs.hansen_hurwitz import HansenHurwitz
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.designs.stratified import collapse
from opacc_ray.errors import LabelError
from opacc_ray.estimators.rounds import linear_estimator
from opacc_ray.pool import Pool
from opacc_ray.samplers import METHODS
from opacc_ray.selection import Selection

N, C = 600, 4


@pytest.fixture(scope="module")
def pool() -> Pool:
    rng = np.random.default_rng(0)
    output = rng.normal(size=(N, C))
    return Pool(
        hidden=np.maximum(rng.normal(size=(N, 8)), 0),
        output=output,
        prediction=output.argmax(axis=1),
        confidence=rng.uniform(0.3, 1, N),
        coverage=rng.random((N, 30)) < 0.2,
    )


@pytest.fixture(scope="module")
def outcome(pool: Pool) -> NDArray[np.float64]:
    return (np.random.default_rng(1).random(N) < pool.confidence).astype(float)


def _rounds(pool: Pool, method: str, outcome: NDArray[np.float64]) -> tuple[list[Selection], list[NDArray[np.float64]]]:
    first = opacc.select(pool, method, 40, seed=1)
    second = opacc.select(pool, method, 50, seed=1, previous=[(first, outcome[first.index])])
    return [first, second], [outcome[first.index], outcome[second.index]]


@pytest.mark.parametrize("method", METHODS)
class TestLinearEstimatorOfEveryMethod:
    def test_gives_the_estimate_and_variance_of_the_method(self, method: str, pool: Pool, outcome) -> None:
        chosen = opacc.select(pool, method, 60, seed=1)
        own, design = opacc.estimate(chosen, outcome[chosen.index]), linear_estimator(chosen)
        failure = 1 - outcome[chosen.index]
        if _predicts(method):  # it adds predictions of the failures: without them both agree
            own = opacc.estimate(_without_predictions(chosen), outcome[chosen.index])
        assert 1 - design.mean(failure) == pytest.approx(own.value, abs=1e-12)
        assert np.sqrt(design.variance(failure)) == pytest.approx(own.standard_error, abs=1e-12)
        assert (design.reason is None) == own.design_based

    def test_combines_rounds_as_the_estimate_does(self, method: str, pool: Pool, outcome) -> None:
        rounds, outcomes = _rounds(pool, method, outcome)
        failure, design = 1 - np.concatenate(outcomes), linear_estimator(rounds)
        if _predicts(method):
            rounds = [_without_predictions(chosen) for chosen in rounds]
        own = opacc.estimate(rounds, outcomes)
        assert 1 - design.mean(failure) == pytest.approx(own.value, abs=1e-12)
        assert np.sqrt(design.variance(failure)) == pytest.approx(own.standard_error, abs=1e-12)

    def test_is_linear_with_the_weights_it_names(self, method: str, pool: Pool, outcome) -> None:
        rounds, _ = _rounds(pool, method, outcome)
        design, x = linear_estimator(rounds), np.random.default_rng(2).normal(size=(90, 3))
        assert design.mean(x) == pytest.approx(design.weights @ x)
        assert design.variance(x) == pytest.approx([design.variance(column) for column in x.T])
        assert design.variance(3 * x) == pytest.approx(9 * design.variance(x))
        assert 0 < design.largest_weight < 1

    def test_missing_labels_leave_the_estimate_of_the_method(self, method: str, pool: Pool, outcome) -> None:
        chosen = opacc.select(pool, method, 60, seed=1)
        part = chosen.restrict(np.random.default_rng(3).random(len(chosen)) < 0.8)
        if _predicts(method):
            part = _without_predictions(part)
        own = opacc.estimate(part, outcome[part.index])
        assert 1 - linear_estimator(part).mean(1 - outcome[part.index]) == pytest.approx(own.value, abs=1e-12)


def _predicts(method: str) -> bool:
    return METHODS[method].Parameters().predicts_failures


def _without_predictions(selection: Selection) -> Selection:
    nothing = np.full(len(selection), 1e-15)
    return replace(selection, design=replace(selection.design, predicted_failure=nothing, predicted_failures=0.0))


def test_variance_of_any_variable_is_unbiased_over_all_samples_of_a_tiny_pool() -> None:
    x = np.array([0.3, -1.0, 0, 0.8, 0.5, -0.2])
    samples = [np.array(sample) for sample in itertools.combinations(range(6), 3)]
    designs = [SimpleRandom(3, 6, replacement=False) for sample in samples]
    means = [design.mean(x[sample]) for design, sample in zip(designs, samples, strict=True)]
    variances = [design.variance(x[sample]) for design, sample in zip(designs, samples, strict=True)]
    assert np.mean(means) == pytest.approx(x.mean(), abs=1e-12)
    assert np.mean(variances) == pytest.approx(np.var(means), abs=1e-12)


def test_unequal_probabilities_are_unbiased_for_any_variable() -> None:
    x, p = np.array([0.3, -1.0, 0, 0.8]), np.array([0.1, 0.2, 0.3, 0.4])
    mean = variance = 0.0
    means, chances = [], []
    for pair in itertools.product(range(4), repeat=2):
        drawn = np.array(pair)
        design = HansenHurwitz(p[drawn], 4, 0.1)
        chance = float(p[drawn].prod())
        means.append(design.mean(x[drawn]))
        chances.append(chance)
        mean += chance * means[-1]
        variance += chance * design.variance(x[drawn])
    assert mean == pytest.approx(x.mean(), abs=1e-12)
    assert variance == pytest.approx(np.array(chances) @ (np.array(means) - x.mean()) ** 2, abs=1e-12)


@pytest.mark.parametrize(
    ("drawn", "group"),
    [
        ([3, 2, 5], [0, 1, 2]),
        ([1, 4, 1], [0, 0, 0]),
        ([1, 1, 3, 1], [0, 0, 1, 1]),
        ([2, 1, 1], [0, 1, 1]),
        ([1], [0]),
    ],
)
def test_a_stratum_with_one_label_joins_the_next(drawn: list[int], group: list[int]) -> None:
    assert collapse(np.array(drawn)).tolist() == group


def test_refuses_rounds_that_do_not_fit(pool: Pool, outcome) -> None:
    rounds, _ = _rounds(pool, "neyman", outcome)
    with pytest.raises(LabelError, match=r"round 2 .* 40 more examples"):
        linear_estimator(rounds[1:])
    other = opacc.select(Pool(ids=list("abcdefgh")), "srs", 2)
    with pytest.raises(LabelError, match=r"pools of \[8, 600\]"):
        linear_estimator([rounds[0], other])


def test_largest_weight_of_rounds_is_that_of_any_label() -> None:
    """Of draws with unequal probabilities in two rounds, by the estimator's own weights and by that of one label."""
    pool = Pool(ids=[str(i) for i in range(200)], confidence=np.linspace(0.2, 0.99, 200))
    first = opacc.select(pool, "sups", 10, seed=1)
    second = opacc.select(pool, "sups", 40, seed=2, previous=[(first, np.ones(10))])
    rounds = linear_estimator([first, second])
    alone = [linear_estimator([part]).largest_weight for part in (first, second)]
    assert min(alone) < max(alone)
    assert rounds.largest_weight == pytest.approx(max(s * w for s, w in zip(rounds.scale, alone, strict=True)))
