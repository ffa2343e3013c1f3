"""Render tables as Markdown and HTML, and pages from templates. Every text of others is escaped."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from markupsafe import Markup

from opacc_ray.report.facts import Cell, Column, Table, level_text, percent, sentence, stopped, thousands
from opacc_ray.svg import shortened_to

TEMPLATES = files("opacc_ray.report") / "templates"


def markdown_table(table: Table) -> list[str]:
    """Return the lines of a table in Markdown."""
    rows = [
        [escaped(column.name) for column in table.columns],
        ["---:" if column.kind == "n" else "---" for column in table.columns],
        *([_markdown_cell(cell) for cell in row] for row in table.rows),
    ]
    return ["| " + " | ".join(row) + " |" for row in rows]


def _markdown_cell(cell: Cell) -> str:
    return escaped(cell if isinstance(cell, str) else f"{cell[0]} ({cell[1]})" if cell[1] else cell[0])


def escaped(text: str) -> str:
    """Return a text on one line that Markdown and HTML take for plain text."""
    return _literal(" ".join(text.split()))


def _literal(line: str) -> str:
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]#+|~!@])", r"\\\1", line)


def markdown_prose(text: str) -> str:
    """Return a sentence of ours as Markdown, with what is between backticks as code."""
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0:
        return escaped(text)
    return "`".join(part if place % 2 else _literal(part) for place, part in enumerate(parts))


def html_table(table: Table, label: str) -> Markup:
    """Return a table as HTML in a region that scrolls; ``label`` names it for readers who do not see it."""
    kinds = [_kind(column) for column in table.columns]
    head = [
        Markup('<th scope="col"{}>{}</th>').format(kind + _title(column), column.name)
        if column.name
        else Markup("<td></td>")
        for kind, column in zip(kinds, table.columns, strict=True)
    ]
    rows = []
    for first, *cells in table.rows:
        row = [Markup('<th scope="row"{}>{}</th>').format(kinds[0], _html_cell(first))]
        row += [Markup("<td{}>{}</td>").format(*own) for own in zip(kinds[1:], map(_html_cell, cells), strict=True)]
        rows.append(row)
    return _in_region(head, rows, label, greyed=table.greyed)


def heat_map(matrix: Mapping[str, Any], label: str) -> Markup:
    """Return a table of coloured cells: ``names`` of its columns, and ``rows`` of a name and cells each.

    A cell has a ``text``, a ``kind``, which is right, wrong or none, and a ``weight`` in [0, 1] of its colour.
    """
    head = [Markup('<th scope="col"><span>{}</span></th>').format(shortened_to(name, 24)) for name in matrix["names"]]
    coloured, rows = Markup('<td class="{}" style="--w:{}">{}</td>'), []
    for name, cells in matrix["rows"]:
        row = [Markup('<th scope="row">{}</th>').format(shortened_to(name, 24))]
        row += [coloured.format(item["kind"], f"{item['weight']:.3f}", _unbroken(item["text"])) for item in cells]
        rows.append(row)
    return _in_region([Markup("<td></td>"), *head], rows, label, ' class="matrix"')


def _in_region(
    head: list[Markup], rows: list[list[Markup]], label: str, attributes: str = "", greyed: Sequence[bool] = ()
) -> Markup:
    kinds = [Markup(' class="greyed"') if is_grey else Markup("") for is_grey in greyed or [False] * len(rows)]
    body = [Markup("<tr{}>{}</tr>\n").format(kind, Markup("").join(row)) for kind, row in zip(kinds, rows, strict=True)]
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="{}">\n<table{}>\n<thead><tr>{}</tr></thead>\n'
        "<tbody>\n{}</tbody>\n</table>\n</div>"
    ).format(label, Markup(attributes), Markup("").join(head), Markup("").join(body))


def _kind(column: Column) -> Markup:
    kinds = " ".join(filter(None, (column.kind, "optional" * column.optional)))
    return Markup(' class="{}"').format(kinds) if kinds else Markup("")


def _title(column: Column) -> Markup:
    return Markup(' title="{}"').format(column.title) if column.title else Markup("")


def _html_cell(cell: Cell) -> Any:
    text, note = (cell, "") if isinstance(cell, str) else cell
    return Markup("{} <small>{}</small>").format(_unbroken(text), note) if note else _unbroken(text)


def template(name: str, folder: Traversable = TEMPLATES) -> Any:
    """Return the template of a file; rendering fails where a value is missing."""
    return _compiled((folder / name).read_text(encoding="utf-8"))


@cache
def _compiled(text: str) -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_unbroken
    )
    environment.loader = FunctionLoader(_shared)
    environment.filters |= {"short": shortened_to, "sentence": sentence, "stopped": stopped, "prose": _prose}
    environment.globals.update(table=html_table, heat_map=heat_map, percent=percent)
    environment.globals.update(thousands=thousands, level_text=level_text)
    return environment.from_string(text)


def _unbroken(value: Any) -> Any:
    """Keep a percentage on one line."""
    return value.replace(" %", "\N{NO-BREAK SPACE}%") if isinstance(value, str) else value


def _prose(text: str) -> Markup:
    """Return a sentence of ours as HTML, with what is between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return Markup("{}").format(_unbroken(text))
    forms = Markup("{}"), Markup("<code>{}</code>")
    return Markup("").join(forms[place % 2].format(_unbroken(part)) for place, part in enumerate(parts))


def _shared(name: str) -> str:
    """Return the text of a shared template, such as base.html, which all pages extend."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def style(*names: str) -> Markup:
    """Return the style sheets of every page, or those named; figure.css also suits a figure in its own file."""
    sheets = map(_shared, names or ("figure.css", "page.css"))
    return Markup("\n").join(map(Markup, sheets))
