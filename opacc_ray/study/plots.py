"""Draw a study as SVG: per case the error of the estimate and the failures found, against the number of labels.

The figures follow figures 3, 4 and 7 of the CES paper and figure 4 of the DeepEST paper. The error is the root mean
squared error, which for an unbiased method is its standard deviation. Colours are those of M. Okabe and K. Ito, which
differ for any colour vision; markers differ as well. The legend lists the methods from the smallest mean error to the
largest. Of many methods, only the best have colours and markers; the others are thin grey lines.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from opacc_ray.study.table import describe_case
from opacc_ray.svg import Scale, decimals, dot, figure, line, path, shortened_to, text, ticks

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C6D1F")
DASHES = ("none", "6 3", "2 2")
FAINT = "faint"
"""Class of the lines of methods without a colour."""

CORNERS = ((0, 0.0), (4, 0.125), (3, 0.75), (4, 0.0), (3, 0.25), (5, 0.75))
"""Markers: number of corners, and the turn of the first one; 0 corners make a circle."""

PANEL, LEFT, TOP, BOTTOM, HEIGHT = 270.0, 48.0, 66.0, 44.0, 330.0
"""Pixels: width of a panel, margins around it, and height of the figure."""

MOST_COLOURED = 12
"""Methods with a colour; if there are more, the best ``HIGHLIGHTED`` have one."""

HIGHLIGHTED = 8

RADIUS, CHARACTER, LEGEND_LINE, MOST_CHARACTERS = 4.0, 6.6, 18.0, 40
"""Pixels of a marker, a character and a line of the legend; characters of a name."""

STYLE = (
    "text{font:12px sans-serif;fill:#333}.case{font-size:14px;font-weight:bold}.small{font-size:11px}"
    ".grid{stroke:#ebebeb}.axis{stroke:#999}path{stroke-width:1.5}path:not(.marker){fill:none}"
    ".faint{stroke:#c9c9c9}path.faint{stroke-width:1}text.faint{fill:#6b6b6b;stroke:none;font-size:11px}"
    ".srs{stroke:#262626;stroke-dasharray:5 3}.bound{stroke:#262626;stroke-dasharray:1 2}"
)


class Curve(NamedTuple):
    """A line of a panel."""

    name: str
    kind: str  # class of the line: srs, bound, faint or m0, m1, ...
    points: list[tuple[float, float]]  # labels and values; a single one of theory is drawn across the panel
    marker: int | None = None  # place of the method in the study


class Panel(NamedTuple):
    """One diagram against the number of labels."""

    title: str
    budgets: list[int]
    curves: list[Curve]
    is_log: bool  # whether values have a logarithmic axis


def draw_case(results: dict[str, Any], case: str) -> bytes:
    """Return the figure of one case as a file of SVG."""
    facts = next(item for item in results["cases"] if item["case"] == case)
    panels = panels_of(results, facts)
    legend = panels[0].curves
    names = [shortened_to(curve.name, MOST_CHARACTERS) for curve in legend]
    right = len(panels) * (LEFT + PANEL) + 16
    width = right + 44 + CHARACTER * max(map(len, names))
    height = max(HEIGHT, TOP + LEGEND_LINE * len(legend) + 10)
    style = STYLE + "".join(map(_method_style, range(len(results["methods"]))))
    parts = [Markup("<style>{}</style>").format(Markup(style))]
    parts.append(Markup('<rect width="100%" height="100%" fill="#fff"/>'))
    parts += [text(8, 20, case, "case"), text(8, 38, describe_case(facts), "small")]
    for place, panel in enumerate(panels):
        parts += _draw_panel(panel, place * (LEFT + PANEL) + LEFT)
    for place, (curve, name) in enumerate(zip(legend, names, strict=True)):
        y = TOP + LEGEND_LINE * place + 6
        parts.append(path([(right, y), (right + 30, y)], curve.kind))
        if curve.marker is not None:
            parts.append(_marker(right + 15, y, curve.marker))
        parts.append(text(right + 36, y + 4, name, curve.kind if curve.kind == FAINT else ""))
    shown = "; ".join(panel.title for panel in panels)
    drawn = figure("study", f"{case}: {describe_case(facts)}", f"{shown}, against labels", (width, height), parts)
    return f"{drawn}\n".replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).encode()


def panels_of(results: dict[str, Any], facts: dict[str, Any]) -> list[Panel]:
    """Return the panels of a case: its errors, and for 0/1 outcomes the failures found."""
    budgets = results["spec"]["budgets"]
    cells = [cell for cell in results["cells"] if cell["case"] == facts["case"] and cell["budget"] in budgets]
    ranked = _ranked(cells)
    errors = _theory(facts, budgets) + _methods(results, ranked, cells, lambda cell: 100 * math.sqrt(cell["mse"]))
    is_log = budgets[-1] > 6 * budgets[0]
    panels = [Panel("Error of the estimate (RMSE, percentage points)", budgets, errors, is_log)]
    if facts["binary"]:
        expected = Curve("SRS in theory", "srs", [(n, n * (1 - facts["accuracy"])) for n in budgets])
        found = [expected, *_methods(results, ranked, cells, lambda cell: cell["failures"])]
        panels.append(Panel("Failing examples found", budgets, found, False))
    return panels


def _theory(facts: dict[str, Any], budgets: Sequence[int]) -> list[Curve]:
    """Return the error of SRS, and the bound of unbiased methods where it is known."""
    n = np.union1d(np.geomspace(budgets[0], budgets[-1], 50), budgets) if len(budgets) > 1 else np.array(budgets)
    srs = 100 * np.sqrt(facts["variance"] * (1 / n - 1 / facts["size"]))
    curves = [Curve("SRS in theory", "srs", list(zip(n.tolist(), srs.tolist(), strict=True)))]
    if facts["bound"]:  # its E is known at the budgets, and interpolated between them
        efficiency = np.interp(n, budgets, [facts["bound"][str(budget)] for budget in budgets])
        least = srs * np.sqrt(efficiency)
        curves.append(Curve("bound", "bound", list(zip(n.tolist(), least.tolist(), strict=True))))
    return curves


def _ranked(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Return the methods from the smallest mean E over the budgets to the largest."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        found.setdefault(cell["method"], []).append(cell["efficiency"])
    return sorted(found, key=lambda method: sum(found[method]) / len(found[method]))


def _methods(
    results: dict[str, Any],
    ranked: Sequence[str],
    cells: Sequence[dict[str, Any]],
    measure: Callable[[dict[str, Any]], float],
) -> list[Curve]:
    """Return a curve per method; its colour and marker depend on its place in the study, not in the case."""
    coloured = ranked if len(ranked) <= MOST_COLOURED else ranked[:HIGHLIGHTED]
    curves = []
    for method in ranked:
        place = results["methods"].index(method)
        own = sorted((cell for cell in cells if cell["method"] == method), key=lambda cell: cell["budget"])
        points = [(cell["budget"], measure(cell)) for cell in own]
        shown = Curve(method, f"m{place}", points, place) if method in coloured else Curve(method, FAINT, points)
        curves.append(shown)
    return curves


def _method_style(place: int) -> str:
    colour, dash = COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)]
    return f".m{place}{{stroke:{colour};stroke-dasharray:{dash}}}.k{place}{{fill:{colour}}}"


def _draw_panel(panel: Panel, left: float) -> list[Markup]:
    right, bottom = left + PANEL - 20, HEIGHT - BOTTOM
    x, y, marks = _scales(panel, left, right, bottom)
    digits = decimals(marks)
    parts = [text(left, TOP - 10, panel.title, "small")]
    parts += [line(left, y(mark), right, y(mark), "grid") for mark in marks]
    parts += [text(left - 6, y(mark) + 4, f"{mark:,.{digits}f}", "small", "end") for mark in marks]
    shown = panel.budgets[:: math.ceil(len(panel.budgets) / 6)]
    parts += [line(x(n), bottom, x(n), bottom + 4, "axis") for n in shown]
    parts += [text(x(n), bottom + 17, f"{n:,}", "small", "middle") for n in shown]
    parts.append(line(left, bottom, right, bottom, "axis"))
    parts.append(text((left + right) / 2, bottom + 34, "labels", "small", "middle"))
    for curve in sorted(panel.curves, key=lambda curve: curve.kind != FAINT):
        points = [(x(n), y(value)) for n, value in curve.points]
        if len(points) == 1 and curve.marker is None and curve.kind != FAINT:
            points = [(left, points[0][1]), (right, points[0][1])]
        parts.append(path(points, curve.kind))
        parts += [_marker(*point, curve.marker) for point in points if curve.marker is not None]
    return parts


def _scales(
    panel: Panel, left: float, right: float, bottom: float
) -> tuple[Callable[[float], float], Callable[[float], float], list[float]]:
    """Return the mapping of labels and of values to pixels, and the ticks of values.

    Budgets that span more than a factor of 6 have a logarithmic axis, and so have their errors: SRS is nearly a
    straight line then. The other values start at 0.
    """
    first, last = panel.budgets[0], panel.budgets[-1]
    values = [value for curve in panel.curves for _, value in curve.points]
    positive = [value for value in values if value > 0]
    is_log_y = panel.is_log and bool(positive)
    marks = _log_ticks(min(positive), max(positive)) if is_log_y else ticks(0, max(values), 7)
    up, along = _log if is_log_y else float, _log if last > 6 * first else float
    spare = 0.0 if last > first else 1.0
    rise = Scale(up(marks[0]), up(marks[-1]), bottom, TOP)
    run = Scale(along(first) - spare, along(last) + spare, left + 2 * RADIUS, right - 2 * RADIUS)
    return lambda n: run(along(n)), lambda value: rise(up(value)), marks


def _log(value: float) -> float:
    return math.log10(max(value, 1e-300))


def _log_ticks(low: float, high: float) -> list[float]:
    """Return the numbers 1, 2, 5 · 10^k that enclose [low, high]."""
    powers = range(math.floor(_log(low)) - 1, math.ceil(_log(high)) + 2)
    numbers = [round(step * 10.0**k, 12) for k in powers for step in (1, 2, 5)]
    below, above = [n for n in numbers if n <= low], [n for n in numbers if n >= high]
    first, last = numbers.index(below[-1]), numbers.index(above[0])
    return numbers[first : max(last, first + 1) + 1]


def _marker(x: float, y: float, place: int) -> Markup:
    corners, turn = CORNERS[place % len(CORNERS)]
    if not corners:
        return dot(x, y, RADIUS, f"k{place}")
    angles = [2 * math.pi * (turn + k / corners) for k in range(corners)]
    around = [(x + (RADIUS + 0.5) * math.cos(a), y + (RADIUS + 0.5) * math.sin(a)) for a in angles]
    return path(around, f"marker k{place}", closed=True)
