"""Compiled loops: every way of the cube method's walk; Newton's method compared with a dense design; leverage."""

import numpy as np
import pytest
from oracles.cube import ways
from oracles.ordered import draw_ordered
from scipy.optimize import minimize

from opacc_ray.designs.inclusion_probability import inclusion_probabilities
from opacc_ray.samplers.neyman.compiled import climb, draw_balanced, walk


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


@pytest.mark.parametrize(("groups", "apart"), [(0, 0), (4, 1), (4, 3)])
@pytest.mark.parametrize("dispersion", [1.0, 0.4])
def test_eliminating_groups_finds_what_all_coefficients_at_once_do(groups: int, apart: int, dispersion: float) -> None:
    rng = np.random.default_rng(groups + apart)
    design = np.column_stack([np.ones(60), 3 * rng.normal(size=(60, 2))])
    group, failure = rng.integers(0, max(groups, 1), 60), (rng.random(60) < 0.2) * 1.0
    mean, precision, spread = np.array([-1.0, 0.5, 0.0]), np.array([1.0, 4.0, 0.2]), np.array([0.1, 0.5, 2.0])[:apart]
    beta, gamma, leverage = mean.copy(), np.zeros((groups, apart)), np.empty(60)
    evidence = climb((design, group, failure, dispersion), (mean, precision, spread), beta, gamma, leverage)

    own = design[:, None, :apart] * (group[:, None] == np.arange(groups))[:, :, None]
    dense = np.hstack([design, own.reshape(60, -1)])
    centre, inverse = np.append(mean, np.zeros(gamma.size)), np.append(precision, np.tile(spread, groups))

    def loss(coefficient: np.ndarray) -> float:
        logit = dense @ coefficient
        held = (failure * logit - np.logaddexp(0, logit)).sum() / dispersion
        return float(0.5 * (inverse * (coefficient - centre) ** 2).sum() - held)

    def slope(coefficient: np.ndarray) -> np.ndarray:
        p = 1 / (1 + np.exp(-dense @ coefficient))
        return inverse * (coefficient - centre) - dense.T @ (failure - p) / dispersion

    best = minimize(loss, centre, jac=slope, method="BFGS", options={"gtol": 1e-8}).x
    p = 1 / (1 + np.exp(-dense @ best))
    curvature = np.diag(inverse) + dense.T @ (dense * (p * (1 - p) / dispersion)[:, None])
    assert np.append(beta, gamma) == pytest.approx(best, abs=1e-4)
    half = 0.5 * (np.log(inverse).sum() - np.linalg.slogdet(curvature)[1])
    assert evidence == pytest.approx(half - loss(best), abs=1e-4)
    assert leverage == pytest.approx(
        p * (1 - p) / dispersion * np.einsum("ij,jk,ik->i", dense, np.linalg.inv(curvature), dense), rel=1e-3
    )


def fitted(design: np.ndarray, group: np.ndarray, failure: np.ndarray, dispersion: float) -> list[np.ndarray]:
    """Predictions and leverages (k,) of one regression, whose groups differ in their first two coefficients."""
    q, groups = design.shape[1], group.max() + 1
    mean, precision, spread = np.linspace(-1, 1, q), np.linspace(0.5, 2, q), np.array([1.0, 3.0])
    beta, gamma, leverage = np.zeros(q), np.zeros((groups, 2)), np.empty(len(failure))
    for _ in range(3):  # from its end once more, until it is exact
        climb((design, group, failure, dispersion), (mean, precision, spread), beta, gamma, leverage)
    logit = design @ beta + (design[:, :2] * gamma[group]).sum(axis=1)
    return [1 / (1 + np.exp(-logit)), leverage]


@pytest.mark.parametrize("dispersion", [1.0, 0.3])
def test_leverage_is_the_derivative_of_a_prediction_by_its_own_outcome(dispersion: float) -> None:
    rng = np.random.default_rng(1)
    design, failure = np.column_stack([np.ones(15), rng.normal(size=(15, 3))]), (rng.random(15) < 0.3) * 0.98 + 0.01
    group = rng.integers(0, 3, 15)
    p, leverage = fitted(design, group, failure, dispersion)
    for i in range(15):
        more, less = failure.copy(), failure.copy()
        more[i], less[i] = failure[i] + 1e-3, failure[i] - 1e-3
        moved = fitted(design, group, more, dispersion)[0][i] - fitted(design, group, less, dispersion)[0][i]
        assert leverage[i] == pytest.approx(moved / 2e-3, rel=1e-4)
    assert 0 < leverage.min() < leverage.max() < 1
    assert p.min() > 0
