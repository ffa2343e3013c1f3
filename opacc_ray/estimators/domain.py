"""More than one number from the same labels: accuracy by class, the confusion matrix, the cost of errors.

A class is a part (*domain*) of the pool whose size is not known, so its accuracy is a ratio of two estimated means
(C.-E. Särndal, B. Swensson, J. Wretman, "Model Assisted Survey Sampling", 1992, 5.6 and 10.3), with d the membership,

    R = x̂ / d̂,  x = y·d        v(R) = v of the mean of (x - R·d) / d̂

where the hats and v are those of the sampling design (:mod:`opacc_ray.designs.design`). R is not quite unbiased:
its bias is of order 1/n. A class has few labels, so the interval is that of `weighted.py`; the failure that the sample
did not happen to show has the largest weight of any label, relative to d̂, for it may come from where the design draws
few and none was of the class. For a simple random sample this is Clopper and Pearson's interval for the labels of the
class. Designs that look for failures have heavy weights elsewhere and say little about classes. With replicates v is
widened by Student's quantile, here and for costs.

Cells of the confusion matrix are ratios as well, to the estimated size of the pool, so that they sum to 1. For
0/1 outcomes and a simple random sample its diagonal sums to the accuracy; other designs have better ways to estimate
that one number, so it may differ from it in the last digits.

Costs are outcomes on another scale: 1 - cost / (largest cost) is in [0, 1], and its mean comes by the same estimators.
Dear errors may be rare, which Student's interval for scores does not bear, so here too the interval is that of
`weighted.py`. Where every error costs the same, the mean cost is that of the share of failures.

Legend: y outcome, d 1 for the examples of the class and else 0, n labels.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimators import weighted
from opacc_ray.estimators.base import Estimate, Outcome, contain
from opacc_ray.estimators.intervals import student_widening
from opacc_ray.estimators.linear import Array, LinearEstimator, linear_estimator
from opacc_ray.estimators.plain import plain_estimate
from opacc_ray.selection import Selection

Classes = NDArray[Any]
Rounds = Selection | Sequence[Selection] | LinearEstimator
"""A selection, all rounds in their order, or what :func:`opacc_ray.estimators.calibration.calibrate` made of them."""

Costs = Mapping[Any, float | Mapping[Any, float]]
"""True class -> the cost of missing it, or -> predicted class -> the cost of that confusion."""


@dataclass(frozen=True, eq=False)
class Confusion:
    """How often each class of the pool is taken for each."""

    classes: tuple[Hashable, ...]  # C names that a label or a prediction of one bears, in order
    share: Array  # (C, C) of the pool, true class by predicted class; sums to 1
    standard_error: Array  # (C, C)
    num: NDArray[np.int64]  # (C, C) labels
    reason: str | None  # why it is not design-based

    def to_dict(self) -> dict[str, Any]:
        """JSON types, under the names of the attributes."""
        return asdict(self) | {
            "classes": list(self.classes),
            "share": self.share.tolist(),
            "standard_error": self.standard_error.tolist(),
            "num": self.num.tolist(),
        }


def by_class(rounds: Rounds, outcome: Outcome, classes: Classes, level: float = 0.95) -> dict[Any, Estimate]:
    """Accuracy in each class that a label bears.

    Parameters
    ----------
    rounds : a selection, or all rounds in their order
    outcome : (n,) in [0, 1], over all rounds
    classes : (n,) of each label: the true class, the predicted one, or any other part of the pool it is in
    level : confidence level of each interval by itself, not of all of them together

    Returns
    -------
    dict
        Class -> Estimate, whose ``n`` counts the labels of the class. A class that no label bears is absent.
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
    """Shares of the pool by true and predicted class.

    Parameters
    ----------
    rounds : a selection, or all rounds in their order
    truth, prediction : (n,) over all rounds
    """
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
    """Ratios of the means of two variables, column by column: (n, q) each -> values (q,) and their variances (q,)."""
    size = design.mean(bottom)
    value = design.mean(top) / size
    return value, design.variance((top - bottom * value) / size)


