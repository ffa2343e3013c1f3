"""Mutants of files of all kinds: one sentence each, no hang, no gigabyte, nothing left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

TESTS = Path(__file__).parents[1]
COUNT = {"specs": 30, "pool files": 30, "runs": 20, "selections": 30, "labels": 60}


@pytest.fixture(scope="module")
def campaign() -> CompletedProcess[str]:
    """All kinds in one process, which imports once; it prints a line for each."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    counts = [word for kind, count in COUNT.items() for word in (kind, str(count))]
    asked = [sys.executable, "-m", "fuzz.campaign", "7", *counts]
    return subprocess.run(asked, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=500)


@pytest.mark.slow
@pytest.mark.parametrize("kind", COUNT)
def test_mutants_are_accepted_or_refused_in_one_sentence(campaign: CompletedProcess[str], kind: str) -> None:
    """``PYTHONPATH=tests python -m fuzz 1000`` tries more of them."""
    found = {answer["kind"]: answer for answer in map(json.loads, campaign.stdout.splitlines())}.get(kind)
    assert found is not None, campaign.stderr[-2000:]
    assert found["faults"] == []
    assert found["mutants"] == sum(found["codes"].values()) == COUNT[kind]
    assert len(found["codes"]) > 1, "some are accepted and some refused"
