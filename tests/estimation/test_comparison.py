"""Two models on one sample: the paired difference, its value and its interval."""

from itertools import combinations

import numpy as np
import pytest
from drawn_rounds import draw_rounds, featured_pool, hold
from numpy.typing import NDArray
from two_models import compare

import opacc_ray as opacc
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.model_comparison import compare_outcomes, difference_limits, independent_difference
from opacc_ray.pool import Pool
from opacc_ray.samplers import METHODS

N = 600
Outcomes = NDArray[np.float64]


@pytest.fixture(scope="module")
def pool() -> Pool:
    return featured_pool(lambda rng: rng.uniform(0.5, 1, N))


@pytest.fixture(scope="module")
def outcomes(pool: Pool) -> tuple[Outcomes, Outcomes]:
    """Of two models that agree on most examples."""
    rng = np.random.default_rng(1)
    luck = rng.random(N)
    second = np.where(rng.random(N) < 0.8, luck, rng.random(N)) < pool.confidence - 0.05
    return (luck < pool.confidence).astype(float), second.astype(float)


@pytest.mark.parametrize("method", METHODS)
def test_difference_is_that_of_the_two_estimates(method: str, pool: Pool, outcomes) -> None:
    first, second = outcomes
    rounds, of_first = draw_rounds(pool, first, (40, 50), method=method)
    found = compare(rounds, of_first, [second[part.index] for part in rounds])
    assert found.first == estimate_outcomes(rounds, of_first)
    assert found.difference.value == pytest.approx(found.first.value - found.second.value, abs=1e-12)
    assert -1 <= found.difference.low < found.difference.value < found.difference.high <= 1
    assert found.difference.design_based == found.first.design_based
    assert (found.difference.reason is None) == found.difference.design_based


def test_many_labels_bring_the_interval_of_the_paired_difference() -> None:
    """Models that are never right together: what one side gains the other loses, so the two add up."""
    chosen = opacc.select(Pool(ids=[str(i) for i in range(10_000)]), "srs", 2000, seed=1)
    first = np.arange(2000) % 2
    difference = compare(chosen, first, 1 - first).difference
    assert (difference.high - difference.low) / 2 == pytest.approx(1.96 * difference.standard_error, rel=0.02)


def test_counts_by_hand() -> None:
    chosen = opacc.select(Pool(ids=[str(i) for i in range(100)]), "srs", 6, seed=1)
    found = compare(chosen, [1, 1, 1, 0, 1, 0.5], [1, 0, 0, 1, 1, 0.5])
    assert (found.num_first_better, found.num_second_better) == (2, 1)
    assert found.difference.value == pytest.approx(1 / 6)
    d = np.array([0, 1, 1, -1, 0, 0])
    assert found.difference.standard_error == pytest.approx(np.sqrt((1 - 6 / 100) * d.var(ddof=1) / 6))
    assert found.to_dict()["difference"]["value"] == found.difference.value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "budget"), [("srs", 40), ("srs", 150), ("css", 40), ("sups", 40), ("sups", 150), ("deepest", 150)]
)
def test_difference_covers(method: str, budget: int, pool: Pool, outcomes) -> None:
    """300 repetitions; fails under the 1e-4 quantile of a 95 % interval's hits."""
    drawn = [opacc.select(pool, method, budget, seed) for seed in range(300)]
    found = [compare(chosen, *(y[chosen.index] for y in outcomes)).difference for chosen in drawn]
    assert hold(found, outcomes[0].mean() - outcomes[1].mean())


def test_two_independent_estimates_by_hand() -> None:
    first = Estimate(0.9, 0.02, 0.85, 0.94, 0.95, "wilson", 100, True)
    second = Estimate(0.8, 0.03, 0.74, 0.85, 0.95, "wilson", 50, False, "no random sample")
    found = independent_difference(first, second)
    assert found.value == pytest.approx(0.1)
    assert found.low == pytest.approx(0.1 - 0.0050**0.5)  # 0.05² + 0.05²
    assert found.high == pytest.approx(0.1 + 0.0052**0.5)  # 0.04² + 0.06²
    assert found.standard_error == pytest.approx(0.0013**0.5)
    assert (found.n, found.level, found.design_based, found.reason) == (150, 0.95, False, "no random sample")


