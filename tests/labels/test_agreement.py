"""Second opinions: agreement is measured before anything is settled, and the estimate states what noise may do."""

from pathlib import Path

import numpy as np
import pytest
from audited_run import CLASSES, KEYS, PREDICTION, TRUTH, write_features, write_pool
from sklearn.metrics import cohen_kappa_score

from opacc_ray.audit import verbs
from opacc_ray.audit.accuracy import estimate
from opacc_ray.errors import LabelError
from opacc_ray.labels.formats import Label
from opacc_ray.labels.joining import opinions_of
from opacc_ray.labels.label_actions import correct, import_labels
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.labelled_rounds import alpha, kappa, measure_agreement
from opacc_ray.report import facts
from opacc_ray.runs.run import Run


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


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """20 of 90 examples selected, and labelled by ann, who is right."""
    write_pool(str(tmp_path))
    run, _ = write_features(str(tmp_path))
    verbs.select(run, "srs", 20, {})
    answer(run, "ann", run.read_selection(1).ids, [TRUTH[KEYS.index(id)] for id in run.read_selection(1).ids])
    return run


def answer(run: Run, name: str, ids: list[str], classes: list[int], conflict: str | None = None) -> None:
    rows = "".join(f"{id},{CLASSES[number]},{name}\n" for id, number in zip(ids, classes, strict=True))
    import_labels(run, f"{name}.csv", f"id,label,annotator\n{rows}".encode(), conflict=conflict)  # type: ignore[arg-type]


def truth_of(ids: list[str]) -> list[int]:
    return [int(TRUTH[KEYS.index(id)]) for id in ids]


def test_a_settled_difference_is_still_measured(run: Run) -> None:
    ids = list(run.read_selection(1).ids[:10])
    right = [id for id in ids if TRUTH[KEYS.index(id)] == PREDICTION[KEYS.index(id)]]
    classes = truth_of(ids)
    odd = right[0]
    classes[ids.index(odd)] = (classes[ids.index(odd)] + 1) % 3
    with pytest.raises(LabelError, match="labels in conflict on 1 example"):
        answer(run, "bob", ids, classes)
    answer(run, "bob", ids, classes, "latest")
    assert read_log(run).rules.conflict == "latest"  # for every command from now on
    correct(run, odd, CLASSES[TRUTH[KEYS.index(odd)]], "cy")
    noise = estimate(run).label_noise
    assert noise is not None
    assert (noise.examples, noise.differ) == (10, 1)
    assert noise.disagreement == pytest.approx(0.1)
    found = measure_agreement(run)
    assert found.examples == 10
    [pair] = found.pairs
    assert (pair.first, pair.second, pair.examples, pair.agree) == ("ann", "bob", 10, 9)
    assert pair.kappa is not None
    assert found.alpha is not None
    assert 0.5 < pair.kappa < 1
    assert (noise.alpha, noise.pairs) == (found.alpha, found.pairs)
    assert f"alpha {found.alpha:.2f}; Cohen's kappa {pair.kappa:.2f} of ann and bob" in facts.agreement(noise)


def test_second_opinions_of_a_part_of_two_rounds_of_neyman_are_counted(tmp_path: Path) -> None:
    write_pool(str(tmp_path))
    run, _ = write_features(str(tmp_path))
    verbs.select(run, "neyman", 20, {})
    answer(run, "ann", list(run.read_selection(1).ids), truth_of(run.read_selection(1).ids))
    verbs.next_round(run, 10)
    answer(run, "ann", list(run.read_selection(2).ids), truth_of(run.read_selection(2).ids))
    some = [*run.read_selection(1).ids[:6], *run.read_selection(2).ids[:4]]
    answer(run, "bob", some, truth_of(some))
    noise = estimate(run).label_noise
    assert noise is not None
    assert (noise.examples, noise.differ, noise.disagreement) == (10, 0, 0)
    assert 0 < noise.disagreement_high < 1
