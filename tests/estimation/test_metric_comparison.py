"""Differences of metrics: unbiased to first order by enumeration, covered in simulations, and zero for equal models."""

from itertools import combinations

import numpy as np
import pytest
from given_selections import selection_of

import opacc_ray as opacc
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.errors import SpecError
from opacc_ray.estimation.model_comparison import Linearised, linearise, metric_difference
from opacc_ray.estimation.sample import Sample, join
from opacc_ray.metrics.metric import Metric

C = 3
TRUTH = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 0])
FIRST = np.array([0, 0, 0, 1, 1, 1, 1, 0, 2, 2, 1, 0])
SECOND = np.array([0, 0, 2, 1, 1, 0, 1, 1, 2, 0, 2, 0])
METRICS = [
    Metric("macro_f1"),
    Metric("macro_recall"),
    Metric("f1", "0"),
    Metric("recall", "1"),
    Metric("precision", "2"),
]


def metric_of(metric: Metric, truth: np.ndarray, predicted: np.ndarray) -> float:
    """The metric by its definition."""

    def of_class(c: int) -> float:
        tp = np.sum((truth == c) & (predicted == c))
        fn, fp = np.sum((truth == c) & (predicted != c)), np.sum((truth != c) & (predicted == c))
        sizes = {"recall": (tp, tp + fn), "precision": (tp, tp + fp), "f1": (2 * tp, 2 * tp + fn + fp)}
        top, bottom = sizes[metric.name.removeprefix("macro_")]
        return float(top / bottom)

    if metric.positive is not None:
        return of_class(int(metric.positive))
    return float(np.mean([of_class(c) for c in np.unique([truth, predicted])]))


def sample_of(index: np.ndarray) -> Sample:
    """A simple random sample of the pool."""
    selection = selection_of(SimpleRandom(len(index), len(TRUTH), False), index)
    return join(selection, np.zeros(len(index)), truth=TRUTH[index])


def linear(metric: Metric, predicted: np.ndarray, sample: Sample) -> Linearised:
    return linearise(sample, metric, int(metric.positive or 0), predicted, C)


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_with_all_labels_it_is_the_difference_itself(metric: Metric) -> None:
    census = sample_of(np.arange(len(TRUTH)))
    first, second = (linear(metric, own, census) for own in (FIRST, SECOND))
    found = metric_difference(census.rounds, first, second, 0.95)
    exact = metric_of(metric, TRUTH, FIRST) - metric_of(metric, TRUTH, SECOND)
    assert [found.value, found.low, found.high] == pytest.approx([exact] * 3, abs=1e-9)


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_over_all_samples_the_linear_part_is_unbiased_and_is_nearly_all_of_the_error(metric: Metric) -> None:
    size, n = len(TRUTH), 9
    census = sample_of(np.arange(size))
    moves = np.subtract(*(linear(metric, own, census).moves for own in (FIRST, SECOND)))
    exact = metric_of(metric, TRUTH, FIRST) - metric_of(metric, TRUTH, SECOND)
    parts, variances, errors = [], [], []
    for chosen in combinations(range(size), n):
        index = np.array(chosen)
        sample = sample_of(index)
        own = [linear(metric, predicted, sample).value for predicted in (FIRST, SECOND)]
        errors.append(own[0] - own[1] - exact)
        parts.append(float(sample.rounds.weights @ moves[index]))
        variances.append(float(sample.rounds.variance(moves[index])))
    assert np.mean(parts) == pytest.approx(0, abs=1e-12)
    assert np.mean(variances) == pytest.approx(np.var(parts), rel=1e-9)
    assert abs(np.mean(errors)) < 0.1 * np.std(errors)
    assert np.corrcoef(parts, errors)[0, 1] > 0.9


def case(
    seed: int, shares: list[float] | None, size: int = 2000
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Truth, two similar models, and the confidence of the first."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(5, size, p=shares)
    confidence = np.clip(rng.beta(6, 1.5, size), 0.3, 0.999)

    def model(accuracy: float) -> np.ndarray:
        right = rng.random(size) < np.clip(confidence + accuracy - confidence.mean(), 0, 1)
        return np.where(right, truth, (truth + rng.integers(1, 5, size)) % 5)

    first = model(0.85)
    return truth, first, np.where(rng.random(size) < 0.7, first, model(0.8)), confidence


@pytest.mark.slow
@pytest.mark.parametrize(("method", "n"), [("srs", 100), ("srs", 300), ("neyman", 150)])
@pytest.mark.parametrize("shares", [None, [0.03, 0.07, 0.2, 0.3, 0.4]], ids=["equal", "rare"])
def test_the_interval_covers_the_difference(method: str, n: int, shares: list[float] | None) -> None:
    truth, first, second, confidence = case(3, shares)
    pool, repetitions = opacc.Pool(prediction=first, confidence=confidence), 200
    metrics = [Metric("macro_f1"), Metric("f1", "0"), Metric("recall", "0")]
    exact = [metric_of(own, truth, first) - metric_of(own, truth, second) for own in metrics]
    covered = np.zeros(len(metrics))
    for seed in range(repetitions):
        chosen = opacc.select(pool, method=method, budget=n, seed=seed)
        sample = join(chosen, np.zeros(n), truth=truth[chosen.index])
        for place, metric in enumerate(metrics):
            pair = [linearise(sample, metric, 0, predicted, 5) for predicted in (first, second)]
            found = metric_difference(sample.rounds, *pair, 0.95)
            covered[place] += found.low <= exact[place] <= found.high
    assert (covered >= 0.93 * repetitions).all(), covered / repetitions


def test_models_are_compared_by_their_labels_from_python() -> None:
    truth, first, second, confidence = case(1, None, 600)
    pools = [opacc.Pool(prediction=own, confidence=confidence, classes=list("abcde")) for own in (first, second, first)]
    chosen = opacc.select(pools[0], "srs", 150, seed=2)
    labels = {id: "abcde"[truth[i]] for id, i in zip(chosen.ids, chosen.index.tolist(), strict=True)}
    found = opacc.compare(chosen, labels=labels, pools=pools, metric="f1", positive="b")
    assert found.models[1] == opacc.estimate(chosen, labels=labels, pool=pools[1], metric="f1@b")
    ab, same, ba = (pair.difference for pair in found.differences)
    assert (same.value, same.low, same.high) == (0, 0, 0)
    assert (ba.value, ba.low, ba.high) == pytest.approx((-ab.value, -ab.high, -ab.low))
    assert ab.low < ab.value < ab.high
    (alone,) = opacc.compare(chosen, labels=labels, pools=pools[:2], metric="f1@b").differences
    assert alone.difference.high - alone.difference.low < ab.high - ab.low  # one pair needs no allowance for three
    assert alone.num_unlike == np.count_nonzero(first != second)
    assert sum(found.best) == pytest.approx(1)


def test_a_metric_needs_the_pools() -> None:
    chosen = opacc.select(opacc.Pool(ids=[str(i) for i in range(20)]), "srs", 4)
    with pytest.raises(SpecError, match=r"macro_f1 needs the pool of each model: compare\(…, labels=…, pools="):
        opacc.compare(chosen, labels=["a", "b", "a", "b"], metric="macro_f1")
