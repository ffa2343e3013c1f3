"""A reader with nothing but a page: its files are written, its commands run, its outputs are as it shows."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from labelled_pages import CLASSES, run_to_label
from packed import verified_pack

from opacc_ray.runs.run import Run

ROOT = Path(__file__).parents[2]


class Command(NamedTuple):
    line: str
    shown: list[str]  # lines of output; … stands for anything


def files(text: str) -> dict[str, str]:
    """Blocks that a comment names as files."""
    return dict(re.findall(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def commands(text: str) -> list[Command]:
    """The commands of console blocks, in order."""
    found: list[Command] = []
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Command(line.removeprefix("$ "), []))
            else:
                found[-1].shown.append(line)
    return found


def run_all(asked: list[Command], folder: Path) -> list[str]:
    """Run commands in one shell; returns the output of each."""
    (folder / "bin").mkdir()
    shim = folder / "bin" / "opacc"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m opacc_ray "$@"\n')
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    script = "\n".join(f"echo '@@@'\n{item.line}" for item in asked)
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        env=environment | {"PATH": path, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout.split("@@@\n")[1:]


def check_page(name: str, folder: Path) -> None:
    """Write the files of a page, run its commands in a folder, and compare what they print with what it shows."""
    text = (ROOT / "docs" / name).read_text()
    for file, content in files(text).items():
        (folder / file).write_text(content)
    asked = commands(text)
    for command, output in zip(asked, run_all(asked, folder), strict=True):
        for line in command.shown:
            pattern = re.escape(line.rstrip()).replace("…", ".*")
            assert re.search(f"^{pattern}", output, re.MULTILINE), f"{command.line} does not show {line!r}:\n{output}"


@pytest.mark.slow
def test_the_commands_of_the_guide_do_what_it_shows(tmp_path: Path) -> None:
    check_page("guide.md", tmp_path)
    for run in (tmp_path / "audits").glob("shapes-*"):
        verified_pack(Run.open(str(run)), tmp_path)


@pytest.mark.slow
def test_the_commands_of_the_page_on_labelling_do_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_to_label(str(tmp_path / "audits"), 40, CLASSES, budget=20)
    monkeypatch.setenv("RUN", run.uri)
    check_page("labelling.md", tmp_path)
