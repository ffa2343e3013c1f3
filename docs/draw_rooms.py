"""Draw docs/rooms.svg: the packages of opacc_ray, layer by layer, as import-linter checks them.

    python docs/draw_rooms.py

Layers are those of the contract in pyproject.toml, and captions the first words of each package's docstring. Libraries
that only one package may import are those of the other contracts.
"""

import ast
import re
import textwrap
import tomllib
from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "rooms.svg"

PLACES = {
    "on the driver": (
        "#e8f0fe",
        ("extensions", "cli", "labelled", "stored_audit", "report", "audit", "labels", "runs"),
    ),
    "on the driver, with Ray": ("#fce8e6", ("cluster",)),
    "in an actor": ("#e6f4ea", ("extract",)),
    "at the edges: files, storage, people": ("#fef7e0", ("lake", "documents", "spec")),
    "pure maths, on the driver or sent to an actor": (
        "#f3e8fd",
        (
            "estimation",
            "samplers",
            "neurons",
            "metrics",
            "selection",
            "parts",
            "designs",
            "pool",
            "svg",
            "registry",
            "errors",
        ),
    ),
}
"""Where the code runs: colour and packages."""

WIDTH, LEFT, BOX, GAP = 1000, 60, 58, 12


def main() -> None:
    PICTURE.write_text(picture())


def picture() -> str:
    """The SVG."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [[package.strip() for package in layer.split("|")] for layer in _layers(contracts)]
    libraries = _libraries(contracts)
    legend = len(layers) * (BOX + GAP) + 40
    height = legend + 24 * len(PLACES) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif">',
        "<title>opacc_ray: each package imports only what is below it</title>",
        "<style>.n{font-weight:600;font-size:16px;fill:#202124}.c{font-size:12.5px;fill:#3c4043}</style>",
        '<defs><marker id="m" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8z" fill="#5f6368"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<path d="M34 20 V{legend - 44}" fill="none" stroke="#5f6368" stroke-width="2" marker-end="url(#m)"/>',
        f'<text transform="translate(22 {legend // 2}) rotate(-90)" text-anchor="middle" class="c">'
        "imports go down, never up, never to a package in the same layer</text>",
    ]
    for number, packages in enumerate(layers):
        width = (WIDTH - LEFT - 12 - GAP * (len(packages) - 1)) / len(packages)
        for place, package in enumerate(packages):
            x, y = LEFT + place * (width + GAP), 14 + number * (BOX + GAP)
            lines += _box(package, x, y, width, libraries.get(package, []))
    for number, (text, (colour, _)) in enumerate(PLACES.items()):
        y = legend + 24 * number
        lines.append(
            f'<rect x="{LEFT}" y="{y}" width="26" height="16" rx="4" fill="{colour}" stroke="#5f6368"/>'
            f'<text x="{LEFT + 36}" y="{y + 13}" class="c">{escape(text)}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def _layers(contracts: list[dict[str, Any]]) -> list[str]:
    """Return the layers from top to bottom."""
    [found] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    return list(found)


def _libraries(contracts: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Libraries that only these packages may import: `opacc_ray.cluster.* -> ray` gives cluster: ray."""
    found = defaultdict(list)
    for contract in contracts:
        if contract["type"] == "forbidden":
            for arrow in contract.get("ignore_imports", []):
                source, library = arrow.split(" -> ")
                package = source.split(".")[1]
                if library not in found[package]:
                    found[package].append(library)
    return dict(found)


def _box(package: str, x: float, y: int, width: float, libraries: list[str]) -> list[str]:
    name = f"{package}/" if (ROOT / "opacc_ray" / package).is_dir() else f"{package}.py"
    caption = textwrap.wrap(_caption(package), int((width - 156) / 6.6), max_lines=2, placeholder=" …")
    lines = [
        f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{BOX}" rx="10" fill="{_colour(package)}" '
        'stroke="#5f6368"/>',
        f'<text x="{x + 14:.0f}" y="{y + (27 if libraries else 35)}" class="n">{name}</text>',
    ]
    first = y + (34 if len(caption) == 1 else 26)
    for number, text in enumerate(caption):
        lines.append(f'<text x="{x + 140:.0f}" y="{first + 17 * number}" class="c">{escape(text)}</text>')
    if libraries:
        lines.append(f'<text x="{x + 14:.0f}" y="{y + 46}" class="c">{", ".join(libraries)}</text>')
    return lines


def _colour(package: str) -> str:
    for colour, packages in PLACES.values():
        if package in packages:
            return colour
    raise SystemExit(f"package {package} has no place in {Path(__file__).name}: add it to PLACES")


def _caption(package: str) -> str:
    """The first sentence of its docstring, without markup."""
    base = ROOT / "opacc_ray" / package
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
    return re.sub(r":\w+:|`", "", text).partition(". ")[0].rstrip(".")


if __name__ == "__main__":
    main()
