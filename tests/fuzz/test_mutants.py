"""Mutants of specs, pool files, runs and selections: one sentence each, no hang, no gigabyte, nothing left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.targets import TARGETS

TESTS = Path(__file__).parents[1]
COUNT = 40


@pytest.mark.slow
@pytest.mark.parametrize("kind", TARGETS)
def test_mutants_are_accepted_or_refused_in_one_sentence(kind: str) -> None:
    """``PYTHONPATH=tests python -m fuzz 1000`` tries more of them."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    asked = [sys.executable, "-m", "fuzz.campaign", kind, str(COUNT), "7"]
    done = subprocess.run(asked, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["faults"] == []
    assert found["mutants"] == sum(found["codes"].values()) == COUNT
    assert len(found["codes"]) > 1, "some are accepted and some refused"
