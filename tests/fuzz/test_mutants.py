"""Mutants of files of all kinds: one sentence each, no hang, no gigabyte, nothing left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from fuzz.targets import TARGETS

TESTS = Path(__file__).parents[1]
COUNT = 30


@pytest.fixture(scope="module")
def campaign() -> CompletedProcess[str]:
    """All kinds in one process, which imports once; it prints a line for each."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    asked = [sys.executable, "-m", "fuzz.campaign", "7", str(COUNT)]
    return subprocess.run(asked, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=5000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TARGETS)
def test_mutants_are_accepted_or_refused_in_one_sentence(campaign: CompletedProcess[str], kind: str) -> None:
    """``make fuzz MUTANTS=1000`` tries more of them."""
    found = {answer["kind"]: answer for answer in map(json.loads, campaign.stdout.splitlines())}.get(kind)
    assert found is not None, campaign.stderr[-2000:]
    assert found["faults"] == []
    assert found["mutants"] == sum(found["codes"].values()) == COUNT
    assert len(found["codes"]) > 1, "some are accepted and some refused"
