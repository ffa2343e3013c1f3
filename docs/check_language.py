"""Check the language of pages, help and errors: banned words, long sentences, and who a page is for."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from opacc_ray.cli.main import application

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(ROOT.glob("docs/*.md"))]

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


def paragraphs(page: Path) -> Iterator[tuple[str, str]]:
    """Prose of a page: without code, tables, headings, comments, pictures and the targets of links."""
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!-- results:.*?<!-- /results -->", "", text, flags=re.DOTALL)  # copies of docs/results
    text = re.sub(r"<!--.*?-->|<[^>]+>", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        if not re.match(r"\s*(\||#|    )", block) and block.strip():
            yield (page.name, " ".join(re.sub(r"^\s*([-*]|\d+\.) ", "", block).replace("*", "").split()))


def sentences(text: str) -> list[str]:
    """Sentences of prose; a semicolon ends one, a colon does not."""
    plain = SHORTENINGS.sub(lambda found: found[0].replace(".", ""), text)
    return [part for part in re.split(r"(?<=[.!?;])[\"')]?\s+(?=[\"'(]?(?:[A-Z0-9]|code))|(?<=;)\s+", plain) if part]


def words(sentence: str) -> int:
    return len(re.findall(r"[\w'’%±/.,-]*\w[\w'’%±/.,-]*", sentence))


def help_texts(name: str, command: click.Command) -> Iterator[tuple[str, str]]:
    """Help of a command, its options and its subcommands."""
    yield f"{name} --help", command.help or ""
    for option in command.params:
        yield f"{name} {option.name}", getattr(option, "help", None) or ""
    for part, subcommand in getattr(command, "commands", {}).items():
        yield from help_texts(f"{name} {part}", subcommand)


def error_texts() -> Iterator[tuple[str, str]]:
    """Sentences that are raised, without their values."""
    for path in sorted((ROOT / "opacc_ray").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                constants = [part.value for part in ast.walk(node.exc.args[0]) if isinstance(part, ast.Constant)]
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield place, " ".join(value for value in constants if isinstance(value, str))


def faults() -> Iterator[str]:
    prose = [text for page in PAGES for text in paragraphs(page)]
    for place, text in (*prose, *help_texts("opacc", application), *error_texts()):
        for pattern, instead in BANNED.items():
            for match in re.finditer(pattern, text, re.IGNORECASE if pattern[0] != "^" else 0):
                yield f"{place}: {match[0]!r} in {text[max(match.start() - 40, 0) : match.end() + 40]!r} → {instead}"
    for place, text in prose:
        yield from (f"{place}: {words(part)} words: {part}" for part in sentences(text) if words(part) > MOST_WORDS)
    for page in sorted(ROOT.glob("docs/*.md")):
        if not re.match(r"# .+\n\n\*For [^*]+\*", page.read_text()):
            yield f"{page.name}: begin with a line in italics that tells for whom the page is: *For …*"


if __name__ == "__main__":
    found = list(faults())
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
