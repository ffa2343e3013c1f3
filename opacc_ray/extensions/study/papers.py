"""The experiments of papers: what `opacc study --as NAME` runs on labelled cases, and the tables that it reports.

A preset is the content of a study's spec, in papers.yaml; keys of a spec and options of the command line replace its
keys. Its tables stand next to the published figures where a case is theirs.

Wilcoxon's signed-rank test compares the absolute errors of two methods over cases; its effect size is the matched
rank-biserial correlation, (R₊ - R₋) / (R₊ + R₋) of the sums of ranks: 1 if the first is better on every case.
"""

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import yaml
from scipy import stats

from opacc_ray.errors import SpecError
from opacc_ray.extensions.study.measures import StudyResults, markdown, number, plain

TABLE_II_BUDGET = 200
"""Labels of DeepEST's Table II."""


def mean_efficiency(results: StudyResults) -> str:
    """Return the mean E over all numbers of labels (CES, Table 1)."""
    rows = []
    for method in results.methods:
        row = [plain(method)]
        for case in results.cases:
            value, published = _mean_e(results, case.case, method), _published(results, case.case, method)
            text = "–" if value is None else f"{value:.3f}"
            row.append(text if published is None else f"{text} ({published:.3f})")
        rows.append(row)
    head = ["method", *(plain(case.case) for case in results.cases)]
    return _section("Mean E over all numbers of labels (in brackets: published)", head, rows)


def mean_efficiency_of_pools(results: StudyResults) -> str:
    """Return mean, standard deviation and maximum over random pools of the mean E over sizes (CES, Table 3)."""
    rows = []
    for name in dict.fromkeys(case.drawn_from for case in results.cases):
        pools = [case.case for case in results.cases if case.drawn_from == name]
        for method in results.methods:
            values = [value for pool in pools if (value := _mean_e(results, pool, method)) is not None]
            if values:
                spread = f"{np.std(values, ddof=1):.3f}" if len(values) > 1 else "–"
                row = [f"{np.mean(values):.3f}", spread, f"{max(values):.3f}", str(sum(v < 1 for v in values))]
                rows.append([plain(str(name)), plain(method), str(len(values)), *row])
    head = ["case", "method", "pools", "average", "standard deviation", "maximum", "pools with E < 1"]
    return _section("E in small pools", head, rows)


def failures(results: StudyResults) -> str:
    """Return mean and standard deviation of the failures found with 200 labels (DeepEST, Table II)."""
    budget, cases = _budget(results), [case for case in results.cases if case.binary]

    def shown(case: str, method: str) -> str:
        cell = results.cell(case, method, budget)
        if cell is None:
            return "–"
        published = _published(results, case, method) if budget == TABLE_II_BUDGET else None
        spread = "" if cell.failures_deviation is None else f" ± {cell.failures_deviation:.1f}"
        return f"{cell.failures:.1f}{spread}" + (f" ({published:.1f})" if published else "")

    rows = [[plain(method), *(shown(case.case, method) for case in cases)] for method in results.methods]
    rows.append(["total failing", *(f"{round(case.size * (1 - case.accuracy)):,}" for case in cases)])
    head = ["method", *(plain(case.case) for case in cases)]
    return _section(f"Failing examples found with {budget} labels (in brackets: published)", head, rows)


def pairs(results: StudyResults) -> str:
    """Return the ratios of precision γ and of failures found ρ, row over column (DeepEST, Table III a to e)."""
    methods, budget, parts = results.methods, _budget(results), []
    for case in results.cases:
        rows = []
        for place, row in enumerate(methods[:-1]):
            ratios = [_ratios(results, case.case, row, column, budget) for column in methods[place + 1 :]]
            shown = ["–" if ratio is None else f"{number(ratio[0])} / {number(ratio[1])}" for ratio in ratios]
            rows.append([plain(row), *["–"] * place, *shown])
        title = f"{plain(case.case)}: failures found ρ / precision γ with {budget} labels, row over column"
        parts.append(_section(title, ["", *map(plain, methods[1:])], rows))
    return "\n\n".join(parts)


def wins(results: StudyResults) -> str:
    """Return on how many cases the row is better in precision and in failures found (DeepEST, Table III f)."""
    methods, budget = results.methods, _budget(results)
    won = np.zeros((len(methods), len(methods)), dtype=int)
    for i, row in enumerate(methods):
        for j, column in enumerate(methods):
            ratios = [_ratios(results, case.case, row, column, budget) for case in results.cases]
            won[i, j] = sum(ratio is not None and min(ratio) > 1 for ratio in ratios)
    rows = [
        [plain(row), *("–" if i == j else str(won[i, j]) for j in range(len(methods))), str(won[i].sum())]
        for i, row in enumerate(methods)
    ]
    rows.append(["losses", *map(str, won.sum(axis=0)), ""])
    title = f"Wins with {budget} labels: cases where the row finds more failures and is more precise than the column"
    return _section(title, ["", *map(plain, methods), "wins"], rows)


