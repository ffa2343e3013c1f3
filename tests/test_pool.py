"""What a pool in memory refuses, in one sentence."""

from typing import Any

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import DataError, LabelError, SpecError


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"prediction": ["a", "b", "a"]}, "prediction is not made of numbers .*'a'.*a class by its index"),
        ({"confidence": [0.1, [0.2, 0.3]]}, "confidence is not made of numbers"),
        ({"hidden": [["a"], ["b"]]}, "hidden is not made of numbers"),
        ({"hidden": np.ones((60, 0))}, r"hidden has shape \(60, 0\); give one row per example"),
        ({"output": np.ones(5)}, r"output has shape \(5,\); give one row per example"),
        ({"confidence": np.ones((5, 2))}, r"confidence has shape \(5, 2\); give one number per example"),
        ({"confidence": []}, "the pool holds no example"),
        ({"ids": ["a", "b", "a"]}, "id 'a' stands twice"),
        ({"ids": ["a", "b"], "confidence": [0.1]}, "disagree about the number of examples: confidence 1, ids 2"),
        ({}, "is given no feature and no ids"),
    ],
)
def test_pool_is_refused(features: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        opacc.Pool(**features)


def test_numbers_in_any_wrapping_serve() -> None:
    pool = opacc.Pool(prediction=np.array([1, 2], dtype=object), confidence=["0.5", "1"], hidden=[[1, 2], [3, 4]])
    assert pool.prediction.tolist() == [1, 2]
    assert pool.confidence.tolist() == [0.5, 1]
    assert pool.hidden.dtype == np.float32


@pytest.mark.parametrize("seed", [-1, 1.5, True, "a"])
def test_seed_is_refused(seed: Any) -> None:
    with pytest.raises(SpecError, match=f"seed={seed!r}: give a whole number of at least 0"):
        opacc.select(opacc.Pool(ids=list("abcdefgh")), "srs", 5, seed)


@pytest.mark.parametrize("outcome", [["a"] * 5, [1, 0, 1, [0, 1], 1], [{}] * 5])
def test_outcomes_that_are_no_numbers_are_refused(outcome: list[Any]) -> None:
    chosen = opacc.select(opacc.Pool(ids=list("abcdefgh")), "srs", 5)
    with pytest.raises(LabelError, match=r"the outcomes are not all numbers \(.*\): give 1 for correct"):
        opacc.estimate(chosen, outcome)
