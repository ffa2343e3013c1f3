"""How good judges are: what the labels of a pool say of those that say whether an answer is right.

A judge splits the part of the pool that it has judged in two parts of known size: the answers that it calls right, and
those that it calls wrong. How many are right in either is estimated from the labels as in any slice. Sensitivity (the
share of the right answers that it calls right), specificity (the share of the wrong ones that it calls wrong) and
Cohen's kappa are functions of these two totals (:mod:`opacc_ray.estimators.metrics`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.intervals import Interval
from opacc_ray.estimators.metrics import Metric, Totals
from opacc_ray.estimators.totals import Share
from opacc_ray.judges import NOT_JUDGED, SAYS_RIGHT, SAYS_WRONG, verdicts
from opacc_ray.samplers.metric_estimates import MetricEstimates
from opacc_ray.slices import Slicing

_PREFIX = "judge*"
"""Begins the name of the slices of a judge: no column's slices have that name."""


class JudgeQuality(NamedTuple):
    """What one judge is worth, with intervals."""

    judged: int  # examples of the pool
    labels: int  # of these, with a label
    says_right: float  # share of the judged answers that it calls right
    sensitivity: Estimate  # share of the right answers that it calls right
    specificity: Estimate  # share of the wrong answers that it calls wrong
    kappa: Estimate  # agreement beyond chance


def judge_slicings(judges: Mapping[str, NDArray[np.float64]]) -> dict[str, Slicing]:
    """Return the slices by what each judge says, as :func:`judge_quality` needs them."""
    return {f"{_PREFIX}{name}": verdicts(score) for name, score in judges.items()}


def judge_quality(estimates: MetricEstimates, name: str, level: float) -> JudgeQuality:
    """Return what the labels say of a judge, each interval at the level; needs its slices among those of the pool."""
    slicing = estimates.slicings[f"{_PREFIX}{name}"]
    totals = estimates.totals(f"{_PREFIX}{name}")
    failures = totals.failures(totals.slices, totals.num_slices)
    both = Totals(failures[SAYS_RIGHT], _Complement(failures[SAYS_WRONG]))
    size = np.bincount(slicing.codes, minlength=totals.num_slices)
    found = [totals.noted(both.estimate(Metric(own), level)) for own in ("recall", "specificity", "kappa")]
    judged, labels = int(size.sum() - size[NOT_JUDGED]), sum(own.num for own in both)
    return JudgeQuality(judged, labels, float(size[SAYS_RIGHT] / max(judged, 1)), *found)


@dataclass(frozen=True)
class _Complement:
    """The mean of 1 - v over a domain."""

    share: Share

    @property
    def value(self) -> float:
        return 1 - self.share.value

    @property
    def error(self) -> float:
        return self.share.error

    @property
    def size(self) -> float:
        return self.share.size

    @property
    def num(self) -> int:
        return self.share.num

    @property
    def events(self) -> float:
        return self.share.num - self.share.events

    def interval(self, level: float) -> Interval:
        low, high = self.share.interval(level)
        return 1 - high, 1 - low
