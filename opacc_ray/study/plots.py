"""Figures of a study: per case the error of the estimate and the failures found, against the number of labels.

They follow figures 3, 4 and 7 of the CES paper and figure 4 of the DeepEST paper. The error is the root of the mean
squared error, which for an unbiased method is its standard deviation, and does not spare a biased one. Colours are
those of M. Okabe and K. Ito, told apart with any colour vision; markers differ too.
"""

import io
import math
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from opacc_ray.study.table import describe_case

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C6D1F")
LINES = ("-", (0, (3, 1.5)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
REFERENCE: dict[str, Any] = {"color": "0.15", "linewidth": 1.3, "linestyle": (0, (5, 3)), "zorder": 3}
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.92",
    "axes.edgecolor": "0.6",
    "xtick.color": "0.3",
    "ytick.color": "0.3",
    "svg.hashsalt": "opacc",  # the same results give the same bytes
    "svg.fonttype": "none",
}
SUFFIXES = ("svg", "png")
HEADROOM = 1.08
"""Height of a panel over that of its highest value: room for a marker."""


def draw_case(results: dict[str, Any], case: str) -> dict[str, bytes]:
    """The figure of one case, per suffix of :data:`SUFFIXES`."""
    facts = next(item for item in results["cases"] if item["case"] == case)
    cells = [cell for cell in results["cells"] if cell["case"] == case]
    budgets = np.array(results["spec"]["budgets"])
    with rc_context(STYLE):
        panels = 2 if facts["binary"] else 1
        figure = Figure(figsize=(2.4 + 3.6 * panels, 3.6), layout=ConstrainedLayoutEngine(wspace=0.06))
        axes = figure.subplots(1, panels, squeeze=False)[0]
        _draw_errors(axes[0], budgets, facts, results["methods"], cells)
        if facts["binary"]:
            _draw_failures(axes[1], budgets, facts, results["methods"], cells)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False, handlelength=2.6)
        figure.suptitle(f"{case}   ({describe_case(facts)})", x=0.01, ha="left", fontsize=10, wrap=True)
        return {suffix: _encode(figure, suffix) for suffix in SUFFIXES}


def _draw_errors(
    axes: Axes, budgets: Any, facts: dict[str, Any], methods: list[str], cells: list[dict[str, Any]]
) -> None:
    n = budgets if len(budgets) == 1 else np.union1d(np.geomspace(budgets[0], budgets[-1], 200), budgets)
    expected = 100 * np.sqrt(facts["variance"] * (1 / n - 1 / facts["size"]))
    _draw_reference(axes, n, expected, label="SRS in theory")
    if facts["bound"]:  # its E is known at the budgets, and read off a straight line between them
        efficiency = np.interp(n, budgets, [facts["bound"][str(budget)] for budget in budgets])
        _draw_reference(axes, n, expected * np.sqrt(efficiency), label="bound", linestyle=(0, (1, 1.5)))
    _draw_methods(axes, methods, cells, lambda cell: 100 * math.sqrt(cell["mse"]))
    axes.set_title("Error of the estimate (RMSE, percentage points)", loc="left", fontsize=9)
    _finish(axes, budgets)
    if axes.get_xscale() == "log":  # SRS is nearly a straight line then, and a factor of the same height everywhere
        axes.autoscale(axis="y")
        axes.set_yscale("log", nonpositive="mask")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())


def _draw_failures(
    axes: Axes, budgets: Any, facts: dict[str, Any], methods: list[str], cells: list[dict[str, Any]]
) -> None:
    _draw_reference(axes, budgets, budgets * (1 - facts["accuracy"]))  # straight in between, as methods are
    _draw_methods(axes, methods, cells, lambda cell: cell["failures"])
    axes.set_title("Failing examples found", loc="left", fontsize=9)
    _finish(axes, budgets)


def _draw_reference(axes: Axes, n: Any, values: Any, **look: Any) -> None:
    """What theory says of n labels: a line through the values, or across the panel if there is one only."""
    if len(n) == 1:
        axes.axhline(values[0], **(REFERENCE | look))
    else:
        axes.plot(n, values, **(REFERENCE | look))


def _draw_methods(axes: Axes, methods: list[str], cells: list[dict[str, Any]], measure: Any) -> None:
    """One line per method, whose colour and marker follow from its place in the study, not in the case."""
    for place, method in enumerate(methods):
        mine = sorted((cell for cell in cells if cell["method"] == method), key=lambda cell: cell["budget"])
        if mine:
            axes.plot(
                [cell["budget"] for cell in mine],
                [measure(cell) for cell in mine],
                color=COLOURS[place % len(COLOURS)],
                marker=MARKERS[place % len(MARKERS)],
                linestyle=LINES[place // len(COLOURS) % len(LINES)],
                markersize=5,
                linewidth=1.5,
                clip_on=False,  # a marker on the axis is whole, too
                label=method,
            )


def _finish(axes: Axes, budgets: Any) -> None:
    axes.set_ylim(0, HEADROOM * axes.dataLim.ymax)
    axes.set_xlabel("labels")
    if budgets[-1] > 6 * budgets[0]:
        axes.set_xscale("log")
    ticks = budgets[:: math.ceil(len(budgets) / 8)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{tick:,}" for tick in ticks])


def _encode(figure: Figure, suffix: str) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None} if suffix == "svg" else None
    figure.savefig(buffer, format=suffix, dpi=160, metadata=metadata)
    return buffer.getvalue()
