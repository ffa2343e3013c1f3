"""What the documentation names exists: commands, options, targets, files, code; its picture is the code's."""

import importlib.util
import re
import subprocess
from pathlib import Path

import click
import draw_error
import draw_rooms
import pytest

from opacc_ray.cli.main import application, main
from opacc_ray.lake.formats import FORMATS
from opacc_ray.spec import parse_spec, parse_yaml

ROOT = Path(__file__).parents[1]
PAGES = [path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")) if path.name != "CHANGELOG.md"]


def pages_text() -> str:
    return "\n".join(page.read_text() for page in PAGES)


def code_of(text: str) -> list[str]:
    """Lines of fenced blocks, without a prompt, and inline code."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in fenced for line in block.splitlines()]
    return lines + re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def help_of(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    code = main([*command, "--help"])
    said = capsys.readouterr()
    assert code == 0, f"opacc {' '.join(command)} does not exist: {said.err}"
    return said.out


def opacc_commands() -> dict[tuple[str, ...], set[str]]:
    """Commands that the pages name, with the options they are given."""
    found: dict[tuple[str, ...], set[str]] = {}
    for line in code_of(pages_text()):
        if named := re.match(r"opacc ((?:labels |features |runs |alerts |evidence )?[a-z]+)\b(.*)", line):
            options = set(re.findall(r"--[a-z][a-z-]*", named[2].partition("#")[0]))
            found.setdefault(tuple(named[1].split()), set()).update(options)
    return found


def test_commands_and_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    for command, options in opacc_commands().items():
        text = help_of(capsys, *command)
        assert {option for option in options if not re.search(rf"{option}\b", text)} == set(), command


def test_the_reference_names_every_command() -> None:
    """With its own line in a table."""
    page = (ROOT / "docs" / "reference.md").read_text()
    named = set(re.findall(r"^\| `opacc ([a-z]+)", page, re.MULTILINE))
    assert named >= set(application.list_commands(click.Context(application)))


def test_the_error_figure_shows_the_numbers_of_the_results() -> None:
    for scheme in draw_error.SCHEMES:
        assert draw_error.path_of(scheme).read_text() == draw_error.figure(scheme), "run: make docs-pages"


def test_make_targets_exist() -> None:
    named = {match[1] for line in code_of(pages_text()) if (match := re.match(r"make ([a-z-]+)", line))}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named >= {"demo", "test", "bench"}
    assert named - targets == set()


@pytest.mark.processes
def test_every_target_is_in_the_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    [phony] = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[0] for line in shown.splitlines()] == phony.split()


def test_scripts_that_are_called_exist() -> None:
    text = pages_text()
    scripts = {match[1] for line in code_of(text) for match in re.finditer(r"python (\S+\.py)", line)}
    printed = set(re.findall(r"^<!-- file: (\S+) -->$", text, re.MULTILINE))  # which the reader makes
    assert scripts
    packed = {"./verify.py"}  # of `opacc evidence pack`
    assert [script for script in scripts - printed - packed if not (ROOT / script).is_file()] == []


def test_relative_links_lead_somewhere() -> None:
    for page in PAGES:
        found = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
        links = [link.partition("#")[0] for link in found if ":" not in link]
        assert [link for link in links if link and not (page.parent / link).exists()] == [], page


def test_named_files_exist() -> None:
    roots = ("opacc_ray/", "tests/", "docs/", "benchmarks/", "jobs/", "infra/")
    for page in PAGES:
        words = [word for code in code_of(page.read_text()) for word in code.split() if word.startswith(roots)]
        named = {word.rstrip(",;:") for word in words}
        assert [name for name in named if not (ROOT / name).exists()] == [], page


def test_the_picture_is_of_the_contract_that_is_checked() -> None:
    assert draw_rooms.PICTURE.read_text() == draw_rooms.picture(), "run: make docs"


def test_the_picture_shows_every_package() -> None:
    drawn = set(re.findall(r'class="n">(\w+)(?:/|\.py)<', draw_rooms.PICTURE.read_text()))
    folders = {path.parent.name for path in (ROOT / "opacc_ray").glob("*/__init__.py")}
    files = {path.stem for path in (ROOT / "opacc_ray").glob("*.py")} - {"__init__", "__main__"}
    assert drawn == folders | files


def glossary() -> list[str]:
    """The names of code in its last column."""
    text = (ROOT / "docs" / "glossary.md").read_text()
    cells = [line.split("|")[3] for line in text.splitlines() if line.startswith("|") and not line.startswith("|--")]
    return [name for cell in cells[1:] for name in re.findall(r"`([\w.]+)`", cell) if "." in name]


def test_the_glossary_names_code_that_exists() -> None:
    """A module of opacc_ray, or an attribute of one, or of a class in it."""
    for name in glossary():
        words = name.removeprefix("opacc_ray.").split(".")
        place = next(k for k in range(len(words), -1, -1) if is_module(".".join(["opacc_ray", *words[:k]])))
        found: object = importlib.import_module(".".join(["opacc_ray", *words[:place]]))
        for word in words[place:]:
            assert hasattr(found, word) or word in getattr(found, "__annotations__", {}), f"{found} has no {word}"
            found = getattr(found, word, None)


def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_every_format_of_pools_has_a_row_where_formats_are_compared() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs" / "lakes.md").read_text(), re.MULTILINE)
    assert set(FORMATS) <= set(rows)


def test_the_first_number_of_the_readme_is_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """To a fifth of a point and three labels: the last digits may differ between processors."""
    found = re.search(r"```python\n(.+?)```\n\n```text\n(.+?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    exec(found[1], {})
    *shares, worth = (float(number) for number in re.findall(r"\d+\.\d(?=%)|(?<=worth )\d+", found[2]))
    *printed, labels = (float(number) for number in re.findall(r"\d+\.\d(?=%)|(?<=worth )\d+", capsys.readouterr().out))
    assert printed == pytest.approx(shares, abs=0.2)
    assert labels == pytest.approx(worth, abs=3)


def test_the_spec_of_the_readme_is_valid() -> None:
    found = re.search(r"```yaml\n(.+?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    assert parse_spec(parse_yaml(found[1], "README.md"), "README.md").pool.format == "images"
