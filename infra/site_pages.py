"""Add pages to the site that are not in docs/: pages of the root, lists of folders, schemas, and the Python reference.

This is a hook of MkDocs, which runs it without the package; see mkdocs.yml. `make docs-site` writes the schemas before.
Links of the repository become links of the site: to a page, to the list of a folder, or to a copy of the file.
"""

import ast
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "SECURITY.md": "SECURITY.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
PAGES |= {"CHANGELOG.md": "CHANGELOG.md"}
SCHEMAS = ROOT / "build" / "schemas"
"""Schemas of all documents, which `docs/write_schemas.py` wrote."""

LISTS = {"schemas": "Schemas of all documents", "results": "Measured numbers"}
SOURCE = re.compile(r'\b(src|srcset)="(?![a-z]+:)([^"\s]+)"')
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> None:
    """List pages that the navigation does not name."""
    named = set(re.findall(r"[\w/]+\.md", str(config["nav"])))
    rest = sorted(path.name for path in ROOT.glob("docs/*.md") if path.name not in named)
    if rest:
        config["nav"].append({"More": rest})


def on_files(files: Any, config: Any) -> Any:
    """Add what docs/ lacks."""
    from mkdocs.structure.files import File

    for name, place in PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text()))
    for path in sorted(SCHEMAS.glob("*.json")):
        if not (ROOT / "docs" / "schemas" / path.name).exists():
            files.append(File.generated(config, f"schemas/{path.name}", abs_src_path=str(path)))
    lists = {f"docs/{folder}": title for folder, title in LISTS.items()} | {folder: folder for folder in folders()}
    for folder, title in lists.items():
        lines = [f"- [{name}]({name})" for name in names_in(folder)]
        content = "\n".join([f"# {title}", "", *lines, ""])
        files.append(File.generated(config, place_of(folder), content=content))
    files.append(File.generated(config, "api.md", content=reference()))
    for path in copied():
        files.append(File.generated(config, f"files/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links of the repository to where things are on the site."""
    inside = page.file.src_uri
    return relinked(markdown, inside)


def relinked(markdown: str, inside: str) -> str:
    """The text of the page at a place of the site, with links of the site."""
    here = next((name for name, place in PAGES.items() if place == inside), f"docs/{inside}")

    def on_site(target: str) -> str:
        place = place_of(normpath(str(PurePosixPath(here).parent / target)))
        return relpath(place, str(PurePosixPath(inside).parent))

    linked = LINK.sub(lambda found: f"]({on_site(found[1])}{found[2] or ''})", markdown)
    return SOURCE.sub(lambda found: f'{found[1]}="{on_site(found[2])}"', linked)


def place_of(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        inside = path.removeprefix("docs/")
        return f"{inside}/index.md" if inside in LISTS else inside
    return f"files/{path}/index.md" if (ROOT / path).is_dir() else f"files/{path}"


def names_in(folder: str) -> list[str]:
    """Return the names of a folder's files, sorted; generated schemas count as files of docs/schemas."""
    generated = SCHEMAS.glob("*.json") if folder == "docs/schemas" else ()
    return sorted({path.name for path in [*(ROOT / folder).iterdir(), *generated] if path.is_file()})


def folders() -> list[str]:
    """Folders outside of docs/ that pages lead to."""
    return [path for path in linked() if (ROOT / path).is_dir()]


def copied() -> list[str]:
    """Files outside of docs/ that pages lead to, and those of the folders among them."""
    inside = [f"{folder}/{name}" for folder in folders() for name in names_in(folder)]
    return sorted({path for path in linked() if not (ROOT / path).is_dir()} | set(inside))


def linked() -> list[str]:
    """What pages lead to outside of docs/."""
    texts = {name: (ROOT / name).read_text() for name in PAGES}
    texts |= {f"docs/{path.name}": path.read_text() for path in ROOT.glob("docs/*.md")}
    found = {
        normpath(str(PurePosixPath(name).parent / link[1]))
        for name, text in texts.items()
        for link in LINK.finditer(text)
    }
    return sorted(path for path in found if place_of(path).startswith("files/"))


def reference() -> str:
    """The page of public names: what `import opacc_ray` offers, from where it is."""
    core = assigned("opacc_ray/__init__.py", "_HOME")
    others = assigned("opacc_ray/extensions/__init__.py", "OFFERS")["names"]
    places = core | {name: f"extensions.{place.partition(':')[0]}" for name, place in others.items()}
    entries = [f"::: opacc_ray.{places[name]}.{name}" for name in sorted(places)]
    return "# Python\n\nWhat `import opacc_ray as opacc` offers.\n\n" + "\n\n".join(entries) + "\n"


def assigned(path: str, name: str) -> Any:
    """Return the value that a module assigns to a name, without importing it."""
    for item in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(item, ast.Assign | ast.AnnAssign) and item.value is not None:
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return ast.literal_eval(item.value)
    raise KeyError(f"{path} assigns nothing to {name}")
