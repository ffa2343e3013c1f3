"""The image is built of files that exist, for a user without rights."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from infra_files import INFRA

ROOT = INFRA.parent
DOCKERFILE = (INFRA / "Dockerfile").read_text()


@pytest.mark.processes
def test_hadolint_finds_nothing() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    asked = [linter, "--failure-threshold", "info", INFRA / "Dockerfile"]
    done = subprocess.run(asked, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_it_runs_as_a_user_in_the_last_of_its_stages() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (\S+)", last, re.MULTILINE) == ["1000:1000"]
    assert "pip install" not in last


def test_what_it_copies_exists_and_is_sent_to_the_builder() -> None:
    copied = [
        name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    ]
    sent = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert set(copied) == set(sent)
    assert [name for name in copied if not (ROOT / name).exists()] == []


@pytest.mark.processes
def test_it_pins_the_versions_that_are_tested() -> None:
    """What its sed makes of the lock: a version for each dependency of the package but torch."""
    [pattern] = re.findall(r"sed -n '(.*)' lock.txt", DOCKERFILE)
    done = subprocess.run(["sed", "-n", pattern, INFRA / "lock.txt"], capture_output=True, text=True, check=True)
    pinned = {re.sub("[-_.]+", "-", line.partition("==")[0]).lower() for line in done.stdout.splitlines()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [extras] = re.findall(r"'\.\[(.*)\]'", DOCKERFILE)
    needed = [
        *project["dependencies"],
        *(own for name in extras.split(",") for own in project["optional-dependencies"][name]),
    ]
    names = {re.sub("[-_.]+", "-", re.match(r"[\w.-]+", line)[0]).lower() for line in needed}  # type: ignore[index]
    assert names - pinned == {"torch"}
    assert len(re.findall(r"^torch==", (INFRA / "constraints.txt").read_text(), re.MULTILINE)) == 1
