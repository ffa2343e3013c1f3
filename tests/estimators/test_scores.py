"""Brier score, overconfidence and AUC: their definitions on labelled pools, and no bias over all samples."""

from itertools import combinations

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import SpecError

TRUTH = np.array([1, 1, 1, 0, 0, 0, 0, 1, 0, 0])
SCORE = np.array([0.9, 0.8, 0.4, 0.4, 0.3, 0.7, 0.1, 0.6, 0.2, 0.55])  # of class 1
PREDICTED = (SCORE > 0.5).astype(int)
CONFIDENCE = np.where(PREDICTED == 1, SCORE, 1 - SCORE)
POOL = opacc.Pool(prediction=PREDICTED, confidence=CONFIDENCE)


def by_hand(name: str) -> float:
    if name == "auc@1":
        pairs = [(a > b) + 0.5 * (a == b) for a in SCORE[TRUTH == 1] for b in SCORE[TRUTH == 0]]
        return float(np.mean(pairs))
    right = TRUTH == PREDICTED
    return float(np.mean((CONFIDENCE - right) ** 2) if name == "brier" else np.mean(CONFIDENCE - right))


@pytest.mark.parametrize("method", ["srs", "neyman"])
@pytest.mark.parametrize("name", ["brier", "overconfidence", "auc@1"])
def test_with_all_labels_it_is_its_definition(name: str, method: str) -> None:
    chosen = opacc.select(POOL, method, budget=10)
    found = opacc.estimate(chosen, list(map(str, TRUTH[chosen.index])), pool=POOL, metric=name)
    tolerance = 0.02 if name == "auc@1" else 1e-9  # one step is not exact where the predictions are wrong
    assert found.value == pytest.approx(by_hand(name), abs=tolerance)


@pytest.mark.parametrize("name", ["brier", "overconfidence"])
def test_it_is_unbiased_over_all_simple_random_samples(name: str) -> None:
    base, found = opacc.select(POOL, "srs", budget=5), []
    kept = {own: getattr(base, own) for own in ("method", "parameters", "seed", "pool_size", "design")}
    for chosen in combinations(range(10), 5):
        index = np.array(chosen)
        sample = opacc.Selection(index=index, ids=tuple(map(str, chosen)), **kept)
        outcome = (TRUTH == PREDICTED)[index].astype(float)
        found.append(opacc.estimate(sample, outcome, pool=POOL, metric=name))
    low = 0.0 if name == "brier" else -1.0
    inside = [one.value for one in found]
    assert all(one.low >= low for one in found)
    assert np.mean(inside) == pytest.approx(by_hand(name), abs=0.004)  # a few are moved into [0, 1]
    assert np.mean([one.low <= by_hand(name) <= one.high for one in found]) >= 0.9


def test_scores_of_many_classes_are_refused() -> None:
    pool = opacc.Pool(prediction=[0, 1, 2, 2], confidence=[0.5, 0.6, 0.7, 0.8])
    chosen = opacc.select(pool, "srs", budget=3)
    with pytest.raises(SpecError, match="auc@1: the confidence is a score of one class with two"):
        opacc.estimate(chosen, ["0", "1", "2"], pool=pool, metric="auc@1")
