"""Newton's method: mode and evidence of a regression whose groups differ, compared with a dense design."""

import numpy as np
import pytest
from scipy.optimize import minimize

from opacc_ray.samplers.neyman.compiled import climb


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
