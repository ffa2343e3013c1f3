"""Accuracy with the help of a prediction that the whole pool has: the difference estimator, for every design.

The model's confidence, or whether another model agrees, predicts the outcome of each example at no cost. Its mean over
the pool is known, so labels need only say by how much it is wrong. With q = 1 - prediction the predicted failure and
D(·) the design's estimate of the mean of a variable (:mod:`opacc_ray.designs.design`), the share of failures is

    θ̂ = λ·Q + D(f - λq) = D(f) + λ·(Q - D(q))        Q the mean of q over the pool, 0 <= λ <= 1

λ = 0 is the estimate of :func:`opacc_ray.estimate` and λ = 1 the difference estimator (W. G. Cochran, "Sampling
Techniques", 1977, 7.2; C.-E. Särndal, B. Swensson, J. Wretman, "Model Assisted Survey Sampling", 1992, 6.3). D is
linear and λ fixed, so θ̂ is exactly unbiased where the design's estimator is, however bad the prediction. It is stated
for failures, as the designs are: for a design that looks for failures D(1) is not 1, and D(y) a bad estimate.

If no strength is given λ is tuned, as in regression estimators (Cochran, 7.3) and in PPI++ (A. N. Angelopoulos, J. C.
Duchi, T. Zrnic, "PPI++: Efficient Prediction-Powered Inference", 2023), to the least estimated variance, but for b²:

    λ = C(f, q) / (v(q) + b²)  cut to [0, 1]         C = (v(f + q) - v(f - q)) / 4
                                                     b = max(max_k w_k q_k, Q - D(q)), at most w · max q

b is one more label, a false alarm: as large as the largest predicted failure of the sample, or as those that the sample
lacks. It is nothing beside v(q) where many labels carry q, and holds λ down where few do: one failure that happened to
be foreseen is no reason to believe the rest, and predictions that the sample did not meet are not confirmed by it.
Without failures λ = 0. Tuning costs a bias of order 1/n. Replicates are too few for a covariance: λ is tuned to the
variance within them.

The interval is that of `weighted.py` for θ̂, with one more label of the worst kind at either end. For the upper end that
is, as there, a failure of the largest weight that was not foreseen; for the lower end it is the false alarm,

    lower    mean (θ̂ - λb)/(1 + w)    variance (v + (wθ̂ + λb)²) / ((1 + w)²·(1 + 2w))

Zou and Donner's interval of `comparison.py`, from the two sides of f - λq, covers as well, but is up to 1.5 times as
wide as without assistance, since it takes the largest q to come with the largest weight. With replicates v is widened
by Student's quantile. λ = 0 leaves the design's own interval.

Designs that have spent the confidence on the draw gain little from it again.

Legend: N pool, n labels, f = 1 - outcome, w_k weight of a label, w the largest, v estimated variance of D.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.designs.design import Replicate
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimators import intervals, weighted
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.linear import Array, LinearEstimator, linear_estimator
from opacc_ray.estimators.plain import by_designs
from opacc_ray.estimators.rounds import as_lists, checked_rounds, known, round_weights
from opacc_ray.pool import SOFTMAX_ROUNDING
from opacc_ray.selection import Selection

NAME = "assisted weighted Clopper-Pearson"

_ROUNDING = 1e-12
"""A covariance that is smaller than the variances by this is none."""


class _Predicted(NamedTuple):
    """Predicted failures: of the labels, and what is known of the pool's."""

    failure: Array  # (n,) q
    mean: float  # Q
    largest: float


def assist(
    rounds: Selection | Sequence[Selection],
    outcomes: Sequence[Any] | Outcome,
    prediction: ArrayLike,
    level: float = 0.95,
    strength: float | None = None,
) -> Estimate:
    """Accuracy from the labels and a prediction of every outcome of the pool.

    Parameters
    ----------
    rounds, outcomes : as for :func:`opacc_ray.estimate`: a selection and its outcomes, or a list of each
    prediction : (N,) in [0, 1], in the order of the pool: the outcome to expect, such as the model's confidence. It
        must not rest on the labels
    strength : λ in [0, 1]; None tunes it

    Returns
    -------
    Estimate
        Unbiased where :func:`opacc_ray.estimate` is if ``strength`` is given, and with a bias of order 1/n if not. It
        is as design-based as the design.

    Raises
    ------
    DataError
        If the predictions are not N numbers in [0, 1].
    SpecError
        If ``strength`` is not in [0, 1], or a selection was drawn by ``neyman``.
    LabelError
        As for :func:`opacc_ray.estimate`.
    """
    found = assisted(rounds, outcomes, prediction, level, strength)
    return known(*as_lists(rounds, outcomes)).state(found)


