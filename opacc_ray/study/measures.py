"""Measure the trials of a cell, and define the documents of a study: results.json, and `opacc study --json`.

The yardstick is a simple random sample without replacement of as many labels, whose estimate has the standard deviation
s = √(S² · (1/n - 1/N)), see :mod:`opacc_ray.study.target`. With e = estimate - θ of R repetitions:

    bias         mean e / s,  standard error sd(e) / (s √R)
    E            mean e² / s², the relative efficiency: SRS needs about 1/E times the labels
                 interval E · exp(±z · sd(e²) / (mean e² · √R)), the delta method for log E
    coverage     share of intervals that hold θ, with Wilson's interval for a share of R

n is the mean number of draws: the budget, unless a method stops earlier. Where each slice has a number, every measure
is the mean over the slices, but the coverage is the least one. Slices where nothing varies have no bias and no E.

Legend: N pool, n labels, θ the true number, S² variance of what an example adds to it, z normal quantile of 95 %.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from opacc_ray.documents import Document, Part, format_field
from opacc_ray.estimators import intervals
from opacc_ray.estimators.rounds import Outcome
from opacc_ray.study.study_spec import StudySpec
from opacc_ray.study.target import Truth, srs_deviation
from opacc_ray.study.trials import Trial

CERTAINTY = 0.95  # level of the intervals for E and coverage, whatever the level under study

ROUNDING = 1e-12

MEANS = ("mean", "standard_deviation", "bias", "mse", "efficiency", "width", "error")  # stated as means over slices


def measure(trials: Sequence[Trial], truth: Truth) -> dict[str, Any]:
    """Return the measures of a cell; None where they need several repetitions or a random method."""
    R = len(trials)
    value = np.array([trial.value for trial in trials])  # (R,)
    error = value - truth.value
    draws = float(np.mean([trial.draws for trial in trials]))
    deviation = srs_deviation(truth.size, truth.variance, draws) or math.nan
    mse = float((error**2).mean())
    varies = R > 1 and float(np.ptp(value)) > 0
    covered = sum(trial.low - ROUNDING <= truth.value <= trial.high + ROUNDING for trial in trials)
    return {
        "repetitions": R,
        "mean": float(value.mean()),
        "standard_deviation": float(value.std(ddof=1)) if R > 1 else None,
        "bias": float(error.mean()) / deviation,
        "bias_standard_error": float(error.std(ddof=1)) / (deviation * math.sqrt(R)) if varies else None,
        "mse": mse,
        "efficiency": mse / deviation**2,
        "efficiency_interval": _efficiency_interval(error, deviation) if varies else None,
        "coverage": covered / R,
        "coverage_interval": list(intervals.wilson(covered / R, R, CERTAINTY)) if varies else None,
        "width": float(np.mean([trial.high - trial.low for trial in trials])),
        "interval": trials[0].interval,
        "design_based": all(trial.design_based for trial in trials),
        "draws": draws,
        "labels": float(np.mean([trial.labels for trial in trials])),
        "failures": float(np.mean([trial.failures for trial in trials])) if truth.binary else None,
        "failures_deviation": float(np.std([trial.failures for trial in trials], ddof=1))
        if truth.binary and R > 1
        else None,
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


def _efficiency_interval(error: Outcome, deviation: float) -> list[float]:
    square = error**2
    efficiency = float(square.mean()) / deviation**2
    half = intervals.normal_quantile(CERTAINTY) * float(square.std(ddof=1)) / float(square.mean()) / len(error) ** 0.5
    return [efficiency * math.exp(-half), efficiency * math.exp(half)]


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
    shuffled: list[str] = Field(description="features that were put in random order, as a control")
    bound: dict[str, float] = Field(
        description="budget -> least E of an unbiased method that sees what neyman sees; empty for scores"
    )
    without_labels: dict[str, float] = Field(
        default={}, description="accuracy as the confidence alone has it, by the name of the guess; no estimate"
    )


class CellMeasures(Part):
    """One method at one budget on one case; standard deviations are those of a simple random sample (SRS)."""

    case: str = Field(description="name of the case")
    method: str = Field(description="name of the method in this study")
    design: str = Field(description="the method with its parameters, rounds and assistance")
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
    error: float | None = Field(default=None, ge=0, description="mean absolute error; null in older results")
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
