"""The golden run gives the same numbers and draws, and continues from there."""

import json
from pathlib import Path

import pytest
from golden_run import EXPECTED, copy_golden_run

from opacc_ray.audit import accuracy, verbs
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.runs.run import Run

STATED = json.loads(EXPECTED.read_text())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.open(str(copy_golden_run(tmp_path)))


def test_golden_run_gives_the_same_estimate(run: Run) -> None:
    found, expected = accuracy.estimate(run).to_dict(), STATED["estimate"]
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-9)


def test_golden_run_draws_the_same_next_round(run: Run) -> None:
    assert list(verbs.next_round(run, 10).ids) == STATED["next"]


def test_golden_run_is_sound(run: Run) -> None:
    found = verify(run.uri)
    assert found.faults == []
    assert found.checked > 20
