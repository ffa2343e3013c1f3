"""The experiments of papers: what `opacc study --as NAME` runs on labelled cases, and the tables that it reports.

A preset is the content of a study's spec; keys of a spec and options of the command line replace its keys. Its tables
stand next to the published figures where a case is theirs.

Wilcoxon's signed-rank test compares the absolute errors of two methods over cases; its effect size is the matched
rank-biserial correlation, (R₊ - R₋) / (R₊ + R₋) of the sums of ranks: 1 if the first is better on every case.
"""

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from opacc_ray.errors import SpecError
from opacc_ray.extensions.study.measures import markdown, number, plain

Content = dict[str, Any]
Cell = dict[str, Any]

PUBLISHED_FAILURES = {
    "CN5_MNIST": {"DeepEST CS": 44.57, "DeepEST DSA": 30.17, "DeepEST LSA": 22.43, "DeepEST C": 11.93},
    "LN5_MNIST": {"DeepEST CS": 65.13, "DeepEST DSA": 37.57, "DeepEST LSA": 24.10, "DeepEST C": 24.07},
    "CN12_CIFAR10": {"DeepEST CS": 106.10, "DeepEST DSA": 98.33, "DeepEST LSA": 38.07, "DeepEST C": 70.77},
    "VGG16_CIFAR10": {"DeepEST CS": 85.00, "DeepEST DSA": 16.80, "DeepEST LSA": 14.77, "DeepEST C": 24.90},
    "VGG16_CIFAR100": {"DeepEST CS": 131.17, "DeepEST DSA": 78.20, "DeepEST LSA": 67.47, "DeepEST C": 108.70},
}
"""DeepEST, Table II: failures found with 200 tests, by case."""

PUBLISHED_EFFICIENCY = {
    "mnist_lenet4": {"CES": 0.655},
    "mnist_mutant1_swap80": {"CES": 0.499},
    "mnist_mutant2_swap71": {"CES": 0.380, "CSS": 3.836},
}
"""CES, Table 1: mean E, for experiments of the same kind on other networks."""

PUBLISHED_RATIO = {
    "mnist_lenet4": {"DeepReduce": 0.030, "CES_kl": 0.182, "RANDOM_kl": 0.482},
}
"""DeepReduce, Tables II and III: share of the pool that is chosen, for a LeNet-4 on MNIST of other weights."""

TABLE_II_BUDGET = 200


def mean_efficiency(results: Content) -> str:
    """Return the mean E over all numbers of labels (CES, Table 1)."""
    cases = [case["case"] for case in results["cases"]]
    rows = []
    for method in results["methods"]:
        values = [_mean(_column(results, case, method, "efficiency")) for case in cases]
        said = [PUBLISHED_EFFICIENCY.get(case, {}).get(method) for case in cases]
        rows.append([plain(method), *(_with(value, own) for value, own in zip(values, said, strict=True))])
    return _section("Mean E over all numbers of labels (in brackets: published)", ["method", *map(plain, cases)], rows)


def mean_efficiency_of_pools(results: Content) -> str:
    """Return mean, standard deviation and maximum over random pools of the mean E over sizes (CES, Table 3)."""
    rows = []
    for name in dict.fromkeys(case["drawn_from"] for case in results["cases"]):
        own = [case["case"] for case in results["cases"] if case["drawn_from"] == name]
        for method in results["methods"]:
            found = [_mean(_column(results, case, method, "efficiency")) for case in own]
            values = [value for value in found if value is not None]
            if values:
                spread = f"{np.std(values, ddof=1):.3f}" if len(values) > 1 else "–"
                row = [f"{np.mean(values):.3f}", spread, f"{max(values):.3f}", str(sum(v < 1 for v in values))]
                rows.append([plain(str(name)), plain(method), str(len(values)), *row])
    head = ["case", "method", "pools", "average", "standard deviation", "maximum", "pools with E < 1"]
    return _section("E in small pools", head, rows)