def mean_cost(
    rounds: Selection | Sequence[Selection], truth: Classes, prediction: Classes, costs: Costs, level: float = 0.95
) -> Estimate:
    """Mean cost of the model's errors per example of the pool.

    Parameters
    ----------
    rounds : a selection, or all rounds in their order
    truth, prediction : (n,) over all rounds
    costs : of errors; those it does not name cost 1, and a correct answer costs nothing

    Returns
    -------
    Estimate
        In units of cost; unbiased where the rounds' own estimator is. It rests on how the rounds were drawn, and on
        nothing that their labels predict: with all costs 1 its value is the share of failures by the designs.

    Raises
    ------
    SpecError
        If a cost is no finite number of at least 0.
    """
    selections = [rounds] if isinstance(rounds, Selection) else list(rounds)
    design, largest = linear_estimator(selections), _largest(costs)
    _check(design, truth=truth, prediction=prediction)
    cost = [_cost(costs, true, said) for true, said in zip(truth.tolist(), prediction.tolist(), strict=True)]
    ends = np.cumsum([len(selection) for selection in selections])[:-1]
    saved = 1 - np.array(cost) / largest
    own = plain_estimate(selections, np.split(saved, ends), level)
    widen = student_widening(design.degrees, level) ** 2
    lost = weighted.Moments(1 - own.value, own.standard_error**2 * widen)
    rest = weighted.Moments(float(design.mean(saved)), float(design.variance(saved)) * widen)
    low, high = weighted.share_bounds(lost, rest, design.largest_weight, level)
    found = replace(own, value=largest * (1 - own.value), standard_error=largest * own.standard_error)
    return contain(replace(found, low=largest * low, high=largest * high, interval=weighted.NAME))


def cost_of_every_error(costs: Costs, classes: Collection[Any] | None) -> float | None:
    """What each error costs if all cost the same, else None; of ``classes`` that are not known some may be unnamed."""
    listed: set[float] = set() if classes else {1.0}
    for true in costs if classes is None else classes:
        cost = costs.get(true, 1.0)
        named = [value for said, value in cost.items() if said != true] if isinstance(cost, Mapping) else [cost]
        listed.update(named)
        if isinstance(cost, Mapping) and (classes is None or len(named) < len(classes) - 1):
            listed.add(1.0)
    return listed.pop() if len(listed) == 1 else None


def cost_of_failures(accuracy: Estimate, cost: float) -> Estimate:
    """The mean cost of errors that all cost the same: that of the share of failures, and its interval."""
    return replace(
        accuracy,
        value=cost * (1 - accuracy.value),
        standard_error=cost * accuracy.standard_error,
        low=cost * (1 - accuracy.high),
        high=cost * (1 - accuracy.low),
    )


def _largest(costs: Costs) -> float:
    """The largest cost of all errors there can be; raises SpecError if one is no finite number of at least 0."""
    listed = [cost for item in costs.values() for cost in (item.values() if isinstance(item, Mapping) else [item])]
    for cost in listed:
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < math.inf:
            raise SpecError(f"cost {cost!r} of an error: give a finite number of at least 0")
    return float(max([1.0, *listed]))


def _cost(costs: Costs, true: Any, said: Any) -> float:
    if true == said:
        return 0.0
    cost = costs.get(true, 1.0)
    return float(cost.get(said, 1.0) if isinstance(cost, Mapping) else cost)


def _proportion(
    design: LinearEstimator, value: float, variance: float, weight: float, num: int, level: float
) -> Estimate:
    error, reason = math.sqrt(variance), design.reason
    widened = (error * student_widening(design.degrees, level)) ** 2
    low, high = weighted.failure_bounds(1 - value, widened, weight, level)
    return contain(Estimate(value, error, 1 - high, 1 - low, level, weighted.NAME, num, reason is None, reason))


def _check(design: LinearEstimator, **values: NDArray[Any]) -> None:
    for name, array in values.items():
        if np.shape(array) != design.weights.shape:
            raise LabelError(
                f"{name} has shape {np.shape(array)} and the rounds {len(design.weights)} labels: "
                "give one per label, over all rounds in their order"
            )
