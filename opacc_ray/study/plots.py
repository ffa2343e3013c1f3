"""Draw a study as SVG: the error of the estimate and the failures found, against the number of labels.

Each figure has a panel per case, all with the same axes. They follow figures 3, 4 and 7 of the CES paper and figure 4
of the DeepEST paper. The error is the root mean squared error, which for an unbiased method is its standard deviation.
Colours are those of M. Okabe and K. Ito, which differ for any colour vision; markers differ as well. A method has the
same ones in every panel, and its name is at the end of its line. Of many methods, only those with the smallest mean
error over the cases have colours and names; the others are thin grey lines.
"""

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from opacc_ray.errors import counted
from opacc_ray.study.table import describe_case
from opacc_ray.svg import Scale, alone, decimals, dot, figure, line, path, shortened_to, text, ticks

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C6D1F", "#6A3D9A")
NAMES = ("#0072B2", "#B24E00", "#007A59", "#A8487D", "#1F77AC", "#946600", "#7A5F1B", "#6A3D9A")
"""Colours of the names: the same ones, dark enough to read."""

DASHES = ("none", "6 3")
FAINT = "faint"
"""Class of the lines of methods without a colour."""

CORNERS = ((0, 0.0), (4, 0.125), (3, 0.75), (4, 0.0), (3, 0.25), (5, 0.75))
"""Markers: number of corners, and the turn of the first one; 0 corners make a circle."""

PLOT, LEFT, TOP, BOTTOM, HEIGHT, HEAD, LEADER = 220.0, 48.0, 48.0, 40.0, 320.0, 32.0, 30.0
"""Pixels: width of a plot, margins around it, height of a panel and of the title, and room between lines and names."""

MOST_COLOURED = 12
"""Methods with a colour; if there are more, the best ``HIGHLIGHTED`` have one."""

HIGHLIGHTED, MOST_COLUMNS = 8, 3

RADIUS, CHARACTER, BOLD, SMALL, LINE, MOST_CHARACTERS = 4.0, 6.4, 7.8, 5.7, 14.0, 40
"""Pixels of a marker, a character, a bold and a small one, and a line of names; characters of a name."""

WIDE = 6
"""Factor that a linear axis may span."""

STYLE = (
    "text{font:12px sans-serif;fill:#333}.title{font-size:14px;font-weight:bold}.case{font-weight:bold}"
    ".small{font-size:11px}.grid{stroke:#ebebeb}.axis{stroke:#999}path{stroke-width:1.5}path:not(.marker){fill:none}"
    "path.faint{stroke:#c9c9c9;stroke-width:1}text.faint{fill:#6b6b6b;font-size:11px}"
    "path.srs{stroke:#262626;stroke-dasharray:5 3}path.bound{stroke:#262626;stroke-dasharray:1 2}"
    ".leader{stroke:#b0b0b0;stroke-width:.7}"
)


class Curve(NamedTuple):
    """A line of a panel."""

    name: str
    kind: str  # class of the line: srs, bound, faint or m0, m1, ...
    points: list[tuple[float, float]]  # labels and values; a single one of theory is drawn across the panel
    marker: int | None = None  # rank of the method


class Panel(NamedTuple):
    """One case."""

    case: str
    facts: str
    curves: list[Curve]


class Axes(NamedTuple):
    """What the panels of a figure share: ticks, and the mapping of labels and of values to pixels in a panel."""

    budgets: Sequence[int]
    marks: list[float]
    x: Callable[[float], float]
    y: Callable[[float], float]


def draw_study(results: dict[str, Any]) -> dict[str, bytes]:
    """Return the figures of a study as files of SVG: its errors, and for 0/1 outcomes the failures found."""
    titles = {"errors": "Error of the estimate (RMSE, percentage points)", "failures": "Failing examples found"}
    shown = zip(titles.items(), panels_of(results), strict=True)
    return {name: _draw(title, panels, results["spec"]["budgets"]) for (name, title), panels in shown if panels}


