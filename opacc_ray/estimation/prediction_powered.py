"""Estimate accuracy with a prediction of every outcome of the pool: prediction-powered, for every design.

The model's confidence, or the agreement with another model, predicts the outcome of each example at no cost. Its mean
over the pool is known, so labels only correct it. With q = 1 - prediction the predicted failure and D(·) the design's
estimate of the mean of a variable (:mod:`opacc_ray.designs.design`), the share of failures is

    θ̂ = λ·Q + D(f - λq) = D(f) + λ·(Q - D(q))        Q the mean of q over the pool, 0 <= λ <= 1

λ = 0 is the estimate of :func:`opacc_ray.estimate` and λ = 1 the difference estimator (W. G. Cochran, "Sampling
Techniques", 1977, 7.2; C.-E. Särndal, B. Swensson, J. Wretman, "Model Assisted Survey Sampling", 1992, 6.3). D is
linear, so for fixed λ θ̂ is unbiased where the design's estimator is, however poor the prediction. It is computed for
failures, as the designs are: for designs that search for failures D(1) is not 1, and D(y) is a poor estimate.

If ``strength`` is None, λ is tuned to the least estimated variance, as in regression estimators (Cochran, 7.3) and in
PPI++ (A. N. Angelopoulos, J. C. Duchi, T. Zrnic, "PPI++: Efficient Prediction-Powered Inference", 2023), with b² added:

    λ = C(f, q) / (v(q) + b²)  cut to [0, 1]         C = (v(f + q) - v(f - q)) / 4
                                                     b = max(max_k w_k q_k, Q - D(q)), at most w · max q

b is one more label, a false alarm: as large as the largest predicted failure of the sample, or as the predicted
failures that the sample lacks. Many labels make it negligible against v(q). With few labels it limits λ, because one
failure that was predicted by luck proves little. Without failures λ = 0. Tuning has a bias of order 1/n.

The interval is the weighted Clopper-Pearson one for θ̂, with one more label of the worst kind at either end: an
unpredicted failure of the largest weight at the upper end, and the false alarm at the lower end,

    lower    mean (θ̂ - λb)/(1 + w)    variance (v + (wθ̂ + λb)²) / ((1 + w)²·(1 + 2w))

(Zou and Donner's interval of ``model_comparison.py`` for the two sides of f - λq covers as well, but is up to 1.5 times
as wide as without assistance.) λ = 0 is the design's own interval.

Designs that already use the confidence for the draw gain little.

**Without any label**, the confidence c (the largest softmax value) gives three guesses of the accuracy, none with an
interval (:func:`label_free_accuracy`):

    average confidence            mean c
    difference of confidences     accuracy of the reference + mean c - mean c of the reference
    average thresholded           share of the pool with c >= t; as many of the reference are below t as fail

Sources: D. Guillory, V. Shankar, S. Ebrahimi, T. Darrell, L. Schmidt, "Predicting with Confidence on Unseen
Distributions", ICCV 2021; S. Garg, S. Balakrishnan, Z. C. Lipton, B. Neyshabur, H. Sedghi, "Leveraging Unlabeled Data
to Predict Out-of-Distribution Performance", ICLR 2022. The last two need a labelled reference, such as the model's test
set. All assume that the confidence is as reliable on the pool as on the reference; only labels can test that.

Legend: N pool, n labels, f = 1 - outcome, w_k weight of a label, w the largest, v estimated variance of D.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimation import intervals
from opacc_ray.estimation.accuracy import PoolFailures, failures_by_design
from opacc_ray.estimation.distribution import Law, Total
from opacc_ray.estimation.result import Estimate
from opacc_ray.estimation.sample import Rounds, Sample
from opacc_ray.pool import SOFTMAX_ROUNDING

Array = NDArray[np.float64]

_ROUNDING = 1e-12
"""Covariances smaller than the variances by this factor count as 0."""


class PredictedOutcomes(NamedTuple):
    """Predicted failures of the labels and of the pool."""

    failure: Array  # (n,) q
    mean: float  # Q
    largest: float


def assisted_estimate(
    sample: Sample, prediction: ArrayLike, level: float = 0.95, strength: float | None = None
) -> Estimate:
    """Estimate accuracy from the labels and a prediction of every outcome of the pool.

    Parameters
    ----------
    prediction : (N,) in [0, 1], in the order of the pool: the expected outcome, such as the model's confidence. It
        must not depend on the labels
    strength : λ in [0, 1]; None tunes it

    Returns
    -------
    Estimate
        Unbiased where :func:`opacc_ray.estimate` is if ``strength`` is given, else with a bias of order 1/n.

    Raises
    ------
    DataError
        The predictions are not N numbers in [0, 1].
    SpecError
        ``strength`` is not in [0, 1], or a selection was drawn by ``neyman``.
    """
    return assisted_failures(sample, prediction, strength).accuracy(level)


def assisted_failures(sample: Sample, prediction: ArrayLike, strength: float | None) -> PoolFailures:
    """Return the share of failures of :func:`assisted_estimate`; that of the design where λ = 0."""
    _refuse_predictions(sample)
    rounds, plain = sample.rounds, failures_by_design(sample)
    predicted = predict(sample, prediction)
    if strength is not None and (isinstance(strength, bool) or not 0 <= strength <= 1):
        raise SpecError(f"strength={strength!r}: give a number from 0 (no assistance) to 1, or None to tune it")
    used = _tuned(sample, predicted) if strength is None else float(strength)
    if used == 0:
        return plain
    error = sample.failure - used * predicted.failure
    share, variance = used * predicted.mean + float(rounds.mean(error)), float(rounds.variance(error))
    law = _Assisted(rounds.largest_weight, used * _false_alarm(rounds, predicted))
    if not rounds.is_census:
        plain = plain._replace(total=replace(plain.total, value=share, variance=variance))
    return plain._replace(total=replace(plain.total, law=law))


@dataclass(frozen=True)
class _Assisted(Law):
    """The weighted Clopper-Pearson law, with an unpredicted failure at one end and a false alarm at the other."""

    largest: float
    alarm: float  # λb
    name: str = "assisted weighted Clopper-Pearson"

    def ends(self, total: Total, level: float) -> intervals.Interval:
        weight, y, variance = self.largest, max(total.value, 0.0), total.variance
        shifted = variance + (weight * y + self.alarm) ** 2 - (weight * (y - self.alarm)) ** 2  # of the lower end
        low, _ = intervals.weighted_clopper_pearson(max(y - self.alarm, 0.0), shifted, weight, level)
        return low, intervals.weighted_clopper_pearson(y, variance, weight, level)[1]


def tuned_strength(sample: Sample, prediction: ArrayLike) -> float:
    """Return the λ that :func:`assisted_estimate` tunes: 0 if the prediction does not help, or no label fails."""
    _refuse_predictions(sample)
    return _tuned(sample, predict(sample, prediction))


def _refuse_predictions(sample: Sample) -> None:
    """Raise SpecError for rounds that predict every outcome themselves."""
    predicts = next((part.method for part in sample.rounds.selections if part.design.prediction is not None), None)
    if predicts:
        raise SpecError(
            f"{predicts} predicts every outcome itself, from the labels before each draw, and its estimate includes "
            "that prediction: leave the other one out"
        )


def predict(sample: Sample, prediction: ArrayLike) -> PredictedOutcomes:
    """Return the predicted failures of labels and pool; raises DataError unless each example has one in [0, 1]."""
    size = sample.rounds.pool_size
    try:
        values = np.asarray(prediction)
    except ValueError as error:  # rows that differ in length
        raise DataError(
            f"prediction is not made of numbers ({error}): give one per example of the whole pool"
        ) from None
    if values.shape != (size,) or values.dtype.kind not in "biuf":
        raise DataError(
            f"prediction has shape {values.shape} and type {values.dtype}, and the pool {size} examples: give one "
            "number per example of the whole pool, in its order"
        )
    bad = np.flatnonzero(~((values >= 0) & (values <= 1 + SOFTMAX_ROUNDING)))
    if len(bad):
        raise DataError(
            f"prediction {values[bad[0]]} of example number {bad[0]} of the pool is not in [0, 1]: give the "
            "expected outcome, 1 for correct"
        )
    values = np.minimum(values, 1)
    mean, least = float(values.mean(dtype=np.float64)), float(values.min())
    return PredictedOutcomes(1 - values[sample.rounds.index].astype(np.float64), 1 - mean, 1 - least)


def _tuned(sample: Sample, predicted: PredictedOutcomes) -> float:
    rounds, failure, q = sample.rounds, sample.failure, predicted.failure
    sums, differences, own = rounds.variance(np.stack([failure + q, failure - q, q], axis=1)).tolist()
    covariance, rounding = (sums - differences) / 4, _ROUNDING * (sums + differences)
    variance = own + _false_alarm(rounds, predicted) ** 2
    return min(covariance / variance, 1.0) if variance > 0 and covariance > rounding else 0.0


def _false_alarm(rounds: Rounds, predicted: PredictedOutcomes) -> float:
    """Return b, the most that one false alarm moves the estimate."""
    weight, q = rounds.weights, predicted.failure
    seen = float((weight * q).max()) * rounds.largest_weight / float(weight.max())
    lacking = predicted.mean - float(rounds.mean(q))
    return min(max(seen, lacking), rounds.largest_weight * predicted.largest)


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
