"""Warnings of the first labels and of predictions: how often an honest model is doubted, and a mistake found."""

import numpy as np
import pytest
from numpy.typing import NDArray

from opacc_ray.samplers.plausibility import (
    Range,
    about_classes,
    about_inputs,
    about_one_class,
    about_predictions,
    about_values,
)

Codes = NDArray[np.int64]
POOL = 3000


def names_of(num: int, rng: np.random.Generator) -> list[str]:
    return [f"class {chr(97 + i % 26)}{i}" for i in rng.permutation(num)]


def audit(
    rng: np.random.Generator, num: int, labels: int, accuracy: float, *, skew: float = 1.0, of_failures: bool = False
) -> tuple[Codes, Codes, NDArray[np.float64]]:
    """Predictions and truths of a labelled sample, and its weights.

    Each class is predicted right with ``accuracy``, and else taken for others, some of them often. Failures are drawn
    ten times as often if the sample is ``of_failures``.
    """
    truth = rng.choice(num, POOL, p=rng.dirichlet(np.full(num, skew)))
    others = rng.dirichlet(np.full(num, 0.3), size=num).cumsum(axis=1)
    other = (others[truth] > rng.random(POOL)[:, None]).argmax(axis=1)
    predicted = np.where(rng.random(POOL) < accuracy, truth, other)
    chance = np.where(predicted != truth, 1.0, 0.1 if of_failures else 1.0) * rng.uniform(0.5, 1.5, POOL)
    chance /= chance.sum()
    chosen = rng.choice(POOL, labels, p=chance)
    return predicted[chosen], truth[chosen], 1 / (POOL * labels * chance[chosen])


@pytest.mark.slow
def test_honest_model_is_doubted_in_less_than_one_audit_of_two_hundred() -> None:
    """4α = 0.2 % bounds the words about another order; over all kinds of pools they are rarer still."""
    rng, audits, doubted = np.random.default_rng(3), 800, []
    for _ in range(audits):
        num = int(rng.choice([2, 3, 5, 10, 30]))
        settings = {"skew": float(rng.choice([0.3, 1, 100])), "of_failures": bool(rng.integers(2))}
        accuracy, labels = float(rng.choice([0.55, 0.7, 0.9, 0.99])), int(rng.choice([10, 20, 40, 100, 400]))
        doubted += about_classes(*audit(rng, num, labels, accuracy, **settings), names_of(num, rng))
    assert len(doubted) <= 0.005 * audits


@pytest.mark.parametrize(("num", "labels"), [(2, 40), (3, 60), (10, 200)])
def test_two_classes_that_changed_places_are_found(num: int, labels: int) -> None:
    rng = np.random.default_rng(num)
    found = 0
    for _ in range(60):
        predicted, truth, weights = audit(rng, num, labels, 0.9, skew=100)
        exchanged = np.arange(num)
        exchanged[[0, 1]] = 1, 0
        texts = about_classes(exchanged[predicted], truth, weights, [f"c{i}" for i in range(num)])
        found += any("if 'c0' and 'c1' change places: is model.classes in the model's order?" in text for text in texts)
    assert found >= 54


def test_classes_in_alphabetical_order_are_found_though_they_are_many() -> None:
    rng = np.random.default_rng(1)
    names = names_of(100, rng)
    alphabetical = np.array(sorted(range(100), key=lambda c: names[c]))
    truth = rng.integers(100, size=60)
    output = np.argsort(alphabetical)[truth]  # the model's own number of the class
    [text] = about_classes(output, truth, np.ones(60), names)
    assert text.endswith("if the model's classes are in alphabetical order: is model.classes in the model's order?")
    assert text.startswith("labels and predictions agree on 100 % instead of ")


def test_sample_of_failures_is_no_mistake_and_few_labels_say_nothing() -> None:
    truth = np.repeat([0, 1], [30, 30])
    predicted = np.where(np.arange(60) % 3 == 0, truth, 1 - truth)  # two thirds are wrong in the sample
    weights = np.where(predicted == truth, 20.0, 1.0)  # and one in eleven in the pool
    assert about_classes(predicted, truth, weights, ["a", "b"]) == []
    [text] = about_classes(predicted, truth, np.ones(60), ["a", "b"])  # of a random sample: not clear enough
    assert "change places" not in text
    assert about_classes(1 - truth[:0], truth[:0], np.ones(0), ["a", "b"]) == []
    assert about_classes(1 - truth[28:32], truth[28:32], np.ones(4), ["a", "b"]) == []
    [text] = about_classes(1 - truth, truth, np.ones(60), ["a", "b"])
    assert text.startswith("labels and predictions agree on 100 % instead of 0 % if 'a' and 'b' change places")
    codes = np.arange(60) % 4
    assert about_classes(codes, (codes + 1) % 4, np.ones(60), list("0123")) == [
        "labels and predictions agree on 100 % instead of 0 % if labels are shifted by one class ('1' for '0'): are "
        "they numbered from 1?"
    ]


