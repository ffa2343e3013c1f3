"""The answers of whole journeys stay what they are, number by number; that of a table is in `test_structure.py`."""

from pathlib import Path

import pytest

from journeys.journeys import unlike_golden, walk


@pytest.mark.slow
@pytest.mark.parametrize("name", ["images", "fleet"])
def test_journey_gives_the_golden_answers(name: str, tmp_path: Path) -> None:
    assert unlike_golden(name, walk(name, tmp_path)) == []
