"""Accuracy with the help of a prediction that the whole pool has: the difference estimator, for every design.

The model's confidence, or whether another model agrees, predicts the outcome of each example at no cost. Its mean over
the pool is known, so labels need only say by how much it is wrong. With q = 1 - prediction the predicted failure and
D(·) the design's estimate of the mean of a variable (:mod:`opacc_ray.estimators.linear`), the share of failures is

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

Measured on the five subjects of the DeepEST paper and Fashion-MNIST with the model's confidence, 500 repetitions
(`benchmarks/intervals_coverage.py`). E, the squared error over that of SRS, at n = 100: without assistance, with λ = 1
and tuned.

                  srs               css               ssrs              deepest
    CN5 MNIST     0.88 0.66 0.72    0.32 0.26 0.27    0.17 0.17 0.17    2.25 2.10 1.96
    LN5 MNIST     1.00 0.78 0.81    0.22 0.18 0.19    0.15 0.15 0.15    2.17 2.01 1.88
    CN12 CIFAR10  1.07 0.80 0.83    2.10 1.97 2.02    0.75 0.74 0.75    3.62 3.16 3.30
    VGG16 CIFAR10 1.05 0.83 0.90    0.57 0.57 0.57    0.66 0.66 0.66    3.71 3.30 3.47
    VGG16 CIF.100 1.08 0.78 0.79    2.38 2.18 2.25    0.84 0.83 0.84    4.03 3.46 3.65
    Fashion       0.90 0.71 0.72    1.42 1.29 1.30    0.54 0.53 0.54    1.89 1.74 1.78

Designs that have spent the confidence on the draw gain little from it again: gbs, sups, rhcs and two_ups as little as
ssrs. Over these eight designs and n = 50, 100, 200 the 95 % interval covers in 95.8 % or more with λ = 1 and in 95.2 %
or more tuned, tuning adds a bias of at most 0.09 standard errors of SRS, and the tuned interval is, on average over
cases and n, as wide as without assistance times 0.94 (srs), 1.02 (css), 1.01 (ssrs), 1.03 (gbs), 0.99 (deepest) and
1.00 (sups, rhcs, two_ups); 0.89 with five replicates of srs, and 1.11 for rounds of srs and css, where it covers in
98.6 %. A prediction that is wrong in 15 % of CN5 MNIST, where 1 % fail, is worse than none. At n = 50 and 100 λ = 1
makes E 14 to 180 of it (srs, css, sups, deepest) and still covers in 93.6 % or more; tuned, E is that of the design
within a tenth or so: 0.91, 0.30, 0.64 and 2.17 for 0.87, 0.30, 0.72 and 2.67 at n = 50.

Legend: N pool, n labels, f = 1 - outcome, w_k weight of a label, w the largest (*reach*), v estimated variance of D.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.designs.base import Part
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimators import intervals, weighted
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.linear import Array, LinearEstimator, linear_estimator
from opacc_ray.estimators.rounds import plain_estimate, round_weights
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
    selections, failures, plain = _given(rounds, outcomes, level)
    predicted, design = _predicted(selections, prediction), linear_estimator(selections)
    used = _tuned(selections, design, failures, predicted) if strength is None else _checked_strength(strength)
    if used == 0:
        return plain
    error = failures - used * predicted.failure
    share, variance = used * predicted.mean + float(design.mean(error)), float(design.variance(error))
    widened = variance * _widening(selections, level)
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
    selections = [rounds] if isinstance(rounds, Selection) else list(rounds)
    given = [outcomes] if isinstance(rounds, Selection) else list(outcomes)
    if any(selection.design.prediction is not None for selection in selections):
        raise SpecError(
            "neyman predicts every outcome itself, from the labels before each draw, and its estimate has that "
            "prediction in it: leave the other one out"
        )
    plain = plain_estimate(selections, given, level)
    return selections, 1 - np.concatenate(given).astype(np.float64), plain


def _predicted(selections: Sequence[Selection], prediction: ArrayLike) -> _Predicted:
    values, size = np.asarray(prediction), selections[0].pool_size
    if values.shape != (size,) or values.dtype.kind not in "biuf":
        raise DataError(
            f"prediction has shape {values.shape} and type {values.dtype}, and the pool {size} examples: give one "
            "number per example of the whole pool, in its order"
        )
    bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(bad):
        raise DataError(
            f"prediction {values[bad[0]]} of example number {bad[0]} of the pool is not in [0, 1]: give the outcome "
            "to expect, 1 for correct"
        )
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
    weight = round_weights([len(selection) for selection in selections])
    for selection, end, factor in zip(selections, ends, weight.tolist(), strict=True):
        whole = Part(selection.pool_size, selection.design, np.arange(len(selection)))
        for size, own, places in selection.design.parts or (whole,):
            yield factor * size / selection.pool_size, own, end - len(selection) + places


def _widening(selections: Sequence[Selection], level: float) -> float:
    """Of a variance that few replicates estimate: the square of Student's quantile by the normal one."""
    degrees = [len(selection.design.parts) - 1 for selection in selections if selection.design.num_replicates]
    return intervals.student_widening(min(degrees), level) ** 2 if degrees else 1.0


def _false_alarm(design: LinearEstimator, predicted: _Predicted) -> float:
    """b: how far one label at which the prediction fails may move the estimate."""
    weight, q = design.weights, predicted.failure
    seen = float((weight * q).max()) * design.largest_weight / float(weight.max())
    lacking = predicted.mean - float(design.mean(q))
    return min(max(seen, lacking), design.largest_weight * predicted.largest)


def _bounds(share: float, variance: float, reach: float, alarm: float, level: float) -> intervals.Interval:
    """Interval for the share of failures."""
    if reach == 0:  # the whole pool is labelled
        return share, share
    y = max(share, 0.0)
    shifted = variance + (reach * y + alarm) ** 2 - (reach * (y - alarm)) ** 2  # gives the variance stated above
    low, _ = weighted.failure_bounds(max(y - alarm, 0.0), shifted, reach, level)
    _, high = weighted.failure_bounds(y, variance, reach, level)
    return low, high
