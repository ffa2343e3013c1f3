"""The answers of whole journeys stay what they are, number by number."""

import json
from pathlib import Path

import pytest

from journeys.journeys import GOLDEN, JOURNEYS, differences, walk


@pytest.mark.slow
@pytest.mark.parametrize("name", JOURNEYS)
def test_journey_gives_the_golden_answers(name: str, tmp_path: Path) -> None:
    golden = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    steps = walk(name, tmp_path)
    assert [step.command for step in steps] == [own["command"] for own in golden]
    found = [
        f"{own['command']}{text}"
        for own, step in zip(golden, steps, strict=True)
        for text in differences(own["answer"], step.answer)
    ]
    assert not found, "\n".join(found)
