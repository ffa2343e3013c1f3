"""Later versions read what version 0.2.0 wrote, and continue from there."""

import json
from pathlib import Path

import pytest
from golden_run import EXPECTED, copy_golden_run

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.status import status
from opacc_ray.audit.verify import verify
from opacc_ray.runs.run import Run

STATED = json.loads(EXPECTED.read_text())
TRACKS = [None, "second"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.open(str(copy_golden_run(tmp_path)))


@pytest.mark.parametrize("track", TRACKS)
def test_golden_run_gives_the_same_estimate(run: Run, track: str | None) -> None:
    found = accuracy.estimate(run.along(track)).to_dict()
    expected = STATED["estimate"][track or ""]
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("track", TRACKS)
def test_golden_run_draws_the_same_next_round(run: Run, track: str | None) -> None:
    chosen = verbs.next_round(run.along(track), 10)
    assert list(chosen.ids) == STATED["next"][track or ""]


def test_golden_run_has_a_status(run: Run) -> None:
    found = status(run)
    assert (found.waits_for, len(found.rounds), len(found.others)) == ("nothing", 2, 1)
    assert [item.labelled for item in found.rounds] == [30, 20]
    assert found.predicted is not None
    assert found.predicted.examples == 120


def test_golden_run_is_sound(run: Run) -> None:
    found = verify(run.uri)
    assert found.faults == []
    assert found.checked > 20
