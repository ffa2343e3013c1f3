"""All labels of a run, joined in any order: no label is guessed or lost."""

import random
from typing import Any
from unicodedata import normalize

import pytest

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels.joining import Joined, join
from opacc_ray.labels.label_rows import Label


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


def test_partial_return() -> None:
    result = joined(answer("c", "cat"), answer("a", None), Label("b", None, "blank"))
    assert result == Joined({"c": "cat"}, ("a",), ("b",))


def test_labels_follow_the_order_of_the_selection() -> None:
    assert list(joined(answer("a", "x"), answer("c", "y"), answer("b", "z"), selected="cab").label) == [
        "c",
        "a",
        "b",
    ]


def test_an_example_drawn_twice_has_one_label() -> None:
    result = joined(answer("a", "x"), selected="abab")
    assert (result.label, result.missing) == ({"a": "x"}, ("b",))


def test_repeats_that_agree() -> None:
    result = joined(answer("a", "x", "ann"), answer("a", "x", "bob"), answer("a", "x"), answer("b", "y", "ann"))
    assert result.label == {"a": "x", "b": "y"}


def test_unknown_ids_are_listed() -> None:
    labels = [answer(id, "x") for id in ("a", "q7", "q1", "q2", "q3", "q4", "q5", "q6", "b")]
    message = join_refusal(*labels, selected="a", source="two files")
    assert message == (
        "two files: 8 id(s) not selected for labelling: 'b', 'q1', 'q2', 'q3', 'q4', and 3 more: give "
        "--only-selected to leave them out, or import the file into its own run"
    )
    assert "1 id(s) not selected for labelling: 'z'" in join_refusal(answer("z", "x"))


def test_an_unknown_id_is_refused_even_without_an_answer() -> None:
    assert "'z'" in join_refusal(Label("z", None, "blank"))


@pytest.mark.parametrize(
    ("selected", "returned"), [("007", "7"), ("12300000", "1.23E+07"), ("123", "1.23e+02"), ("7", "7.0"), ("07", "7.0")]
)
def test_ids_that_a_spreadsheet_rewrote(selected: str, returned: str) -> None:
    with pytest.raises(LabelError, match="a spreadsheet or a script rewrote ids as numbers"):
        join([answer(returned, "x")], [selected], run="r")


@pytest.mark.parametrize(
    ("selected", "returned"),
    [
        ("004.jpg", "jpegs/004.jpg"),
        ("disc/004.jpg", "004.jpg"),
        ("disc/004.jpg", "disc/004"),
        ("a/4.jpg", "x\\a\\4.jpg"),
        ("t02402", " t02402 "),
    ],
)
def test_ids_that_are_paths_from_elsewhere(selected: str, returned: str) -> None:
    with pytest.raises(LabelError) as caught:
        join([answer(returned, "x")], [selected], run="r")
    assert str(caught.value).endswith(f": write ids as the manifest does: {selected!r}, not {returned!r}")


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")])
def test_ids_whose_accents_are_composed_otherwise(forms: tuple[str, str]) -> None:
    selected, returned = (normalize(form, "büro/é.jpg") for form in forms)
    with pytest.raises(LabelError, match=r"their accents are encoded differently .* take ids from the manifest"):
        join([answer(returned, "x")], [selected], run="r")


@pytest.mark.parametrize("selected", [["dog/004.jpg"], ["a/cat/004.jpg", "b/cat/004.jpg"], ["cat/005.jpg"]])
def test_ids_that_match_none_or_several_belong_to_another_run(selected: list[str]) -> None:
    with pytest.raises(LabelError, match="import the file into its own run"):
        join([answer("cat/004.jpg", "x")], selected, run="r")


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
        " correct them with `opacc labels correct`, or set a rule: `opacc labels rule RUN majority`, or latest"
    )


def test_many_conflicts_are_counted() -> None:
    labels = [answer(id, text) for id in "abcdefg" for text in "xy"]
    message = join_refusal(*labels, selected="abcdefg")
    assert "on 7 example(s)" in message
    assert "'e' is" in message
    assert "'f' is" not in message
    assert "and 2 more" in message


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


def test_a_file_imported_twice_adds_no_votes() -> None:
    ann = answer("a", "x", "ann")
    labels = [ann, ann, ann, answer("a", "y", "bob"), answer("a", "y", "cid")]
    assert joined(*labels, conflict="majority").label == {"a": "y"}


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


def test_times_with_and_without_zone_compare() -> None:
    labels = (
        answer("a", "x", "ann", labelled_at="2026-11-03T10:00:00Z"),
        answer("a", "y", "ann", labelled_at="2026-11-03 11:00"),
    )
    assert joined(*labels).label == {"a": "y"}