@pytest.mark.slow
@pytest.mark.parametrize(("now", "before"), [(0.9, 0.95), (0.99, 0.99)])
def test_a_change_between_two_samples_covers(now: float, before: float) -> None:
    rng, found = np.random.default_rng(2), []
    chosen = opacc.select(Pool(ids=[str(i) for i in range(2000)]), "srs", 100, seed=1)
    stated = {k: estimate_outcomes(chosen, (np.arange(100) < k).astype(float)) for k in range(70, 101)}
    for _ in range(2000):
        one, two = (stated[int(rng.hypergeometric(round(p * 2000), round((1 - p) * 2000), 100))] for p in (now, before))
        found.append(independent_difference(one, two))
    assert hold(found, now - before)


# -- what the predictions of the whole pool say for certain ------------------------------------------------


def test_difference_is_surely_between_the_bounds_and_each_can_be_it() -> None:
    """All labelled parts of a pool of six, and all truths that agree with their labels."""
    first, second = np.array([0, 1, 0, 1, 1, 0]), np.array([0, 0, 0, 0, 1, 1])
    truths = np.stack(np.meshgrid(*[[0, 1]] * 6), axis=-1).reshape(-1, 6)
    d = (truths == first).astype(float) - (truths == second)  # (64, 6)
    for num in range(7):
        for chosen in combinations(range(6), num):
            index = np.array(chosen, dtype=np.int64)
            for truth, own in zip(truths, d, strict=True):
                sure = difference_limits(first, second, index, own[index])
                possible = d[(truths[:, index] == truth[index]).all(axis=1)].mean(axis=1)
                assert (sure.low, sure.high) == pytest.approx((possible.min(), possible.max()))
                assert sure.num_unlike == 3


@pytest.mark.parametrize("method", ["srs", "sups", "neyman"])
def test_models_that_say_the_same_of_nearly_all_are_hardly_apart(method: str, pool: Pool) -> None:
    rng = np.random.default_rng(2)
    truth = np.where(rng.random(N) < 0.8, pool.prediction, (pool.prediction + 1) % 4)
    other = pool.prediction.copy()
    other[:6] = (other[:6] + 1) % 4
    chosen = opacc.select(pool, method, 60, seed=1)
    outcomes = [(said == truth).astype(float)[chosen.index] for said in (pool.prediction, other)]
    (pair,) = compare_outcomes(chosen, outcomes, predictions=[pool.prediction, other]).differences
    (wide,) = compare_outcomes(chosen, outcomes).differences
    assert wide.num_unlike is None
    assert pair.num_unlike == 6
    stated = pair.difference
    assert stated.value == min(max(wide.difference.value, stated.low), stated.high)
    assert wide.difference.low < -0.01 <= pair.difference.low < pair.difference.high <= 0.01 < wide.difference.high
    same = compare_outcomes(chosen, outcomes[:1] * 2, predictions=[other] * 2, pools=[pool] * 2).differences[0]
    assert (same.difference.value, same.difference.low, same.difference.high, same.num_unlike) == (0, 0, 0, 0)


def test_predictions_that_do_not_fit_are_refused(pool: Pool) -> None:
    chosen = opacc.select(pool, "srs", 20)
    with pytest.raises(LabelError, match=r"predict dog for example \d+ and have different outcomes there; give pred"):
        compare_outcomes(chosen, [[1] * 20, [0] * 20], predictions=[["dog"] * N] * 2)
    for said in ([[1] * N], [[1] * N, [1] * 20], [[1] * N] * 3):
        with pytest.raises(
            SpecError, match=r"predictions have the shapes .* 2 models and a pool of 600 examples: give"
        ):
            compare_outcomes(chosen, [[1] * 20, [0] * 20], predictions=said)
