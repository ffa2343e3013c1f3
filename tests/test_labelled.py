"""Labels in Python: names of classes are compared with predictions as the command line does it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import opacc_ray as opacc
from opacc_ray.errors import LabelError

POOL, TRUTH = opacc.load_example()
CHOSEN = opacc.select(POOL, "srs", 60, seed=1)
LABELS = {name: TRUTH[name] for name in CHOSEN.ids}
OUTCOME = [float(POOL.classes[POOL.prediction[i]] == TRUTH[POOL.ids[i]]) for i in CHOSEN.index]


def test_the_example_is_a_model_with_mistakes() -> None:
    assert (len(POOL), len(TRUTH), len(POOL.classes)) == (2000, 2000, 10)
    assert POOL.fields == {"prediction", "confidence", "hidden"}
    correct = np.array([POOL.classes[k] == TRUTH[name] for name, k in zip(POOL.ids, POOL.prediction, strict=True)])
    assert correct.mean() == 0.8795
    assert POOL.confidence[correct].mean() > POOL.confidence[~correct].mean() + 0.1


@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        list(LABELS.values()),
        np.array(list(LABELS.values())),
        pd.Series(list(LABELS.values())),
        pd.Series(LABELS).sort_index(),
        OUTCOME,
    ],
    ids=["mapping", "list", "array", "series", "series by id", "outcomes"],
)
def test_labels_in_any_form_give_the_estimate_of_their_outcomes(labels: Any) -> None:
    found = opacc.estimate(CHOSEN, labels, pool=POOL)
    assert found.value == np.mean(OUTCOME)
    assert found.effective_size == pytest.approx(60)


def test_spaces_around_a_label_do_not_count() -> None:
    spaced = {name: f" {label} " for name, label in LABELS.items()}
    assert opacc.outcomes(CHOSEN, spaced, POOL).tolist() == OUTCOME


def test_rounds_take_one_mapping_or_one_each() -> None:
    first = opacc.select(POOL, "neyman", 30)
    known = {name: TRUTH[name] for name in first.ids}
    second = opacc.select(POOL, "neyman", 30, previous=[(first, known)])
    same = opacc.select(POOL, "neyman", 30, previous=[(first, opacc.outcomes(first, known, POOL))])
    assert second.ids == same.ids
    more = {name: TRUTH[name] for name in second.ids}
    by_round = opacc.estimate([first, second], [known, more], pool=POOL)
    assert opacc.estimate([first, second], known | more, pool=POOL) == by_round


def test_labels_serve_several_models() -> None:
    worse = opacc.Pool(
        POOL.ids, confidence=POOL.confidence, prediction=(POOL.prediction + 1) % 10, classes=POOL.classes
    )
    first = opacc.select([POOL, worse], "neyman", 30)
    known = {name: TRUTH[name] for name in first.ids}
    rows = np.stack([opacc.outcomes(first, known, own) for own in (POOL, worse)])
    found, expected = (opacc.select([POOL, worse], "neyman", 20, previous=[(first, given)]) for given in (known, rows))
    assert found.ids == expected.ids


def test_classes_without_names_are_labelled_by_index() -> None:
    pool = opacc.Pool(confidence=[0.5, 0.9, 0.8], prediction=[2, 0, 1])
    chosen = opacc.select(pool, "srs", 3)
    truth = {"0": 2, "1": "0", "2": 7.0}
    assert opacc.outcomes(chosen, truth, pool).sum() == 2


NAMES = opacc.Pool(ids=["a", "b"], confidence=[0.6, 0.7], prediction=["cat", "dog"])
BOTH = opacc.select(NAMES, "srs", 2)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"a": "cat", "b": "dgo"}, r"'b' has the label 'dgo', which is none of the 2 classes \(did you mean 'dog'"),
        ({"a": "cat", "b": 1}, "'b' has the label '1', which is a number, and the classes have names"),
        ({"a": "cat"}, "1 chosen example without a label: b; label all of them"),
        ({"a": "cat", "b": None}, "1 chosen example without a label: b"),
        ({"a": "cat", "b": "?"}, "1 chosen example without a label: b"),
        ({"a": "cat", "b": "dog", "c": "dog"}, '1 label for examples that were not chosen, the first "c"'),
        (["cat"], "1 label for 2 chosen examples"),
    ],
)
def test_wrong_labels_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(LabelError, match=message):
        opacc.estimate(BOTH, labels, pool=NAMES)


def test_labels_need_predictions_to_compare_with() -> None:
    with pytest.raises(LabelError, match="labels are compared with predictions: give the pool"):
        opacc.estimate(BOTH, ["cat", "dog"])
    with pytest.raises(LabelError, match="the pool has no predictions to compare labels with"):
        opacc.estimate(BOTH, ["cat", "dog"], pool=opacc.Pool(ids=["a", "b"], confidence=[0.6, 0.7]))
    values = opacc.Pool(ids=["a", "b"], prediction=[0.5, 0.7])
    with pytest.raises(LabelError, match="the pool predicts values, not classes"):
        opacc.estimate(opacc.select(values, "srs", 2), ["cat", "dog"], pool=values)


def test_an_unknown_effective_size_is_none() -> None:
    assert opacc.estimate(BOTH, ["cat", "dog"], pool=NAMES).effective_size is None


def test_effective_size_does_not_take_part_in_equality_or_documents() -> None:
    found = opacc.estimate(CHOSEN, LABELS, pool=POOL)
    assert found == replace(found, effective_size=None)
    assert hash(found) == hash(replace(found, effective_size=None))
    assert "effective_size" not in found.to_dict()
    assert "effective_size" not in opacc.compare(CHOSEN, [OUTCOME, OUTCOME]).to_dict()["models"][0]
