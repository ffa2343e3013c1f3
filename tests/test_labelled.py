"""Labels and outcomes in Python: the caller says which, rounds have their own, and both mean what they say."""

from inspect import Parameter, signature
from typing import Any, get_overloads, get_type_hints

import numpy as np
import pandas as pd
import pytest

import opacc_ray as opacc
from opacc_ray.errors import LabelError, SpecError

POOL, TRUTH = opacc.load_example()
CHOSEN = opacc.select(POOL, "srs", 60, seed=1)
LABELS = {name: TRUTH[name] for name in CHOSEN.ids}
OUTCOME = [float(POOL.classes[POOL.prediction[i]] == TRUTH[POOL.ids[i]]) for i in CHOSEN.index]


def test_labels_and_their_outcomes_give_the_same_estimate() -> None:
    by_labels = opacc.estimate(CHOSEN, labels=LABELS, pool=POOL)
    by_outcomes = opacc.estimate(CHOSEN, outcomes=OUTCOME, pool=POOL)
    assert by_labels == by_outcomes
    assert by_labels.value == np.mean(OUTCOME)
    assert by_labels.effective_size == by_outcomes.effective_size == pytest.approx(60)


def test_rounds_have_labels_or_outcomes_of_their_own() -> None:
    first = opacc.select(POOL, "neyman", 30)
    known = opacc.Labelled(first, labels={name: TRUTH[name] for name in first.ids})
    same = opacc.Labelled(first, outcomes=known.outcome(POOL))
    second = opacc.select(POOL, "neyman", 30, previous=[known])
    assert second.ids == opacc.select(POOL, "neyman", 30, previous=[same]).ids
    more = opacc.Labelled(second, labels=[TRUTH[name] for name in second.ids])
    assert opacc.estimate([known, more], pool=POOL) == opacc.estimate([same, more], pool=POOL)
    assert opacc.estimate(known, pool=POOL) == opacc.estimate(first, labels=known.labels, pool=POOL)


def test_labels_serve_several_models() -> None:
    worse = opacc.Pool(
        POOL.ids, confidence=POOL.confidence, prediction=(POOL.prediction + 1) % 10, classes=POOL.classes
    )
    pools = [POOL, worse]
    first = opacc.select(pools, "neyman", 30)
    known = opacc.Labelled(first, labels={name: TRUTH[name] for name in first.ids})
    same = opacc.Labelled(first, outcomes=known.rows(pools))
    found, expected = (opacc.select(pools, "neyman", 20, previous=[own]) for own in (known, same))
    assert found.ids == expected.ids
    by_labels, by_outcomes = (opacc.compare(own, pools=pools) for own in (known, same))
    assert by_labels.models == by_outcomes.models
    with pytest.raises(LabelError, match="outcomes of 2 models for one pool"):
        opacc.estimate(same, pool=POOL)
    with pytest.raises(LabelError, match="round 1 has outcomes of one model instead of 2"):
        opacc.compare(first, outcomes=known.outcome(POOL), pools=pools)


def test_models_whose_classes_have_other_numbers_are_compared_by_name_or_refused() -> None:
    """A model that never predicts a class has one less; its F1 was that of another class."""
    few, all_of_them = ["b", "c", "b", "b"] * 10, ["b", "c", "b", "a"] * 10
    labels = ["b", "c", "c", "b"] * 10
    pools = [opacc.Pool(prediction=own) for own in (few, all_of_them)]
    chosen = opacc.select(pools[0], "srs", 40)
    given = {str(place): name for place, name in enumerate(labels)}
    accuracies = [own.value for own in opacc.compare(chosen, labels=given, pools=pools).models]
    assert accuracies == [0.75, 0.5]
    for wrong in (
        lambda: opacc.compare(chosen, labels=given, pools=pools, metric="f1@b"),
        lambda: opacc.select(pools, budget=5, serve=["f1@b"]),
    ):
        with pytest.raises(SpecError, match="two models have different classes, a, b, c and b, c"):
            wrong()
    pools = [opacc.Pool(prediction=own, classes=["a", "b", "c"]) for own in (few, all_of_them)]
    found = opacc.compare(chosen, labels=given, pools=pools, metric="f1@b")
    assert [own.value for own in found.models] == [pytest.approx(0.8), pytest.approx(0.5)]


NAMES = opacc.Pool(ids=["a", "b"], confidence=[0.6, 0.7], prediction=["cat", "dog"])
BOTH = opacc.select(NAMES, "srs", 2)
ROUND = opacc.Labelled(BOTH, outcomes=[1, 0])


