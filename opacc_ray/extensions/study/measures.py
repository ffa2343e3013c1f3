"""Measure the trials of a cell, define the results of a study (results.json), and write them as Markdown (table.md).

The yardstick is a simple random sample without replacement of as many labels, whose estimate has the standard deviation
s = √(S² · (1/n - 1/N)), see :mod:`opacc_ray.extensions.study.trials`. With e = estimate - θ of R repetitions:

    bias         mean e / s,  standard error sd(e) / (s √R)
    E            mean e² / s², the relative efficiency: SRS needs about 1/E times the labels
                 interval E · exp(±z · sd(e²) / (mean e² · √R)), the delta method for log E
    coverage     share of intervals that hold θ, with Wilson's interval for a share of R

n is the mean number of draws: the budget, unless a method stops earlier. Where each slice has a number, every measure
is the mean over the slices, but the coverage is the least one. Slices where nothing varies have no bias and no E.

Legend: N pool, n labels, θ the true number, S² variance of what an example adds to it, z normal quantile of 95 %.

**Papers.** `opacc study --as NAME` runs the experiments of a paper on labelled cases. Its preset is the content of a
study's spec, in papers.yaml; keys of a spec and options of the command line replace its keys. Its tables stand next to
the published figures where a case is theirs.

Wilcoxon's signed-rank test compares the absolute errors of two methods over cases; its effect size is the matched
rank-biserial correlation, (R₊ - R₋) / (R₊ + R₋) of the sums of ranks: 1 if the first is better on every case.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import numpy as np
import yaml
from pydantic import Field
from scipy import stats

from opacc_ray.designs.inclusion_probability import inclusion_probabilities
from opacc_ray.documents import Document, Part
from opacc_ray.errors import SpecError
from opacc_ray.estimation.intervals import normal_quantile, wilson
from opacc_ray.extensions.study.study_spec import StudySpec
from opacc_ray.extensions.study.trials import Trial, Truth
from opacc_ray.parts.view import View
from opacc_ray.pool import NO_HISTORY, History
from opacc_ray.samplers import neyman
from opacc_ray.samplers.neyman.failure_model import predict_failure, read_signals
from opacc_ray.selection import Outcome, is_binary


def least_variance(
    view: View, outcome: Outcome, budgets: Iterable[int], history: History = NO_HISTORY
) -> dict[int, float]:
    """Return the least variance of an unbiased estimate for each budget, for methods that use a ``history``.

    If every example fails with a probability p_i of its own, it is on average over the outcomes at least

        (1/N²) · Σ_i σ_i² (1/π_i - 1)         σ_i² = p_i (1 - p_i),   π_i ∝ σ_i, at most 1,   Σ π_i = n

    by V. P. Godambe and V. M. Joshi (AMS 36, 1965). Here p is the prediction of `neyman`'s failure model, fitted to
    *all* outcomes (N,) of the case. So no method that uses these features through this model can do better; one with a
    better model may. For scores the model predicts the mean and not the variance, and there is no bound.
    """
    if not is_binary(outcome):
        return {}
    signals = read_signals(view, neyman.Parameters().directions, history)
    p = predict_failure(signals, np.arange(view.size), 1 - outcome).failure
    variance = p * (1 - p)  # (N,)
    bound = {}
    for budget in budgets:
        probability = inclusion_probabilities(np.sqrt(variance), budget)
        bound[budget] = float(variance @ (1 / probability - 1)) / view.size**2
    return bound


CERTAINTY = 0.95  # level of the intervals for E and coverage, whatever the level under study

ROUNDING = 1e-12

MEANS = ("mean", "standard_deviation", "bias", "mse", "efficiency", "width", "error")  # stated as means over slices


def measure(trials: Sequence[Trial], truth: Truth) -> dict[str, Any]:
    """Return the measures of a cell; None where they need several repetitions or a random method."""
    R = len(trials)
    value = np.array([trial.value for trial in trials])  # (R,)
    error, failures = value - truth.value, np.array([trial.failures for trial in trials])
    draws = float(np.mean([trial.draws for trial in trials]))
    deviation = truth.deviation(draws) or math.nan
    mse = float((error**2).mean())
    varies = R > 1 and float(np.ptp(value)) > 0
    log_error = float((error**2).std(ddof=1)) / mse / math.sqrt(R) if varies else 0.0  # of E
    half = normal_quantile(CERTAINTY) * log_error
    covered = sum(trial.low - ROUNDING <= truth.value <= trial.high + ROUNDING for trial in trials)
    return {
        "repetitions": R,
        "mean": float(value.mean()),
        "standard_deviation": float(value.std(ddof=1)) if R > 1 else None,
        "bias": float(error.mean()) / deviation,
        "bias_standard_error": float(error.std(ddof=1)) / (deviation * math.sqrt(R)) if varies else None,
        "mse": mse,
        "efficiency": mse / deviation**2,
        "efficiency_interval": [mse / deviation**2 * math.exp(end) for end in (-half, half)] if varies else None,
        "coverage": covered / R,
        "coverage_interval": list(wilson(covered / R, R, CERTAINTY)) if varies else None,
        "width": float(np.mean([trial.high - trial.low for trial in trials])),
        "interval": trials[0].interval,
        "design_based": all(trial.design_based for trial in trials),
        "draws": draws,
        "labels": float(np.mean([trial.labels for trial in trials])),
        "failures": float(failures.mean()) if truth.binary else None,
        "failures_deviation": float(failures.std(ddof=1)) if truth.binary and R > 1 else None,
        "error": float(np.abs(error).mean()),
        "kl": None if trials[0].kl is None else float(np.mean([trial.kl for trial in trials])),
        "milliseconds": 1000 * float(np.median([trial.seconds for trial in trials])),
    }


def measure_slices(trials: Sequence[Trial], truths: Mapping[str, Truth]) -> dict[str, Any]:
    """Return the measures of a cell: those of its number, or means over the numbers of all slices."""
    own: dict[str, list[Trial]] = {name: [] for name in truths}
    for trial in trials:
        own[trial.slice].append(trial)
    found = {name: measure(own[name], truth) for name, truth in truths.items()}
    if len(found) == 1:
        return found.popitem()[1]
    worst = min(found, key=lambda name: float(found[name]["coverage"]))
    means = {key: _mean(one[key] for one in found.values()) or 0.0 for key in MEANS}
    return found[worst] | means | {"bias_standard_error": None, "efficiency_interval": None, "worst_slice": worst}


# -- documents -----------------------------------------------------------------------------------------------------


class CaseFacts(Part):
    """A case: a pool whose outcomes are all known."""

    case: str  # its name
    drawn_from: str | None = None  # case that it is a random part of; null: none
    uri: str  # where it lies
    sha256: str | None  # digest of the file
    size: int = Field(ge=1)  # N, examples in the pool
    accuracy: float = Field(ge=0, le=1)  # the mean outcome of the pool
    # S², so that S²(1/n - 1/N) is the variance by a simple random sample: that of the outcomes for the accuracy; for
    # slices their mean
    variance: float = Field(ge=0)
    number: str = "accuracy"  # what is estimated
    truth: dict[str, float] = Field(default={})  # the true number: of each slice, or of the pool by ''
    outcome: str  # how outcomes were made
    binary: bool  # whether every outcome is 0 or 1; else they are scores
    features: list[str]  # features that the case has
    bound: dict[str, float]  # budget -> least E of an unbiased method that sees what neyman sees; empty for scores


class CellMeasures(Part):
    """One method at one budget on one case; standard deviations are those of a simple random sample (SRS)."""

    case: str  # name of the case
    method: str  # name of the method in this study
    design: str  # the method with its parameters and rounds
    budget: int | None = Field(ge=1)  # labels allowed; null: the method stopped by itself
    repetitions: int = Field(ge=1)  # R, repetitions
    mean: float  # mean of the estimates
    standard_deviation: float | None  # standard deviation of the estimates; null if R = 1
    bias: float  # mean error, in standard deviations of SRS
    bias_standard_error: float | None  # its standard error; null where nothing varies
    mse: float = Field(ge=0)  # mean squared error
    efficiency: float = Field(ge=0)  # E, mean squared error over the variance of SRS
    efficiency_interval: list[float] | None  # 95 % interval of E; null where nothing varies
    coverage: float = Field(ge=0, le=1)  # share of the intervals that hold the true number
    coverage_interval: list[float] | None  # 95 % interval of it; null where nothing varies
    width: float = Field(ge=0)  # mean width of the intervals
    worst_slice: str | None = None  # slice of the least coverage; null without slices
    interval: str  # name of the interval
    design_based: bool  # whether the interval holds by the sampling design alone
    draws: float = Field(ge=0)  # mean number of draws; an example drawn twice counts twice
    labels: float = Field(ge=0)  # mean number of distinct examples
    failures: float | None  # mean number of mispredictions among them; null for scores
    failures_deviation: float | None = None  # their standard deviation; null if R = 1
    error: float = Field(ge=0)  # mean absolute error
    kl: float | None = None  # mean KL divergence of the output layer; null: not measured
    milliseconds: float = Field(ge=0)  # median time to choose, all rounds


class NotPossible(Part):
    """A method that a case lacks features for, or that does not estimate the number."""

    case: str  # name of the case
    method: str  # name of the method in this study
    reason: str  # what is missing


class StudyResults(Document):
    """Every method at every budget on every case."""

    format: Literal["opacc-study/1"] = "opacc-study/1"
    command: str | None  # the command that ran the study, if it was one
    created: str  # when it ended: ISO 8601, UTC
    versions: dict[str, str]  # version of Python and of each package that matters
    spec: StudySpec  # the study, with every default
    cases: list[CaseFacts]  # the cases
    methods: list[str]  # names of the methods, in the order of tables
    cells: list[CellMeasures]  # what was measured
    not_possible: list[NotPossible]  # methods that could not be run

    def cells_of(self, case: str, method: str) -> list[CellMeasures]:
        """Return the cells of a method on a case, by names, in the order of budgets."""
        return [cell for cell in self.cells if (cell.case, cell.method) == (case, method)]

    def cell(self, case: str, method: str, budget: int) -> CellMeasures | None:
        """Return one cell; None if the method could not be run, or stopped by itself."""
        return next((cell for cell in self.cells_of(case, method) if cell.budget == budget), None)


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


def write_table(results: StudyResults) -> str:
    """Return the whole of table.md."""
    spec, cases = results.spec, [case for case in results.cases if case.drawn_from is None]
    parts = [
        "# Study",
        f"{spec.repetitions:,} repetitions, seed {spec.seed}, opacc_ray {results.versions['opacc_ray']}.",
    ]
    parts += [f"    {results.command}"] if results.command else []
    parts += [LEGEND.format(percent=100 * spec.level), *([SLICES] if spec.by else [])]
    for budget in spec.budgets if cases else []:
        parts += [f"## E with {budget} labels", _comparison(results, cases, budget)]
    for case in cases:
        rule = "" if case.outcome == "as given" else f"; outcome = {case.outcome}"
        parts += [f"## {plain(case.case)}", f"{describe_case(case)}{rule}.", _details(results, case.case)]
    return "\n\n".join(parts) + "\n"


def describe_case(case: CaseFacts) -> str:
    """Describe the size and accuracy of a case, for table and figure."""
    kind = case.number if case.binary or case.number != "accuracy" else "mean score"
    truth = list(case.truth.values())
    value = f"{truth[0]:.4f}" if len(truth) == 1 else f"{min(truth):.4f} to {max(truth):.4f} in {len(truth)} slices"
    return f"{case.size:,} examples, {kind} {value}"


def _comparison(results: StudyResults, cases: Sequence[CaseFacts], budget: int) -> str:
    """Return E of each method on each case, with the reason where a method is not possible."""
    cells = {(cell.method, cell.case): _efficiency(cell) for cell in results.cells if cell.budget == budget}
    cells |= {(pair.method, pair.case): pair.reason for pair in results.not_possible}
    methods = [method for method in results.methods if any((method, case.case) in cells for case in cases)]
    rows = [[plain(method), *(cells.get((method, case.case), "–") for case in cases)] for method in methods]
    bounds = [case.bound.get(str(budget)) for case in cases]
    rows.append(["bound", *("–" if bound is None else number(bound) for bound in bounds)])
    return markdown(["method", *(plain(case.case) for case in cases)], rows)


COLUMNS = ("labels", "E", "bias", "rmse", "mean", "coverage", "width", "ratio", "failures", "ms")
"""Measures in the table of a case."""


def _details(results: StudyResults, case: str) -> str:
    reasons = {pair.method: pair.reason for pair in results.not_possible if pair.case == case}
    rows = []
    for method in results.methods:
        if method in reasons:
            rows.append([plain(method), "", "", reasons[method], *[""] * (len(COLUMNS) - 2)])
        for cell in results.cells_of(case, method):
            rows.append([plain(method), str(cell.budget or "–"), *_texts(cell, results.spec.level)])
    return markdown(["method", "n", *COLUMNS], rows)


def _texts(cell: CellMeasures, level: float) -> list[str]:
    """Return the text of each of COLUMNS."""
    error, coverage, ratio = cell.bias_standard_error, cell.coverage_interval, width_ratio(cell, level)
    ends = coverage and f"[{coverage[0]:.3f}, {coverage[1]:.3f}]{'' if cell.design_based else ' †'}"
    return [
        f"{cell.labels:.1f}".removesuffix(".0"),
        _efficiency(cell),
        f"{cell.bias:+.2f}" + ("" if error is None else f" ± {error:.2f}"),
        f"{100 * cell.mse**0.5:.2f}",
        f"{cell.mean:.4f}",
        f"{cell.coverage:.3f} {ends}" if ends else "–",
        f"{cell.width:.3f}",
        "–" if ratio is None else number(ratio),
        "–" if cell.failures is None else f"{cell.failures:.1f}",
        f"{cell.milliseconds:.1f}",
    ]


def width_ratio(cell: CellMeasures, level: float) -> float | None:
    """Return the width of the intervals over that of a normal one with the error; None without an error."""
    return cell.width / (2 * normal_quantile(level) * cell.mse**0.5) if cell.mse else None


def _efficiency(cell: CellMeasures) -> str:
    ends = cell.efficiency_interval
    return number(cell.efficiency) + ("" if ends is None else f" [{number(ends[0])}, {number(ends[1])}]")


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


# -- papers ------------------------------------------------------------------------------------------------------------

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
    return _published_section("Mean E over all numbers of labels", head, rows)


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
    return _published_section(f"Failing examples found with {budget} labels", head, rows)


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
    return _published_section("Reduced sets", head, rows + averages * (len(results.cases) > 1))


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
    numbers = [value for value in values if value is not None and not math.isnan(value)]
    return sum(numbers) / len(numbers) if numbers else None


def _divergence(kl: float | None) -> str:
    return "–" if kl is None else f"{kl:.4f}"


def _published_section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a section whose title explains the brackets, if a cell has a published number in them."""
    is_compared = any(re.search(r" \([\d.]+%?\)$", text) for row in rows for text in row)
    return _section(f"{title} (in brackets: published)" if is_compared else title, head, rows)


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
