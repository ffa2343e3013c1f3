"""A file is recognised by its content, and a row is labelled, unsure or blank: never a guess."""

import json

import pytest
from reading_labels import read


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
