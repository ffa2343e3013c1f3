"""JSON Lines: every value is taken for the text that it is, and what is no label is refused by line."""

import json

import pytest
from reading_labels import read, refusal


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
