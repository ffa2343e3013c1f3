"""Draw docs/pictures/error-light.svg and error-dark.svg from the numbers of docs/results/methods.md.

    python docs/draw_error.py

Each row is a case, each mark a method: its mean squared error with 200 labels, divided by that of a simple random
sample of 200.
"""

import re
from html import escape
from pathlib import Path

DOCS = Path(__file__).parent
TABLE = DOCS / "results" / "methods.md"

METHODS = {
    "ppi++": ("PPI++", "#b26a00", "#f0b355"),
    "active": ("active inference", "#7b3fa0", "#c89be6"),
    "neyman, 4 rounds": ("opacc, 4 rounds", "#00695c", "#4dd0b5"),
}
"""Row of the table: its name in the figure, and its colours on light and on dark."""

SCHEMES = {"light": ("#ffffff", "#202124", "#9aa0a6"), "dark": ("#0d1117", "#e6edf3", "#6e7681")}
"""Colours of the ground, the text and the lines."""

WIDTH, LEFT, RIGHT, TOP, ROW, MOST = 760, 150, 20, 62, 30, 2.0


def main() -> None:
    for scheme in SCHEMES:
        path_of(scheme).write_text(figure(scheme))


def path_of(scheme: str) -> Path:
    return DOCS / "pictures" / f"error-{scheme}.svg"


def errors() -> tuple[list[str], dict[str, list[float]]]:
    """Cases, and the relative errors of each method on them."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in re.findall(r"^\|.*$", TABLE.read_text(), re.M)]
    found = {row[0]: row[1:] for row in rows}
    columns = [i for i in range(len(rows[0]) - 1) if all(found[name][i] != "–" for name in METHODS)]
    values = {name: [float(found[name][i]) for i in columns] for name in METHODS}
    return [rows[0][1:][i] for i in columns], values


def figure(scheme: str) -> str:
    """The SVG."""
    ground, text, line = SCHEMES[scheme]
    cases, values = errors()
    height = TOP + ROW * len(cases) + 40
    bottom = TOP + ROW * len(cases)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="{text}">',
        "<title>Error with 200 labels, relative to a simple random sample</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="{ground}"/>',
    ]
    for value in (0, 0.5, 1, 1.5, 2):
        dashes = "" if value == 1 else ' stroke-dasharray="2 4"'
        parts.append(f'<path d="M{_x(value):.0f} {TOP - 8} V{bottom}" stroke="{line}"{dashes}/>')
        name = "1 = random sample" if value == 1 else f"{value:g}"
        parts.append(f'<text x="{_x(value):.0f}" y="{bottom + 18}" text-anchor="middle">{name}</text>')
    for number, case in enumerate(cases):
        y = TOP + ROW * number + ROW / 2
        parts.append(f'<text x="{LEFT - 14}" y="{y + 4:.0f}" text-anchor="end">{escape(case)}</text>')
        for name, (_, *colours) in METHODS.items():
            parts.append(_mark(_x(values[name][number]), y, colours[scheme == "dark"], name))
    for number, (name, (shown, *colours)) in enumerate(METHODS.items()):
        x = LEFT + 190 * number
        parts.append(_mark(x, 24, colours[scheme == "dark"], name))
        parts.append(f'<text x="{x + 14}" y="28">{escape(shown)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(value: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * min(value, MOST) / MOST


def _mark(x: float, y: float, colour: str, name: str) -> str:
    """A disc, or for our method a diamond."""
    if name.startswith("neyman"):
        return f'<path d="M{x:.1f} {y - 8:.1f} l8 8 l-8 8 l-8 -8z" fill="{colour}"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{colour}"/>'


if __name__ == "__main__":
    main()
