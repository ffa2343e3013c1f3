"""Linear estimators against every method's own estimator."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_rounds import draw_rounds, featured_pool
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.errors import LabelError
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.sample import Rounds
from opacc_ray.pool import Pool
from opacc_ray.samplers import METHODS
from opacc_ray.selection import Selection

N = 600


@pytest.fixture(scope="module")
def pool() -> Pool:
    return featured_pool(lambda rng: rng.uniform(0.3, 1, N))


@pytest.fixture(scope="module")
def outcome(pool: Pool) -> NDArray[np.float64]:
    return (np.random.default_rng(1).random(N) < pool.confidence).astype(float)


@pytest.mark.parametrize("method", METHODS)
class TestLinearEstimatorOfEveryMethod:
    def test_gives_the_estimate_and_variance_of_the_method(self, method: str, pool: Pool, outcome) -> None:
        """Of one round, of a random part of it, and of two; without the predictions that some methods add."""
        chosen = opacc.select(pool, method, 60, seed=1)
        rounds, _ = draw_rounds(pool, outcome, (40, 50), method=method)
        for parts in ([chosen], [chosen.restrict(np.random.default_rng(3).random(60) < 0.8)], rounds):
            outcomes, design = [outcome[part.index] for part in parts], Rounds(parts)
            failure = 1 - np.concatenate(outcomes)
            plain = [_without_predictions(part) for part in parts] if _predicts(method) else parts
            own = estimate_outcomes(plain, outcomes)
            assert 1 - design.mean(failure) == pytest.approx(own.value, abs=1e-12)
            assert np.sqrt(design.variance(failure)) == pytest.approx(own.standard_error, abs=1e-12)
            assert (design.reason is None) == own.design_based

    def test_is_linear_with_the_weights_it_names(self, method: str, pool: Pool, outcome) -> None:
        rounds, _ = draw_rounds(pool, outcome, (40, 50), method=method)
        design, x = Rounds(rounds), np.random.default_rng(2).normal(size=(90, 3))
        assert design.mean(x) == pytest.approx(design.weights @ x)
        assert design.variance(x) == pytest.approx([design.variance(column) for column in x.T])
        assert design.variance(3 * x) == pytest.approx(9 * design.variance(x))
        assert 0 < design.largest_weight < 1


def _predicts(method: str) -> bool:
    return METHODS[method].Parameters().predicts_failures


def _without_predictions(selection: Selection) -> Selection:
    nothing = np.full(len(selection), 1e-15)
    return replace(selection, design=replace(selection.design, predicted_failure=nothing, predicted_failures=0.0))


def test_refuses_rounds_that_do_not_fit(pool: Pool, outcome) -> None:
    rounds, _ = draw_rounds(pool, outcome, (40, 50))
    with pytest.raises(LabelError, match=r"round 2 .* 40 more examples"):
        Rounds(rounds[1:])
    other = opacc.select(Pool(ids=list("abcdefgh")), "srs", 2)
    with pytest.raises(LabelError, match=r"pools of \[8, 600\]"):
        Rounds([rounds[0], other])
