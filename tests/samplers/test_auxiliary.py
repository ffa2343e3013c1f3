"""Failure scores, and the strata cut from them."""

import itertools

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.parts.view import view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.auxiliary import kmeans_1d

POOL = Pool(
    ids=["a", "b", "c", "d"],
    confidence=np.array([1.0, 0.6, 0.9, 0.3]),
    dsa=np.array([0.0, 2.0, 1.0, 0.5]),
    lsa=np.array([-3.0, 5.0, 0.0, 1.0]),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("confidence", [0, 0.4, 0.1, 0.7]),
        ("dsa", [0, 1, 0.5, 0.25]),
        ("lsa", [0, 8, 3, 4]),  # shifted, for one is negative
        ("combined", [0, 1, 0.55, 1 - 0.3 * 0.75]),
    ],
)
def test_scores_are_those_worked_by_hand(name: str, expected: list[float]) -> None:
    np.testing.assert_allclose(read(POOL, name).score(), expected, atol=1e-15)


def read(pool: Pool, name: str) -> auxiliary.Variable:
    return auxiliary.read(view_of(pool), name)


@pytest.mark.parametrize("name", ["dsa", "lsa"])
def test_surprise_without_spread_scores_zero_and_is_not_active(name: str) -> None:
    variable = read(Pool(**{name: np.zeros(5)}), name)
    assert variable.score().tolist() == [0] * 5
    assert not variable.active().any()


def test_activation() -> None:
    low = Pool(confidence=[0.69, 0.7, 0.71], dsa=[0.0, 0.0, 0.0])
    for name in ("confidence", "combined"):
        assert read(low, name).active().tolist() == [True, False, False]
        assert read(low, name).active(0.705).tolist() == [True, True, False]
    surprise = np.array([1.0] * 9 + [5.0])  # mean 1.4, standard deviation 1.2, variance 1.44
    for values in (surprise, surprise + 1.5):
        assert np.flatnonzero(read(Pool(dsa=values), "dsa").active()).tolist() == [9]
    between = np.array([1.0] * 8 + [4.0, 6.0])  # mean 1.8, standard deviation 1.66: one of the two is beyond twice that
    assert np.flatnonzero(read(Pool(dsa=between), "dsa").active()).tolist() == [9]
    assert read(Pool(lsa=surprise), "lsa").active().tolist() == (surprise > 2.84).tolist()


@pytest.mark.parametrize(
    ("pool", "name", "message"),
    [
        (Pool(ids=["x", "y"], confidence=[0.4, 1.2]), "confidence", "confidence of example 'y' is 1.2; .* in .0, 1."),
        (Pool(ids=["x", "y"], confidence=[-0.1, 1.0]), "confidence", "confidence of example 'x' is -0.1"),
        (Pool(ids=["x", "y"], dsa=[1.0, -2.0]), "dsa", "dsa of example 'y' is -2.0; it must be at least 0"),
        (Pool(ids=["x", "y"], confidence=[0.5, 0.5], dsa=[1.0, np.nan]), "combined", "dsa of example 'y' is nan"),
    ],
)
def test_names_the_example_whose_value_cannot_be(pool: Pool, name: str, message: str) -> None:
    with pytest.raises(opacc.OpaccError, match=message):
        read(pool, name)


def test_confidence_may_exceed_1_by_rounding() -> None:
    pool = Pool(confidence=np.array([np.float32(1) + np.float32(1e-7), 0.5]))
    assert read(pool, "confidence").score().tolist() == [0, 0.5]


@pytest.mark.parametrize("floor", [0.0, -1.0, 1.5, 1e-300])
def test_a_floor_that_leaves_examples_out_is_refused(floor: float) -> None:
    with pytest.raises(opacc.OpaccError, match=f"floor={floor}"):
        auxiliary.check_floor(floor)


class TestKMeans:
    def test_finds_the_best_clusters(self) -> None:
        """Against all ways to cut the sorted values."""
        rng = np.random.default_rng(0)
        for _ in range(150):
            values = np.round(rng.gamma(0.5, size=rng.integers(1, 9)), 3)
            num = min(int(rng.integers(1, 5)), len(set(values)))
            cluster = kmeans_1d(values, num)
            mine = sum(_squares(values[cluster == k]) for k in range(num))
            cuts = itertools.combinations(range(1, len(values)), num - 1)
            best = min(sum(map(_squares, np.split(np.sort(values), cut))) for cut in cuts)
            assert mine <= best + len(values) * (np.ptp(values) / 500) ** 2 + 1e-12

    def test_has_no_more_clusters_than_values(self) -> None:
        assert kmeans_1d(np.array([2.0, 1.0, 2.0]), 10).tolist() == [1, 0, 1]
        assert kmeans_1d(np.full(4, 3.0), 10).tolist() == [0, 0, 0, 0]


def _squares(values: np.ndarray) -> float:
    return float(((values - values.mean()) ** 2).sum())
