"""Each complaint of the corpus ends in its right outcome."""

from pathlib import Path

import pytest

from complaints.corpus import VERDICTS, complaints, has_test, rows

ROWS = dict(rows())
TRIED = [
    pytest.param(name, marks=pytest.mark.slow if name.startswith("storage") else (), id=name)
    for name, row in ROWS.items()
    if "test" not in row
]
KEYS = {"source", "symptom", "before", "files", "commands", "faults", "outcome", "variants"}
POINTER = {"source", "symptom", "before", "test"}


@pytest.mark.parametrize("name", TRIED)
def test_a_complaint_ends_in_its_right_outcome(name: str, tmp_path: Path) -> None:
    found = complaints(ROWS[name], tmp_path)
    assert not found, "\n".join(found)


def test_rows_are_whole() -> None:
    """A row with a misspelt key would be tried without its condition, and one with another's name not at all."""
    assert len(ROWS) == sum(1 for _ in rows())
    for name, row in ROWS.items():
        if "test" in row:
            assert row.keys() == POINTER, name
            assert has_test(row), f"{name}: there is no {row['test']}"
            continue
        assert {"source", "symptom", "before", "commands", "outcome"} <= row.keys() <= KEYS, name
        assert row["outcome"].keys() <= {"exit", "says", "silent", "json", "written"}, name
        assert row["before"] in VERDICTS, name