def panels_of(results: dict[str, Any]) -> tuple[list[Panel], list[Panel]]:
    """Return the errors of each case, and the failures found of each case with 0/1 outcomes."""
    budgets, errors, failures = results["spec"]["budgets"], [], []
    shown = [facts for facts in results["cases"] if facts["drawn_from"] is None]
    cases = {facts["case"] for facts in shown}
    cells = [cell for cell in results["cells"] if cell["case"] in cases and cell["budget"] in budgets]
    ranked = _ranked(cells)
    for facts in shown:
        own, name = [cell for cell in cells if cell["case"] == facts["case"]], (facts["case"], describe_case(facts))
        measured = _methods(ranked, own, lambda cell: 100 * math.sqrt(cell["mse"]))
        errors.append(Panel(*name, _theory(facts, budgets) + measured))
        if facts["binary"]:
            expected = Curve("SRS in theory", "srs", [(n, n * (1 - facts["accuracy"])) for n in budgets])
            failures.append(Panel(*name, [expected, *_methods(ranked, own, lambda cell: cell["failures"])]))
    return errors, failures


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions apart until they differ by ``gap``, within [low, high] if they fit, and keep their order."""
    order, steps = np.argsort(wanted, kind="stable"), gap * np.arange(len(wanted))
    ideal = np.asarray(wanted, float)[order] - steps  # positions without gaps must not decrease
    down, up = np.maximum.accumulate(ideal), np.minimum.accumulate(ideal[::-1])[::-1]
    moved = np.empty(len(wanted))
    moved[order] = np.clip((down + up) / 2, low, max(low, high - gap * (len(wanted) - 1))) + steps
    return moved.tolist()


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
    """Return the methods from the smallest mean E over the cases and budgets to the largest."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        found.setdefault(cell["method"], []).append(cell["efficiency"])
    return sorted(found, key=lambda method: sum(found[method]) / len(found[method]))


def _methods(
    ranked: Sequence[str], cells: Sequence[dict[str, Any]], measure: Callable[[dict[str, Any]], float]
) -> list[Curve]:
    """Return a curve per method that was possible; the best ones have colours and markers."""
    coloured = len(ranked) if len(ranked) <= MOST_COLOURED else HIGHLIGHTED
    curves = []
    for rank, method in enumerate(ranked):
        own = sorted((cell for cell in cells if cell["method"] == method), key=lambda cell: cell["budget"])
        points = [(cell["budget"], measure(cell)) for cell in own]
        if points:
            shown = rank < coloured
            curves.append(Curve(method, f"m{rank}" if shown else FAINT, points, rank if shown else None))
    return curves


def _draw(title: str, panels: Sequence[Panel], budgets: Sequence[int]) -> bytes:
    """Return the panels in rows and columns, as a file of SVG."""
    axes = _axes([curve for panel in panels for curve in panel.curves], budgets)
    names = [shortened_to(curve.name, MOST_CHARACTERS) for panel in panels for curve in panel.curves]
    wide = LEFT + PLOT + LEADER + CHARACTER * max(map(len, names)) + 12
    columns = min(MOST_COLUMNS, math.ceil(math.sqrt(len(panels))))
    size = (columns * wide, HEAD + HEIGHT * math.ceil(len(panels) / columns))
    style = STYLE + "".join(map(_method_style, range(MOST_COLOURED)))
    parts = [Markup("<style>{}</style>").format(Markup(style))]
    parts += [Markup('<rect width="100%" height="100%" fill="#fff"/>'), text(8, 22, title, "title")]
    for place, panel in enumerate(panels):
        row, column = divmod(place, columns)
        drawn = Markup("").join(_draw_panel(panel, axes, wide - LEFT))
        move = f"translate({column * wide + LEFT:.1f} {HEAD + row * HEIGHT:.1f})"
        parts.append(Markup('<g transform="{}">{}</g>').format(move, drawn))
    shown = "; ".join(f"{panel.case}: {panel.facts}" for panel in panels)
    drawn = figure("study", f"{title}, against labels", shown, size, parts)
    return alone(drawn).encode()


def _method_style(rank: int) -> str:
    dash, place = divmod(rank, len(COLOURS))
    colour = COLOURS[place]
    drawn = f"path.m{rank}{{stroke:{colour};stroke-dasharray:{DASHES[dash]}}}.k{rank}{{fill:{colour}}}"
    return f"{drawn}text.m{rank}{{fill:{NAMES[place]}}}"


