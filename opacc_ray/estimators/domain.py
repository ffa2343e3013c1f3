"""Estimate numbers of parts of the pool from the same labels: accuracy by class, confusion matrix, cost of errors.

A class is a part (*domain*) of the pool whose size is not known, so its accuracy is a ratio of two estimated means
(C.-E. Särndal, B. Swensson, J. Wretman, "Model Assisted Survey Sampling", 1992, 5.6 and 10.3), with d the membership,

    R = x̂ / d̂,  x = y·d        v(R) = v of the mean of (x - R·d) / d̂

where the hats and v are those of the sampling design (:mod:`opacc_ray.designs.design`). R has a bias of order 1/n. A
class has few labels, so the interval is the weighted Clopper-Pearson one. Its one more failure has the largest weight
of any label, relative to d̂, because it may come from a part of the pool with few labels. For a simple random sample
this is Clopper and Pearson's interval for the labels of the class. Designs that search for failures have large weights
elsewhere and give wide intervals for classes. With replicates v is widened by Student's quantile, here and for costs.

Cells of the confusion matrix are ratios to the estimated size of the pool, so they sum to 1. For 0/1 outcomes and a
simple random sample the diagonal sums to the accuracy; other designs estimate the accuracy in better ways, so their
diagonal may differ slightly.

Costs are outcomes on another scale: 1 - cost / (largest cost) is in [0, 1], and its mean has the same estimators.
Expensive errors may be rare, so the interval is the weighted Clopper-Pearson one, with a mid-P upper end. If every
error costs the same, the mean cost follows from the share of failures.

**Poststratification.** If the model's prediction of *every* example of the pool is known, so is the share W_c of each
predicted class. :func:`calibrate` changes the weight of each label so that the sample agrees with it (Särndal et al.,
7.6): w_k · W_c / Ŵ_c, with v of the residuals from the classes' means. Its bias is of order 1/n. Classes with fewer
than five labels are combined.

Legend: y outcome, d 1 for the examples of the class and else 0, n labels.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.design import times
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimators.accuracy_estimate import Estimate, within_interval
from opacc_ray.estimators.design_based import design_based_estimate
from opacc_ray.estimators.intervals import (
    MID_P,
    WEIGHTED,
    Moments,
    student_widening,
    weighted_score_interval,
    weighted_share_interval,
)
from opacc_ray.estimators.rounds import Array, LinearEstimator, Outcome, linear_estimator
from opacc_ray.selection import Selection

Classes = NDArray[Any]
Rounds = Selection | Sequence[Selection] | LinearEstimator
"""A selection, all rounds in their order, or the result of :func:`calibrate`."""

Costs = Mapping[Any, float | Mapping[Any, float]]
"""True class -> the cost of missing it, or -> predicted class -> the cost of that confusion."""

_FEWEST = 5
"""Labels that a predicted class needs for a weight of its own."""


@dataclass(frozen=True, eq=False)
class Confusion:
    """Shares of the pool by true and predicted class."""

    classes: tuple[Hashable, ...]  # C names of labels and their predictions, in order
    share: Array  # (C, C) of the pool, true class by predicted class; sums to 1
    standard_error: Array  # (C, C)
    num: NDArray[np.int64]  # (C, C) labels
    reason: str | None  # why it is not design-based

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, under the names of the attributes."""
        return asdict(self) | {
            "classes": list(self.classes),
            "share": self.share.tolist(),
            "standard_error": self.standard_error.tolist(),
            "num": self.num.tolist(),
        }


def by_class(rounds: Rounds, outcome: Outcome, classes: Classes, level: float = 0.95) -> dict[Any, Estimate]:
    """Estimate the accuracy in each class that has labels: class -> Estimate, whose ``n`` counts its labels.

    Parameters
    ----------
    outcome : (n,) in [0, 1], over all rounds
    classes : (n,) of each label: the true class, the predicted one, or any other part of the pool
    level : confidence level of each single interval, not of all together
    """
    design = linear_estimator(rounds)
    _check(design, outcome=outcome, classes=classes)
    names, code, num = np.unique(classes, return_inverse=True, return_counts=True)
    member = np.eye(len(names))[code]  # (n, classes)
    value, variance = ratios(design, member * outcome[:, None], member)
    weight = design.largest_weight / design.mean(member)
    return {
        name: _proportion(design, float(value[c]), float(variance[c]), float(weight[c]), int(num[c]), level)
        for c, name in enumerate(names.tolist())
    }