@pytest.mark.parametrize("verb", [opacc.estimate, opacc.compare, opacc.discover, opacc.assess_judges])
def test_values_without_a_name_are_refused_with_the_call_to_write(verb: Any) -> None:
    with pytest.raises(SpecError, match=rf"give opacc.{verb.__name__}\(selection, labels=…, .* outcomes="):
        verb(BOTH, [1, 0])
    for rounds in ((BOTH, [1, 0]), [(BOTH, [1, 0])], [BOTH], None):
        with pytest.raises(SpecError, match=r"give \[opacc.Labelled\(selection, labels=…\), …\]"):
            verb(rounds, pool=NAMES) if verb is not opacc.compare else verb(rounds, pools=[NAMES])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: opacc.Labelled(BOTH, [1, 0]), r"give opacc.Labelled\(selection, labels=…\) or"),
        (lambda: opacc.Labelled(BOTH), "neither of labels="),
        (lambda: opacc.estimate(BOTH, labels=["cat", "dog"], outcomes=[1, 0], pool=NAMES), "both of labels="),
        (lambda: opacc.estimate([ROUND], outcomes=[1, 0]), "these rounds have their labels"),
        (lambda: opacc.select(NAMES, "srs", 1, previous=[(BOTH, [1, 0])]), r"give \[opacc.Labelled\("),
    ],
)
def test_what_is_not_one_of_the_two_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        wrong()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"a": "cat", "b": "dgo"}, r'"dgo" of example "b", which is none of the 2 classes \(did you mean \'dog\''),
        ({"a": "cat", "b": 1}, '1 label of no class, the first "1" of example "b", which is a number'),
        ({"a": "cat"}, '1 chosen example without a label, the first "b"'),
        ({"a": "cat", "b": "?"}, '1 chosen example without a label, the first "b"'),
        ({"a": "cat", "b": "dog", "c": "dog"}, '1 label for examples that were not chosen, the first "c"'),
        (["cat"], "1 label for 2 chosen examples"),
    ],
)
def test_wrong_labels_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(LabelError, match=message):
        opacc.estimate(BOTH, labels=labels, pool=NAMES)


def test_a_table_that_names_the_other_kind_is_refused() -> None:
    """True classes of 0 and 1 would otherwise count as wrong and right."""
    columns = {"id": ["a", "b"], "label": [0, 1], "outcome": [1, 1]}
    for kind, other in (("labels", "outcome"), ("outcomes", "label")):
        table = pd.DataFrame({name: columns[name] for name in ("id", other)})
        with pytest.raises(LabelError, match=f"give it as {other}s=…"):
            opacc.estimate(BOTH, pool=NAMES, **{kind: table})


def test_labels_need_predictions_to_compare_with() -> None:
    with pytest.raises(LabelError, match="labels are compared with predictions: give the pool"):
        opacc.estimate(BOTH, labels=["cat", "dog"])
    with pytest.raises(LabelError, match="the pool has no predictions to compare labels with"):
        opacc.estimate(BOTH, labels=["cat", "dog"], pool=opacc.Pool(ids=["a", "b"], confidence=[0.6, 0.7]))


def test_a_regression_takes_outcomes_by_id() -> None:
    values = opacc.Pool(ids=["a", "b"], prediction=[0.5, 0.7])
    chosen = opacc.select(values, "srs", 2)
    assert opacc.estimate(chosen, outcomes={"a": 0.25, "b": 1.0}, pool=values).value == 0.625
    with pytest.raises(LabelError, match="the pool predicts values, not classes: give outcomes="):
        opacc.estimate(chosen, labels=[0.5, 0.7], pool=values)


def test_classes_without_names_are_those_that_are_predicted() -> None:
    truth = {"0": 2, "1": "0", "2": 7.0}
    bare = opacc.Pool(confidence=[0.5, 0.9, 0.8], prediction=[2, 0, 1])
    chosen = opacc.select(bare, "srs", 3)
    with pytest.raises(LabelError, match=r'the first "7" of example "2".* use one of 0, 1, 2, or name all classes'):
        opacc.estimate(chosen, labels=truth, pool=bare)
    named = opacc.Pool(confidence=[0.5, 0.9, 0.8], prediction=[2, 0, 1], classes=[str(c) for c in range(8)])
    assert opacc.estimate(chosen, labels=truth, pool=named).value == 2 / 3
    shifted = opacc.Pool(prediction=[1, 0, 1], classes=["1", "2", "3"])
    with pytest.raises(LabelError, match='the predictions are indexes, and the class "1" has another number'):
        opacc.estimate(opacc.select(shifted, "srs", 3), labels=[1, 2, 1], pool=shifted)
    signs = opacc.Pool(confidence=[0.5, 0.9, 0.8], prediction=[-1, 1, 1])
    assert opacc.estimate(chosen, labels={"0": -1.0, "1": "1", "2": -1}, pool=signs).value == 2 / 3
    with pytest.raises(SpecError, match="a class is -1: classes are counted from 0"):
        opacc.estimate(chosen, labels={"0": -1, "1": 1, "2": -1}, pool=signs, by="truth")


# -- estimates ------------------------------------------------------------------------------------------------------


def test_a_type_checker_tells_one_estimate_from_those_by_slice() -> None:
    """Labels and outcomes are named in both, and nothing else stands for them."""
    one, several = get_overloads(opacc.estimate)
    assert (get_type_hints(one)["return"], get_type_hints(several)["return"]) == (
        opacc.Estimate,
        dict[str, opacc.Estimate],
    )
    assert (get_type_hints(one)["by"], get_type_hints(several)["by"]) == (type(None), str)
    for form in (one, several):
        first, *others = signature(form).parameters.values()
        assert first.kind is Parameter.POSITIONAL_OR_KEYWORD
        assert {own.kind for own in others} == {Parameter.KEYWORD_ONLY}
