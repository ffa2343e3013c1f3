"""Draw how well the auxiliary variables of a case predict its failures: logistic curves, as in DeepEST's Figs 5 to 7.

    P(failure | v) = 1 / (1 + exp(-(a + b · v)))

a and b are fitted to all examples by maximum likelihood. Dots are the shares of failures in ten groups of equally many
examples; where the curve misses them, the variable is no logistic predictor. Values above the 99.5 % quantile are
fitted but not drawn, because surprise has a long tail.
"""

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from opacc_ray.study.cases import Case
from opacc_ray.svg import Scale, alone, decimals, dot, figure, line, path, text, ticks

Array = NDArray[np.float64]

VARIABLES = {"confidence": "confidence", "dsa": "DSA", "lsa": "LSA"}

GROUPS, STEPS, CLOSE = 10, 50, 1e-9

PANEL, HEIGHT, LEFT, TOP, BOTTOM = 250.0, 260.0, 46.0, 58.0, 42.0
"""Pixels: width of a panel, height of the figure, margins around a panel."""

STYLE = (
    "text{font:12px sans-serif;fill:#333}.case{font-size:14px;font-weight:bold}.small{font-size:11px}"
    ".grid{stroke:#ebebeb}.axis{stroke:#999}.curve{stroke:#0072B2;stroke-width:2;fill:none}.share{fill:#D55E00}"
)


def fit_logistic(values: Array, failed: Array) -> tuple[float, float]:
    """Return (a, b) of the logistic curve of failures (N,) in {0, 1} on values (N,), by Newton's method.

    A weak ridge on the standardised slope keeps the fit finite where the variable separates all failures.
    """
    centre, spread = float(values.mean()), float(values.std()) or 1.0
    x = np.column_stack([np.ones(len(values)), (values - centre) / spread])  # (N, 2)
    ridge, beta = np.diag([0.0, 1e-3]), np.zeros(2)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(x @ beta, -500, 500)))
        gradient = x.T @ (failed - p) - ridge @ beta
        hessian = (x.T * np.maximum(p * (1 - p), 1e-12)) @ x + ridge
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / max(np.abs(step).max(), 1e-12))
        beta += step
        if np.abs(step).max() < CLOSE:
            break
    b = float(beta[1]) / spread
    return float(beta[0]) - b * centre, b


def draw_curves(case: Case) -> bytes | None:
    """Return the figure of a case as a file of SVG; None if it has none of the variables, or scores."""
    failed = 1 - case.outcome
    names = [name for name in VARIABLES if name in case.view.fields]
    if not names or not np.isin(failed, (0, 1)).all():
        return None
    parts = [
        Markup("<style>{}</style>").format(Markup(STYLE)),
        Markup('<rect width="100%" height="100%" fill="#fff"/>'),
    ]
    parts += [text(8, 20, case.source.name, "case"), text(8, 38, "share of failures by auxiliary variable", "small")]
    for place, name in enumerate(names):
        parts += _panel(case.view.column(name).astype(np.float64), failed, VARIABLES[name], place * PANEL + LEFT)
    title = f"{case.source.name}: failures by {', '.join(VARIABLES[name] for name in names)}"
    drawn = figure(
        "curves", title, "logistic curves and shares in ten groups", (len(names) * PANEL + 16, HEIGHT), parts
    )
    return alone(drawn).encode()


def _panel(values: Array, failed: Array, name: str, left: float) -> list[Markup]:
    a, b = fit_logistic(values, failed)
    right, bottom, top = left + PANEL - LEFT - 10, HEIGHT - BOTTOM, TOP
    low, high = float(values.min()), float(np.quantile(values, 0.995))
    marks = ticks(low, high, 5)
    x, y = Scale(marks[0], marks[-1], left, right), Scale(0, 1, bottom, top)
    parts = [line(left, y(p), right, y(p), "grid") for p in (0, 0.25, 0.5, 0.75, 1)]
    parts += [text(left - 6, y(p) + 4, f"{p:g}", "small", "end") for p in (0, 0.5, 1)]
    parts += [text(x(mark), bottom + 16, f"{mark:,.{decimals(marks)}f}", "small", "middle") for mark in marks[::2]]
    parts += [line(left, bottom, right, bottom, "axis"), text((left + right) / 2, bottom + 33, name, "small", "middle")]
    grid = np.linspace(low, high, 80)
    curve = 1 / (1 + np.exp(-np.clip(a + b * grid, -500, 500)))
    parts.append(path([(x(v), y(p)) for v, p in zip(grid.tolist(), curve.tolist(), strict=True)], "curve"))
    groups = np.array_split(np.argsort(values, kind="stable"), GROUPS)
    shares = [(float(values[own].mean()), float(failed[own].mean())) for own in groups if len(own)]
    return parts + [dot(x(v), y(p), 3.5, "share") for v, p in shares if v <= high]
