"""Compute baselines for an estimate: a simple random sample of as many labels, and the confidence without labels.

    S² = n / (n - 1) · θ̂(1 - θ̂)                      for scores their variance, weighted by the design
    interval of a simple random sample of n, without replacement, whose mean is θ̂     (``design_based.py``)
    n_eff = 1 / (v / S² + 1/N)                        the n at which (1/n - 1/N)·S², its variance, is v

n_eff is L. Kish's effective sample size ("Survey Sampling", 1965): n_eff = 3n means that n labels of the design are
worth three times as many of a simple random sample. It is rough, because v is estimated from the same sample, and too
small if the sample missed the rare failures of large weight. So it is withheld where v is unreliable, and where it
contradicts the interval, which allows for such failures:

    d = (Σ (y - ȳ)²)² / Σ (y - ȳ)⁴ < 3                for 0/1 outcomes about the number of failures, or of successes
    n_eff > n, though the interval is no narrower than that of the simple random sample

**Without any label**, the confidence c (the largest softmax value) gives three guesses of the accuracy, none with an
interval (:func:`label_free_accuracy`):

    average confidence            mean c
    difference of confidences     accuracy of the reference + mean c - mean c of the reference
    average thresholded           share of the pool with c >= t; as many of the reference are below t as fail

Sources: D. Guillory, V. Shankar, S. Ebrahimi, T. Darrell, L. Schmidt, "Predicting with Confidence on Unseen
Distributions", ICCV 2021; S. Garg, S. Balakrishnan, Z. C. Lipton, B. Neyshabur, H. Sedghi, "Leveraging Unlabeled Data
to Predict Out-of-Distribution Performance", ICLR 2022. The last two need a labelled reference, such as the model's test
set. All assume that the confidence is as reliable on the pool as on the reference; only labels can test that.

Legend: N pool, n labels (each example once), θ̂ the estimate of the design, v its estimated variance, S² the variance of
outcomes, y outcomes, ȳ their mean, d effective number of outcomes in their variance.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.estimators import intervals
from opacc_ray.estimators.accuracy_estimate import Estimate, Outcome, is_binary
from opacc_ray.estimators.intervals import WEIGHTED, weighted_clopper_pearson
from opacc_ray.estimators.rounds import as_lists, linear_estimator
from opacc_ray.selection import Selection

Array = NDArray[np.float64]

LEAST_DEVIANT = 3
"""Least d for which an effective size is reported."""


@dataclass(frozen=True)
class Baseline:
    """A simple random sample of as many labels, with the estimated accuracy."""

    n: int  # labels
    low: float
    high: float
    level: float
    interval: str
    effective_size: float | None  # None: withheld

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, under the names of the attributes."""
        return asdict(self)


def baseline(rounds: Selection | Sequence[Selection], outcomes: Sequence[Any], estimate: Estimate) -> Baseline:
    """Return the interval of a simple random sample of as many labels, and the effective sample size.

    Parameters
    ----------
    rounds, outcomes : as for :func:`opacc_ray.estimate`: a selection and its outcomes, or a list of each
    estimate : its result
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
        few, many = weighted_clopper_pearson(
            1 - mean, error**2, SimpleRandom(n, pool_size, False).weight_bound, estimate.level
        )
        low, high, name = 1 - many, 1 - few, WEIGHTED
    effective = _effective_size(estimate, spread, pool_size) if _deviant(values) >= LEAST_DEVIANT else None
    if effective is not None and effective > n * (1 + 1e-9) and estimate.high - estimate.low >= high - low:
        effective = None
    return Baseline(n, low, high, estimate.level, name, effective)


def _spread(selections: Sequence[Selection], values: Outcome, mean: float) -> float:
    """Estimate the variance of the outcomes in the pool."""
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
    """Return d, the effective number of outcomes in their variance; 0 if all are equal."""
    if np.ptp(values) == 0:
        return 0.0
    return intervals.effective_number((values - values.mean()) ** 2)


def label_free_accuracy(
    confidence: Array, reference: Array | None = None, outcome: Array | None = None
) -> dict[str, float]:
    """Return guesses of the accuracy by name, from the confidence (N,) alone.

    With ``reference`` and ``outcome``, the confidences and outcomes (k,) of labelled examples, there are three guesses;
    without, the first.
    """
    found = {"average confidence": float(np.mean(confidence))}
    if reference is not None and outcome is not None:
        failures = round(float(len(outcome) - np.sum(outcome)))
        threshold = np.sort(reference)[failures] if failures < len(reference) else np.inf
        moved = float(np.mean(outcome) + np.mean(confidence) - np.mean(reference))
        found["difference of confidences"] = moved
        found["average thresholded confidence"] = float(np.mean(confidence >= threshold))
    return found
