"""The files of infra/, and the command lines in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml

INFRA = Path(__file__).parents[1] / "infra"


def documents(name: str) -> list[dict[str, Any]]:
    """The documents of a YAML file."""
    return list(yaml.safe_load_all((INFRA / name).read_text()))


def comments(name: str) -> list[str]:
    """What the comments of a file say, cut where it is set apart: at wide gaps, and after a colon."""
    lines = re.findall(r"(?:^|\s)# ?(.*)$", (INFRA / name).read_text(), re.MULTILINE)
    return [part for line in lines for part in re.split(r"\s{2,}|: ", line)]


def texts(content: Any) -> Iterator[str]:
    """All texts in a document."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for item in content.values() if isinstance(content, dict) else content:
            yield from texts(item)


def commands(content: Any, program: str) -> list[list[str]]:
    """Arguments of each call of a program in the texts of a document: at their start, after an operator, or in `…`."""
    lines = [line for text in texts(content) for line in text.splitlines()]
    quoted = [part for line in lines for part in re.findall(r"`([^`]+)`", line)]
    plain = [part for line in lines if "`" not in line for part in re.split(r"\|\||&&|;", line)]
    calls = (re.match(rf"\s*(?:[A-Z_]+=\S+ )*(?:{program}) (.*)", part) for part in [*plain, *quoted])
    return [shlex.split(call[1]) for call in calls if call]


def check_call(group: click.Group, arguments: list[str]) -> None:
    """Parse a call as the program would, down to its command, and run nothing."""
    context = group.make_context("program", list(arguments), resilient_parsing=False)
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    assert command is not None
    command.make_context(name, rest, parent=context)
