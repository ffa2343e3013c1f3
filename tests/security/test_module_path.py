"""What lies in the current folder is never run in place of what is installed, neither here nor by workers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_pictures import picture
from waiting import LONG

from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run

pytestmark = pytest.mark.slow

TRAPS = ("pyarrow", "numpy", "yaml", "pydantic", "torch", "ray", "opacc_ray", "secrets")

MODEL = """
import os
from small_model import network as made

def network():
    open(os.environ["TOUCH"], "a").write("imported from the folder\\n")
    return made()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which somebody left modules with the names of packages, and a user's own model."""
    folder = tmp_path / "unpacked"
    folder.mkdir()
    for name in TRAPS:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'trapped')!r}, 'a').write('{name} ')\n")
    (folder / "my_model.py").write_text(MODEL)
    return folder


def opacc(arguments: list[str], folder: Path, *, as_module: bool = False) -> subprocess.CompletedProcess[str]:
    script = ["-c", "import sys; sys.path.remove(''); from opacc_ray.cli.main import main; sys.exit(main())"]
    command = [sys.executable, *(["-m", "opacc_ray"] if as_module else script), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON"))}
    environment["PYTHONPATH"] = os.pathsep.join(str(path) for path in (Path(__file__).parents[2], TESTS))
    environment["TOUCH"] = str(folder.parent / "seen")
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONG)


TESTS = Path(__file__).parents[1]


def test_run_finds_the_users_module_after_what_is_installed(folder: Path) -> None:
    home = folder.parent / "home"
    open_store(str(folder.parent / "pool")).write_many((f"{i:03d}.png", picture(i)) for i in range(12))
    content = {
        "name": "trap",
        "pool": {"uri": "../pool", "format": "images"},
        "model": {"factory": "my_model:network"},
        "extract": {"actors": 1, "features": ["output", "confidence"]},
        "sample": {"method": "srs", "budget": 5},
        "output": str(home),
    }
    (folder / "spec.yaml").write_text(json.dumps(content))
    done = opacc(["run", "spec.yaml"], folder)
    assert done.returncode == 0, done.stderr
    assert not (folder.parent / "trapped").exists(), (folder.parent / "trapped").read_text()
    assert (folder.parent / "seen").exists()
    [run] = home.iterdir()
    index = Run.open(str(run)).read_index()
    assert index is not None
    assert index.num_examples == 12

    (folder / "labels.csv").write_text("id,label\nnobody,1\n")
    done = opacc(["labels", "import", str(run), "labels.csv"], folder)
    assert done.returncode == 6, done.stderr
    assert not (folder.parent / "trapped").exists(), (folder.parent / "trapped").read_text()


def test_no_command_looks_in_the_current_folder_first(folder: Path) -> None:
    for trap in ("opacc_ray", "secrets"):  # python -m itself looks for these before any line of ours runs
        (folder / f"{trap}.py").unlink()
    done = opacc(["status", "nowhere"], folder, as_module=True)
    assert (done.returncode, "there is no run at" in done.stderr) == (5, True), done.stderr
    assert not (folder.parent / "trapped").exists(), (folder.parent / "trapped").read_text()