def failures(results: Content) -> str:
    """Return mean and standard deviation of the failures found with 200 labels (DeepEST, Table II)."""
    budget, cases = _budget(results), [case for case in results["cases"] if case["binary"]]

    def shown(case: Content, method: str) -> str:
        cell = _cell(results, case["case"], method, budget)
        if cell is None:
            return "–"
        spread = cell["failures_deviation"]
        said = PUBLISHED_FAILURES.get(case["case"], {}).get(method) if budget == TABLE_II_BUDGET else None
        found = f"{cell['failures']:.1f}" + ("" if spread is None else f" ± {spread:.1f}")
        return found + (f" ({said:.1f})" if said else "")

    rows = [[plain(method), *(shown(case, method) for case in cases)] for method in results["methods"]]
    rows.append(["total failing", *(f"{round(case['size'] * (1 - case['accuracy'])):,}" for case in cases)])
    head = ["method", *(plain(case["case"]) for case in cases)]
    return _section(f"Failing examples found with {budget} labels (in brackets: published)", head, rows)


def pairs(results: Content) -> str:
    """Return the ratios of precision γ and of failures found ρ, row over column (DeepEST, Table III a to e)."""
    methods, budget, parts = results["methods"], _budget(results), []
    for case in results["cases"]:
        rows = []
        for place, row in enumerate(methods[:-1]):
            ratios = [_ratios(results, case["case"], row, column, budget) for column in methods[place + 1 :]]
            shown = ["–" if own is None else f"{number(own[0])} / {number(own[1])}" for own in ratios]
            rows.append([plain(row), *["–"] * place, *shown])
        title = f"{plain(case['case'])}: failures found ρ / precision γ with {budget} labels, row over column"
        parts.append(_section(title, ["", *map(plain, methods[1:])], rows))
    return "\n\n".join(parts)


def wins(results: Content) -> str:
    """Return on how many cases the row is better in precision and in failures found (DeepEST, Table III f)."""
    methods, budget, rows = results["methods"], _budget(results), []
    for row in methods:
        counts = [
            sum(
                (own := _ratios(results, case["case"], row, column, budget)) is not None and min(own) > 1
                for case in results["cases"]
            )
            for column in methods
        ]
        shown = ["–" if row == column else str(count) for column, count in zip(methods, counts, strict=True)]
        rows.append([plain(row), *shown, str(sum(counts))])
    losses = [sum(int(row[place]) for row in rows if row[place] != "–") for place in range(1, len(methods) + 1)]
    rows.append(["losses", *map(str, losses), ""])
    title = f"Wins with {budget} labels: cases where the row finds more failures and is more precise than the column"
    return _section(title, ["", *map(plain, methods), "wins"], rows)


def mean_estimates(results: Content) -> str:
    """Return the mean estimate by number of labels (DeepEST, Fig. 2)."""
    budgets, rows = results["spec"]["budgets"], []
    for case in results["cases"]:
        rows.append([plain(case["case"]), "truth", *[f"{case['accuracy']:.4f}"] * len(budgets)])
        for method in results["methods"]:
            cells = [_cell(results, case["case"], method, budget) for budget in budgets]
            if any(cells):
                rows.append(["", plain(method), *("–" if cell is None else f"{cell['mean']:.4f}" for cell in cells)])
    return _section("Mean estimate by number of labels", ["case", "method", *map(str, budgets)], rows)


def reductions(results: Content) -> str:
    """Return estimate, error, size and divergence of reduced sets (DeepReduce, Tables II, III, V and Fig. 1)."""
    rows = []
    for case in results["cases"]:
        rows.append([plain(case["case"]), "whole pool", f"{case['accuracy']:.4f}", "", f"{case['size']:,}", "100%", ""])
        for method in results["methods"]:
            for cell in _cells(results, case["case"], method):
                said = PUBLISHED_RATIO.get(case["case"], {}).get(method)
                share = f"{cell['labels'] / case['size']:.1%}" + (f" ({said:.1%})" if said else "")
                kl = "–" if cell["kl"] is None else f"{cell['kl']:.4f}"
                size = f"{cell['labels']:,.0f}"
                rows.append(["", plain(method), f"{cell['mean']:.4f}", f"{cell['error']:.4f}", size, share, kl])
    for method in results["methods"] if len(results["cases"]) > 1 else []:
        own = [cell for case in results["cases"] for cell in _cells(results, case["case"], method)]
        if own:
            error, mean_kl = np.mean([cell["error"] for cell in own]), _mean([cell["kl"] for cell in own])
            shown_kl = "–" if mean_kl is None else f"{mean_kl:.4f}"
            rows.append(["average", plain(method), "", f"{error:.4f}", "", "", shown_kl])
    return _section(
        "Reduced sets (in brackets: published)", ["case", "method", "Acc", "ΔAcc", "size", "ratio", "KL"], rows
    )


