"""Weights that agree with how often the model predicts each class in the whole pool.

If the model's prediction of *every* example of the pool is known, so is the share W_c of each predicted class, and
:func:`calibrate` gives each label the weight that makes the sample agree with it (poststratification; C.-E. Särndal,
B. Swensson, J. Wretman, "Model Assisted Survey Sampling", 1992, 7.6): w_k · W_c / Ŵ_c, and v of what is left when every
class's mean is taken off. Its bias is of order 1/n. Classes with fewer than five labels are taken together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.design import times
from opacc_ray.errors import LabelError
from opacc_ray.estimators.linear import Array, LinearEstimator, linear_estimator
from opacc_ray.selection import Selection

_FEWEST = 5
"""Labels a predicted class needs for a weight of its own."""


@dataclass(frozen=True, eq=False)
class _Calibrated:
    """``base`` with weights times ``ratio`` (n,), which is one number in each ``group`` (n,)."""

    base: LinearEstimator
    ratio: Array
    group: NDArray[np.int64]

    @property
    def weights(self) -> Array:
        return self.base.weights * self.ratio

    @property
    def largest_weight(self) -> float:
        return self.base.largest_weight

    @property
    def degrees(self) -> int | None:
        return self.base.degrees

    @property
    def reason(self) -> str | None:
        return self.base.reason

    def mean(self, x: Array) -> Any:
        return self.base.mean(times(self.ratio, x))

    def variance(self, x: Array) -> Any:
        member = (self.group == np.arange(self.group.max() + 1)[:, None]) * self.base.weights  # (groups, n)
        centre = (member / member.sum(axis=1, keepdims=True)) @ x
        return self.base.variance(times(self.ratio, x - centre[self.group]))


def design_for_classes(
    rounds: Sequence[Selection], predicted: NDArray[Any], pool_count: Mapping[Any, int] | None
) -> LinearEstimator:
    """How the labels represent classes: calibrated with the pool's predicted classes where that is known and sound.

    Designs that draw single examples by a belief in failure are left as they are: a class whose heavy examples the
    sample missed looks sure of itself when calibrated, and its interval would cover too seldom.
    """
    if pool_count is None or any(selection.design.draws_by_risk for selection in rounds):
        return linear_estimator(rounds)
    return calibrate(rounds, predicted, pool_count)


def calibrate(
    rounds: Selection | Sequence[Selection] | LinearEstimator, prediction: NDArray[Any], pool_count: Mapping[Any, int]
) -> LinearEstimator:
    """The same labels, made to agree with how often the model predicts each class in the whole pool.

    Parameters
    ----------
    rounds : a selection or all rounds in their order
    prediction : (n,) predicted class of each label, over all rounds
    pool_count : examples of the pool by predicted class

    Raises
    ------
    LabelError
        If a label has a predicted class that the pool has not.
    """
    base = linear_estimator(rounds)
    seen, code, num = np.unique(prediction, return_inverse=True, return_counts=True)
    unknown = [name for name in seen.tolist() if pool_count.get(name, 0) < 1]
    if unknown:
        raise LabelError(f"a label has the predicted class {unknown[0]!r}, which pool_count does not count")
    own = num >= _FEWEST  # if none has, all are taken together, and nothing is calibrated
    group_of_class = np.where(own, np.cumsum(own) - 1, own.sum())
    group = group_of_class[code]  # (n,)
    share = np.zeros(int(own.sum()) + 1)
    share[:-1] = [pool_count[name] for name in seen[own].tolist()]
    share[-1] = sum(pool_count.values()) - share.sum()  # classes with few labels or none
    found = np.bincount(group, weights=base.weights, minlength=len(share))
    share *= found > 0
    ratio = share / share.sum() / np.where(found > 0, found, 1)
    return _Calibrated(base, ratio[group], group)