def confusion(rounds: Rounds, truth: Classes, prediction: Classes) -> Confusion:
    """Estimate the shares of the pool by true and predicted class, given as (n,) over all rounds."""
    design = linear_estimator(rounds)
    _check(design, truth=truth, prediction=prediction)
    names, code = np.unique(np.concatenate([truth, prediction]), return_inverse=True)
    cell = code[: len(truth)] * len(names) + code[len(truth) :]  # (n,)
    seen, column = np.unique(cell, return_inverse=True)
    member = np.eye(len(seen))[column]  # (n, cells seen)
    value, variance = ratios(design, member, np.ones_like(member))

    def table(values: NDArray[Any]) -> NDArray[Any]:
        flat = np.zeros(len(names) ** 2, dtype=values.dtype)
        flat[seen] = values
        return flat.reshape(len(names), len(names))

    num = member.sum(axis=0).astype(np.int64)
    return Confusion(tuple(names.tolist()), table(value), table(np.sqrt(variance)), table(num), design.reason)


def ratios(design: LinearEstimator, top: Array, bottom: Array) -> tuple[Array, Array]:
    """Estimate ratios of the means of two variables (n, q), by column: values (q,) and their variances (q,)."""
    size = design.mean(bottom)
    value = design.mean(top) / size
    return value, design.variance((top - bottom * value) / size)


def mean_cost(
    rounds: Selection | Sequence[Selection], truth: Classes, prediction: Classes, costs: Costs, level: float = 0.95
) -> Estimate:
    """Estimate the mean cost of the model's errors per example of the pool, in units of cost.

    It is unbiased where the rounds' own estimator is. Predicted failures are not used: with all costs 1 its value is
    the share of failures by the designs.

    Parameters
    ----------
    truth, prediction : (n,) over all rounds
    costs : of errors; others cost 1, and a correct answer costs nothing

    Raises
    ------
    SpecError
        A cost is not a finite number of at least 0.
    """
    selections = [rounds] if isinstance(rounds, Selection) else list(rounds)
    design, largest = linear_estimator(selections), _largest(costs)
    _check(design, truth=truth, prediction=prediction)
    cost = [_cost(costs, *pair) for pair in zip(truth.tolist(), prediction.tolist(), strict=True)]
    ends = np.cumsum([len(selection) for selection in selections])[:-1]
    saved = 1 - np.array(cost) / largest
    own = design_based_estimate(selections, np.split(saved, ends), level)
    widen = student_widening(design.degrees, level) ** 2
    lost = Moments(1 - own.value, own.standard_error**2 * widen)
    rest = Moments(float(design.mean(saved)), float(design.variance(saved)) * widen)
    low, high = weighted_share_interval(lost, rest, design.largest_weight, level, MID_P)
    found = replace(own, value=largest * (1 - own.value), standard_error=largest * own.standard_error)
    return within_interval(replace(found, low=largest * low, high=largest * high, interval=WEIGHTED))


def cost_of_every_error(costs: Costs, classes: Collection[Any] | None) -> float | None:
    """Return the cost of every error if all cost the same, else None; unknown ``classes`` may have unnamed errors."""
    listed: set[float] = set() if classes else {1.0}
    for true in costs if classes is None else classes:
        cost = costs.get(true, 1.0)
        if not isinstance(cost, Mapping):
            listed.add(cost)
            continue
        named = [value for predicted, value in cost.items() if predicted != true]
        listed.update(named)
        if classes is None or len(named) < len(classes) - 1:
            listed.add(1.0)
    return listed.pop() if len(listed) == 1 else None


def cost_of_failures(accuracy: Estimate, cost: float) -> Estimate:
    """Return the mean cost, with its interval, of errors that all cost the same."""
    return replace(
        accuracy,
        value=cost * (1 - accuracy.value),
        standard_error=cost * accuracy.standard_error,
        low=cost * (1 - accuracy.high),
        high=cost * (1 - accuracy.low),
    )