def wilcoxon(results: Content) -> str:
    """Return Wilcoxon's signed-rank test of the absolute errors of the first method and each other, over the cases.

    Empty if there are fewer than 2 cases with different errors.
    """
    first, *others = results["methods"]
    rows = []
    for second in others:
        both = [
            (one[0]["error"], other[0]["error"])
            for case in results["cases"]
            if (one := _cells(results, case["case"], first)) and (other := _cells(results, case["case"], second))
        ]
        difference = np.array([b - a for a, b in both])
        difference = difference[difference != 0]
        if len(difference) < 2:
            continue
        ranks = stats.rankdata(np.abs(difference)) * np.sign(difference)
        effect = ranks.sum() / np.abs(ranks).sum()
        p = float(stats.wilcoxon(difference).pvalue)
        rows.append([plain(first), plain(second), str(len(difference)), f"{p:.4f}", f"{effect:+.2f}"])
    if not rows:
        return ""
    head = ["method", "compared with", "cases", "p", "effect"]
    note = "Below 6 cases p cannot be below 0.05. A positive effect: the first method has the smaller errors."
    return _section("Wilcoxon's signed-rank test of ΔAcc over the cases", head, rows) + f"\n\n{note}"


def _ratios(results: Content, case: str, row: str, column: str, budget: int) -> tuple[float, float] | None:
    """Return (ρ, γ), failures found and precision of the row over the column; None if a method cannot be run."""
    one, other = (_cell(results, case, method, budget) for method in (row, column))
    if one is None or other is None or not one["mse"] or not other["failures"]:
        return None
    return one["failures"] / other["failures"], other["mse"] / one["mse"]


def _budget(results: Content) -> int:
    """Return 200 labels, or the budget next to it."""
    return min(results["spec"]["budgets"], key=lambda budget: abs(budget - TABLE_II_BUDGET))


def _cells(results: Content, case: str, method: str) -> list[Cell]:
    return [cell for cell in results["cells"] if (cell["case"], cell["method"]) == (case, method)]


def _cell(results: Content, case: str, method: str, budget: int) -> Cell | None:
    return next((cell for cell in _cells(results, case, method) if cell["budget"] == budget), None)


def _column(results: Content, case: str, method: str, name: str) -> Iterator[float | None]:
    return (cell[name] for cell in _cells(results, case, method))


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _with(value: float | None, published: float | None) -> str:
    text = "–" if value is None else f"{value:.3f}"
    return text if published is None else f"{text} ({published:.3f})"


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"## {title}\n\n{markdown(head, rows)}"


class Paper(NamedTuple):
    """A paper whose experiments are a preset."""

    title: str
    content: Content  # of the spec
    tables: tuple[Callable[[Content], str], ...]  # results.json -> a section of table.md
    curves: bool = False  # whether it shows failures by auxiliary variable


_CES = {"method": "ces", "objective": "cross_entropy", "label": "CES"}
_DEEPEST = [
    {"method": "deepest", "auxiliary": name, "label": f"DeepEST {short}"}
    for name, short in (("confidence", "CS"), ("dsa", "DSA"), ("lsa", "LSA"), ("combined", "C"))
]
_ONCE = {"method": "deepreduce", "repetitions": 1}
_VARIANTS = (
    {"label": "Variant1", "coverage": False},
    {"label": "Variant2", "layer": "hidden", "budget": "as DeepReduce"},
    {"label": "Variant3", "division": "equal_width", "budget": "as DeepReduce"},
    {"label": "Variant4", "heuristic": "random", "budget": "as DeepReduce", "repetitions": 50},
)

