"""`pip install .` brings neither torch nor Ray: tables are audited without them, and the rest says what to install."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opacc_ray.registry import EXTRAS

ROOT = Path(__file__).parents[1]

NEEDED = {
    "run": "torch",
    "audit": "torch",
    "check": "torch",
    "submit": "ray",
    "demo": "ray",
    "study": "ray",
    "drift": "PIL",
    "label": "PIL",
    "delta": "deltalake",
    "iceberg": "pyiceberg",
    "lance": "lance",
    "mlflow": "mlflow",
    "metrics": "prometheus_client",
    "sign": "cryptography",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process answers that finds no package of an extra but those of the labelling page."""
    path = os.pathsep.join(map(str, (ROOT / "tests" / "light", ROOT / "tests", ROOT)))
    home = tmp_path_factory.mktemp("light")
    done = subprocess.run(
        [sys.executable, "-m", "light_commands"],
        cwd=home,
        env=os.environ | {"PYTHONPATH": path, "XDG_STATE_HOME": str(home / "state")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.processes
def test_tables_are_audited_without_them(answers: dict[str, Any]) -> None:
    assert set(answers["worked"]) >= {"budget", "run", "labels import", "estimate", "next", "compare", "report"}
    assert answers["page"] == [200]


@pytest.mark.processes
@pytest.mark.parametrize("name", NEEDED)
def test_what_lacks_one_says_what_to_install(name: str, answers: dict[str, Any]) -> None:
    module = NEEDED[name]
    code, printed = answers["refused"][name]
    assert code == 2
    assert f" needs {module}, " in printed
    assert f"pip install 'opacc_ray[{EXTRAS[module]}]'" in printed
