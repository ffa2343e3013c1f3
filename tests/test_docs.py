"""What the documentation names exists: commands, options, targets, files, code; its picture is the code's."""

import re
from pathlib import Path

import click
import pytest

from opacc_ray.cli.main import application, main
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
        line = re.sub(r"^opacc fleet (?!alerts)", "opacc fleet run ", line)
        if named := re.match(
            r"opacc ((?:labels |features |runs |fleet alerts (?=ack)|fleet |evidence )?[a-z]+)\b(.*)", line
        ):
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


def test_make_targets_exist() -> None:
    named = {match[1] for line in code_of(pages_text()) if (match := re.match(r"make ([a-z-]+)", line))}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named >= {"demo", "test", "bench"}
    assert named - targets == set()


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


def test_the_spec_of_the_readme_is_valid() -> None:
    found = re.search(r"```yaml\n(.+?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    assert parse_spec(parse_yaml(found[1], "README.md"), "README.md").pool.format == "images"