PAPERS = {
    "ces": Paper(
        'Li et al., "Boosting Operational DNN Testing Efficiency through Conditioning", ESEC/FSE 2019',
        {
            "methods": [{"method": "srs", "label": "SRS"}, {"method": "css", "label": "CSS"}, _CES],
            "budgets": list(range(35, 181, 5)),
            "repetitions": 50,
        },
        (mean_efficiency,),
    ),
    "ces-small-pools": Paper(
        'Li et al., "Boosting Operational DNN Testing Efficiency through Conditioning", ESEC/FSE 2019, Table 3',
        {
            "methods": [
                {"method": "srs", "label": "SRS"},
                {"method": "ces", "objective": "kl", "initial": 5, "label": "CES"},
            ],
            "budgets": list(range(15, 61, 5)),
            "repetitions": 50,
            "subpools": {"size": 300, "number": 30},
        },
        (mean_efficiency_of_pools,),
    ),
    "deepest": Paper(
        'Guerriero, Pietrantuono, Russo, "Operation is the Hardest Teacher", ICSE 2021',
        {
            "methods": [{"method": "srs", "label": "SRS"}, {"method": "ces", "label": "CES"}, *_DEEPEST],
            "budgets": [50, 100, 200, 400, 800],
            "repetitions": 30,
        },
        (failures, pairs, wins, mean_estimates),
        curves=True,
    ),
    "deepreduce": Paper(
        'Zhou et al., "Cost-Effective Testing of a Deep Learning Model through Input Reduction", ISSRE 2020',
        {
            "methods": [
                _ONCE | {"label": "DeepReduce", "budget": "itself"},
                _CES | {"budget": "as DeepReduce"},
                {"method": "srs", "label": "RANDOM", "budget": "as DeepReduce"},
                _CES | {"label": "CES_kl", "stop_at_kl": 0.001, "budget": "itself", "repetitions": 5},
                {
                    **{"method": "deepreduce", "coverage": False, "heuristic": "random", "label": "RANDOM_kl"},
                    **{"budget": "itself", "repetitions": 5},
                },
                *(_ONCE | {"budget": "itself"} | variant for variant in _VARIANTS),
                *(_ONCE | {"alpha": a, "label": f"α = {a}", "budget": "itself"} for a in (0.05, 0.01, 0.005)),
            ],
            "coverage": "nc:0.5",
            "divergence": True,
            "repetitions": 50,
        },
        (reductions, wilcoxon),
    ),
    "icse2024": Paper(
        'Guerriero, Pietrantuono, Russo, "DeepSample", ICSE 2024',
        {
            "methods": [
                {"method": "srs", "label": "SRS"},
                *(
                    {"method": method, "auxiliary": auxiliary, "label": f"{method} {auxiliary}"}
                    for method in ("sups", "rhcs", "ssrs", "gbs", "two_ups", "deepest")
                    for auxiliary in ("confidence", "dsa", "lsa")
                ),
            ],
            "budgets": [50, 100, 200, 400, 800],
            "repetitions": 30,
        },
        (mean_efficiency, failures, wins),
    ),
}
"""Name -> paper."""


def find_paper(name: str | None) -> Paper | None:
    """Return a paper by name; None if no name is given, SpecError if it is unknown."""
    if name is None or name in PAPERS:
        return PAPERS.get(name or "")
    near = get_close_matches(name, PAPERS, 1)
    raise SpecError(f"--as {name}: " + (f"did you mean {near[0]}?" if near else f"give one of {', '.join(PAPERS)}"))


def report_paper(results: Content) -> str:
    """Return the sections of table.md for the paper of a study; empty if it has none."""
    paper = find_paper(results["spec"]["paper"])
    if paper is None:
        return ""
    sections = (section(results) for section in paper.tables)
    return "\n\n".join([f"# {paper.title}", *filter(None, sections)]) + "\n\n"
