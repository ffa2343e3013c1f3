"""What a simple random sample would have given for the same labels: the yardstick beside every estimate.

    S² = n / (n - 1) · θ̂(1 - θ̂)                      for scores their variance, weighted by the design
    interval of a simple random sample of n, without replacement, whose mean is θ̂          (simple.py)
    n_eff = 1 / (v / S² + 1/N)                        the n at which (1/n - 1/N)·S², its variance, is v

n_eff is L. Kish's effective sample size ("Survey Sampling", 1965): n_eff = 3n says that the design did with n labels
what a simple random sample does with three times as many. It is rough: v is itself estimated from the sample, and too
small where the sample met none of the rare failures with a large weight. So it is withheld where v says little, and
where it contradicts the interval, which insures against such failures:

    d = (Σ (y - ȳ)²)² / Σ (y - ȳ)⁴ < 3                of 0/1 outcomes about the failures met, or successes if fewer
    n_eff > n, though the interval is no narrower than that of the simple random sample

Legend: N pool, n labels (each example once), θ̂ the estimate of the design, v its estimated variance, S² the variance of
outcomes, y outcomes, ȳ their mean, d how many of them make their variance.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.estimators import intervals
from opacc_ray.estimators.base import Estimate, Outcome, is_binary
from opacc_ray.estimators.linear import linear_estimator
from opacc_ray.estimators.rounds import as_lists
from opacc_ray.estimators.weighted import NAME, failure_bounds
from opacc_ray.selection import Selection

LEAST_DEVIANT = 3
"""The d of an effective size that is stated."""


@dataclass(frozen=True)
class Baseline:
    """A simple random sample of as many labels, with the estimated accuracy."""

    n: int  # labels
    low: float
    high: float
    level: float
    interval: str
    effective_size: float | None  # None: it cannot be told

    def to_dict(self) -> dict[str, Any]:
        """JSON types, under the names of the attributes."""
        return asdict(self)


def baseline(rounds: Selection | Sequence[Selection], outcomes: Sequence[Any], estimate: Estimate) -> Baseline:
    """The plain interval and the effective sample size.

    Parameters
    ----------
    rounds, outcomes : as for :func:`opacc_ray.estimate`: a selection and its outcomes, or a list of each
    estimate : what that gave for them
    """
    selections, given = as_lists(rounds, outcomes)
    values = np.concatenate(given).astype(np.float64)
    n, pool_size = len(np.unique(np.concatenate([part.index for part in selections]))), selections[0].pool_size
    mean = min(max(estimate.value, 0.0), 1.0)
    spread = _spread(selections, values, mean) * n / max(n - 1, 1)
    if is_binary(values):
        low, high = intervals.hypergeometric(round(mean * n), n, pool_size, estimate.level)
        name = "exact hypergeometric"
    else:
        error = math.sqrt(spread * (1 / n - 1 / pool_size))
        few, many = failure_bounds(1 - mean, error**2, SimpleRandom(n, pool_size, False).weight_bound, estimate.level)
        low, high, name = 1 - many, 1 - few, NAME
    effective = _effective_size(estimate, spread, pool_size) if _deviant(values) >= LEAST_DEVIANT else None
    if effective is not None and effective > n * (1 + 1e-9) and estimate.high - estimate.low >= high - low:
        effective = None
    return Baseline(n, low, high, estimate.level, name, effective)


def _spread(selections: Sequence[Selection], values: Outcome, mean: float) -> float:
    """Variance of the outcomes in the pool."""
    if is_binary(values):
        return mean * (1 - mean)
    weight = linear_estimator(selections).weights
    weight = weight / weight.sum()
    return float(weight @ (values - weight @ values) ** 2)


def _effective_size(estimate: Estimate, spread: float, pool_size: int) -> float | None:
    if not estimate.design_based or estimate.standard_error == 0 or spread == 0:
        return None
    return 1 / (estimate.standard_error**2 / spread + 1 / pool_size)


def _deviant(values: Outcome) -> float:
    """d: how many of the outcomes make their variance; 0 if they are all alike."""
    if np.ptp(values) == 0:
        return 0.0
    return intervals.effective_number((values - values.mean()) ** 2)
