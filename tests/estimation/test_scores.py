"""Numbers that judge the confidence: their definitions on labelled pools, no bias over all samples, and coverage."""

from itertools import combinations

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import SpecError
from opacc_ray.estimation.estimate import calibration_error
from opacc_ray.metrics.scores import ranking_of

TRUTH = np.array([1, 1, 1, 0, 0, 0, 0, 1, 0, 0])
SCORE = np.array([0.9, 0.8, 0.4, 0.4, 0.3, 0.7, 0.1, 0.6, 0.2, 0.55])  # of class 1
PREDICTED = (SCORE > 0.5).astype(int)
CONFIDENCE = np.where(PREDICTED == 1, SCORE, 1 - SCORE)
POOL = opacc.Pool(prediction=PREDICTED, confidence=CONFIDENCE)


def by_hand(name: str) -> float:
    if name == "auc@1":
        pairs = [(a > b) + 0.5 * (a == b) for a in SCORE[TRUTH == 1] for b in SCORE[TRUTH == 0]]
        return float(np.mean(pairs))
    if name == "average_precision@1":
        return float(np.mean([TRUTH[own <= SCORE].mean() for own in SCORE[TRUTH == 1]]))
    right = TRUTH == PREDICTED
    if name == "calibration_error":
        tenth = np.floor(CONFIDENCE * 10)
        return float(sum(abs((CONFIDENCE - right)[tenth == k].sum()) for k in range(10)) / len(right))
    return float(np.mean((CONFIDENCE - right) ** 2) if name == "brier" else np.mean(CONFIDENCE - right))


@pytest.mark.parametrize("method", ["srs", "neyman"])
@pytest.mark.parametrize("name", ["brier", "overconfidence", "calibration_error", "auc@1", "average_precision@1"])
def test_with_all_labels_it_is_its_definition(name: str, method: str) -> None:
    chosen = opacc.select(POOL, method, budget=10)
    found = opacc.estimate(chosen, labels=list(map(str, TRUTH[chosen.index])), pool=POOL, metric=name)
    tolerance = 0.05 if "@" in name else 1e-9  # one step is not exact where the predictions are wrong
    assert found.value == pytest.approx(by_hand(name), abs=tolerance)


@pytest.mark.parametrize("name", ["brier", "overconfidence"])
def test_it_is_unbiased_over_all_simple_random_samples(name: str) -> None:
    base, found = opacc.select(POOL, "srs", budget=5), []
    kept = {own: getattr(base, own) for own in ("method", "parameters", "seed", "pool_size", "design")}
    for chosen in combinations(range(10), 5):
        index = np.array(chosen)
        sample = opacc.Selection(index=index, ids=tuple(map(str, chosen)), **kept)
        outcome = (TRUTH == PREDICTED)[index].astype(float)
        found.append(opacc.estimate(sample, outcomes=outcome, pool=POOL, metric=name))
    low = 0.0 if name == "brier" else -1.0
    inside = [one.value for one in found]
    assert all(one.low >= low for one in found)
    assert np.mean(inside) == pytest.approx(by_hand(name), abs=0.004)  # a few are moved into [0, 1]
    assert np.mean([one.low <= by_hand(name) <= one.high for one in found]) >= 0.9


def test_scores_of_many_classes_are_refused() -> None:
    pool = opacc.Pool(prediction=[0, 1, 2, 2], confidence=[0.5, 0.6, 0.7, 0.8])
    chosen = opacc.select(pool, "srs", budget=3)
    with pytest.raises(SpecError, match="auc@1: the confidence is a score of one class with two"):
        opacc.estimate(chosen, labels=["0", "1", "2"], pool=pool, metric="auc@1")


@pytest.mark.parametrize("name", ["auc", "average_precision"])
def test_rankings_at_the_truth_are_their_definition_and_their_slopes_those_of_the_expectation(name: str) -> None:
    inside, failure = PREDICTED == 1, (PREDICTED != TRUTH).astype(float)
    found = ranking_of(name, CONFIDENCE, failure, inside)
    event = np.where(inside, failure, (TRUTH == 1) & ~inside)
    assert found.base + np.mean(found.coefficient * event) == pytest.approx(by_hand(f"{name}@1"))

    def theta(failure: np.ndarray) -> float:  # of predictions, without the correction
        own = ranking_of(name, CONFIDENCE, failure, inside)
        return own.base + float(np.mean(own.coefficient * failure))

    middle, step = np.linspace(0.1, 0.6, 10), 1e-6
    slope = [(theta(middle + step * one) - theta(middle - step * one)) / (2 * step) for one in np.eye(10)]
    assert slope == pytest.approx(ranking_of(name, CONFIDENCE, middle, inside).coefficient / 10, abs=1e-6)


