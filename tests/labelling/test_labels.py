"""Labels come back: whatever people and spreadsheets do to a file, no label is guessed or lost."""

import csv
import io
import json
import random
from typing import Any

import pytest

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labelling.labels import Joined, Label, join, parse
from opacc_ray.labelling.manifest import ManifestRow, encode
from opacc_ray.labelling.outcomes import outcome_of_classes, outcome_of_values


def read(text: str, name: str = "back.csv") -> list[Label]:
    return parse(text.encode(), name)


def pairs(text: str, name: str = "back.csv") -> list[tuple[str, str | None]]:
    return [(label.id, label.label) for label in read(text, name)]


def refusal(text: str | bytes, name: str = "back.csv") -> str:
    with pytest.raises(LabelError) as caught:
        parse(text if isinstance(text, bytes) else text.encode(), name)
    return str(caught.value)


# CSV


@pytest.mark.parametrize(
    "text",
    [
        "id,label\na,cat\nb,dog\n",
        "id,label\r\na,cat\r\nb,dog\r\n",
        "\ufeffid,label\na,cat\nb,dog",
        '"id","label"\n"a","cat"\n"b","dog"\n',
        '\ufeff"id";"label"\r\n"a";"cat"\r\n"b";"dog"\r\n',
        "id,label\ra,cat\rb,dog\r",
        "id;label\na;cat\nb;dog\n",
        "id\tlabel\na\tcat\nb\tdog\n",
        "ID, Label\na,cat\nb, dog \n",
        "\nid,label\na,cat\n\nb,dog\n\n\n",
        "id,label,,\na,cat,,\nb,dog,,\n,,,\n,,,\n",
        "label,seen,id\ncat,yes,a\ndog,no,b\n",
    ],
)
def test_the_same_labels_in_many_a_csv(text: str) -> None:
    assert pairs(text) == [("a", "cat"), ("b", "dog")]


def test_all_columns() -> None:
    text = "id,label,annotator,status,run,round,labelled_at,mood\na,cat,ann,done,r,2,2026-11-03T10:00Z,fine\n"
    assert read(text) == [Label("a", "cat", "labelled", "ann", "r", 2, "2026-11-03T10:00Z", "back.csv line 2")]


def test_a_round_that_a_tool_made_a_float() -> None:
    assert read("id,label,round\na,cat,2.0\n")[0].round == 2


def test_csv_ids_are_not_trimmed_but_other_texts_are() -> None:
    label = read('id,label,annotator\n" a ", cat , ann \n')[0]
    assert (label.id, label.label, label.annotator) == (" a ", "cat", "ann")


def test_csv_place_is_the_first_line_of_the_row() -> None:
    labels = read('id,label\n"a\nb",cat\n\nc,dog\n')
    assert [label.place for label in labels] == ["back.csv line 2", "back.csv line 5"]


def test_a_short_row_is_not_answered_yet() -> None:
    assert [label.status for label in read("id,label\na\nb,cat\n")] == ["blank", "labelled"]


def test_apostrophe_of_the_manifest_is_removed() -> None:
    assert pairs("id,label\n'=a,'-1\n''=b,-2\n'c,+\n") == [("=a", "-1"), ("'=b", "-2"), ("'c", "+")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "back.csv starts with ''"),
        (" \n\n", "back.csv starts with ''"),
        ("a,cat\nb,dog\n", "back.csv starts with 'a,cat': start it with a header"),
        ("id,class\na,cat\n", "back.csv starts with 'id,class'"),
        ("id,label,label\na,cat,dog\n", "two columns 'label'"),
        ("id,label\na,cat\n,dog\n", "back.csv line 3 has no id"),
        ("id,label\na,cat, maybe\n", "back.csv line 2 has 3 cells, but the header has 2"),
        ('id,label\na,cat\n"b,dog\nc,cat\n', "back.csv line 3 is not valid CSV"),
        ('id,label\n"a"b,cat\n', "back.csv line 2 is not valid CSV"),
        ("id,label,round\na,cat,two\n", "back.csv line 2 has the round 'two'"),
        ("id,label,status\na,cat,rejected\n", "back.csv line 2 has the status 'rejected'"),
        ("id,label,status\na,,labelled\n", "back.csv line 2 has the status 'labelled' but no label"),
        (b"id,label\na,cat\nb,caf\xe9\n", "back.csv line 3 is not UTF-8"),
        ("id,label\na,cat\n".encode("utf-16"), "back.csv line 1 is not UTF-8"),
        ("id,label\na," + "x" * 200_000, "back.csv line 2 is not valid CSV"),
    ],
)
def test_csv_that_is_refused(text: str | bytes, words: str) -> None:
    assert words in refusal(text)


