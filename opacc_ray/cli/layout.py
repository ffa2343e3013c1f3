"""Lay out facts and tables for a terminal: aligned columns, and styles where the terminal supports them."""

import os
import sys
import unicodedata
from collections.abc import Sequence

from opacc_ray.cli.terminal import printable, printable_line
from opacc_ray.report.facts import Fact, Table

Line = Fact | Table | str
"""A part of an answer; a plain text is printed as it is."""

LEAST_LABEL = 10
"""Least characters of the column of labels, and of the first column of a table with its gap."""

MOST_LABEL = 20
"""Most characters of a label that the others are aligned with: a file name may be longer."""

NEXT = "next:"
"""Label of the command to run next."""

_STYLES = {"result": "1", "warning": "33", "error": "31", "head": "2", "next": "1;36"}


def is_styled() -> bool:
    """Return whether stdout is a terminal with colours; NO_COLOR switches them off."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_text(lines: Sequence[Line], *, verbose: bool = False, styled: bool = False) -> str:
    """Return the text of an answer; details are shown if ``verbose``."""
    shown = [line for line in lines if verbose or not (isinstance(line, Fact) and line.detail)]
    labels = [width_of(printable_line(line.label)) for line in shown if isinstance(line, Fact)]
    width = max([LEAST_LABEL, *(label + 2 for label in labels if label <= MOST_LABEL)])
    texts: list[str] = []
    for line in shown:
        if isinstance(line, Table):
            texts += _table(line, styled)
        else:
            texts.append(printable(line) if isinstance(line, str) else _fact(line, width, styled))
    return "\n".join(texts)


def _fact(fact: Fact, width: int, styled: bool) -> str:
    text = printable_line(fact.text)
    if fact.label == NEXT:
        return _style(f"{NEXT} {text}", "next", styled)
    label = printable_line(fact.label)
    label = label if width_of(label) <= MOST_LABEL else f"{label}  "
    return f"{_padded(label, width)}{_style(text, fact.tone, styled)}".rstrip()


def _table(table: Table, styled: bool) -> list[str]:
    rows = [
        [printable_line(cell if isinstance(cell, str) else "  ".join(filter(None, cell))) for cell in row]
        for row in table.rows
    ]
    head = [column.name for column in table.columns]
    widths = [max(map(width_of, column)) for column in zip(head, *rows, strict=True)]
    if len(widths) > 1:
        widths[0] = max(widths[0], LEAST_LABEL - 2)
    right = [column.kind == "n" for column in table.columns]

    def text(cells: Sequence[str]) -> str:
        padded = (_padded(cell, width, right=own) for cell, width, own in zip(cells, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return [_style(text(head), "head", styled), *map(text, rows)]


def width_of(text: str) -> int:
    """Return the columns that a text takes: two for a wide character, none for a combining mark."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def _style(text: str, tone: str, styled: bool) -> str:
    code = _STYLES.get(tone) if styled else None
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text
