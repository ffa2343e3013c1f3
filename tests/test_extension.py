"""The extension of another author in examples/extension: built, installed, and used by the names of its parts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXTENSION = ROOT / "examples" / "extension"

CONTRACTS = """
import sys

import pytest
import written_pools

def write_arff(place):
    header = "@relation pool\\n@attribute id string\\n@attribute pred numeric\\n@data\\n"
    rows = [f"e{row},{row}\\n" for row in range(written_pools.SIZE)]
    files = {f"{start}.arff": (header + "".join(rows[start : start + 12])).encode() for start in (0, 12)}
    columns = {"id": "id", "prediction": "pred"}
    uri = written_pools.written_folder(place, files)
    return written_pools.Written(uri, columns, ".arff", lambda content: content[:-1] + b",1,2")

written_pools.WRITERS["arff"] = write_arff
sys.exit(pytest.main(["-q", "-n0", *sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a process in which the extension is installed."""
    source, target = tmp_path_factory.mktemp("extension") / "source", tmp_path_factory.mktemp("installed")
    shutil.copytree(EXTENSION, source)
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (target, ROOT, ROOT / "tests")))}


def _output(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.processes
def test_its_parts_are_listed_by_name(environment: dict[str, str]) -> None:
    assert "class_strata" in _output(environment, "-m", "opacc_ray", "methods")
    assert "kish" in _output(environment, "-m", "opacc_ray", "--help-all")


@pytest.mark.processes
def test_its_own_test_and_the_contracts_of_methods_and_formats_pass(environment: dict[str, str]) -> None:
    files = ("samplers/test_contract.py", "lake/test_format_contract.py")
    own = str(EXTENSION / "tests" / "test_example.py")
    done = _output(
        environment,
        "-c",
        CONTRACTS,
        own,
        *(f"tests/{file}" for file in files),
        "-k",
        "test_example or class_strata or arff",
    )
    assert "passed" in done
    assert "failed" not in done


DESIGN = """
from dataclasses import dataclass

from opacc_ray.designs.simple_random import EqualWeights

@dataclass(frozen=True, eq=False)
class Systematic(EqualWeights):
    name = "systematic"
"""


def register(folder: Path, entry_points: str) -> None:
    """Write what an installed package with these entry points has."""
    info = folder / "foreign-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1\n")
    (info / "entry_points.txt").write_text(entry_points)


@pytest.mark.processes
def test_a_design_is_read_in_a_process_that_has_not_drawn_by_it(tmp_path: Path) -> None:
    register(tmp_path, "[opacc.designs]\nsystematic = my_design:Systematic\n")
    (tmp_path / "my_design.py").write_text(DESIGN)
    saved = {"type": "systematic", "num": 3, "population": 9}
    code = f"from opacc_ray.selection import read_design; print(read_design({saved!r}, 'file').weights)"
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT)))}
    assert _output(paths, "-c", code).split() == ["[0.33333333", "0.33333333", "0.33333333]"]


@pytest.mark.processes
def test_a_part_that_cannot_be_imported_is_named_with_its_package(environment: dict[str, str], tmp_path: Path) -> None:
    register(tmp_path, "[opacc.methods]\nbad = no_such_module\n")
    paths = {**environment, "PYTHONPATH": os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]])}
    command = [sys.executable, "-m", "opacc_ray", "methods", "bad"]
    done = subprocess.run(command, env=paths, capture_output=True, text=True)
    assert done.returncode == 2
    assert "'bad'" in done.stderr
    assert "foreign" in done.stderr
    assert "no_such_module" in done.stderr
