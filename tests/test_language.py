"""The language of the project, as far as a program can check it: plain words, short sentences, complete help lines.

User-facing text is the README and the pages of docs/ (without results and schemas), the help of all commands, the
sentences that errors are raised with, templates, and the first lines of docstrings of public names.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import click.testing

from opacc_ray.cli.main import application

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "opacc_ray"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(ROOT.glob("docs/*.md"))]
TEMPLATES = sorted(path for kind in ("html", "js") for path in PACKAGE.rglob(f"*.{kind}"))

MOST_WORDS = 30

BANNED = {
    r"\bbeside\b": "in addition to, next to, compared with",
    r"\bdear(er|est)?\b": "expensive",
    r"\breckon(s|ed|ing)?\b": "assume, expect",
    r"\bwhoever\b": "the person who, anyone who",
    r"\bnobody could tell\b": '"can\'t tell"',
    r"\bworries\b": "warnings",
    r"\bcrews?\b": "actor pool",
    r"\b(this|each|every|the|its|a) rooms?\b": "package",
    r"\bghosts?\b": "leftover",
    r", too[,.;:)]": "also",
    r"\bis of (a|an|the|one|tables|several|\w+s)\b": "belongs to, is only supported for",
    r"^Who (has|is|does|wants|knows)\b": "If you …",
    r"\bby the model's own word\b": "according to the model's confidence",
    r"\bthat is meant\b": "to use",
}
"""Pattern: what to write instead."""

SHORTENINGS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|al|No)\.", re.IGNORECASE)


class Text(NamedTuple):
    """A piece of user-facing text and where it is."""

    place: str
    content: str


def paragraphs(page: Path) -> Iterator[Text]:
    """Prose of a page: without code, tables, headings, comments, pictures and the targets of links."""
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!-- results:.*?<!-- /results -->", "", text, flags=re.DOTALL)  # copies of docs/results
    text = re.sub(r"<!--.*?-->|<[^>]+>", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        if not re.match(r"\s*(\||#|    )", block) and block.strip():
            yield Text(page.name, " ".join(re.sub(r"^\s*([-*]|\d+\.) ", "", block).replace("*", "").split()))


def sentences(text: str) -> list[str]:
    """Sentences of prose; a semicolon ends one, a colon does not."""
    plain = SHORTENINGS.sub(lambda found: found[0].replace(".", ""), text)
    return [part for part in re.split(r"(?<=[.!?;])[\"')]?\s+(?=[\"'(]?(?:[A-Z0-9]|code))|(?<=;)\s+", plain) if part]


def words(sentence: str) -> int:
    return len(re.findall(r"[\w'’%±/.,-]*\w[\w'’%±/.,-]*", sentence))


def commands(group: click.Group, path: tuple[str, ...] = ("opacc",)) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        assert found is not None
        yield " ".join((*path, name)), found
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))


COMMANDS = dict(commands(application))


def help_texts() -> Iterator[Text]:
    for name, command in COMMANDS.items():
        yield Text(f"{name} --help", command.help or "")
        for item in command.params:
            yield Text(f"{name} {item.name}", getattr(item, "help", None) or "")


@cache
def error_texts() -> list[Text]:
    """What is raised, with code in place of values."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                pieces = [part for part in ast.walk(node.exc.args[0]) if isinstance(part, ast.Constant)]
                content = " ".join(part.value for part in pieces if isinstance(part.value, str))
                found.append(Text(f"{path.relative_to(ROOT)}:{node.lineno}", content))
    return found


def template_texts() -> Iterator[Text]:
    """Templates without their comments and tags."""
    for path in TEMPLATES:
        text = re.sub(r"\{#.*?#\}|\{%.*?%\}|<!--.*?-->|^\s*(//|\*|/\*).*?$", "", path.read_text(), flags=re.S | re.M)
        yield Text(str(path.relative_to(ROOT)), text)


def public_docstrings() -> Iterator[Text]:
    """First lines of docstrings of the names that `import opacc_ray` offers, and of their public methods."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    [home] = [node.value for node in tree.body if isinstance(node, ast.Assign) and _name(node) == "_HOME"]
    for name, module in ast.literal_eval(home).items():
        path = PACKAGE / (module.replace(".", "/") + ".py")
        path = path if path.exists() else path.with_suffix("") / "__init__.py"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
                methods = node.body if isinstance(node, ast.ClassDef) else []
                public = [item for item in methods if isinstance(item, ast.FunctionDef) and item.name[0] != "_"]
                for item in (node, *public):
                    yield Text(f"{module}.{item.name}", (ast.get_docstring(item) or "").partition("\n")[0])


def _name(node: ast.Assign) -> str:
    return getattr(node.targets[0], "id", "")


def banned(texts: Iterable[Text]) -> list[str]:
    """Places of banned words, with what to write instead."""
    return [
        f"{text.place}: {found[0]!r} in {text.content[max(found.start() - 40, 0) : found.end() + 40]!r} → {instead}"
        for text in texts
        for pattern, instead in BANNED.items()
        for found in re.finditer(pattern, text.content, re.IGNORECASE if pattern[0] != "^" else 0)
    ]


def test_the_checks_find_what_they_look_for() -> None:
    assert words("one two-three 4.5 % of `it`") == 5
    assert sentences("One. Two e.g. three. (Four!) Five") == ["One.", "Two eg three.", "(Four!", "Five"]
    assert len(banned(iter([Text("here", "It stands beside that, too.")]))) == 2
    assert len(COMMANDS) > 25
    assert len(error_texts()) > 300
    assert len(list(public_docstrings())) > 10
    assert TEMPLATES


def test_pages_have_no_banned_words() -> None:
    assert banned(text for page in PAGES for text in paragraphs(page)) == []


def test_sentences_of_pages_are_short() -> None:
    found = [(text.place, part) for page in PAGES for text in paragraphs(page) for part in sentences(text.content)]
    assert [f"{place}: {words(part)} words: {part}" for place, part in found if words(part) > MOST_WORDS] == []


def test_pages_say_first_who_needs_them() -> None:
    """A line in italics below the title, such as *For those who …*"""
    pages = sorted(ROOT.glob("docs/*.md"))
    assert [page.name for page in pages if not re.match(r"# .+\n\n\*For [^*]+\*", page.read_text())] == []


def test_help_has_no_banned_words() -> None:
    assert banned(help_texts()) == []


def test_errors_have_no_banned_words() -> None:
    assert banned(error_texts()) == []


def test_templates_have_no_banned_words() -> None:
    assert banned(template_texts()) == []


def test_no_line_of_the_list_of_commands_is_cut_off() -> None:
    shown = click.testing.CliRunner().invoke(application, ["--help"], terminal_width=100).output
    lines = shown.partition("\n")[2].splitlines()  # without the line of usage
    assert [line for line in lines if re.search(r"\.\.\.$|…$", line)] == []


def test_public_names_have_a_first_line_that_is_a_sentence() -> None:
    assert [text.place for text in public_docstrings() if not re.match(r"[A-Z`].*\.$", text.content)] == []
