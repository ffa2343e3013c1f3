"""Some disturbed audits, as `make chaos` runs hundreds of."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not os.environ.get("OPACC_CHAOS"), reason="minutes on a cluster of several nodes: make chaos, or set OPACC_CHAOS=1"
)

TESTS = Path(__file__).parents[1]


def run(*arguments: str) -> str:
    """What a module of this folder prints, in a process of its own: it makes a cluster and changes the environment."""
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    done = subprocess.run([sys.executable, "-m", *arguments], env=environment, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.processes
def test_disturbed_audits_end_in_the_bytes_of_an_undisturbed_one() -> None:
    """Kills and SIGTERM of driver and actor, a hang, a node that is lost; storage that fails; by fixed seeds."""
    assert "6 runs, seeds 0 to 5: 6 ended in the undisturbed bytes." in run("chaos", "6", "0")


@pytest.mark.processes
def test_readers_and_actors_that_are_killed_change_no_byte_and_leave_nothing() -> None:
    assert "4 kills (2 times a reader, 2 times an actor)" in (said := run("chaos.kills", "4"))
    assert "the same bytes, nothing left" in said
