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
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from opacc_ray.designs.inclusion_probability import inclusion_probabilities
from opacc_ray.documents import Document, Part, format_field
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
    means = {key: _mean([one[key] for one in found.values()]) for key in MEANS}
    return found[worst] | means | {"bias_standard_error": None, "efficiency_interval": None, "worst_slice": worst}


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return sum(known) / len(known) if known else 0.0


# -- documents -----------------------------------------------------------------------------------------------------


class CaseFacts(Part):
    """A case: a pool whose outcomes are all known."""

    case: str = Field(description="its name")
    drawn_from: str | None = Field(default=None, description="case that it is a random part of; null: none")
    uri: str = Field(description="where it lies")
    sha256: str | None = Field(description="digest of the file")
    size: int = Field(ge=1, description="N, examples in the pool")
    accuracy: float = Field(ge=0, le=1, description="the mean outcome of the pool")
    variance: float = Field(
        ge=0,
        description="S², so that S²(1/n - 1/N) is the variance by a simple random sample: that of the outcomes for "
        "the accuracy; for slices their mean",
    )
    number: str = Field(default="accuracy", description="what is estimated")
    truth: dict[str, float] = Field(default={}, description="the true number: of each slice, or of the pool by ''")
    outcome: str = Field(description="how outcomes were made")
    binary: bool = Field(description="whether every outcome is 0 or 1; else they are scores")
    features: list[str] = Field(description="features that the case has")
    bound: dict[str, float] = Field(
        description="budget -> least E of an unbiased method that sees what neyman sees; empty for scores"
    )


class CellMeasures(Part):
    """One method at one budget on one case; standard deviations are those of a simple random sample (SRS)."""

    case: str = Field(description="name of the case")
    method: str = Field(description="name of the method in this study")
    design: str = Field(description="the method with its parameters and rounds")
    budget: int | None = Field(ge=1, description="labels allowed; null: the method stopped by itself")
    repetitions: int = Field(ge=1, description="R, repetitions")
    mean: float = Field(description="mean of the estimates")
    standard_deviation: float | None = Field(description="standard deviation of the estimates; null if R = 1")
    bias: float = Field(description="mean error, in standard deviations of SRS")
    bias_standard_error: float | None = Field(description="its standard error; null where nothing varies")
    mse: float = Field(ge=0, description="mean squared error")
    efficiency: float = Field(ge=0, description="E, mean squared error over the variance of SRS")
    efficiency_interval: list[float] | None = Field(description="95 % interval of E; null where nothing varies")
    coverage: float = Field(ge=0, le=1, description="share of the intervals that hold the true number")
    coverage_interval: list[float] | None = Field(description="95 % interval of it; null where nothing varies")
    width: float = Field(ge=0, description="mean width of the intervals")
    worst_slice: str | None = Field(default=None, description="slice of the least coverage; null without slices")
    interval: str = Field(description="name of the interval")
    design_based: bool = Field(description="whether the interval holds by the sampling design alone")
    draws: float = Field(ge=0, description="mean number of draws; an example drawn twice counts twice")
    labels: float = Field(ge=0, description="mean number of distinct examples")
    failures: float | None = Field(description="mean number of mispredictions among them; null for scores")
    failures_deviation: float | None = Field(default=None, description="their standard deviation; null if R = 1")
    error: float = Field(ge=0, description="mean absolute error")
    kl: float | None = Field(default=None, description="mean KL divergence of the output layer; null: not measured")
    milliseconds: float = Field(ge=0, description="median time to choose, all rounds")


class NotPossible(Part):
    """A method that a case lacks features for, or that does not estimate the number."""

    case: str = Field(description="name of the case")
    method: str = Field(description="name of the method in this study")
    reason: str = Field(description="what is missing")


class StudyResults(Document):
    """Every method at every budget on every case."""

    format: Literal["opacc-study/1"] = format_field("opacc-study/1")
    command: str | None = Field(description="the command that ran the study, if it was one")
    created: str = Field(description="when it ended: ISO 8601, UTC")
    versions: dict[str, str] = Field(description="version of Python and of each package that matters")
    spec: StudySpec = Field(description="the study, with every default")
    cases: list[CaseFacts] = Field(description="the cases")
    methods: list[str] = Field(description="names of the methods, in the order of tables")
    cells: list[CellMeasures] = Field(description="what was measured")
    not_possible: list[NotPossible] = Field(description="methods that could not be run")

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
