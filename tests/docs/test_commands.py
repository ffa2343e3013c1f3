"""A reader with nothing but a page: its files are written, its commands run, its outputs are as it shows."""

import functools
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from extracting_here import extracting_here
from labelled_pages import CLASSES, run_to_label
from packed import verified_pack
from waiting import LONG

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


class Reader:
    """Somebody in a folder with a shell, who has opacc on the path."""

    def __init__(self, folder: Path, told: Callable[..., tuple[int, str, str]]) -> None:
        (folder / "bin").mkdir()
        shim = folder / "bin" / "opacc"
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m opacc_ray "$@"\n')
        shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
        path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.environment = plain | {"PATH": path, "PYTHONPATH": str(ROOT)}
        self._folder, self._told = folder, told

    def run(self, line: str) -> str:
        """Run a line, and return what it prints; opacc in this process, and without Ray."""
        if name := re.match(r"(\w+)=", line):
            self.environment[name[1]] = self._shell(f'{line}; printf %s "${name[1]}"')
            return ""
        if not line.startswith("opacc ") or set(line) & set("|<>&;"):
            return self._shell(line)
        words = self._shell(f"printf '%s\\0' {line}").split("\0")
        with extracting_here():
            code, out, err = self._told(*words[1:-1])
        assert code == 0, err
        return out

    def _shell(self, line: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", line],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=6 * LONG,
            env=self.environment,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout


@pytest.fixture
def check_page(
    tmp_path: Path, told: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    monkeypatch.chdir(tmp_path)
    return functools.partial(_check_page, tmp_path, told)


def _check_page(folder: Path, told: Callable[..., tuple[int, str, str]], name: str, **variables: str) -> None:
    """Write the files of a page, run its commands in a folder, and compare what they print with what it shows."""
    text = (ROOT / "docs" / name).read_text()
    for file, content in files(text).items():
        (folder / file).write_text(content)
    reader = Reader(folder, told)
    reader.environment |= variables
    for command in commands(text):
        output = reader.run(command.line)
        for line in command.shown:
            pattern = re.escape(line.rstrip()).replace("…", ".*")
            assert re.search(f"^{pattern}", output, re.MULTILINE), f"{command.line} does not show {line!r}:\n{output}"


@pytest.mark.slow
def test_the_commands_of_the_guide_do_what_it_shows(check_page: Callable[..., None], tmp_path: Path) -> None:
    check_page("guide.md")
    for run in (tmp_path / "audits").glob("shapes-*"):
        verified_pack(Run.open(str(run)), tmp_path)


@pytest.mark.slow
def test_the_commands_of_the_page_on_labelling_do_what_it_shows(
    check_page: Callable[..., None], tmp_path: Path
) -> None:
    run = run_to_label(str(tmp_path / "audits"), 40, CLASSES, budget=20)
    check_page("labelling.md", RUN=run.uri)
