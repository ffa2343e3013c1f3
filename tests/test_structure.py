"""How the package is cut: a command goes through few files, and the answers of a whole journey stay what they are."""

from pathlib import Path

import pytest
from journeys.journeys import unlike_golden, walk

MOST = {"run": 67, "estimate": 54}
"""Files that a command goes through on a table of predictions, with a metric and slices."""


@pytest.mark.slow
def test_a_command_goes_through_few_files(tmp_path: Path) -> None:
    steps = walk("csv", tmp_path, MOST.__contains__)
    assert unlike_golden("csv", steps) == []
    sizes = [(step.command, step.size) for step in steps if step.command in MOST]
    assert {command for command, size in sizes if size is not None and size.functions > 100} == MOST.keys()
    assert [(command, size) for command, size in sizes if size is None or size.files > MOST[command]] == []