def mean_estimates(results: StudyResults) -> str:
    """Return the mean estimate by number of labels (DeepEST, Fig. 2)."""
    budgets, rows = results.spec.budgets, []
    for case in results.cases:
        rows.append([plain(case.case), "truth", *[f"{case.accuracy:.4f}"] * len(budgets)])
        for method in results.methods:
            cells = [results.cell(case.case, method, budget) for budget in budgets]
            if any(cells):
                rows.append(["", plain(method), *("–" if cell is None else f"{cell.mean:.4f}" for cell in cells)])
    return _section("Mean estimate by number of labels", ["case", "method", *map(str, budgets)], rows)


def reductions(results: StudyResults) -> str:
    """Return estimate, error, size and divergence of reduced sets (DeepReduce, Tables II, III, V and Fig. 1)."""
    rows, averages = [], []
    for case in results.cases:
        rows.append([plain(case.case), "whole pool", f"{case.accuracy:.4f}", "", f"{case.size:,}", "100%", ""])
        for method in results.methods:
            published = _published(results, case.case, method)
            for cell in results.cells_of(case.case, method):
                share = f"{cell.labels / case.size:.1%}" + (f" ({published:.1%})" if published else "")
                sizes = [f"{cell.labels:,.0f}", share, _divergence(cell.kl)]
                rows.append(["", plain(method), f"{cell.mean:.4f}", f"{cell.error:.4f}", *sizes])
    for method in results.methods:
        cells = [cell for case in results.cases for cell in results.cells_of(case.case, method)]
        if cells:
            error, kl = np.mean([cell.error for cell in cells]), _mean(cell.kl for cell in cells)
            averages.append(["average", plain(method), "", f"{error:.4f}", "", "", _divergence(kl)])
    head = ["case", "method", "Acc", "ΔAcc", "size", "ratio", "KL"]
    return _section("Reduced sets (in brackets: published)", head, rows + averages * (len(results.cases) > 1))


def wilcoxon(results: StudyResults) -> str:
    """Return Wilcoxon's signed-rank test of the absolute errors of the first method and each other, over the cases.

    Empty if there are fewer than 2 cases with different errors.
    """
    first, *others = results.methods
    rows = []
    for second in others:
        both = [[results.cells_of(case.case, method) for method in (first, second)] for case in results.cases]
        difference = np.array([other[0].error - one[0].error for one, other in both if one and other])
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


def _ratios(results: StudyResults, case: str, row: str, column: str, budget: int) -> tuple[float, float] | None:
    """Return (ρ, γ), failures found and precision of the row over the column; None if a method cannot be run."""
    one, other = (results.cell(case, method, budget) for method in (row, column))
    if one is None or other is None or not one.mse or not other.failures or one.failures is None:
        return None
    return one.failures / other.failures, other.mse / one.mse


def _budget(results: StudyResults) -> int:
    """Return 200 labels, or the budget next to it."""
    return min(results.spec.budgets, key=lambda budget: abs(budget - TABLE_II_BUDGET))


def _published(results: StudyResults, case: str, method: str) -> float | None:
    """Return the number of the paper itself; None if the case or the method is none of its own."""
    paper = find_paper(results.spec.paper)
    return paper.published.get(case, {}).get(method) if paper and paper.published else None


def _mean_e(results: StudyResults, case: str, method: str) -> float | None:
    """Return the mean E of a method on a case over all numbers of labels."""
    return _mean(cell.efficiency for cell in results.cells_of(case, method))


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _divergence(kl: float | None) -> str:
    return "–" if kl is None else f"{kl:.4f}"


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"## {title}\n\n{markdown(head, rows)}"


class Paper(NamedTuple):
    """A paper whose experiments are a preset."""

    title: str
    spec: dict[str, Any]  # of a study, but for its cases
    published: dict[str, dict[str, float]] | None = None  # case -> method -> number


TABLES: dict[str, tuple[Callable[[StudyResults], str], ...]] = {
    "ces": (mean_efficiency,),
    "ces-small-pools": (mean_efficiency_of_pools,),
    "deepest": (failures, pairs, wins, mean_estimates),
    "deepreduce": (reductions, wilcoxon),
    "icse2024": (mean_efficiency, failures, wins),
}
"""By paper: the sections of table.md."""

PAPERS = {
    name: Paper(**content)
    for name, content in yaml.safe_load((files(__package__) / "papers.yaml").read_text(encoding="utf-8")).items()
}
"""By name."""


def find_paper(name: str | None) -> Paper | None:
    """Return a paper by name; None if no name is given, SpecError if it is unknown."""
    if name is None or name in PAPERS:
        return PAPERS.get(name or "")
    near = get_close_matches(name, PAPERS, 1)
    raise SpecError(f"--as {name}: " + (f"did you mean {near[0]}?" if near else f"give one of {', '.join(PAPERS)}"))


def report_paper(results: StudyResults) -> str:
    """Return the sections of table.md for the paper of a study; empty if it has none."""
    paper = find_paper(results.spec.paper)
    if paper is None:
        return ""
    sections = (section(results) for section in TABLES[results.spec.paper or ""])
    return "\n\n".join([f"# {paper.title}", *filter(None, sections)]) + "\n\n"
