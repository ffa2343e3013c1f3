"""Mutants of files of all kinds: one sentence each, no hang, no gigabyte, nothing left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COUNT = {"specs": 40, "pool files": 40, "runs": 40, "selections": 40, "labels": 120}


@pytest.mark.slow
@pytest.mark.parametrize("kind", COUNT)
def test_mutants_are_accepted_or_refused_in_one_sentence(kind: str) -> None:
    """``PYTHONPATH=tests python -m fuzz 1000`` tries more of them."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    asked = [sys.executable, "-m", "fuzz.campaign", kind, str(COUNT[kind]), "7"]
    done = subprocess.run(asked, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["faults"] == []
    assert found["mutants"] == sum(found["codes"].values()) == COUNT[kind]
    assert len(found["codes"]) > 1, "some are accepted and some refused"
