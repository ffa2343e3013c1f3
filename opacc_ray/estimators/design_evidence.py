"""What labels say of parts of the pool by the sampling design alone, without predictions.

The mean of a variable over a domain D is a ratio of two estimated means (C.-E. Särndal, B. Swensson, J. Wretman, "Model
Assisted Survey Sampling", 1992, 5.6), with d the membership,

    R = x̂ / d̂,  x = v·d        v(R) = variance of the mean of (x - R·d) / d̂

where the hats are those of the design. R has a bias of order 1/n. The interval is the weighted Clopper-Pearson one. Its
one more event has the largest weight of any label, relative to d̂, because it may come from a part with few labels. For
a simple random sample it is Clopper and Pearson's interval for the labels in D. With replicates the variance is widened
by Student's quantile.

The mean over the whole pool is that of the design itself, which is better where examples were drawn in proportion to a
predicted risk.

Legend: D domain, v variable, d 1 for the examples of D and else 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.intervals import (
    TIE,
    Interval,
    Moments,
    student_widening,
    weighted_clopper_pearson,
    weighted_share_interval,
)
from opacc_ray.estimators.rounds import LinearEstimator, linear_estimator
from opacc_ray.estimators.totals import Array, Codes, DomainMean, Groups, Variable, added, labelled_in
from opacc_ray.selection import Selection


@dataclass(frozen=True)
class DesignShare(DomainMean):
    """The mean over one domain by the design."""

    largest_weight: float  # of one label
    degrees: int | None = None  # of the variance, if it comes from few replicates
    rest: Moments | None = None  # mean and variance of 1 - v, where they do not follow from those of v
    below: float = 0.0  # what half an event, of the size of those that make the variance, takes from the value
    above: float = 0.0  # and what one adds

    def _ends(self, level: float) -> Interval:
        widen = student_widening(self.degrees, level) ** 2
        wide = self.variance * widen
        if self.rest is not None:
            return weighted_share_interval(
                Moments(self.value, wide), self.rest.widened(widen), self.largest_weight, level
            )
        low, high = weighted_clopper_pearson(max(self.value, 0.0), wide, self.largest_weight, level)
        few, _ = weighted_clopper_pearson(max(1 - self.value, 0.0), wide, self.largest_weight, level)
        return low, max(high, 1 - few) if 2 * self.value > 1 + TIE else high


class DesignEvidence:
    """What the rounds of any designs, from number ``first`` on, say of the groups of a pool."""

    def __init__(self, selections: Sequence[Selection], groups: Groups, first: int = 0) -> None:
        self.groups, self.sizes = groups, groups.sizes()
        self.index: NDArray[np.int64] = np.concatenate([part.index for part in selections])
        self.design: LinearEstimator = linear_estimator(selections, first)
        self.group = groups.code(self.index)

    @property
    def reason(self) -> str | None:
        """Why the estimates are not design-based; None if they are."""
        return self.design.reason

    def shares(self, variable: Variable, domain: Codes, num_domains: int) -> list[DesignShare]:
        """Return the mean of a variable over each domain; ``domain`` (G,) is that of each group, or -1."""
        where = domain[self.group]
        if num_domains == 1 and (domain == 0).all():
            return [self._of_pool(variable)]
        value, variance, found = self._ratios(variable, where, num_domains)
        weight = self.design.largest_weight / np.maximum(found, 1e-300)
        sizes = added(domain, self.sizes, num_domains)
        labelled, events = labelled_in(self.index, where, variable.values, num_domains)
        rows = np.column_stack([value, variance, sizes, labelled, events, weight]).tolist()
        few = self.design.degrees
        return [
            DesignShare(value, variance, size, num, events, weight, few)
            for value, variance, size, num, events, weight in rows
        ]

    def variance(self, variable: Variable, domain: Codes, num_domains: int) -> Array:
        """Return the variance of the mean of any variable over each domain.

        Half an event is added, of the size expected there, for the failures that a small sample missed.
        """
        where = domain[self.group]
        _, variance, found = self._ratios(variable, where, num_domains)
        size = variable.square[self.group] * self.groups.factor(self.index) ** 2
        mean = added(where, size, num_domains) / np.maximum(added(where, np.ones(len(size)), num_domains), 1)
        weight = self.design.largest_weight / np.maximum(found, 1e-300)
        return np.asarray(variance + np.where(found > 0, 0.5 * weight**2 * mean, 0.0))

    def _of_pool(self, variable: Variable) -> DesignShare:
        """Return the mean over the whole pool by the design's own estimator."""
        design, values = self.design, self.groups.factor(self.index) * variable.values
        own, rest = (Moments(float(design.mean(x)), float(design.variance(x))) for x in (values, 1 - values))
        labelled, events = labelled_in(self.index, np.zeros(len(self.index), dtype=np.int64), variable.values, 1)
        counts = float(self.sizes.sum()), float(labelled[0]), float(events[0])
        effect, likely = design.weights * self.groups.factor(self.index), variable.mean[self.group]
        signed = ([likely @ np.maximum(s * effect, 0) ** k for k in (1, 2)] for s in (-1, 1))
        half = (0.5 * float(two) / max(float(one), 1e-300) for one, two in signed)
        return DesignShare(*own, *counts, design.largest_weight, design.degrees, rest, *half)

    def _ratios(self, variable: Variable, where: Codes, num: int) -> tuple[Array, Array, Array]:
        """Return R, v(R) and d̂ of each domain; where no label is, R is the mean of all labels."""
        values = self.groups.factor(self.index) * variable.values
        value, variance, found = np.full(num, values.mean()), np.zeros(num), np.zeros(num)
        with_labels = np.unique(where[where >= 0])
        member = (where[:, None] == with_labels).astype(np.float64)  # (n, domains with labels)
        size = self.design.mean(member)
        there = size > 0
        member, size, with_labels = member[:, there], size[there], with_labels[there]
        value[with_labels] = self.design.mean(member * values[:, None]) / size
        variance[with_labels] = self.design.variance(member * (values[:, None] - value[with_labels]) / size)
        found[with_labels] = size
        return value, variance, found
