"""The wheel holds the package, all of it and nothing else, and says what it is."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from email.message import Message
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, files, packages_distributions
from pathlib import Path
from zipfile import ZipFile

import pytest

from opacc_ray.registry import EXTRAS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "opacc_ray"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """Built from a copy, so that no earlier build can add to it."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("opacc_ray", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True)
    [path] = target.glob("*.whl")
    return ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: ZipFile) -> Message:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


@pytest.mark.processes
def test_the_wheel_holds_the_package_and_nothing_else(wheel: ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    modules = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py")}
    templates = {str(path.relative_to(ROOT)) for path in PACKAGE.glob("**/templates/*")}
    names = ("page.html", "page.css", "page.js", "inbox.html", "inbox.js")
    page = {f"opacc_ray/labels/page/{name}" for name in names}
    data = {str(path.relative_to(ROOT)) for path in PACKAGE.glob("**/demo/*[zs]")}
    assert templates
    specs = {"opacc_ray/cli/spec_template.yaml", "opacc_ray/extensions/study/papers.yaml"}
    assert held == modules | templates | page | specs | {"opacc_ray/py.typed"} | data


@pytest.mark.processes
def test_the_wheel_brings_its_licence_and_its_command(wheel: ZipFile) -> None:
    names = {name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert wheel.read(names["licenses/LICENSE"]) == (ROOT / "LICENSE").read_bytes()
    assert f"opacc = {PROJECT['scripts']['opacc']}" in wheel.read(names["entry_points.txt"]).decode()


@pytest.mark.slow
def test_every_imported_library_is_declared() -> None:
    declared = {
        _name(item)
        for item in [*PROJECT["dependencies"], *(item for extra in EXTRAS.values() for item in _optional(extra))]
    }
    imported = {module for path in PACKAGE.rglob("*.py") for module in _imported_modules(path)}
    foreign = imported - set(sys.stdlib_module_names) - {"opacc_ray"}
    missing = {module for module in foreign if _name(module) not in declared}
    for name in declared - {_name(module) for module in foreign}:  # such as pillow, which is imported as PIL
        with suppress(PackageNotFoundError):
            missing -= {file.parts[0].removesuffix(".py") for file in files(name) or ()}
    assert missing - PARTS == set()


PARTS = {"botocore", "s3transfer", "urllib3", "pydantic_core"}
"""What boto3 and pydantic are made of, and pin themselves."""


def test_each_package_that_may_be_missing_is_brought_by_its_extra() -> None:
    known = packages_distributions()
    brought = {
        module: {_name(name) for name in known.get(module, [module])} & {_name(item) for item in _optional(extra)}
        for module, extra in EXTRAS.items()
    }
    assert [module for module, names in brought.items() if not names] == []


def _optional(extra: str) -> list[str]:
    return list(PROJECT["optional-dependencies"].get(extra, []))


def _name(requirement: str) -> str:
    """`ray[default]>=2.40` -> `ray`."""
    name = requirement
    for mark in "[<>=!~; ":
        name = name.partition(mark)[0]
    return name.lower().replace("_", "-")


def _imported_modules(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    sources = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.partition(".")[0] for name in plain | sources}


def test_lock_has_every_pinned_version_and_digests_and_names_no_host() -> None:
    """All but torch, whose builds for CPU and GPU are different files under one version."""
    lock, constraints = ((ROOT / "infra" / name).read_text() for name in ("lock.txt", "constraints.txt"))
    locked, pinned = (
        {_name(name): version for name, version in re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE)}
        for text in (lock, constraints)
    )
    assert set(pinned) - set(locked) == {"torch"}
    assert {name: locked[name] for name in pinned if name != "torch"} == {
        name: version for name, version in pinned.items() if name != "torch"
    }
    blocks = re.split(r"^(?=\S+==)", lock, flags=re.MULTILINE)[1:]
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []
    assert "//" not in lock


def test_no_file_names_the_host_of_a_package_index() -> None:
    """The settings of pip decide where packages come from."""
    index = re.compile(r"https?://\S*/(simple|whl|project)(/|\b)|\b(py(pi|thonhosted)|download\.pytorch)\.org\b")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    named = [
        f"{name}: {found[0]}"
        for name in listed.stdout.split("\0")
        if name and (found := index.search((ROOT / name).read_bytes().decode(errors="replace")))
    ]
    assert named == []
