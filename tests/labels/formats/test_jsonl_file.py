"""JSON Lines: every value is taken for the text that it is, and what is no label is refused by line."""

import json

import pytest
from reading_labels import read, refusal


def test_jsonl_with_windows_lines_mark_blank_lines_and_odd_separators_in_ids() -> None:
    text = '\ufeff{"id": "a\u2028b", "label": "cat"}\r\n\r\n{"id": 7, "label": "dog", "round": 1}\r\n\r\n'
    labels = read(text, "back.jsonl")
    assert [(label.id, label.label, label.place) for label in labels] == [
        ("a\u2028b", "cat", "back.jsonl line 1"),
        ("7", "dog", "back.jsonl line 3"),
    ]


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
        ('{"id": "b", "label": ["cat"]}', "has a list in label"),
        ('{"id": {"x": 1}, "label": "cat"}', "has a dict in id"),
        ('{"id": "b", "label": "cat", "round": true}', "has the round 'true'"),
    ],
)
def test_jsonl_line_that_is_refused(line: str, words: str) -> None:
    message = refusal('{"id": "a", "label": "cat"}\n' + line + "\n", "back.jsonl")
    assert message.startswith("back.jsonl line 2 ")
    assert words in message


@pytest.mark.parametrize("pretty", [None, 2])
def test_an_array_of_rows_is_read_as_lines_are(pretty: int | None) -> None:
    rows = [{"id": "a", "label": "cat", "comment": "x"}, {"id": 7, "label": None}, {"id": "c", "status": "unsure"}]
    text = "\ufeff\n" + json.dumps(rows, indent=pretty)
    assert [(row.id, row.label, row.status, row.place) for row in read(text, "back.json")] == [
        ("a", "cat", "labelled", "back.json item 1"),
        ("7", None, "blank", "back.json item 2"),
        ("c", None, "unsure", "back.json item 3"),
    ]


@pytest.mark.parametrize("item", ["3", '["b"]', '{"id": "b"}', '{"label": "b"}'])
def test_an_item_of_an_array_that_is_no_row_is_named(item: str) -> None:
    said = refusal('[{"id": "a", "label": "cat"}, ' + item + "]", "back.json")
    assert said == "back.json item 2 is not a JSON object with the keys id and label"


def test_an_array_that_is_cut_off_is_no_json() -> None:
    assert "back.json is not valid JSON" in refusal('[{"id": "a", "label": "cat"}, ', "back.json")
