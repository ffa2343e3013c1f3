"""Accuracies of a population that the pool is a random sample of: variance exact, coverage, and what is refused."""

from itertools import product

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimation.adjustments import SampleOf, cluster_deviations
from opacc_ray.estimation.estimate import estimate_outcomes

MOST_CLUSTERS = 40


def test_deviations_of_clusters_estimate_both_errors_exactly() -> None:
    """Every pool of two of three clusters of two examples, drawn with replacement, and every label of each."""
    population = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.2]])
    forecast = np.array([[0.7, 0.1], [0.5, 0.5], [0.3, 0.3]])
    values, stated = [], []
    for pool in product(range(3), repeat=2):
        v, p = population[list(pool)].ravel(), forecast[list(pool)].ravel()
        for drawn in product(range(2), repeat=2):
            index, weight = np.array([drawn[0], 2 + drawn[1]]), np.full(2, 0.5)
            value = float(p.mean() + weight @ (v[index] - p[index]))
            d = cluster_deviations(np.array([0, 0, 1, 1]), 2, p, (index, weight, v[index]), value)
            values.append(value)
            stated.append(2 / 1 * float(d @ d))
    assert np.mean(values) == pytest.approx(population.mean(), abs=1e-12)
    assert np.mean(stated) == pytest.approx(np.var(values), abs=1e-12)


def world(seed: int, num: int = MOST_CLUSTERS) -> tuple[opacc.Pool, np.ndarray, np.ndarray]:
    """Videos of about 20 frames that are alike: in some the model fails often."""
    rng = np.random.default_rng(seed)
    video = np.repeat(np.arange(num), 1 + rng.poisson(19, num))
    right = (rng.random(len(video)) >= rng.beta(1, 5, num)[video]).astype(float)
    return opacc.Pool(confidence=np.clip(0.5 + 0.3 * right + rng.normal(0, 0.2, len(video)), 0, 1)), right, video


@pytest.mark.parametrize("method", ["srs", "neyman"])
@pytest.mark.slow
def test_the_interval_covers_the_population_of_clusters(method: str) -> None:
    covered, of_pool = [], []
    for seed in range(150):
        pool, right, video = world(seed)
        chosen = opacc.select(pool, method, 150, seed)
        found = opacc.estimate(chosen, outcomes=right[chosen.index], pool=pool, sample_of="more", clusters=video)
        own = estimate_outcomes(chosen, right[chosen.index], pool=pool)
        assert found.low <= own.low <= own.high <= found.high
        assert found.value == own.value
        covered.append(found.low <= 5 / 6 <= found.high)
        of_pool.append(own.low <= 5 / 6 <= own.high)
    assert np.mean(covered) >= 0.88  # 1e-4 quantile of 150 repetitions at 95 %
    assert np.mean(of_pool) < 0.9  # that of the pool does not: 3e-3 quantile of the same


def test_a_sample_of_examples_needs_no_clusters_and_the_whole_population_is_the_pool() -> None:
    pool, right, video = world(1)
    chosen = opacc.select(pool, "srs", 150, 1)

    def width(**given: object) -> float:
        found = opacc.estimate(chosen, outcomes=right[chosen.index], pool=pool, **given)
        return float(found.high - found.low)

    assert width() == width(sample_of=pool.size) == width(sample_of=MOST_CLUSTERS, clusters=video)
    assert width() < width(sample_of=2 * pool.size) < width(sample_of=10 * pool.size) < width(sample_of="more")
    assert width(sample_of="more") < width(sample_of="more", clusters=video)
    named = [f"video {own}" if own else None for own in video]  # None is one cluster more
    assert width(sample_of="more", clusters=named) == pytest.approx(width(sample_of="more", clusters=video))
    assert width(sample_of=2 * MOST_CLUSTERS, clusters=video) < width(sample_of="more", clusters=video)


def test_clusters_count_as_one_example_each_where_all_labels_agree() -> None:
    pool, _, video = world(2)
    chosen = opacc.select(pool, "srs", 100, 1)
    found = opacc.estimate(chosen, outcomes=np.ones(100), pool=pool, sample_of="more", clusters=video)
    assert found.low < 1 - 3 / MOST_CLUSTERS
    assert found.high == 1


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"sample_of": 10}, SpecError, "the pool has 8.. examples, and cannot be a sample of 10"),
        ({"sample_of": 0}, SpecError, "sample_of=0: give the size of the population, or 'more'"),
        ({"sample_of": "all"}, SpecError, "sample_of='all': give the size"),
        ({"clusters": [1]}, SpecError, "only used with sample_of"),
        ({"sample_of": "more", "clusters": [1]}, DataError, "clusters have 1 values, for 8.. examples"),
        ({"sample_of": "more", "clusters": None, "metric": "macro_f1"}, SpecError, "sample_of is about the accuracy"),
    ],
)
def test_what_is_no_sample_is_refused(given: dict[str, object], error: type[Exception], message: str) -> None:
    pool, right, _ = world(3)
    chosen = opacc.select(pool, "srs", 20, 1)
    with pytest.raises(error, match=message):
        opacc.estimate(chosen, outcomes=right[chosen.index], pool=pool, **given)


def test_a_single_cluster_says_nothing_of_others() -> None:
    pool, right, _ = world(3)
    chosen = opacc.select(pool, "srs", 20, 1)
    with pytest.raises(SpecError, match="a single cluster"):
        opacc.estimate(chosen, outcomes=right[chosen.index], pool=pool, sample_of="more", clusters=np.zeros(pool.size))
    assert SampleOf.parse("more") == (None, None)
