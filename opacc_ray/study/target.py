"""What a study estimates: a metric of the whole pool, or of each slice; its truth, and its error by a random sample.

The yardstick is a simple random sample without replacement of n labels whose examples are put in strata afterwards: the
examples predicted as a class are counted, so their number is known. To first order, its error is the mean over the
sample of

    u_i = N · [ ∂g/∂TP · (tp_i - TP/P) if i is predicted as the class, else ∂g/∂FN · (fn_i - FN/(M - P)) ]

so the variance is S²(u) · (1/n - 1/N). An average over classes has the mean of their u. For the accuracy of a slice,
u_i is N/M · (y_i - θ) in the slice and 0 elsewhere; for that of the pool, it is y_i - θ, and the variance is exact.

Legend: N pool, M slice, y outcome, g the metric, TP and FN true positives and false negatives, P predicted as the
class.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.metrics import ACCURACY, AVERAGES, Function, Metric, Parts, parse_metric
from opacc_ray.estimators.rounds import Outcome, is_binary
from opacc_ray.samplers import parse_parameters
from opacc_ray.samplers.estimate import estimate
from opacc_ray.samplers.metric_estimates import MetricEstimates, Sample
from opacc_ray.selection import Selection
from opacc_ray.slices import Slicing
from opacc_ray.study.cases import Case

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

ALL = ""
"""Name of the whole pool among slices."""

_STEP = 1e-4
"""Of a derivative, in examples."""


class Target(NamedTuple):
    """The number, or the numbers, that a study estimates."""

    name: str = ACCURACY  # of the metric
    by: str | None = None  # name of the slices

    @property
    def metric(self) -> Metric:
        return parse_metric(self.name)

    @property
    def is_accuracy(self) -> bool:
        """Whether it is the accuracy of the whole pool."""
        return self == Target()

    def __str__(self) -> str:
        return self.name if self.by is None else f"{self.name} by {self.by}"


class Truth(NamedTuple):
    """A true number of a case, and how precise a simple random sample is."""

    size: int  # N
    value: float  # θ
    variance: float  # S² of u
    binary: bool  # whether the case's outcomes are 0 or 1


def srs_deviation(size: int, variance: float, n: float) -> float:
    """Return s, the standard deviation of the estimate by a simple random sample without replacement."""
    return math.sqrt(variance * (1 / n - 1 / size))


def truth_of(outcome: Outcome) -> Truth:
    """Return the accuracy of outcomes (N,)."""
    variance = float(outcome.var(ddof=1)) if len(outcome) > 1 else 0.0
    return Truth(len(outcome), float(outcome.mean()), variance, is_binary(outcome))


def truths_of(case: Case, target: Target) -> dict[str, Truth]:
    """Return the true numbers of a case by slice; raises DataError if it has no such number."""
    if target.is_accuracy:
        return {ALL: truth_of(case.outcome)}
    slicing, size, found = slices_of(case, target), case.view.size, {}
    for number, name in enumerate(slicing.names):
        inside = slicing.codes == number
        value, effect = _accuracy(case.outcome[inside]) if target.name == ACCURACY else _metric(case, target, inside)
        variance = size**2 * float(effect @ effect) / max(size - 1, 1)
        found[name] = Truth(size, value, variance, is_binary(case.outcome))
    return found


def slices_of(case: Case, target: Target) -> Slicing:
    """Return the slices of a case; one of all examples where none are asked for."""
    if target.by is None:
        return Slicing((ALL,), np.zeros(case.view.size, dtype=np.int32))
    by = target.by
    return case.view.once("study slices", by, lambda: case.view.slicing(by))


def class_of(case: Case, metric: Metric) -> int:
    """Return the class of a metric, 0 .. C - 1: with two classes the second by default.

    Raises
    ------
    DataError
        The true classes of the case are not known, or it has no such class.
    """
    if case.truth is None:
        raise DataError(f"case {case.source.name}: {metric} needs true classes; give label next to prediction")
    if metric.positive is None and len(case.classes) == 2:
        return 1
    if metric.positive not in case.classes:
        shown = ", ".join(case.classes[:10])
        raise DataError(f"case {case.source.name}: {metric} names none of its classes ({shown}); write METRIC@CLASS")
    return case.classes.index(metric.positive)


def _accuracy(outcome: Outcome) -> tuple[float, Array]:
    """Return the mean of outcomes (M,), and u/N of each (M,)."""
    return float(outcome.mean()), (outcome - outcome.mean()) / len(outcome)


def _metric(case: Case, target: Target, inside: NDArray[np.bool_]) -> tuple[float, Array]:
    """Return a metric of the examples ``inside`` (N,), and u/N of each (M,)."""
    metric = target.metric
    averaged = metric.name in AVERAGES
    positive = [class_of(case, Metric(metric.name, name)) for name in case.classes] if averaged else None
    positive = [class_of(case, metric)] if positive is None else positive
    assert case.truth is not None
    truth, predicted = case.truth[inside], predicted_of(case)[inside]
    present = [c for c in positive if not averaged or (truth == c).any() or (predicted == c).any()]
    found = [_of_class(metric.function, truth == c, predicted == c) for c in present]
    return float(np.mean([value for value, _ in found])), np.mean([effect for _, effect in found], axis=0)


def _of_class(g: Function, truth: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> tuple[float, Array]:
    """Return g, and u/N of each example, for one class against the rest, both (M,)."""
    size = Parts(int(predicted.sum()), int((~predicted).sum()))
    hit, missed = truth & predicted, truth & ~predicted
    tp, fn = float(hit.sum()), float(missed.sum())
    by_tp, by_fn = (
        float(g(tp + a, fn + b, size) - g(tp - a, fn - b, size)) / (2 * _STEP) for a, b in ((_STEP, 0.0), (0.0, _STEP))
    )
    inside = hit - tp / max(size.inside, 1)
    outside = missed - fn / max(size.outside, 1)
    return float(g(tp, fn, size)), np.where(predicted, by_tp * inside, by_fn * outside)


def predicted_of(case: Case) -> Codes:
    """Return the predicted class of each example, (N,)."""
    return case.view.once("study classes", None, lambda: case.view.column("prediction").astype(np.int64))


# -- estimates -----------------------------------------------------------------------------------------------------


def serving(method: str, given: Mapping[str, Any], case: Case, target: Target) -> dict[str, Any]:
    """Return the parameters of a method: one that can draw for a number draws for the target, unless it is told not to.

    This is the only place that knows of the parameter ``serve``.
    """
    known = {item.name for item in fields(parse_parameters(method, given))}
    if target.is_accuracy or "serve" not in known or "serve" in given:
        return dict(given)
    metric = target.metric
    one_class = metric.name not in (ACCURACY, *AVERAGES)
    number = f"{metric.name}@{class_of(case, metric)}" if one_class else metric.name
    return dict(given) | {"serve": [number if target.by is None else target.by]}


def estimates(
    case: Case,
    target: Target,
    rounds: tuple[list[Selection], list[Outcome]],
    level: float,
    prediction: Array | None = None,
) -> dict[str, Estimate]:
    """Return the estimate of each slice from the selections and outcomes of all rounds.

    ``prediction`` (N,) assists the accuracy of the pool; it is not used for other numbers.
    """
    selections, outcomes = rounds
    if target.is_accuracy:
        return {ALL: estimate(selections, outcomes, level, prediction=prediction, pool=case.view)}
    index = np.concatenate([chosen.index for chosen in selections])
    truth = None if case.truth is None else case.truth[index]
    predicted = np.zeros(case.view.size, dtype=np.int64) if case.truth is None else predicted_of(case)
    slicings = {} if target.by is None else {target.by: slices_of(case, target)}
    sample = Sample(selections, outcomes, truth)
    found = MetricEstimates(sample, predicted, case.classes or ("all",), slicings, case.view)
    if target.by is not None:
        return found.by_slice(target.metric, target.by, level)
    return {ALL: found.estimate(target.metric, level)}
