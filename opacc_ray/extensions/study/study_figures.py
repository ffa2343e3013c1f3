"""Figures of a study as SVG, a panel per case or variable.

``errors`` has the root mean squared error against the number of labels, ``failures`` the failing examples found, as in
figures 3, 4 and 7 of the CES paper and figure 4 of the DeepEST paper. Both axes of the errors are logarithmic, so that
SRS is nearly a straight line. One legend names the methods, that with the least mean E first. The first eight have the
colours of M. Okabe and K. Ito, which differ for any colour vision; the others are grey.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from opacc_ray.extensions.study.measures import CellMeasures, StudyResults, describe_case
from opacc_ray.svg import Scale, alone, decimals, dot, figure, line, path, shortened_to, text, ticks

Points = Sequence[tuple[float, float]]

COLOURS = ("#0072B2", "#B24E00", "#007A59", "#A8487D", "#1F77AC", "#946600", "#7A5F1B", "#6A3D9A")
"""Colours of methods by rank, dark enough for their names; the others are grey."""

PLOT, LEFT, TOP, BOTTOM, HEIGHT, HEAD, LINE = 220.0, 48.0, 44.0, 40.0, 300.0, 32.0, 16.0
"""Pixels: width of a plot, margins around it, height of a panel, of the title and of a line of the legend."""

MOST_COLUMNS, CHARACTER, MOST_CHARACTERS = 3, 6.4, 40
"""Panels of a row, pixels of a character, and characters of a name."""

STYLE = (
    "text{font:12px sans-serif;fill:#333}.title{font-size:14px;font-weight:bold}.case{font-weight:bold}"
    ".small{font-size:11px}.grid{stroke:#ebebeb}.axis{stroke:#999}path{stroke-width:1.5;fill:none}"
    "path.faint{stroke:#c9c9c9}text.faint{fill:#6b6b6b}circle.faint{fill:#c9c9c9}"
    "path.srs{stroke:#262626;stroke-dasharray:5 3}path.bound{stroke:#262626;stroke-dasharray:1 2}"
    + "".join(f"path.m{i}{{stroke:{c}}}text.m{i},circle.m{i}{{fill:{c}}}" for i, c in enumerate(COLOURS))
)


class Curve(NamedTuple):
    """A line of a panel."""

    name: str
    kind: str  # class of the line: srs, bound, faint or m0, m1, ...
    points: Points  # labels and values


class Panel(NamedTuple):
    """One case."""

    case: str
    facts: str
    curves: Sequence[Curve]


def draw_study(results: StudyResults) -> dict[str, bytes]:
    """Return the figures of a study as files of SVG: its errors, and for 0/1 outcomes the failures found."""
    titles = {"errors": "Error of the estimate (RMSE, percentage points)", "failures": "Failing examples found"}
    figures = zip(titles.items(), panels_of(results), strict=True)
    budgets = results.spec.budgets
    return {name: _draw(title, panels, budgets, name == "errors") for (name, title), panels in figures if panels}


def panels_of(results: StudyResults) -> tuple[list[Panel], list[Panel]]:
    """Return the errors of each case, and the failures found of each case with 0/1 outcomes."""
    budgets, errors, failures = results.spec.budgets, list[Panel](), list[Panel]()
    cases = [case for case in results.cases if case.drawn_from is None]
    names = {case.case for case in cases}
    efficiency: dict[str, list[float]] = {}
    for cell in results.cells:
        if cell.case in names and cell.budget in budgets:
            efficiency.setdefault(cell.method, []).append(cell.efficiency)
    ranked = sorted(efficiency, key=lambda method: sum(efficiency[method]) / len(efficiency[method]))

    def measured(case: str, measure: Callable[[CellMeasures], float]) -> list[Curve]:
        curves = []
        for rank, method in enumerate(ranked):
            cells = results.cells_of(case, method)
            points = sorted((cell.budget, measure(cell)) for cell in cells if cell.budget in budgets)
            curves += [Curve(method, f"m{rank}" if rank < len(COLOURS) else "faint", points)] if points else []
        return curves

    for case in cases:
        theory = {n: 100 * math.sqrt(case.variance * (1 / n - 1 / case.size)) for n in budgets}
        curves = [Curve("SRS in theory", "srs", list(theory.items()))]
        if case.bound:
            least = [(n, theory[n] * math.sqrt(case.bound[str(n)])) for n in budgets]
            curves.append(Curve("bound", "bound", least))
        curves += measured(case.case, lambda cell: 100 * math.sqrt(cell.mse))
        errors.append(Panel(case.case, describe_case(case), curves))
        if case.binary:
            expected = Curve("SRS in theory", "srs", [(n, n * (1 - case.accuracy)) for n in budgets])
            curves = [expected, *measured(case.case, lambda cell: cell.failures or 0.0)]
            failures.append(Panel(case.case, describe_case(case), curves))
    return errors, failures


def _draw(title: str, panels: Sequence[Panel], budgets: Sequence[int], is_log: bool) -> bytes:
    """Return the panels with the same axes, and the legend."""
    values = [value for panel in panels for curve in panel.curves for _, value in curve.points]
    positive = [value for value in values if value > 0]
    marks = _log_ticks(min(positive), max(positive)) if is_log and positive else ticks(0, max(values), 7)
    rise = _log if is_log and positive else float
    y = Scale(rise(marks[0]), rise(marks[-1]), HEIGHT - BOTTOM, TOP)
    x = Scale(_log(budgets[0]) - 0.02, _log(budgets[-1]) + 0.02, 0, PLOT)
    labelled = [(x(_log(n)), f"{n:,}") for n in budgets[:: math.ceil(len(budgets) / 6)]]
    levels = [(y(rise(mark)), f"{mark:,.{decimals([mark])}f}") for mark in marks]
    parts = []
    for panel in panels:
        drawn = _frame(panel.case, panel.facts, "labels", labelled, levels)
        for curve in reversed(panel.curves):  # the best methods last, above the others
            points = [(x(_log(n)), y(rise(value))) for n, value in curve.points]
            drawn += [path(points, curve.kind), *(dot(*point, 2.5, curve.kind) for point in points)]
        parts.append(drawn)
    legend = {curve.name: curve.kind for panel in panels for curve in panel.curves}
    facts = "; ".join(f"{panel.case}: {panel.facts}" for panel in panels)
    return _laid_out(title, facts, parts, legend)


def _frame(
    case: str, facts: str, label: str, along: Sequence[tuple[float, str]], up: Sequence[tuple[float, str]]
) -> list[Markup]:
    """Return title, grid and axes of a panel whose plot begins at x = 0, with the places and texts of its marks."""
    bottom, most = HEIGHT - BOTTOM, int((LEFT + PLOT) / CHARACTER)
    parts = [text(0, 14, shortened_to(case, most), "case"), text(0, 30, shortened_to(facts, most), "small")]
    for place, mark in up:
        parts += [line(0, place, PLOT, place, "grid"), text(-6, place + 4, mark, "small", "end")]
    for place, mark in along:
        parts += [line(place, bottom, place, bottom + 4, "axis"), text(place, bottom + 17, mark, "small", "middle")]
    return [*parts, line(0, bottom, PLOT, bottom, "axis"), text(PLOT / 2, bottom + 33, label, "small", "middle")]


def _laid_out(title: str, facts: str, panels: Sequence[Sequence[Markup]], legend: Mapping[str, str]) -> bytes:
    """Return panels in rows and columns next to a legend, name -> class of its line, as a file of SVG."""
    columns = min(MOST_COLUMNS, len(panels))
    parts = [Markup("<style>{}</style>").format(Markup(STYLE))]
    parts += [Markup('<rect width="100%" height="100%" fill="#fff"/>'), text(8, 22, title, "title")]
    for place, drawn in enumerate(panels):
        row, column = divmod(place, columns)
        move = f"translate({column * (LEFT + PLOT + 16) + LEFT:.1f} {HEAD + row * HEIGHT:.1f})"
        parts.append(Markup('<g transform="{}">{}</g>').format(move, Markup("").join(drawn)))
    names = [shortened_to(name, MOST_CHARACTERS) for name in legend]
    left = columns * (LEFT + PLOT + 16) + 8
    for place, (name, kind) in enumerate(zip(names, legend.values(), strict=True)):
        y = HEAD + TOP + place * LINE
        parts += [path([(left, y), (left + 16, y)], kind), text(left + 22, y + 4, name, kind)]
    width = left + 30 + CHARACTER * max(map(len, names), default=0)
    height = HEAD + max(HEIGHT * math.ceil(len(panels) / columns), TOP + LINE * (len(names) + 1))
    return alone(figure("study", title, facts, (width, height), parts)).encode()


def _log(value: float) -> float:
    return math.log10(max(value, 1e-300))


def _log_ticks(low: float, high: float) -> list[float]:
    """Return the numbers 1, 2, 5 · 10^k that enclose [low, high]."""
    powers = range(math.floor(_log(low)) - 1, math.ceil(_log(high)) + 2)
    numbers = [round(step * 10.0**k, 12) for k in powers for step in (1, 2, 5)]
    first = max(place for place, n in enumerate(numbers) if n <= low)
    last = min(place for place, n in enumerate(numbers) if n >= high)
    return numbers[first : max(last, first + 1) + 1]
