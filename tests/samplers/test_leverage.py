"""How far a label moves its own prediction, which is what makes errors of a fitted model too small."""

import numpy as np
import pytest

from opacc_ray.samplers.neyman.compiled import climb


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
