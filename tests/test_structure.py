"""How the package is cut: a command goes through few files."""

from pathlib import Path

import pytest
from journeys.journeys import walk

MOST = 62
"""Files that `opacc estimate` goes through on a table of predictions, with a metric and slices."""


@pytest.mark.slow
def test_estimate_goes_through_few_files(tmp_path: Path) -> None:
    sizes = [step.size for step in walk("csv", tmp_path, sized=True) if step.command == "estimate"]
    assert all(size is not None and size.functions > 100 for size in sizes), "nothing was traced"
    assert max(size.files for size in sizes if size is not None) <= MOST
