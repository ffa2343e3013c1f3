"""Weighted Clopper-Pearson intervals where most examples fail: the weights of a sample do not sum to 1."""

import numpy as np
import pytest
from scipy.stats import binom

import opacc_ray as opacc
from opacc_ray.parts.view import view_of

N = 3000


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("accuracy", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("method", ["deepest", "sups", "rhcs", "two_ups"])
def test_interval_holds_where_most_fail(method: str, accuracy: float, rounds: int) -> None:
    """100 samples of 50, failures unrelated to confidence; fails above the 1 - 1e-4 quantile of a level of 95 %."""
    rng = np.random.default_rng(1)
    outcome = 1.0 * (rng.random(N) < accuracy)
    view = view_of(opacc.Pool(confidence=1 - rng.beta(0.3, 1.5, N)))
    excluded = 0
    for seed in range(100):
        previous: list[tuple[opacc.Selection, np.ndarray]] = []
        for _ in range(rounds):
            chosen = opacc.select(view, method, 50 // rounds, seed, previous=previous)
            previous.append((chosen, outcome[chosen.index]))
        found = opacc.estimate(*map(list, zip(*previous, strict=True)))
        excluded += not found.low <= outcome.mean() <= found.high
    assert excluded <= binom.ppf(1 - 1e-4, 100, 0.05)


def test_no_success_excludes_no_accuracy_down_to_0() -> None:
    rng = np.random.default_rng(1)
    pool = opacc.Pool(confidence=1 - rng.beta(0.3, 1.5, N))
    for seed in range(50):
        assert opacc.estimate(opacc.select(pool, "sups", 50, seed), np.zeros(50)).low == 0
