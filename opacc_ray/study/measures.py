"""From the trials of a cell to its measures.

The yardstick is a simple random sample without replacement of as many labels, whose estimate has the standard deviation
s = √(S² · (1/n - 1/N)). With e = estimate - θ of R repetitions:

    bias         mean e / s,  standard error sd(e) / (s √R)
    E            mean e² / s², the relative efficiency: SRS needs about 1/E times the labels
                 interval E · exp(±z · sd(e²) / (mean e² · √R)), the delta method for log E
    coverage     share of intervals that hold θ, with Wilson's interval for a share of R

n is the mean number of draws, which is the budget unless a method ends before.

Legend: N pool, n labels, θ accuracy of the pool, S² = Σ (y - θ)²/(N - 1), z normal quantile of 95 %.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from opacc_ray.estimators import intervals
from opacc_ray.estimators.accuracy_estimate import Outcome, is_binary
from opacc_ray.study.trials import Trial

CERTAINTY = 0.95
"""Level of the intervals for E and coverage, whatever the level of the intervals under study."""

ROUNDING = 1e-12


class Truth(NamedTuple):
    """What is known of a case."""

    size: int  # N
    accuracy: float  # θ
    variance: float  # S²
    binary: bool

    def srs_deviation(self, n: float) -> float:
        """s: standard deviation of the mean of a simple random sample without replacement."""
        return math.sqrt(self.variance * (1 / n - 1 / self.size))


def truth_of(outcome: Outcome) -> Truth:
    """N, θ and S² of outcomes (N,)."""
    variance = float(outcome.var(ddof=1)) if len(outcome) > 1 else 0.0
    return Truth(len(outcome), float(outcome.mean()), variance, is_binary(outcome))


def measure(trials: list[Trial], truth: Truth) -> dict[str, Any]:
    """The measures of a cell, in JSON types; None where one repetition, or a method without chance, tells nothing."""
    R = len(trials)
    value = np.array([trial.value for trial in trials])  # (R,)
    error = value - truth.accuracy
    draws = float(np.mean([trial.draws for trial in trials]))
    deviation = truth.srs_deviation(draws)
    mse = float((error**2).mean())
    varies = R > 1 and float(np.ptp(value)) > 0
    covered = sum(trial.low - ROUNDING <= truth.accuracy <= trial.high + ROUNDING for trial in trials)
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
        "milliseconds": 1000 * float(np.median([trial.seconds for trial in trials])),
    }


def _efficiency_interval(error: Outcome, deviation: float) -> list[float]:
    square = error**2
    efficiency = float(square.mean()) / deviation**2
    half = intervals.normal_quantile(CERTAINTY) * float(square.std(ddof=1)) / float(square.mean()) / len(error) ** 0.5
    return [efficiency * math.exp(-half), efficiency * math.exp(half)]
