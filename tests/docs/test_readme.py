"""The first lines of Python in the README run as pasted, and print what it shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
NUMBER = re.compile(r"\d+(?:\.(\d+))?")


def block(language: str) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)[0]


def assert_same_up_to_the_last_digit(printed: str, shown: str) -> None:
    """Another processor may round the last digit otherwise."""
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    for found, expected in zip(NUMBER.finditer(printed), NUMBER.finditer(shown), strict=True):
        unit = 10.0 ** -len(expected[1] or "")
        assert abs(float(found[0]) - float(expected[0])) < 1.5 * unit, (printed, shown)


@pytest.mark.processes
def test_the_snippet_prints_what_the_readme_shows(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", block("python")], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_same_up_to_the_last_digit(done.stdout, block("text"))
