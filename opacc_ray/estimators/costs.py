"""The mean cost of errors, where it follows from the accuracy.

If every error costs the same, the mean cost is the share of failures times that cost. Otherwise it is the total of
another variable, the cost of each misprediction (:meth:`opacc_ray.estimators.class_totals.ClassTotals.mean_cost`).
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from opacc_ray.estimators.accuracy_estimate import Estimate

Costs = Mapping[Any, float | Mapping[Any, float]]
"""True class -> the cost of missing it, or -> predicted class -> the cost of that confusion; others cost 1."""


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
    return scaled(replace(accuracy, value=1 - accuracy.value, low=1 - accuracy.high, high=1 - accuracy.low), cost)


def scaled(found: Estimate, factor: float) -> Estimate:
    """Return an estimate in other units."""
    ends = {name: factor * getattr(found, name) for name in ("value", "standard_error", "low", "high")}
    return replace(found, **ends)