def _largest(costs: Costs) -> float:
    """Return the largest cost of any error; raise SpecError if a cost is not a finite number of at least 0."""
    listed = [cost for item in costs.values() for cost in (item.values() if isinstance(item, Mapping) else [item])]
    for cost in listed:
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < math.inf:
            raise SpecError(f"cost {cost!r} of an error: give a finite number of at least 0")
    return float(max([1.0, *listed]))


def _cost(costs: Costs, true: Any, predicted: Any) -> float:
    if true == predicted:
        return 0.0
    cost = costs.get(true, 1.0)
    return float(cost.get(predicted, 1.0) if isinstance(cost, Mapping) else cost)


def _proportion(
    design: LinearEstimator, value: float, variance: float, weight: float, num: int, level: float
) -> Estimate:
    error, reason = math.sqrt(variance), design.reason
    widened = (error * student_widening(design.degrees, level)) ** 2
    low, high = weighted_score_interval(value, widened, weight, level)
    return within_interval(Estimate(value, error, low, high, level, WEIGHTED, num, reason is None, reason))


def _check(design: LinearEstimator, **values: NDArray[Any]) -> None:
    for name, array in values.items():
        if np.shape(array) != design.weights.shape:
            raise LabelError(
                f"{name} has shape {np.shape(array)} and the rounds {len(design.weights)} labels: "
                "give one per label, over all rounds in their order"
            )


# -- poststratification -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Calibrated:
    """``base`` with weights times ``ratio`` (n,), which is constant in each ``group`` (n,)."""

    base: LinearEstimator
    ratio: Array
    group: NDArray[np.int64]
    weights: Array
    largest_weight: float
    degrees: int | None
    reason: str | None

    def mean(self, x: Array) -> Any:
        return self.base.mean(times(self.ratio, x))

    def variance(self, x: Array) -> Any:
        member = (self.group == np.arange(self.group.max() + 1)[:, None]) * self.base.weights  # (groups, n)
        centre = (member / member.sum(axis=1, keepdims=True)) @ x
        return self.base.variance(times(self.ratio, x - centre[self.group]))


def design_for_classes(
    rounds: Sequence[Selection], predicted: NDArray[Any], pool_count: Mapping[Any, int] | None
) -> LinearEstimator:
    """Return the estimator for classes: calibrated with the pool's predicted classes if these are known.

    Designs that draw single examples by a predicted risk are not calibrated: a class whose heavy examples the sample
    missed would get too narrow an interval.
    """
    if pool_count is None or any(selection.design.draws_by_risk for selection in rounds):
        return linear_estimator(rounds)
    return calibrate(rounds, predicted, pool_count)


def calibrate(
    rounds: Selection | Sequence[Selection] | LinearEstimator, prediction: NDArray[Any], pool_count: Mapping[Any, int]
) -> LinearEstimator:
    """Calibrate the weights of labels to how often the model predicts each class in the whole pool.

    Parameters
    ----------
    prediction : (n,) predicted class of each label, over all rounds
    pool_count : examples of the pool by predicted class

    Raises
    ------
    LabelError
        A label has a predicted class that the pool does not have.
    """
    base = linear_estimator(rounds)
    seen, code, num = np.unique(prediction, return_inverse=True, return_counts=True)
    unknown = [name for name in seen.tolist() if pool_count.get(name, 0) < 1]
    if unknown:
        raise LabelError(f"a label has the predicted class {unknown[0]!r}, which pool_count does not count")
    own = num >= _FEWEST  # if none has, all are combined, and nothing is calibrated
    group_of_class = np.where(own, np.cumsum(own) - 1, own.sum())
    group = group_of_class[code]  # (n,)
    share = np.zeros(int(own.sum()) + 1)
    share[:-1] = [pool_count[name] for name in seen[own].tolist()]
    share[-1] = sum(pool_count.values()) - share.sum()  # classes with few labels or none
    found = np.bincount(group, weights=base.weights, minlength=len(share))
    share *= found > 0
    ratio = share / share.sum() / np.where(found > 0, found, 1)
    weights = base.weights * ratio[group]
    return _Calibrated(base, ratio[group], group, weights, base.largest_weight, base.degrees, base.reason)
