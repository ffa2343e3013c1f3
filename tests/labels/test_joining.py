"""All labels of a run, joined in any order: no label is guessed or lost."""

import random
from typing import Any
from unicodedata import normalize

import pytest

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels.formats import Label
from opacc_ray.labels.joining import Joined, join


def answer(id: str, text: str | None, annotator: str | None = None, place: str = "f line 2", **more: Any) -> Label:
    return Label(id, text, "unsure" if text is None else "labelled", annotator, place=place, **more)


def joined(*labels: Label, selected: str = "abc", **options: Any) -> Joined:
    """Join, and check that the order of the labels changes nothing."""
    result = join(labels, list(selected), run="r", **options)
    rng = random.Random(0)
    for _ in range(5):
        assert join(rng.sample(labels, len(labels)), list(selected), run="r", **options) == result
    return result


def join_refusal(*labels: Label, selected: str = "abc", **options: Any) -> str:
    messages = set()
    for order in (labels, labels[::-1]):
        with pytest.raises(LabelError) as caught:
            join(order, list(selected), run="r", **options)
        messages.add(str(caught.value))
    assert len(messages) == 1
    return messages.pop()


AS_NUMBERS, AS_DATES = "a spreadsheet or a script rewrote ids as numbers", "a spreadsheet rewrote ids as dates"
ACCENTS = "their accents are encoded differently .* take ids from the manifest"
NFC, NFD = (normalize(form, "büro/é.jpg") for form in ("NFC", "NFD"))
ROUNDED = [
    ("100000000000000656", "100000000000000660"),  # JavaScript
    ("740245381351497656", "740245381351497600"),
    ("740245381351497656", "740245381351498000"),
    ("740245381351497656", "740245381351497000"),  # Excel
]


@pytest.mark.parametrize(
    ("selected", "returned", "words"),
    [
        *((*ids, AS_NUMBERS) for ids in [("007", "7"), ("12300000", "1.23E+07"), ("123", "1.23e+02")]),
        *((*ids, AS_NUMBERS) for ids in [("7", "7.0"), ("07", "7.0")]),
        *((*ids, AS_DATES) for ids in [("MAR1", "1-Mar"), ("1-2", "2-Jan"), ("2026-01-31", "31/1/2026")]),
        *((*ids, AS_NUMBERS) for ids in ROUNDED),
        *((*ids, ACCENTS) for ids in [(NFC, NFD), (NFD, NFC)]),
    ],
)
def test_ids_that_a_program_rewrote(selected: str, returned: str, words: str) -> None:
    with pytest.raises(LabelError, match=words):
        join([answer(returned, "x")], [selected], run="r")


def test_ids_that_look_rewritten_but_are_of_another_round() -> None:
    for selected in ("MAR1", "1-2", "2026-01-31"):
        with pytest.raises(LabelError, match="give --only-selected"):
            join([answer(selected.replace("1", "2"), "x")], [selected], run="r")
    for selected, returned in ROUNDED:
        with pytest.raises(LabelError, match=r"not selected for labelling: .*--only-selected"):
            join([answer(returned, "x")], [selected], run="r", in_pool=lambda ids: ids)


def test_another_run_is_refused() -> None:
    others = [answer("b", "x", place=f"{file} line 3", run=f"run-{file}") for file in "hg"]
    message = join_refusal(answer("a", "x", run="r"), *others, Label("c", None, "blank"))
    assert ": 2 row(s) name another run, 'run-g' (g line 3), not 'r'" in message
    assert "'other'" in join_refusal(Label("a", None, "blank", run="other"))


def test_conflict_names_ids_labels_places_and_the_option() -> None:
    given = [("b", "y", "g line 3"), ("b", "x", "f line 2"), ("b", "y", "h line 2"), ("a", "x", "f line 3")]
    labels = [answer(id, text, place=place) for id, text, place in given]
    assert join_refusal(*labels) == (
        "labels: labels in conflict on 1 example(s): 'b' is 'x' (f line 2) and 'y' (g line 3):"
        " correct them with `opacc labels correct`, or set a rule, majority or latest: `opacc labels import RUN"
        " --conflict majority`"
    )


def test_majority() -> None:
    labels = [
        answer("a", "x", "ann"),
        answer("a", "y", "bob"),
        answer("a", "x", "cid"),
        answer("b", None, "ann"),
    ]
    result = joined(*labels, conflict="majority")
    assert (result.label, result.unsure) == ({"a": "x"}, ("b",))


def test_a_tie_is_refused_and_asks_for_one_more_person() -> None:
    labels = [answer("a", text, place=f"{text}.csv line 2") for text in "xyxyz"]
    message = join_refusal(*labels, conflict="majority")
    assert "a tie between labels on 1 example(s): 'a' is 'x' (x.csv line 2) and 'y' (y.csv line 2):" in message
    assert "one more person" in message


def test_lines_without_an_annotator_are_one_vote_each() -> None:
    labels = [answer("a", "x"), answer("a", "x"), answer("a", "y", "bob")]
    assert joined(*labels, conflict="majority").label == {"a": "x"}


def test_unknown_conflict_rule() -> None:
    with pytest.raises(SpecError, match="'newest' is unknown: use one of error, majority, latest"):
        join([], [], run="r", conflict="newest")


def test_a_label_outranks_cannot_tell() -> None:
    result = joined(answer("a", None, "ann"), answer("a", "x", "bob"), answer("b", None, "ann"), answer("b", None))
    assert (result.label, result.unsure) == ({"a": "x"}, ("b",))


def test_an_annotator_corrects_himself_where_times_order_his_answers() -> None:
    early, late = "2026-11-03T10:00:00+02:00", "2026-11-03T08:30:00Z"  # late, although its text sorts first
    result = joined(answer("a", "x", "ann", labelled_at=early), answer("a", "y", "ann", labelled_at=late))
    assert result.label == {"a": "y"}
    doubt = joined(answer("a", "x", "ann", labelled_at=early), answer("a", None, "ann", labelled_at=late))
    assert (doubt.label, doubt.unsure) == ({}, ("a",))


@pytest.mark.parametrize(
    ("annotator", "first", "second"),
    [
        ("ann", {}, {}),
        ("ann", {"labelled_at": "2026-11-03"}, {}),
        ("ann", {"labelled_at": "2026-11-03"}, {"labelled_at": "4.11.2026"}),
        ("ann", {"labelled_at": "2026-11-03"}, {"labelled_at": "2026-11-03"}),
        (None, {"labelled_at": "2026-11-03"}, {"labelled_at": "2026-11-04"}),
    ],
)
def test_answers_that_nothing_orders_are_in_conflict(
    annotator: str | None, first: dict[str, str], second: dict[str, str]
) -> None:
    labels = answer("a", "x", annotator, **first), answer("a", "y", annotator, **second)
    assert "'a' is 'x' (f line 2) and 'y' (f line 2)" in join_refusal(*labels)