def rare_class(size: int) -> tuple[np.ndarray, opacc.Pool]:
    """A tenth is of the class, which the confidence tells well, but the prediction misses."""
    rng = np.random.default_rng(3)
    truth = (rng.random(size) < 0.1).astype(int)
    score = 1 / (1 + np.exp(2.2 - 3 * truth - 1.4 * rng.standard_normal(size)))
    predicted = (score > 0.7).astype(int)
    return truth, opacc.Pool(prediction=predicted, confidence=np.where(predicted, score, 1 - score), classes=["0", "1"])


def ranking(truth: np.ndarray, pool: opacc.Pool, name: str) -> float:
    inside = pool.prediction == 1
    failure = (pool.prediction != truth).astype(float)
    found = ranking_of(name, pool.confidence, failure, inside)
    return float(found.base + np.mean(found.coefficient * np.where(inside, failure, truth)))


@pytest.mark.parametrize("name", ["auc", "average_precision"])
@pytest.mark.parametrize("method", ["srs", "css", "neyman", "gbs"])
@pytest.mark.filterwarnings("error")
def test_numbers_of_a_pool_with_all_labels_are_the_truth(name: str, method: str) -> None:
    truth, pool = rare_class(120)
    chosen = opacc.select(pool, method, budget=120)
    labels = [str(c) for c in truth[chosen.index]]
    found = opacc.estimate(chosen, labels=labels, pool=pool, metric=name)
    assert (found.low, found.value, found.high) == pytest.approx((ranking(truth, pool, name),) * 3)
    found = opacc.estimate(chosen, labels=labels, pool=pool, metric="macro_f1")
    assert found.low == found.value == found.high


@pytest.mark.parametrize("name", ["auc", "average_precision"])
@pytest.mark.parametrize("method", ["srs", "css", "deepest"])
def test_rankings_by_the_design_alone_learn_from_labels_where_failures_are(name: str, method: str) -> None:
    truth, pool = rare_class(3000)
    found = []
    for seed in range(30):
        chosen = opacc.select(pool, method, budget=400, seed=seed)
        found.append(opacc.estimate(chosen, labels=[str(c) for c in truth[chosen.index]], pool=pool, metric=name))
    true = ranking(truth, pool, name)
    assert np.mean([one.low <= true <= one.high for one in found]) >= 0.85
    assert abs(np.mean([one.value for one in found]) - true) < 0.025


@pytest.mark.parametrize("shift", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("method", ["srs", "neyman"])
@pytest.mark.slow
def test_the_interval_of_the_calibration_error_covers(method: str, shift: float) -> None:
    rng = np.random.default_rng(2)
    confidence = rng.beta(5, 1.5, 3000)
    sign = np.where(rng.random(3000) < 0.5, 1, -1) if shift < 0.1 else 1
    outcome = (rng.random(3000) < np.clip(confidence - shift * sign, 0, 1)).astype(float)
    pool, tenth = opacc.Pool(confidence=confidence), np.floor(confidence * 10)
    true = sum(abs((confidence - outcome)[tenth == k].sum()) for k in range(10)) / 3000
    found = []
    for seed in range(40):
        chosen = opacc.select(pool, method, budget=150, seed=seed)
        found.append(opacc.estimate(chosen, outcomes=outcome[chosen.index], pool=pool, metric="calibration_error"))
    assert np.mean([one.low <= true <= one.high for one in found]) >= 0.9
    assert abs(np.mean([one.value for one in found]) - true) < 0.035  # noise is corrected in part
    assert all(one.low <= one.value <= one.high for one in found)


@pytest.mark.parametrize("true", np.linspace(0, 3, 13))
def test_the_calibration_error_of_normal_gaps_has_a_bounded_bias(true: float) -> None:
    """By quadrature; a second part with a known gap keeps the mean away from 0."""
    at, weight = np.polynomial.hermite_e.hermegauss(60)
    size, error = np.array([0.5, 0.5]), np.array([0.0, 0.01])
    found = [calibration_error(size, np.array([0.5, 0.01 * (true + z)]), error, 0.95)[0] for z in at]
    bias = (weight @ found / weight.sum() - 0.5 * (0.5 + 0.01 * true)) / 0.005
    assert -0.29 <= bias <= 0.24
    assert true > 0 or bias == pytest.approx(np.sqrt(2 / np.pi) - np.sqrt(1 / np.pi), abs=0.02)


def test_the_calibration_error_of_known_gaps_is_their_mean_size() -> None:
    value, low, high = calibration_error(np.array([0.25, 0.75]), np.array([0.2, -0.1]), np.zeros(2), 0.95)
    assert (value, low, high) == pytest.approx((0.125, 0.125, 0.125))