# JSON Lines


def test_json_values_become_the_text_of_their_value() -> None:
    values = ["cat", 7, 7.0, 0.1, 1e-7, True, "07", "é"]
    text = "".join(json.dumps({"id": str(index), "label": value}) + "\n" for index, value in enumerate(values))
    assert [label.label for label in read(text)] == ["cat", "7", "7.0", "0.1", "1e-07", "true", "07", "é"]


def test_jsonl_with_windows_lines_mark_blank_lines_and_odd_separators_in_ids() -> None:
    text = '\ufeff{"id": "a\u2028b", "label": "cat"}\r\n\r\n{"id": 7, "label": "dog", "round": 1}\r\n\r\n'
    labels = read(text, "back.jsonl")
    assert [(label.id, label.label, label.place) for label in labels] == [
        ("a\u2028b", "cat", "back.jsonl line 1"),
        ("7", "dog", "back.jsonl line 3"),
    ]


def test_the_content_decides_on_the_format_not_the_name() -> None:
    assert pairs('{"id": "a", "label": "cat"}', "back.csv") == [("a", "cat")]
    assert pairs("id,label\na,cat\n", "back.jsonl") == [("a", "cat")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"id": "b", "label": ' + "9" * 5000 + "}", "not valid JSON"),
        ("a,cat", "not valid JSON"),
        ('["b", "cat"]', "not a JSON object with the keys id and label"),
        ('{"id": "b", "sport": 3}', "not a JSON object with the keys id and label"),
        ('{"label": "cat"}', "not a JSON object with the keys id and label"),
        ('{"id": null, "label": "cat"}', "has no id"),
        ('{"id": "b", "label": ["cat"]}', "has a list as its label"),
        ('{"id": {"x": 1}, "label": "cat"}', "has a dict as its id"),
        ('{"id": "b", "label": "cat", "round": true}', "has the round 'true'"),
    ],
)
def test_jsonl_line_that_is_refused(line: str, words: str) -> None:
    message = refusal('{"id": "a", "label": "cat"}\n' + line + "\n", "back.jsonl")
    assert message.startswith("back.jsonl line 2 ")
    assert words in message


# Status


@pytest.mark.parametrize(
    ("label", "status", "expected"),
    [
        ("cat", "", "labelled"),
        ("cat", "Labelled", "labelled"),
        ("cat", "completed", "labelled"),
        ("", "", "blank"),
        ("  ", "", "blank"),
        ("?", "", "unsure"),
        (" Can’t  tell ", "", "unsure"),
        ("", "unsure", "unsure"),
        ("", "skipped", "unsure"),
        ("cat", "can't tell", "unsure"),
    ],
)
def test_status(label: str, status: str, expected: str) -> None:
    for text in (
        f"id,label,status\na,{label},{status}\n",
        json.dumps({"id": "a", "label": label, "status": status}),
    ):
        (read_back,) = read(text)
        assert read_back.status == expected
        assert (read_back.label is not None) == (expected == "labelled")


def test_json_null_is_blank_and_a_status_needs_no_label() -> None:
    text = '{"id": "a", "label": null}\n{"id": "b", "status": "unsure"}\n'
    assert [label.status for label in read(text)] == ["blank", "unsure"]


def test_a_manifest_comes_back_filled_in_from_a_european_spreadsheet() -> None:
    rng = random.Random(0)
    pieces = [*"a7 ',\";=+-@\t\r\n\\?{[", "\r\n", "\u2028", "\x85", "\x00", "é", "日", "🙂"]
    ids = sorted({"".join(rng.choices(pieces, k=rng.randint(1, 6))) for _ in range(2000)})
    answers = {id: rng.choice(["cat", "dog, big", "7; 8"]) for id in ids}
    sent = encode("csv", [ManifestRow(id, None, "r", 1, order) for order, id in enumerate(ids)])
    header, *rows = csv.reader(io.StringIO(sent.decode("utf-8-sig"), newline=""))
    column = header.index("label")
    filled = [[*cells[:column], answers[id], *cells[column + 1 :]] for id, cells in zip(ids, rows, strict=True)]
    back = io.StringIO(newline="")
    csv.writer(back, delimiter=";").writerows([header, *rng.sample(filled, len(filled))])
    assert join(read(back.getvalue()), ids, run="r").label == answers


