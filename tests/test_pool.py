"""What a pool in memory refuses, in one sentence."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import opacc_ray as opacc
from opacc_ray.errors import DataError, LabelError, SpecError


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


def test_ids_and_pools_may_come_one_by_one() -> None:
    assert list(opacc.Pool(ids=(name for name in "abc")).ids) == ["a", "b", "c"]
    pools = [opacc.Pool(confidence=np.linspace(0.5, 1, 9)), opacc.Pool(confidence=np.linspace(0.6, 0.8, 9))]
    found, expected = (opacc.select(given, "neyman", 4) for given in (iter(pools), pools))
    assert found.index.tolist() == expected.index.tolist()


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
        (
            {"previous": (DRAWN, [1, 0, 1, 1])},
            r"previous holds an item of type Selection; .* \[\(selection, outcome\)\]",
        ),
        ({"previous": [DRAWN]}, "previous holds an item of type Selection"),
        ({"previous": [([1, 0, 1, 1], DRAWN)]}, "previous holds an item of type tuple"),
        ({"previous": None}, "previous holds an item of type NoneType"),
        ({"replicates": 2.5}, "replicates=2.5: give a whole number from 2 to"),
        ({"replicates": "2"}, "replicates='2': give a whole number"),
        ({"replicates": True}, "replicates=True: give a whole number"),
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
        opacc.estimate(opacc.select(POOL, method, 4), [1, 0, 1, 1], **given)


def test_no_history_may_be_none() -> None:
    assert opacc.select(POOL, "neyman", 4, history=None).index.tolist() == DRAWN.index.tolist()
    found = opacc.estimate(DRAWN, [1, 0, 1, 1], pool=POOL, history=None)
    assert found == opacc.estimate(DRAWN, [1, 0, 1, 1], pool=POOL)


@pytest.mark.parametrize(
    ("selection", "outcomes"), [(DRAWN, {"a": [1, 0, 1, 1]}), ([DRAWN], [{"a": [1, 0, 1, 1]}]), ([DRAWN], {"a": [[1]]})]
)
def test_outcomes_of_models_by_name_are_refused(selection: Any, outcomes: Any) -> None:
    with pytest.raises(
        LabelError, match="the outcomes have the type dict; give a list with the outcomes of each model, in"
    ):
        opacc.compare(selection, outcomes)


SELECTION = opacc.select(opacc.Pool(confidence=np.linspace(0.1, 0.9, 30)), "srs", 6, seed=1)
SORTED = pd.Series([1, 0, 1, 1, 0, 1], index=sorted(SELECTION.index))


@pytest.mark.parametrize(("names", "which"), [(int, "index"), (str, "ids")])
def test_outcomes_in_another_order_than_the_selection_are_refused(names: type, which: str) -> None:
    column = SORTED.rename(index=names)
    own = [names(place) for place in SELECTION.index]
    with pytest.raises(LabelError, match=rf"sort them, as in outcome.loc\[list\(selection.{which}\)\]"):
        opacc.estimate(SELECTION, column)
    stated = opacc.estimate(SELECTION, column.loc[own])
    assert stated == opacc.estimate(SELECTION, column.loc[own].tolist())
    assert stated == opacc.estimate(SELECTION, column.loc[own].reset_index(drop=True))


@pytest.mark.parametrize("seed", [-1, 1.5, True, "a"])
def test_seed_is_refused(seed: Any) -> None:
    with pytest.raises(SpecError, match=f"seed={seed!r}: give a whole number, 0 or more"):
        opacc.select(opacc.Pool(ids=list("abcdefgh")), "srs", 5, seed)


@pytest.mark.parametrize("outcome", [[1, 0, 1, [0, 1], 1], [{}] * 5])
def test_outcomes_that_are_no_numbers_are_refused(outcome: list[Any]) -> None:
    chosen = opacc.select(opacc.Pool(ids=list("abcdefgh")), "srs", 5)
    with pytest.raises(LabelError, match=r"the outcomes are not all numbers \(.*\): give 1 for correct"):
        opacc.estimate(chosen, outcome)
