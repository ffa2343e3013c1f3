"""Write the results as Markdown: a table per budget to compare methods over cases, then all measures by case."""

from collections.abc import Callable, Sequence
from typing import Any

from opacc_ray.estimators.intervals import normal_quantile
from opacc_ray.study.target import srs_deviation

LEGEND = """\
**n** is the budget, **labels** the distinct examples chosen. **E** is the mean squared error of the estimate over that
of a simple random sample (SRS) with as many labels: 0.5 halves the labels, above 1 needs more of them; in brackets its
95 % interval. **bias** is in standard deviations of SRS, ± its standard error. **coverage** is the share of
{percent:g}% intervals that contain the true number, in brackets its 95 % interval, **width** their mean width.
**failures** are the mispredictions among the chosen examples, **ms** the median time to choose them. All are means over
the repetitions. **rmse** is the root of the mean squared error in percentage points, and **ratio** the width over that
of a normal interval with this error: at 1 the interval is as wide as it must be. The **bound** is the least E of an
unbiased method with the features of `neyman` that knew all outcomes beforehand (Godambe and Joshi).
† marks an interval that is not design-based but that of SRS."""

SLICES = """\
Every measure is the mean over the slices, but **coverage** is the least of a slice. For SRS, the number of examples in
each slice is known, and for metrics of classes that of each predicted class."""


def write_table(results: dict[str, Any]) -> str:
    """Return the whole of table.md."""
    spec = results["spec"]
    parts = [
        "# Study",
        f"{spec['repetitions']:,} repetitions, seed {spec['seed']}, opacc_ray {results['versions']['opacc_ray']}.",
    ]
    if results["command"]:
        parts.append(f"    {results['command']}")
    parts.append(LEGEND.format(percent=100 * spec["level"]))
    if spec["by"]:
        parts.append(SLICES)
    whole = any(case["drawn_from"] is None for case in results["cases"])
    for budget in spec["budgets"] if whole else []:
        parts += [f"## E with {budget} labels", _comparison(results, budget)]
    for case in results["cases"]:
        if case["drawn_from"] is None:
            parts += [f"## {plain(case['case'])}", _facts(case), _details(results, case["case"])]
    return "\n\n".join(parts) + "\n"


def describe_case(case: dict[str, Any]) -> str:
    """Describe the size and accuracy of a case, and whether it is a control, for table and figure."""
    kind = case["number"] if case["binary"] or case["number"] != "accuracy" else "mean score"
    mixed = f"; {' and '.join(case['shuffled'])} in random order" if case["shuffled"] else ""
    truth = list(case["truth"].values())
    value = f"{truth[0]:.4f}" if len(truth) == 1 else f"{min(truth):.4f} to {max(truth):.4f} in {len(truth)} slices"
    return f"{case['size']:,} examples, {kind} {value}{mixed}"


def _comparison(results: dict[str, Any], budget: int) -> str:
    cases = [case["case"] for case in results["cases"] if case["drawn_from"] is None]
    cells = {(cell["method"], cell["case"]): _efficiency(cell) for cell in results["cells"] if cell["budget"] == budget}
    cells |= {(item["method"], item["case"]): item["reason"] for item in results["not_possible"]}
    given = [method for method in results["methods"] if any((method, case) in cells for case in cases)]
    rows = [[plain(method), *(cells.get((method, case), "–") for case in cases)] for method in given]
    bounds = [case["bound"].get(str(budget)) for case in results["cases"] if case["drawn_from"] is None]
    rows.append(["bound", *("–" if bound is None else number(bound) for bound in bounds)])
    return markdown(["method", *(plain(case) for case in cases)], rows)


def _facts(case: dict[str, Any]) -> str:
    rule = "" if case["outcome"] == "as given" else f"; outcome = {case['outcome']}"
    text = f"{describe_case(case)}{rule}."
    if not case["without_labels"]:
        return text
    stated = ", ".join(
        f"{name} {value:.4f} ({value - case['accuracy']:+.4f})" for name, value in case["without_labels"].items()
    )
    deviation = srs_deviation(case["size"], case["variance"], 50) if case["size"] > 50 else 0.0
    return f"{text} Without labels: {stated}. 50 labels of a simple random sample: ± {1.96 * deviation:.4f}."


def _details(results: dict[str, Any], case: str) -> str:
    reasons = {item["method"]: item["reason"] for item in results["not_possible"] if item["case"] == case}
    rows = []
    for method in results["methods"]:
        if method in reasons:
            rows.append([plain(method), "", "", reasons[method], *[""] * (len(COLUMNS) - 2)])
        mine = [
            cell | {"ratio": width_ratio(cell, results["spec"]["level"])}
            for cell in results["cells"]
            if (cell["case"], cell["method"]) == (case, method)
        ]
        rows += [
            [plain(method), str(cell["budget"] or "–"), *(show(cell) for show in COLUMNS.values())] for cell in mine
        ]
    return markdown(["method", "n", *COLUMNS], rows)


def width_ratio(cell: dict[str, Any], level: float) -> float | None:
    """Return the width of the intervals over that of a normal one with the error; None without an error."""
    error = cell["mse"] ** 0.5
    return cell["width"] / (2 * normal_quantile(level) * error) if error else None


def _efficiency(cell: dict[str, Any]) -> str:
    if cell["efficiency_interval"] is None:
        return number(cell["efficiency"])
    low, high = cell["efficiency_interval"]
    return f"{number(cell['efficiency'])} [{number(low)}, {number(high)}]"


def _bias(cell: dict[str, Any]) -> str:
    error = cell["bias_standard_error"]
    return f"{cell['bias']:+.2f}" + ("" if error is None else f" ± {error:.2f}")


def _coverage(cell: dict[str, Any]) -> str:
    if cell["coverage_interval"] is None:
        return "–"
    low, high = cell["coverage_interval"]
    return f"{cell['coverage']:.3f} [{low:.3f}, {high:.3f}]{'' if cell['design_based'] else ' †'}"


def _failures(cell: dict[str, Any]) -> str:
    return "–" if cell["failures"] is None else f"{cell['failures']:.1f}"


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "labels": lambda cell: f"{cell['labels']:.1f}".removesuffix(".0"),
    "E": _efficiency,
    "bias": _bias,
    "rmse": lambda cell: f"{100 * cell['mse'] ** 0.5:.2f}",
    "mean": lambda cell: f"{cell['mean']:.4f}",
    "coverage": _coverage,
    "width": lambda cell: f"{cell['width']:.3f}",
    "ratio": lambda cell: "–" if cell["ratio"] is None else number(cell["ratio"]),
    "failures": _failures,
    "ms": lambda cell: f"{cell['milliseconds']:.1f}",
}
"""Heading of a column -> its text for a cell."""


def number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an aligned table, which is also readable in a terminal."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    head, *lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"
        for row in (header, *rows)
    ]
    return "\n".join([head, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines])


def plain(name: str) -> str:
    """Escape a name that would break the table."""
    return " ".join(name.split()).replace("|", "\\|").replace("<", "&lt;")