# Join


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
    assert result == Joined({"c": "cat"}, ("a",), ("b",), repeated=0, overruled=0, blank=1, num_annotators=0)


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
    assert (result.repeated, result.overruled, result.num_annotators) == (1, 0, 2)


def test_unknown_ids_are_listed() -> None:
    labels = [answer(id, "x") for id in ("a", "q7", "q1", "q2", "q3", "q4", "q5", "q6", "b")]
    message = join_refusal(*labels, selected="a", pool_contains=lambda id: id == "b", source="two files")
    assert message == (
        "two files: 7 id(s) not in the pool of this run: 'q1', 'q2', 'q3', 'q4', 'q5', and 2 more; 1 id(s) in"
        " the pool but not selected for labelling: 'b': import the file into the run that it answers"
    )
    assert "1 id(s) not selected for labelling: 'z'" in join_refusal(answer("z", "x"))


def test_an_unknown_id_is_refused_even_without_an_answer() -> None:
    assert "'z'" in join_refusal(Label("z", None, "blank"))


@pytest.mark.parametrize(("selected", "returned"), [("007", "7"), ("12300000", "1.23E+07")])
def test_ids_that_a_spreadsheet_rewrote(selected: str, returned: str) -> None:
    with pytest.raises(LabelError, match="a spreadsheet rewrote ids as numbers"):
        join([answer(returned, "x")], [selected], run="r")


def test_another_run_is_refused() -> None:
    others = [answer("b", "x", place=f"{file} line 3", run=f"run-{file}") for file in "hg"]
    message = join_refusal(answer("a", "x", run="r"), *others, Label("c", None, "blank"))
    assert "2 row(s) answer another run, 'run-g' (g line 3), not 'r'" in message
    assert "'other'" in join_refusal(Label("a", None, "blank", run="other"))


