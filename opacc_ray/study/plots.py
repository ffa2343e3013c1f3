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


def draw_case(results: dict[str, Any], case: str) -> dict[str, bytes]:
    """The figure of one case, per suffix of :data:`SUFFIXES`."""
    facts = next(item for item in results["cases"] if item["case"] == case)
    cells = [cell for cell in results["cells"] if cell["case"] == case]
    with rc_context(STYLE):
        panels = 2 if facts["binary"] else 1
        figure = Figure(figsize=(2.4 + 3.6 * panels, 3.6), layout=ConstrainedLayoutEngine(wspace=0.06))
        axes = figure.subplots(1, panels, squeeze=False)[0]
        _draw_errors(axes[0], facts, results["methods"], cells)
        if facts["binary"]:
            _draw_failures(axes[1], facts, results["methods"], cells)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False, handlelength=2.6)
        kind = "accuracy" if facts["binary"] else "mean score"
        title = f"{case}   ({facts['size']:,} examples, {kind} {facts['accuracy']:.4f})"
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
        return {suffix: _encode(figure, suffix) for suffix in SUFFIXES}


def _draw_errors(axes: Axes, facts: dict[str, Any], methods: list[str], cells: list[dict[str, Any]]) -> None:
    budgets = np.array(sorted({cell["budget"] for cell in cells}))
    n = np.linspace(budgets[0], budgets[-1], 200)
    expected = np.sqrt(facts["variance"] * (1 / n - 1 / facts["size"]))
    axes.plot(n, 100 * expected, label="SRS in theory", **REFERENCE)
    if facts["bound"]:
        efficiency = np.interp(n, budgets, [facts["bound"][str(budget)] for budget in budgets])
        axes.plot(n, 100 * expected * np.sqrt(efficiency), label="bound", **(REFERENCE | {"linestyle": (0, (1, 1.5))}))
    _draw_methods(axes, methods, cells, lambda cell: 100 * math.sqrt(cell["mse"]))
    axes.set_title("Error of the estimate (RMSE, percentage points)", loc="left", fontsize=9)
    _finish(axes, budgets)
    if axes.get_xscale() == "log":  # SRS is nearly a straight line then, and a factor of the same height everywhere
        axes.autoscale(axis="y")
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())


def _draw_failures(axes: Axes, facts: dict[str, Any], methods: list[str], cells: list[dict[str, Any]]) -> None:
    budgets = np.array(sorted({cell["budget"] for cell in cells}))
    axes.plot(budgets, budgets * (1 - facts["accuracy"]), **REFERENCE)
    _draw_methods(axes, methods, cells, lambda cell: cell["failures"])
    axes.set_title("Failing examples found", loc="left", fontsize=9)
    _finish(axes, budgets)


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
                label=method,
            )


def _finish(axes: Axes, budgets: Any) -> None:
    axes.set_ylim(bottom=0)
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
