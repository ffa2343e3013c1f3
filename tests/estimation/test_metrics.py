"""Metrics of classes, slices and averages: values by hand, coverage by enumeration, and what cannot be stated."""

import math
import re
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from given_selections import selection_of

import opacc_ray as opacc
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.estimation.distribution import AdjustedWilson, Total
from opacc_ray.estimation.intervals import clopper_pearson, wilson
from opacc_ray.metrics.metric import CLASS_METRICS, OF_BOTH_CLASSES

PREDICTS = AdjustedWilson(0.02, expected=2.0)
LAWS = (PREDICTS, replace(PREDICTS, share=1 / 3, labels=8.0), replace(PREDICTS, share=1 / 3, labels=8.0, agreement=0.0))
"""Predictions alone, as labels agree with them, and contradicted."""
TRUTH = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2])
PREDICTED = np.array([0, 0, 1, 2, 1, 1, 1, 0, 2, 2, 2, 1])
CAMERA = np.array(list("aababababbab"))


def pool_of(**more) -> opacc.Pool:
    return opacc.Pool(prediction=PREDICTED, confidence=np.linspace(0.4, 0.95, 12), slices={"camera": CAMERA}, **more)


def by_hand(c: int, rows: np.ndarray | slice = slice(None)) -> dict[str, float]:
    """Metrics of class ``c`` by their textbook definitions."""
    true, said = TRUTH[rows] == c, PREDICTED[rows] == c
    tp, fp, fn, tn = (true & said).sum(), (~true & said).sum(), (true & ~said).sum(), (~true & ~said).sum()
    recall, specificity, precision = tp / (tp + fn), tn / (tn + fp), tp / (tp + fp)
    root = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall),
        "f2": 5 * precision * recall / (4 * precision + recall),
        "specificity": specificity,
        "npv": tn / (tn + fn),
        "balanced_accuracy": (recall + specificity) / 2,
        "jaccard": tp / (tp + fp + fn),
        "mcc": (tp * tn - fp * fn) / root,
        "kappa": 2 * (tp * tn - fp * fn) / ((tp + fp) * (fp + tn) + (tp + fn) * (fn + tn)),
        "prevalence": true.mean(),
    }


def everything(pool: opacc.Pool, method: str = "srs") -> opacc.Selection:
    return opacc.select(pool, method, budget=len(pool))


def stated(sample: opacc.Selection, pool: opacc.Pool, **asked: object) -> Any:
    """The number that is asked, from the true class of each chosen example."""
    return opacc.estimate(sample, labels=list(map(str, TRUTH[sample.index])), pool=pool, **asked)


class TestWholePool:
    """With all labels every number is known."""

    @pytest.mark.parametrize("method", ["srs", "neyman"])
    @pytest.mark.parametrize("name", [*CLASS_METRICS, "f2"])
    def test_metric_of_a_class_is_its_definition(self, name: str, method: str) -> None:
        pool = pool_of()
        sample = everything(pool, method)
        for c in range(3):
            found = stated(sample, pool, metric=name, positive=c)
            assert found.value == pytest.approx(by_hand(c)[name])
            assert (found.low, found.high) == pytest.approx((found.value, found.value))

    def test_metric_in_a_slice_is_that_of_its_examples(self) -> None:
        pool = pool_of()
        found = stated(everything(pool), pool, metric="f1@1", by="camera")
        assert {name: one.value for name, one in found.items()} == pytest.approx(
            {name: by_hand(1, name == CAMERA)["f1"] for name in "ab"}
        )

    @pytest.mark.parametrize("kind", ["recall", "precision", "f1"])
    def test_average_is_the_mean_over_classes(self, kind: str) -> None:
        pool = pool_of()
        found = stated(everything(pool), pool, metric=f"macro_{kind}")
        assert found.value == pytest.approx(np.mean([by_hand(c)[kind] for c in range(3)]))

    def test_accuracy_by_prediction_and_by_truth(self) -> None:
        pool = pool_of()
        by_prediction, by_truth = (stated(everything(pool), pool, by=by) for by in ("prediction", "truth"))
        for c in range(3):
            assert by_prediction[str(c)].value == pytest.approx(by_hand(c)["precision"])
            assert by_truth[str(c)].value == pytest.approx(by_hand(c)["recall"])
            assert by_truth[str(c)].n == (c == TRUTH).sum()


@cache
def of_samples(key: str, asked: str) -> list[Any]:
    """The number by all samples of 3 of 12 examples."""
    pool, design = pool_of(), SimpleRandom(3, 12, replacement=False)
    return [stated(selection_of(design, chosen), pool, **{key: asked}) for chosen in combinations(range(12), 3)]


class TestSimpleRandomSample:
    """Everything is enumerated."""

    @pytest.mark.parametrize("asked", ["recall@1", "f1@1", "a", "b"])
    @pytest.mark.slow
    def test_interval_covers_at_its_level(self, asked: str) -> None:
        if asked in "ab":
            true = np.mean((TRUTH == PREDICTED)[asked == CAMERA])
            found = [own[asked] for own in of_samples("by", "camera")]
        else:
            true, found = by_hand(1)[asked.partition("@")[0]], of_samples("metric", asked)
        assert np.mean([one.low - 1e-9 <= true <= one.high + 1e-9 for one in found]) >= 0.95
        assert np.mean([one.high - one.low for one in found]) < 0.95

    @pytest.mark.parametrize("camera", ["a", "b"])
    def test_accuracy_in_a_slice_is_unbiased_given_its_labels(self, camera: str) -> None:
        found = [own[camera] for own in of_samples("by", "camera")]
        found = [one for one in found if one.n]  # without labels it is that of all
        assert np.mean([one.value for one in found]) == pytest.approx(
            np.mean((TRUTH == PREDICTED)[camera == CAMERA]), abs=0.01
        )