def test_conflict_names_ids_labels_places_and_the_option() -> None:
    given = [("b", "y", "g line 3"), ("b", "x", "f line 2"), ("b", "y", "h line 2"), ("a", "x", "f line 3")]
    labels = [answer(id, text, place=place) for id, text, place in given]
    assert join_refusal(*labels) == (
        "labels: labels in conflict on 1 example(s): 'b' is 'x' (f line 2) and 'y' (g line 3):"
        " settle them, or take the most frequent with --conflict majority"
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
    assert (result.repeated, result.overruled, result.num_annotators) == (1, 1, 3)


def test_a_tie_is_refused_and_asks_for_one_more_person() -> None:
    labels = [answer("a", text, place=f"{text}.csv line 2") for text in "xyxyz"]
    message = join_refusal(*labels, conflict="majority")
    assert "a tie between labels on 1 example(s): 'a' is 'x' (x.csv line 2) and 'y' (y.csv line 2):" in message
    assert "one more person" in message


def test_a_file_imported_twice_gives_nobody_two_votes() -> None:
    ann = answer("a", "x", "ann")
    labels = [ann, ann, ann, answer("a", "y", "bob"), answer("a", "y", "cid")]
    assert joined(*labels, conflict="majority").label == {"a": "y"}


def test_lines_without_an_annotator_are_one_vote_each() -> None:
    labels = [answer("a", "x"), answer("a", "x"), answer("a", "y", "bob")]
    assert joined(*labels, conflict="majority").label == {"a": "x"}


def test_unknown_conflict_rule() -> None:
    with pytest.raises(SpecError, match="'newest' is unknown: use error or majority"):
        join([], [], run="r", conflict="newest")


def test_a_label_stands_beside_somebody_who_could_not_tell() -> None:
    result = joined(answer("a", None, "ann"), answer("a", "x", "bob"), answer("b", None, "ann"), answer("b", None))
    assert (result.label, result.unsure, result.overruled) == ({"a": "x"}, ("b",), 1)


def test_an_annotator_corrects_himself_where_times_order_his_answers() -> None:
    early, late = "2026-11-03T10:00:00+02:00", "2026-11-03T08:30:00Z"  # late, although its text sorts first
    result = joined(answer("a", "x", "ann", labelled_at=early), answer("a", "y", "ann", labelled_at=late))
    assert (result.label, result.repeated, result.overruled) == ({"a": "y"}, 1, 1)
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


# Outcomes

ANIMALS = ["cat", "dog", "None"]
DIGITS = ["1", "2", "0"]  # names that are whole numbers, not in the order of their indices


@pytest.mark.parametrize(
    ("text", "prediction", "classes", "expected"),
    [
        ("dog", 1, ANIMALS, 1.0),
        ("dog", 0, ANIMALS, 0.0),
        ("1", 1, ANIMALS, 1.0),
        ("1.0", 1, ANIMALS, 1.0),
        ("None", 2, ANIMALS, 1.0),
        ("1", 0, DIGITS, 1.0),
        ("2.0", 1, DIGITS, 1.0),
        ("0", 2, DIGITS, 1.0),
        ("7", 7, None, 1.0),
        ("7.0", 7, None, 1.0),
        ("7", 1, None, 0.0),
    ],
)
def test_outcome_of_classes(text: str, prediction: int, classes: list[str] | None, expected: float) -> None:
    assert outcome_of_classes(text, prediction, classes, id="a") == expected


@pytest.mark.parametrize(
    ("text", "classes", "words"),
    [
        (
            "Dgo",
            ANIMALS,
            "example 'a' has the label 'Dgo', which is none of the 3 classes (did you mean 'dog'?)",
        ),
        ("DOG", ANIMALS, "did you mean 'dog'"),
        ("horse", ANIMALS, "use one of cat, dog, None"),
        ("3", ANIMALS, "'3', which is none"),
        ("-1", ANIMALS, "'-1', which is none"),
        ("1.5", ANIMALS, "'1.5', which is none"),
        ("3", DIGITS, "'3', which is none"),
        ("x", [f"class {index}" for index in range(30)], "and 10 more"),
        ("cat", None, "has no class names"),
        ("1e3", None, "has no class names"),
        ("٣", None, "has no class names"),
    ],
)
def test_label_that_is_no_class(text: str, classes: list[str] | None, words: str) -> None:
    with pytest.raises(LabelError) as caught:
        outcome_of_classes(text, 0, classes, id="a")
    assert words in str(caught.value)


def test_a_number_is_no_index_where_classes_are_named_by_numbers() -> None:
    with pytest.raises(LabelError):
        outcome_of_classes("0", 0, ["1", "2", "3"], id="a")


@pytest.mark.parametrize(
    ("text", "prediction", "scale", "expected"),
    [
        ("1.5", 1.0, 1.0, 0.75),
        ("-2", -2.0, 1.0, 1.0),
        ("10", 0.0, 20.0, 0.75),
        ("1e1", 0.0, 10.0, 0.0),
        (".5", 0, 1, 0.75),
    ],
)
def test_outcome_of_values(text: str, prediction: float, scale: float, expected: float) -> None:
    assert outcome_of_values(text, prediction, scale, id="a") == expected


def test_an_error_above_the_scale_names_the_setting_and_a_value_that_helps() -> None:
    with pytest.raises(LabelError) as caught:
        outcome_of_values("5", 2.0, id="a")
    assert str(caught.value) == (
        "example 'a' with label 5 and prediction 2 scores -8, but scores must lie in [0, 1]:"
        " set model.error_scale (now 1) to 3.0 or more"
    )
    assert outcome_of_values("5", 2.0, 3.0, id="a") == 0.0
    for huge in ("1e300", "1e400"):
        with pytest.raises(LabelError, match="scores -inf"):
            outcome_of_values(huge, 2.0, id="a")


@pytest.mark.parametrize("text", ["", "cat", "3,5", "1_000", "nan", "inf", "0x10", "1.5 m", "٣"])
def test_label_that_is_no_number(text: str) -> None:
    with pytest.raises(LabelError, match="write a number such as"):
        outcome_of_values(text, 1.0, id="a")
