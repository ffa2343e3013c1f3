"""The documents in docs/results: which script measures each, and how pages quote it.

A document holds a title, the command, when and where it was measured, what its numbers are, and one block between
`<!-- results:NAME -->` and `<!-- /results -->`: what its script printed. Every page that has a block of the same name,
such as the README, holds a copy of it.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = "docs/results"
BLOCK = re.compile(
    r"^(<!-- results:(?P<name>\w+) -->\n)(?P<content>.*?)^(<!-- /results -->)$", re.DOTALL | re.MULTILINE
)


SCRIPTS = {
    "methods": ("study_tables.py", "methods"),
    "neyman": ("study_tables.py", "neyman"),
    "clusters": ("clusters.py",),
    "ces": ("study_tables.py", "ces"),
    "models": ("many_models.py",),
    "gpu": ("gpu.py",),
    "driver": ("driver_memory.py",),
    "listing": ("listing.py",),
}
"""By name of a file, of its block and of the argument of write_results.py: the script, with its first arguments."""


def path_of(name: str, root: Path = ROOT) -> Path:
    return root / RESULTS / f"{name}.md"


def pages(root: Path = ROOT) -> list[Path]:
    """The Markdown pages that may quote a block."""
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")])


def blocks(text: str) -> dict[str, str]:
    """Content of a page's blocks by name."""
    return {found["name"]: found["content"] for found in BLOCK.finditer(text)}


def render(old: str, name: str, command: str, stamp: str, content: str) -> str:
    """A whole document, with title and text of the old one."""
    title, text = f"# {name}", "..."
    if old:
        title, _, _, text = old.partition("\n<!-- results:")[0].split("\n\n", 3)
    block = f"<!-- results:{name} -->\n{content.strip()}\n<!-- /results -->\n"
    return f"{title}\n\n    {command}\n\n{stamp}\n\n{text.strip()}\n\n{block}"


def copy_blocks(root: Path = ROOT) -> list[Path]:
    """Copy every document's block to the pages that quote it; returns the pages that changed.

    Raises
    ------
    SystemExit
        A page quotes a document that does not exist.
    """
    source = {name: blocks(path_of(name, root).read_text())[name] for name in SCRIPTS if path_of(name, root).exists()}
    changed = []
    for page in pages(root):
        old = page.read_text()
        missing = blocks(old).keys() - source.keys()
        if missing:
            raise SystemExit(f"{page} quotes results:{missing.pop()}, which is not in {root / RESULTS}")
        new = BLOCK.sub(lambda found: f"{found[1]}{source[found['name']]}{found[4]}", old)
        if new != old:
            page.write_text(new)
            changed.append(page)
    return changed