class TestValues:
    rng = np.random.default_rng(4)
    truth = rng.normal(12_300, 900, 60)

    def test_values_that_have_nothing_to_do_with_labels_are_found(self) -> None:
        predicted, outcome = self.rng.permutation(self.truth), np.full(60, 0.4)
        [text] = about_values(predicted, self.truth, np.ones(60), outcome)
        assert text.startswith("the model is no better than chance: labels and predictions have a rank correlation of")
        [text] = about_values(self.truth + 5000, self.truth, np.ones(60), np.zeros(60))  # in another unit
        assert text.startswith("60 of 60 labels lie so far from the prediction that they score 0")

    @pytest.mark.slow
    def test_useful_models_are_not_doubted(self) -> None:
        for seed in range(300):
            rng = np.random.default_rng(seed)
            truth = rng.normal(0, 1, 60)
            predicted = truth + rng.normal(0, 1.5, 60)  # a correlation of 0.55
            assert about_values(predicted, truth, np.ones(60), np.clip(1 - (truth - predicted) ** 2, 0, 1)) == []


class TestPredictions:
    def test_a_confidence_below_that_of_a_uniform_distribution_is_found(self) -> None:
        [text] = about_predictions(400, {"well": 390, "ill": 10}, Range(0.02, 0.1, 0.9), 2)
        assert text == (
            "a confidence is 0.02, and the largest of 2 probabilities is at least 0.5; if it is the probability of one "
            "class, whatever is predicted, its column is output, and model.output is probability"
        )
        assert about_predictions(400, {"well": 390, "ill": 10}, Range(0.499, 0.8, 0.9), 2) == []

    def test_ordinary_predictions_are_not(self) -> None:
        [text] = about_predictions(400, {"NO": 200, "Yes": 100, "yes": 100}, None)
        assert text == (
            "the classes 'Yes' and 'yes' differ in upper and lower case alone; if they are one, write one of them"
        )
        assert about_predictions(400, {"disc": 399, "square": 1}, Range(0.4, 0.9, 1.0)) == []
        assert about_predictions(5, {"disc": 5}, Range(0.5, 0.5, 0.5)) == []
        assert about_predictions(400, None, None) == []

    def test_inputs_far_from_the_reference_are_found(self) -> None:
        rng = np.random.default_rng(0)
        reference = rng.normal(0.45, 0.1, (64, 3))
        assert about_inputs(rng.normal(0.35, 0.2, (64, 3)), reference) == []
        [text] = about_inputs(255 * rng.normal(0.45, 0.1, (64, 3)), reference)
        assert text.startswith("the inputs lie far from those of the reference: input ")
        assert about_inputs(np.zeros((64, 3)), np.zeros((64, 3))) == []
        for seed in range(200):
            rng = np.random.default_rng(seed)
            heavy = rng.lognormal(0, 2, (2, 64, 30)) * (rng.random((2, 64, 30)) < 0.1)  # mostly 0, at times large
            assert about_inputs(*heavy) == []


@pytest.mark.parametrize(("share", "sharpness"), [(0.02, 1.0), (0.05, 2.0), (0.08, 4.0)])
def test_a_model_with_a_rare_second_class_is_seldom_doubted(share: float, sharpness: float) -> None:
    """Probabilities that are right, of a class that is as rare as defects are: most predict the other one."""
    rng, doubted = np.random.default_rng(4), []
    for _ in range(500):
        p = rng.beta(sharpness * share, sharpness * (1 - share), 64)
        doubted += about_one_class((p > 0.5).astype(np.int64), np.maximum(p, 1 - p), 2)
    assert len(doubted) <= 5


def test_a_model_that_gives_one_class_without_telling_examples_apart_is_doubted() -> None:
    rng = np.random.default_rng(5)
    predicted, confidence = np.repeat([0, 1], [59, 5]), rng.uniform(0.5, 0.7, 64)
    for num_classes in (2, 10):
        [told] = about_one_class(predicted, confidence, num_classes, lambda number: f"class {number}")
        assert told.startswith("59 of 64 examples are predicted as 'class 0', with a mean confidence of 0.6")
    assert about_one_class(np.repeat([0, 1], [57, 7]), confidence, 10) == []  # 89 %
    assert about_one_class(np.zeros(19, np.int64), confidence[:19], 10) == []  # too few
    assert about_one_class(np.zeros(64, np.int64), confidence, 1) == []
