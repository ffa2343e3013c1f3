"""Agreement: published examples, values worked by hand, another implementation, and what is no opinion."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from opacc_ray.errors import LabelError
from opacc_ray.labels.joining import opinions_of
from opacc_ray.labels.label_rows import Label
from opacc_ray.labels.labelled_rounds import alpha, kappa


def units(*observers: str) -> dict[str, dict[str, str]]:
    """One line per observer, one answer per unit, "." for none."""
    rows = [line.split() for line in observers]
    return {
        str(i): {str(k): text for k, text in enumerate(column) if text != "."}
        for i, column in enumerate(zip(*rows, strict=True))
    }


FOUR = units(
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
)
"""Krippendorff 2011, section C: four observers, missing values."""


@pytest.mark.parametrize(
    ("answers", "are_numbers", "published"),
    [
        (units("0 1 0 0 0 0 0 0 1 0", "1 1 1 0 0 1 0 0 0 0"), False, 0.095),  # section A
        (units("a a b b d c c c e d d a", "b a b b b c c c e d d d"), False, 0.692),  # section B
        (FOUR, False, 0.743),
        (FOUR, True, 0.849),
    ],
)
def test_alpha_is_the_published_one(answers: dict[str, dict[str, str]], are_numbers: bool, published: float) -> None:
    assert alpha(answers, are_numbers=are_numbers) == pytest.approx(published, abs=5e-4)


def test_kappa_is_that_of_another_implementation() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        first = rng.integers(0, 4, 50)
        second = np.where(rng.random(50) < 0.6, first, rng.integers(0, 4, 50))
        labels = [(str(a), str(b)) for a, b in zip(first, second, strict=True)]
        assert kappa(labels) == pytest.approx(cohen_kappa_score(first, second))


def test_an_opinion_is_the_last_label_of_a_named_annotator_without_corrections() -> None:
    def read(id: str, text: str) -> str:
        if text == "no class":
            raise LabelError(text)
        return text.lower()

    answers = [
        Label("a", "Dog", annotator="ann", labelled_at="2026-01-01"),
        Label("a", "CAT", annotator="ann", labelled_at="2026-01-02"),
        Label("a", "dog"),
        Label("a", "Dog", annotator="bob"),
        Label("a", None, "unsure", annotator="cy"),
        Label("a", "no class", annotator="dan"),
        Label("a", "owl", annotator="bob", correction=4),
    ]
    assert opinions_of(answers, read) == {"ann": "cat", "bob": "dog"}
