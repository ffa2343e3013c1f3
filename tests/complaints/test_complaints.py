"""Each complaint of the corpus ends in its right outcome."""

from pathlib import Path

import pytest

from complaints.corpus import VERDICTS, complaints, rows

ROWS = dict(rows())
KEYS = {"source", "symptom", "files", "commands", "outcome", "before"}


@pytest.mark.parametrize("name", ROWS)
def test_a_complaint_ends_in_its_right_outcome(name: str, tmp_path: Path) -> None:
    found = complaints(ROWS[name], tmp_path)
    assert not found, "\n".join(found)


def test_rows_are_whole() -> None:
    """A row with a misspelt key would be tried without its condition, and one with another's name not at all."""
    assert len(ROWS) == sum(1 for _ in rows())
    for name, row in ROWS.items():
        assert KEYS - {"files"} <= row.keys() <= KEYS, name
        assert row["outcome"].keys() <= {"exit", "says", "silent", "json"}, name
        assert row["before"] in VERDICTS, name
