"""What a pool in memory refuses, in one sentence."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import opacc_ray as opacc
from opacc_ray.errors import DataError, SpecError


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"prediction": [["a"], ["b", "a"]]}, "prediction is not made of numbers .*the name of a class for every"),
        ({"prediction": ["cat", "dgo"], "classes": ["cat", "dog"]}, r"prediction\[1\] is \"dgo\".*2 .*mean 'dog'"),
        ({"prediction": [0, 2], "classes": ["cat", "dog"]}, r"prediction\[1\] is 2, and there are 2 .*from 0 to 1"),
        ({"prediction": [0, 1], "classes": ["cat", "cat"]}, 'has "cat" more than once'),
        ({"prediction": [0, 1], "classes": "cat"}, 'classes is "cat"; give the name of each class'),
        ({"confidence": [0.1, [0.2, 0.3]]}, "confidence is not made of numbers"),
        ({"hidden": [["a"], ["b"]]}, "hidden is not made of numbers"),
        (
            {"hidden": pd.Series([np.ones(2), np.ones(2)])},
            "hidden is not made of .* of a column of lists np.stack",
        ),
        ({"confidence": torch.ones(2, requires_grad=True)}, "confidence is not made of numbers .*requires grad"),
        ({"hidden": np.ones((60, 0))}, r"hidden has shape \(60, 0\); give one row per example"),
        ({"output": np.ones(5)}, r"output has shape \(5,\); give one row per example"),
        ({"confidence": np.ones((5, 2))}, r"confidence has shape \(5, 2\); give one number per example"),
        ({"confidence": []}, "the pool holds no example"),
        ({"ids": ["a", "b", "a"]}, "id 'a' stands twice"),
        ({"ids": ["a", None, "None"]}, r"ids\[1\] is None; give each example a unique id"),
        ({"ids": [1, np.nan, 3]}, r"ids\[1\] is nan"),
        ({"prediction": ["a", np.nan, "nan"]}, "the name of a class for every example"),
        ({"ids": ["a", "b"], "confidence": [0.1]}, "disagree about the number of examples: confidence 1, ids 2"),
        ({}, "is given no feature and no ids"),
        ({"ids": 5}, "ids is of type int; give one name per example"),
        ({"confidence": [0.5 + 1j, 1]}, r"confidence is not made of numbers \(complex128 is no real number\)"),
        ({"lsa": np.array(["2020-01-01"], "M8[D]")}, r"lsa is not made of numbers \(datetime64\[D\] is no"),
        ({"coverage": 1}, r"coverage has shape \(\) and dtype int64; give one row per example, either bool"),
        ({"coverage": [0.5, 1.0]}, r"coverage has shape \(2,\) and dtype float64; give one row"),
        ({"coverage": ["a", "b"]}, "coverage is not made of numbers"),
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


def test_predicted_names_become_indexes_of_the_classes() -> None:
    named = opacc.Pool(prediction=pd.Series(["cat", "dog", "cat"]), classes=["dog", "cat", "horse"])
    assert (named.prediction.tolist(), named.classes) == ([1, 0, 1], ("dog", "cat", "horse"))
    sorted_names = opacc.Pool(prediction=np.array(["cat", "dog", "bee"]))
    assert (sorted_names.prediction.tolist(), sorted_names.classes) == ([1, 2, 0], ("bee", "cat", "dog"))
    assert opacc.Pool(prediction=[1, 0], classes=["dog", "cat"]).prediction.tolist() == [1, 0]
    assert opacc.Pool(prediction=[1, 0]).classes is None


SURE = np.linspace(0.5, 1, 8)
POOL = opacc.Pool(confidence=SURE)
DRAWN = opacc.select(POOL, "neyman", 4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pool": SURE}, r"what is given as a pool is of type ndarray; give opacc.Pool\(confidence"),
        ({"pool": [SURE]}, "what is given as a pool is of type ndarray"),
        ({"pool": None}, "what is given as a pool is of type NoneType"),
        ({"pool": {"a": POOL}}, "what is given as a pool is of type dict"),
        ({"previous": (DRAWN, [1, 0, 1, 1])}, r"a round of type Selection: give \[opacc.Labelled\("),
        ({"previous": [(DRAWN, [1, 0, 1, 1])]}, r"a round of type tuple: give \[opacc.Labelled\("),
        ({"previous": None}, "a round of type NoneType"),
        ({"history": [(POOL, SURE)]}, r"a history has the type tuple; give opacc.History\("),
        ({"history": SURE}, "a history has the type ndarray"),
    ],
)
def test_what_is_given_to_a_draw_in_another_shape_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        opacc.select(**{"pool": POOL, "method": "neyman", "budget": 4} | given)


@pytest.mark.parametrize("method", ["neyman", "srs"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pool": SURE}, "what is given as a pool is of type ndarray"),
        ({"pool": [POOL]}, "what is given as a pool is of type list"),
        ({"pool": POOL, "history": (POOL, SURE)}, "a history has the type Pool"),
    ],
)
def test_what_is_given_to_an_estimate_in_another_shape_is_refused(
    method: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        opacc.estimate(opacc.select(POOL, method, 4), outcomes=[1, 0, 1, 1], **given)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "a"])
def test_seed_is_refused(seed: Any) -> None:
    with pytest.raises(SpecError, match=f"seed={seed!r}: give a whole number of at least 0, None or"):
        opacc.select(opacc.Pool(ids=list("abcdefgh")), "srs", 5, seed)


@pytest.mark.parametrize("seed", [None, np.random.default_rng(3), np.int64(3), np.uint8(3)])
def test_a_seed_that_is_drawn_is_recorded(seed: Any) -> None:
    pool = opacc.Pool(confidence=np.linspace(0.1, 0.9, 200))
    chosen = opacc.select(pool, "srs", 20, seed)
    again = opacc.select(pool, "srs", 20, chosen.seed)
    assert again.to_dict() == chosen.to_dict() == opacc.Selection.from_json(chosen.to_json(), "chosen").to_dict()
    other = opacc.select(pool, "srs", 20, seed)
    assert (other.ids == chosen.ids) == isinstance(seed, np.integer)
