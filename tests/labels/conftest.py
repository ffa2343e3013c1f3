"""Fixtures of the tests of labels."""

from pathlib import Path

import pytest
from written_run import CLASSES, PREDICTION, write_run

from opacc_ray.audit import verbs
from opacc_ray.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run over 300 examples of three classes, of which a first round of 20 has no label yet."""
    made = write_run(tmp_path, "mine", PREDICTION, classes=CLASSES)
    verbs.select(made, "srs", 20, {})
    return made