def _draw_panel(panel: Panel, axes: Axes, wide: float) -> list[Markup]:
    """Return a panel whose plot begins at x = 0, its lines and their names."""
    bottom, (_, marks, x, y) = HEIGHT - BOTTOM, axes
    parts = [text(0, 14, shortened_to(panel.case, int(wide / BOLD)), "case")]
    parts.append(text(0, 30, shortened_to(panel.facts, int(wide / SMALL)), "small"))
    parts += [line(0, y(mark), PLOT, y(mark), "grid") for mark in marks]
    parts += [text(-6, y(mark) + 4, f"{mark:,.{decimals([mark])}f}", "small", "end") for mark in marks]
    shown = axes.budgets[:: math.ceil(len(axes.budgets) / 6)]
    parts += [line(x(n), bottom, x(n), bottom + 4, "axis") for n in shown]
    parts += [text(x(n), bottom + 17, f"{n:,}", "small", "middle") for n in shown]
    parts += [line(0, bottom, PLOT, bottom, "axis"), text(PLOT / 2, bottom + 33, "labels", "small", "middle")]
    for curve in reversed(panel.curves):  # the best methods last, above the others
        points = _line(curve, axes)
        parts.append(path(points, curve.kind))
        parts += [_marker(*point, curve.marker) for point in points if curve.marker is not None]
    return parts + _names(panel, axes)


def _line(curve: Curve, axes: Axes) -> list[tuple[float, float]]:
    """Return the points of a line in pixels: through a single one across the panel, or for a grey line a dash."""
    points = [(axes.x(n), axes.y(value)) for n, value in curve.points]
    if len(points) > 1 or curve.marker is not None:
        return points
    ((x, y),) = points
    return [(x - RADIUS, y), (x + RADIUS, y)] if curve.kind == FAINT else [(0, y), (PLOT, y)]


def _names(panel: Panel, axes: Axes) -> list[Markup]:
    """Return the name of each line at its end; grey ones share a name."""
    ends = [(curve, *_line(curve, axes)[-1]) for curve in panel.curves if curve.kind != FAINT]
    others = sorted((_line(curve, axes)[-1] for curve in panel.curves if curve.kind == FAINT), key=itemgetter(1))
    if others:
        ends.append((Curve(counted(len(others), "other"), FAINT, []), *others[len(others) // 2]))
    parts = []
    moved = spread([height for _, _, height in ends], LINE, TOP, HEIGHT - BOTTOM)
    for (curve, x, height), y in zip(ends, moved, strict=True):
        parts.append(line(x + RADIUS + 2, height, PLOT + LEADER - 16, y, "leader"))
        sample = path([(PLOT + LEADER - 14, y), (PLOT + LEADER - 3, y)], curve.kind)
        parts.append(sample if curve.marker is None else _marker(PLOT + LEADER - 8, y, curve.marker))
        parts.append(text(PLOT + LEADER, y + 4, shortened_to(curve.name, MOST_CHARACTERS), curve.kind))
    return parts


def _axes(curves: Sequence[Curve], budgets: Sequence[int]) -> Axes:
    """Return the axes of all curves.

    Budgets that span more than a factor of WIDE have a logarithmic axis, and so have values if some line ends that far
    below the greatest one. SRS is nearly a straight line if both have. The other values start at 0.
    """
    first, last, bottom = budgets[0], budgets[-1], HEIGHT - BOTTOM
    values = [value for curve in curves for _, value in curve.points]
    positive = [value for value in values if value > 0]
    ends = [curve.points[-1][1] for curve in curves if curve.points[-1][1] > 0]
    is_log = bool(ends) and max(positive) > WIDE * min(ends)
    marks = _log_ticks(min(positive), max(positive)) if is_log else ticks(0, max(values), 7)
    up, along = _log if is_log else float, _log if last > WIDE * first else float
    spare = 0.0 if last > first else 1.0
    rise = Scale(up(marks[0]), up(marks[-1]), bottom, TOP)
    run = Scale(along(first) - spare, along(last) + spare, 2 * RADIUS, PLOT - 2 * RADIUS)
    return Axes(budgets, marks, lambda n: run(along(n)), lambda value: rise(up(value)))


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