def assisted(
    rounds: Selection | Sequence[Selection],
    outcomes: Sequence[Any] | Outcome,
    prediction: ArrayLike,
    level: float,
    strength: float | None,
) -> Estimate:
    """:func:`assist` before its ends are cut at what is known for certain, and its value at its ends."""
    selections, failures, plain = _given(rounds, outcomes, level)
    predicted, design = _predicted(selections, prediction), linear_estimator(selections)
    used = _tuned(selections, design, failures, predicted) if strength is None else _checked_strength(strength)
    if used == 0:
        return plain
    error = failures - used * predicted.failure
    share, variance = used * predicted.mean + float(design.mean(error)), float(design.variance(error))
    widened = variance * intervals.student_widening(design.degrees, level) ** 2
    low, high = _bounds(share, widened, design.largest_weight, used * _false_alarm(design, predicted), level)
    return replace(
        plain, value=1 - share, standard_error=math.sqrt(variance), low=1 - high, high=1 - low, interval=NAME
    )


def tuned_strength(
    rounds: Selection | Sequence[Selection], outcomes: Sequence[Any] | Outcome, prediction: ArrayLike
) -> float:
    """λ in [0, 1] that :func:`assist` takes if none is given: 0 if the prediction does not help, or no label fails."""
    selections, failures, _ = _given(rounds, outcomes, 0.95)
    return _tuned(selections, linear_estimator(selections), failures, _predicted(selections, prediction))


def _given(
    rounds: Selection | Sequence[Selection], outcomes: Sequence[Any] | Outcome, level: float
) -> tuple[list[Selection], Array, Estimate]:
    """All rounds, the failures (n,) of their labels, and the estimate without assistance, which checks both."""
    selections, given = as_lists(rounds, outcomes)
    predicts = next((part.method for part in selections if part.design.prediction is not None), None)
    if predicts:
        raise SpecError(
            f"{predicts} predicts every outcome itself, from the labels before each draw, and its estimate has that "
            "prediction in it: leave the other one out"
        )
    _, values = checked_rounds(selections, given, level)
    return selections, 1 - np.concatenate(values), by_designs(selections, values, level)


def _predicted(selections: Sequence[Selection], prediction: ArrayLike) -> _Predicted:
    size = selections[0].pool_size
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
            f"prediction {values[bad[0]]} of example number {bad[0]} of the pool is not in [0, 1]: give the outcome "
            "to expect, 1 for correct"
        )
    values = np.minimum(values, 1)
    labelled = np.concatenate([selection.index for selection in selections])
    mean, least = float(values.mean(dtype=np.float64)), float(values.min())
    return _Predicted(1 - values[labelled].astype(np.float64), 1 - mean, 1 - least)


def _checked_strength(strength: float) -> float:
    if isinstance(strength, bool) or not 0 <= strength <= 1:
        raise SpecError(f"strength={strength!r}: give a number from 0, no assistance, to 1, or None to tune it")
    return float(strength)


def _tuned(selections: Sequence[Selection], design: LinearEstimator, failures: Array, predicted: _Predicted) -> float:
    q, covariance, rounding = predicted.failure, 0.0, 0.0
    variance = _false_alarm(design, predicted) ** 2
    for share, part, place in _independent(selections, design):
        x = np.stack([failures + q, failures - q, q], axis=1)[place]  # (its labels, 3)
        both, apart, own = part.variance(x).tolist()
        covariance += share**2 * (both - apart) / 4
        rounding += share**2 * _ROUNDING * (both + apart)
        variance += share**2 * own
    return min(covariance / variance, 1.0) if variance > 0 and covariance > rounding else 0.0


def _independent(
    selections: Sequence[Selection], design: LinearEstimator
) -> Iterator[tuple[float, LinearEstimator, NDArray[np.int64]]]:
    """Designs with their share in the estimate, and places of their labels: variances by share² add up to its."""
    ends = np.cumsum([len(selection) for selection in selections])
    if not any(selection.design.num_replicates for selection in selections):
        yield 1.0, design, np.arange(ends[-1])
        return
    weight = round_weights(selections)
    for selection, end, factor in zip(selections, ends, weight.tolist(), strict=True):
        whole = Replicate(selection.pool_size, selection.design, np.arange(len(selection)))
        for size, own, places in selection.design.parts or (whole,):
            yield factor * size / selection.pool_size, own, end - len(selection) + places


def _false_alarm(design: LinearEstimator, predicted: _Predicted) -> float:
    """b: how far one label at which the prediction fails may move the estimate."""
    weight, q = design.weights, predicted.failure
    seen = float((weight * q).max()) * design.largest_weight / float(weight.max())
    lacking = predicted.mean - float(design.mean(q))
    return min(max(seen, lacking), design.largest_weight * predicted.largest)


def _bounds(share: float, variance: float, weight: float, alarm: float, level: float) -> intervals.Interval:
    """Interval for the share of failures."""
    if weight == 0:  # the whole pool is labelled
        return share, share
    y = max(share, 0.0)
    shifted = variance + (weight * y + alarm) ** 2 - (weight * (y - alarm)) ** 2  # gives the variance stated above
    low, _ = weighted.failure_bounds(max(y - alarm, 0.0), shifted, weight, level)
    _, high = weighted.failure_bounds(y, variance, weight, level)
    return low, high
