"""Means over known parts of the pool, from predictions for every example and the labels of all rounds.

A *variable* v is what an example contributes to a number, known once it is labelled: a failure, a missed example of a
class, a cost. Every example has a *forecast* v̂ of it. A *domain* D is a part of the pool that is known without labels, a
predicted class or a slice, so its size N_D is known. Round t with inclusion probabilities π estimates the mean over D by

    z_t = (1/N_D) · [ Σ_before v + Σ_free v̂ + Σ_batch (v - v̂)/π ]                 all sums over the examples of D

    θ̂ = Σ_t w_t z_t        w_t ∝ 1/V_t,   V_t = N_D⁻² Σ_free Var(v)(1/π - 1)

with *before* labelled when the round was drawn, and *free* not: the estimator of
:mod:`opacc_ray.samplers.neyman.regression`, restricted to D. All variables here are 0 where the model is right. With a
predicted probability p of failure, and the mean m and the mean square s of v among the failures of a predicted class,

    v̂ = p·m        Var(v) = p·s - p²·m²

so the sums of p, p(1/π - 1) and p²(1/π - 1) over *groups*, the examples of one slice and one predicted class, give every
total (:class:`GroupSums`).

The interval is Wilson's at the size of the simple random sample with the same variance. The measured variance rests on
the few labels of D, so it is shrunk towards the predicted one, and it is never below half of that:

    max( (m·M + k·V)/(m + k), V/2 ),   k = 20,   V = Σ w_t² V_t,   M = Σ w_t² Σ_batch (v - v̂)²(1 - π)/π²/(1 - h)/N_D²

Half an event is added at the upper end, at the weight of labels where events are predicted. The lower end is at most
that of the mid-P interval, because a single event proves little. Without an event, and with fewer than one predicted
among the labels, the upper end is at least the exact one. Finally the interval is cut to what the labels prove.

The ends at all levels are a confidence distribution, whose quantiles :meth:`Share.quantiles` returns: functions of
several means are estimated with them (:mod:`opacc_ray.estimators.metrics`).

Legend: N_D size, m labels in D, π inclusion probability, h leverage of a label, w weight of a round.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.intervals import Interval, cut, mid_p_low, wilson, zero_failure_bound

Array = NDArray[np.float64]
Codes = NDArray[np.integer]

PRIOR_LABELS = 20
"""k: labels that the predicted variance counts for."""

_LEAST_SHARE = 0.5
"""Least variance, in multiples of the predicted one."""

LEVELS = 48
"""Quantiles by which the distribution of a mean is represented."""

_LEAST = 1e-300


class Share(Protocol):
    """The mean of a variable in [0, 1] over a domain, and its interval at any level."""

    @property
    def value(self) -> float:
        """The estimate; unbiased ones may be outside of [0, 1]."""

    @property
    def error(self) -> float:
        """Its standard error."""

    @property
    def size(self) -> float:
        """N_D."""

    @property
    def num(self) -> int:
        """Labels in the domain."""

    def interval(self, level: float) -> Interval:
        """Return both ends at a confidence level."""


def quantiles(share: Share) -> Array:
    """Return as many quantiles (LEVELS,) as represent the distribution of a share, in order."""
    ends = [share.interval(1 - (2 * k + 1) / LEVELS) for k in range(LEVELS // 2)]
    return np.array([low for low, _ in ends] + [high for _, high in reversed(ends)])


class GroupSums(NamedTuple):
    """What one round says of each of G groups."""

    predicted: Array  # (G,) Σ_free p
    odds: Array  # (G,) Σ_free p(1/π - 1)
    square: Array  # (G,) Σ_free p²(1/π - 1)


class RoundLabels(NamedTuple):
    """The labels of one round."""

    places: slice  # among all labels
    before: NDArray[np.int64]  # places of the labels known when it was drawn
    expected: Array  # (n_t,) p
    probability: Array  # (n_t,) π
    leverage: Array  # (n_t,) h


class Groups(NamedTuple):
    """A partition of the pool in groups of one slice and one predicted class each; number s·C + c."""

    code: Codes  # (N,)
    sizes: NDArray[np.int64]  # (G,)
    num_classes: int  # C
    coefficient: Array | None = None  # (N,) by which the variables of each example are multiplied; None: 1

    @classmethod
    def of(
        cls, predicted: Codes, num_classes: int, slices: Codes | None = None, coefficient: Array | None = None
    ) -> "Groups":
        """Cross predicted classes (N,), 0 .. C - 1, with slices (N,), 0 .. S - 1."""
        code = predicted if slices is None else slices.astype(np.int64) * num_classes + predicted
        num = num_classes * (1 if slices is None else int(slices.max(initial=0)) + 1)
        return cls(code, np.bincount(code, minlength=num), num_classes, coefficient)

    @property
    def classes(self) -> NDArray[np.int64]:
        """(G,) predicted class of each group."""
        return np.arange(len(self.sizes)) % self.num_classes

    @property
    def slices(self) -> NDArray[np.int64]:
        """(G,) slice of each group."""
        return np.arange(len(self.sizes)) // self.num_classes

    def sums(self, free: NDArray[np.int64], p: Array, odds: Array) -> GroupSums:
        """Add up p (k,) and p with 1/π - 1 (k,) over the groups of the examples ``free`` (k,)."""
        code, size = self.code[free], len(self.sizes)
        first = p if self.coefficient is None else p * self.coefficient[free]
        second = odds if self.coefficient is None else odds * self.coefficient[free] ** 2
        return GroupSums(*(_added(code, own, size) for own in (first, p * second, p * p * second)))


class Variable(NamedTuple):
    """A variable that is 0 where the model is right."""

    values: Array  # (n,) of the labels
    mean: Array  # (G,) m, expected among the failures of each group
    square: Array  # (G,) s, of its square

    @classmethod
    def event(cls, values: Array, mean: Array) -> "Variable":
        """Return a variable that is 0 or 1."""
        return cls(values, mean, mean)


class Evidence(NamedTuple):
    """All that the rounds of a sample say of the groups of a pool."""

    groups: Groups
    index: NDArray[np.int64]  # (n,) labelled examples, over all rounds
    labels: tuple[RoundLabels, ...]
    sums: tuple[GroupSums, ...]
    trust: float  # λ: how far weights are those by variance
    weights: Array  # (rounds,) the other weights

    def shares(self, variable: Variable, domain: Codes, num_domains: int) -> "list[DomainShare]":
        """Return the mean of a variable in [0, 1] over each domain; ``domain`` (G,) is that of each group, or -1."""
        return [DomainShare(*row) for row in zip(*self._combine(variable, domain, num_domains), strict=True)]

    def total(self, variable: Variable, coefficient_scale: float = 1.0) -> tuple[float, float, float]:
        """Return the mean of any variable over the whole pool, its variance, and the degrees of freedom of that."""
        (share,) = self.shares(variable, np.zeros(len(self.groups.sizes), dtype=np.int64), 1)
        return share.value, share.variance + share.half_event[1], float(share.num - 1)

    def _combine(self, variable: Variable, domain: Codes, num: int) -> list[list[float]]:
        def over(values: Array) -> Array:  # sums over the groups of each domain
            return _added(domain[inside], values[inside], num)

        inside = domain >= 0
        sizes = over(self.groups.sizes.astype(np.float64))
        divisor = np.maximum(sizes, 1)
        group = self.groups.code[self.index].astype(np.int64)
        where, mean = domain[group], variable.mean[group]
        factor = np.ones(len(group)) if self.groups.coefficient is None else self.groups.coefficient[self.index]
        spread = [over(own.odds * variable.square - own.square * variable.mean**2) for own in self.sums]
        foreseen = np.maximum(np.stack(spread) / divisor**2, _LEAST)
        weight = 1 / foreseen
        weight = self.trust * weight / weight.sum(axis=0) + (1 - self.trust) * self.weights[:, None]
        value, measured, first, second, expected = (np.zeros(num) for _ in range(5))
        for w, part, sums in zip(weight, self.labels, self.sums, strict=True):
            known, own = part.before[where[part.before] >= 0], np.arange(part.places.start, part.places.stop)
            here = where[own] >= 0
            own, at = own[here], where[own][here]
            p, pi, h = part.expected[here], part.probability[here], part.leverage[here]
            scale, left = factor[own] * (w / divisor)[at], np.maximum(1 - pi, 0)
            forecast = p * mean[own]
            before = _added(where[known], factor[known] * variable.values[known], num)
            error = scale * (variable.values[own] - forecast) / pi
            value += w * (before + over(sums.predicted * variable.mean)) / divisor + _added(at, error, num)
            measured += _added(at, error**2 * left / (1 - h), num)
            effect = scale * np.sqrt(left) / pi
            first += _added(at, forecast * effect, num)
            second += _added(at, forecast * effect**2, num)
            expected += _added(at, forecast, num)
        every, once = np.unique(self.index, return_index=True)
        once = once[where[once] >= 0]
        labelled = _added(where[once], np.ones(len(once)), num)
        events = _added(where[once], variable.values[once], num)
        by_forecast = (weight**2 * foreseen).sum(axis=0)
        shrunk = (labelled * measured + PRIOR_LABELS * by_forecast) / (labelled + PRIOR_LABELS)
        variance = np.maximum(shrunk, _LEAST_SHARE * by_forecast)
        half = 0.5 / np.maximum(expected, _LEAST)
        columns = (value, variance, half * first, half * second, sizes, labelled, events, expected)
        return [column.tolist() for column in columns]


class DomainShare(NamedTuple):
    """The mean of a variable in [0, 1] over one domain, from predictions and labels."""

    value: float
    variance: float
    half_event: float  # what half an event adds to the value
    half_variance: float  # and to the variance
    size: float  # N_D
    labelled: float  # distinct labels in D
    events: float  # their sum
    expected: float  # predicted among the labels

    @property
    def error(self) -> float:
        """Standard error."""
        return 0.0 if self.labelled >= self.size else float(self.variance**0.5)

    @property
    def num(self) -> int:
        """Labels in the domain."""
        return int(self.labelled)

    def interval(self, level: float) -> Interval:
        """Return both ends at a confidence level: [0, 1] without a label in the domain."""
        if self.labelled >= self.size:
            known = self.events / max(self.size, 1)
            return known, known
        if not self.labelled:
            return 0.0, 1.0
        proved = self.events / self.size, 1 - (self.labelled - self.events) / self.size
        return cut((self._low(level), self._high(level)), *proved)

    def _low(self, level: float) -> float:
        if not self.events or self.value <= 0:
            return 0.0
        share = min(self.value, 1.0)
        size = self._size_at(share)
        low = wilson(share, size, level)[0]
        return min(low, mid_p_low(share * size, size, level)) if share < 1 else low

    def _high(self, level: float) -> float:
        share = min(max(self.value, 0.0) + self.half_event, 1.0)
        high = wilson(share, self._size_at(share), level)[1]
        if not self.events and self.expected < 1:
            high = max(high, zero_failure_bound(self.num, level))
        return high

    def _size_at(self, share: float) -> float:
        """Return the size of the simple random sample with the same variance at a share of events."""
        nearest = min(self.half_event, 0.5)
        inside = min(max(share, nearest), 1 - nearest)
        return max(inside * (1 - inside) / max(self.variance + self.half_variance, _LEAST), 1e-3)


def _added(code: Codes, values: Array, num: int) -> Array:
    return np.bincount(code, weights=values, minlength=num).astype(np.float64)