class TestRefusals:
    @pytest.mark.parametrize(
        ("asked", "words"),
        [
            ({"metric": "f1"}, "metric f1 names no class; give one of 0, 1, 2"),
            ({"metric": "recall@9"}, 'metric recall@9 has the class "9"; give one of 0, 1, 2'),
            ({"metric": "roc"}, "metric 'roc': choose one of accuracy"),
            ({"metric": "accuracy@1"}, "remove '@1'"),
            ({"by": "lens"}, "the pool has no slices 'lens'; it has camera"),
            ({"metric": "f1@1", "labels": None, "outcomes": [1, 0, 1, 1, 1, 0]}, "only outcomes are given"),
            ({"metric": "f1@1", "by": "truth"}, "by truth there is the accuracy"),
            ({"metric": "brier", "by": "camera"}, "brier is stated of the whole pool only; leave out 'camera'"),
            ({"by": "camera", "pool": None}, "accuracy by camera needs the pool"),
        ],
    )
    def test_what_cannot_be_stated_is_one_sentence(self, asked: dict[str, object], words: str) -> None:
        pool = pool_of()
        sample = opacc.select(pool, "srs", budget=6)
        labels = list(map(str, TRUTH[sample.index]))
        with pytest.raises((SpecError, LabelError), match=re.escape(words)):
            opacc.estimate(sample, **{"labels": labels, "pool": pool} | asked)

    def test_slices_that_are_no_column(self) -> None:
        with pytest.raises(DataError, match="slices 'camera' have 11 values, for 12 examples"):
            opacc.Pool(prediction=PREDICTED, slices={"camera": CAMERA[1:]})


class TestSlices:
    def test_numbers_are_cut_and_gaps_are_a_slice(self) -> None:
        age = [17, 18, 29.5, 30, 80, np.nan] * 2
        pool = opacc.Pool(prediction=PREDICTED, slices={"age": (age, [18, 30])})
        slicing = pool.slices["age"]
        assert [slicing.names[code] for code in slicing.codes[:6]] == [
            "< 18",
            "18 to 30",
            "18 to 30",
            ">= 30",
            ">= 30",
            "(none)",
        ]

    def test_crossing_has_a_slice_for_each_pair(self) -> None:
        shift = ["day"] * 6 + ["night"] * 6
        pool = opacc.Pool(prediction=PREDICTED, slices={"camera": CAMERA, "shift": shift})
        sample = everything(pool)
        found = opacc.estimate(sample, outcomes=(TRUTH == PREDICTED)[sample.index] * 1.0, pool=pool, by="camera*shift")
        here = (CAMERA == "a") & (np.array(shift) == "night")
        assert found["a, night"].value == pytest.approx((TRUTH == PREDICTED)[here].mean())
        assert len(found) == 4


def test_what_is_labelled_wholly_is_known() -> None:
    assert Total(0.1, 0.0, 10.0, 10.0, 1.0, AdjustedWilson(0.0, 1.0)).stated() == 0.1


def test_few_labels_narrow_an_interval_in_part_only() -> None:
    """A third of the labels are failures, two thirds of which were predicted."""
    high = {num: [Total(0.2, 0.005, 1e4, num, num / 3, law).interval(0.95)[1] for law in LAWS] for num in (9, 99)}
    assert high[9][0] < 0.39 < 0.55 < high[9][1] < 0.57 < 0.72 < high[9][2]
    assert high[9][1] == pytest.approx(high[9][0] + math.exp(-9 / 20) * (wilson(1 / 3, 8, 0.95)[1] - high[9][0]))
    assert high[9][2] == clopper_pearson(8 / 3, 8, 0.95)[1]
    assert high[99][0] < high[99][1] < high[99][0] + 0.01


def test_many_more_failures_than_predicted_are_the_reason_of_a_wide_interval() -> None:
    law = AdjustedWilson(0.02, expected=0.1, share=1.0, agreement=0.0)
    assert law.assumption(Total(0.9, 0.01, 100.0, 2.0, 2.0, law), 0.95) == (
        "labels contradict the predictions: 2 of 2 labels here are failures, 0.1 foreseen; the interval rests on the "
        "labels alone"
    )
    assert law.assumption(Total(0.9, 0.01, 100.0, 2.0, 1.0, law), 0.95) is None  # as likely as .1


def test_the_precision_of_a_class_without_predictions_is_unknown_until_labels_tell() -> None:
    pool = opacc.Pool(prediction=["no"] * 50, confidence=np.full(50, 0.9), classes=["no", "yes"])
    chosen = opacc.select(pool, "srs", budget=20)
    found = opacc.estimate(chosen, labels=["no"] * 20, pool=pool, metric="precision@yes")
    assert (found.low, found.high) == (0, 1)
    found = opacc.estimate(chosen, labels=["yes"] + ["no"] * 19, pool=pool, metric="precision@yes")
    assert found.low == found.value == found.high == 0


@pytest.mark.parametrize("name", OF_BOTH_CLASSES)
def test_what_is_the_same_for_both_classes_has_one_value(name: str) -> None:
    rng = np.random.default_rng(5)
    confidence, predicted = rng.uniform(0.5, 1, 800), rng.integers(0, 2, 800)
    truth = np.where(rng.random(800) < confidence, predicted, 1 - predicted)
    pool = opacc.Pool(prediction=predicted, confidence=confidence, classes=["0", "1"])
    chosen = opacc.select(pool, "neyman", budget=60)
    labels = list(map(str, truth[chosen.index]))
    one, other = (opacc.estimate(chosen, labels=labels, pool=pool, metric=f"{name}@{c}") for c in "01")
    assert (one.low, one.value, one.high) == pytest.approx((other.low, other.value, other.high))
