"""How the package is cut: a command goes through few files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MOST = 60
"""Files that `opacc estimate` goes through on a run of features, with those of its reading threads."""


@pytest.mark.processes
def test_estimate_goes_through_few_files(tmp_path: Path) -> None:
    code = (
        "import json, sys; from pathlib import Path; sys.path.insert(0, 'benchmarks'); import structure; "
        "found = structure.trace_commands(Path(sys.argv[1]), 400, ['estimate']); print(json.dumps(found['estimate']))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    files, functions, _ = json.loads(done.stdout)
    assert functions > 100, "nothing was traced"
    assert len(files) <= MOST, files
