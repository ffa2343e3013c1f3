"""Means over known parts of the pool, from predictions for every example and the labels of all rounds.

A *variable* v is what an example contributes to a number, known once it is labelled: a failure, a missed example of a
class, a cost. Every example has a *forecast* v̂ of it. A *domain* D is a part of the pool that is known without labels,
a predicted class or a slice, so its size N_D is known. Round t with inclusion probabilities π estimates the mean over D
by

    z_t = (1/N_D) · [ Σ_before v + Σ_free v̂ + Σ_batch (v - v̂)/π ]                 all sums over the examples of D

    θ̂ = Σ_t w_t z_t        w_t ∝ 1/V_t,   V_t = N_D⁻² Σ_free Var(v)(1/π - 1)

with *before* labelled when the round was drawn, and *free* not: the estimator of
:mod:`opacc_ray.samplers.neyman.regression`, restricted to D. All variables here are 0 where the model is right. With a
predicted probability p of failure, and the mean m and the mean square s of v among the failures of a predicted class,

    v̂ = p·m        Var(v) = p·s - p²·m²

so the sums of p, p(1/π - 1) and p²(1/π - 1) over *groups*, the examples of one slice and one predicted class, give
every total (:class:`GroupSums`).

What is stated is a composite of θ̂ and θ_p, what labels and predictions alone say of D
(:class:`~opacc_ray.estimators.intervals.PredictedShare`; for composites see J. N. K. Rao, I. Molina, "Small Area
Estimation", 2015, 3.3). With V the variance of θ̂ and V_p that of θ_p if the predictions are right up to one factor,
θ̂ is moved by

    V / max(V + V_p, (θ̂ - θ_p)²)

of the way. That is the weight of least variance, as long as the two differ by no more than that. Where they differ by
more, the predictions are wrong, and θ̂ moves less the more they are: by a standard error at most. The interval stays
where it was.

The interval is Wilson's at the size of the simple random sample with the same variance. The measured variance rests on
the few labels of D, so it is shrunk towards the predicted one, and it is never below half of that:

    max( (m·M + k·V)/(m + k), V/2 ),   k = 20,   V = Σ w_t² V_t,   M = Σ w_t² Σ_batch (v - v̂)²(1 - π)/π²/(1 - h)/N_D²

Where events differ in size by a coefficient of the example, as in AUC, few large ones decide M. There the variance is
also at least that with m = 2(Σ v̂a²)²/Σ v̂a⁴, with a the effect of a label.

Half an event is added to the upper end, at the weight of labels where events are predicted; where events differ in
size, as costs do, to the variance as well, as few labels show too little of how they differ. The lower end is at most
that of the mid-P interval, because a single event proves little. Without an event, and with fewer than one predicted
among the labels, the upper end is at least the exact one. Finally the interval is cut to what the labels prove.

The ends at all levels are a confidence distribution: functions of several means are estimated with its quantiles
(:mod:`opacc_ray.estimators.metrics`).

Legend: N_D size, m labels in D, π inclusion probability, h leverage of a label, w weight of a round.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.intervals import Interval, PredictedShare, cut, mid_p_low, wilson, zero_failure_bound

Array = NDArray[np.float64]
Codes = NDArray[np.integer]

PRIOR_LABELS = 20
"""k: labels that the predicted variance counts for."""

_LEAST_SHARE = 0.5
"""Least variance, in multiples of the predicted one."""

_LEAST = 1e-300
_BLOCK = 1 << 18


class Share(Hashable, Protocol):
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

    @property
    def events(self) -> float:
        """Their sum of the variable."""

    def interval(self, level: float) -> Interval:
        """Return both ends at a confidence level."""


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
    """A partition of the pool in groups of one slice and one predicted class each; slice s and class c are s·C + c."""

    predicted: Codes  # (N,) 0 .. C - 1
    num_classes: int  # C
    slices: Codes | None = None  # (N,) 0 .. S - 1; None: one slice
    num_slices: int = 1  # S
    coefficient: Array | None = None  # (N,) by which the variables of each example are multiplied; None: 1

    @property
    def num(self) -> int:
        """Return G, the number of groups."""
        return self.num_slices * self.num_classes

    def code(self, index: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """Return the group of the examples ``index``, (k,)."""
        code = self.predicted[index].astype(np.int64)
        return code if self.slices is None else code + self.slices[index].astype(np.int64) * self.num_classes

    def factor(self, index: NDArray[np.int64]) -> Array:
        """Return the coefficients of the examples ``index`` (k,)."""
        return np.ones(len(index)) if self.coefficient is None else self.coefficient[index]

    def sizes(self) -> Array:
        """Return the number of examples in each group, (G,)."""
        blocks = (slice(at, at + _BLOCK) for at in range(0, len(self.predicted), _BLOCK))
        counts = [np.bincount(self.code(own), minlength=self.num) for own in blocks]
        return np.sum(counts, axis=0, dtype=np.float64)

    def sums(self, labelled: NDArray[np.int64], p: Array, odds: Array) -> GroupSums:
        """Add up p (k,) and p with 1/π - 1 (k,) over the groups of the examples without ``labelled``, block by block.

        ``labelled`` is sorted; the k others keep their order.
        """
        found = np.zeros((3, self.num))
        for start in range(0, len(self.predicted), _BLOCK):
            stop = min(start + _BLOCK, len(self.predicted))
            first, last = np.searchsorted(labelled, (start, stop)).tolist()
            free = np.delete(np.arange(start, stop), labelled[first:last] - start)
            own = slice(start - first, stop - last)
            code, factor = self.code(free), self.factor(free)
            spread = p[own] * odds[own] * factor**2
            for row, values in zip(found, (p[own] * factor, spread, spread * p[own]), strict=True):
                row += added(code, values, self.num)
        return GroupSums(*found)


class Variable(NamedTuple):
    """A variable that is 0 where the model is right."""

    values: Array  # (n,) of the labels
    mean: Array  # (G,) m, expected among the failures of each group
    square: Array  # (G,) s, of its square

    @classmethod
    def event(cls, values: Array, mean: Array) -> "Variable":
        """Return a variable that is 0 or 1."""
        return cls(values, mean, mean)

    @property
    def differs(self) -> bool:
        """Whether its events differ in size, as costs and scores do."""
        between = (self.values > 0) & (self.values < 1)
        return bool(between.any()) or not np.array_equal(self.mean, self.square)


class Evidence(Protocol):
    """What the labels of all rounds say of the groups of a pool."""

    @property
    def groups(self) -> Groups:
        """The groups."""

    @property
    def sizes(self) -> Array:
        """(G,) examples in each group."""

    @property
    def index(self) -> NDArray[np.int64]:
        """(n,) labelled examples, over all rounds."""

    @property
    def reason(self) -> str | None:
        """Why the estimates are not design-based; None if they are."""

    def shares(self, variable: Variable, domain: Codes, num_domains: int) -> Sequence[Share]:
        """Return the mean of a variable in [0, 1] over each domain; ``domain`` (G,) is that of each group, or -1."""

    def variance(self, variable: Variable, domain: Codes, num_domains: int) -> Array:
        """Return the variance of the mean of any variable over each domain."""


@dataclass(frozen=True, eq=False)
class PredictedEvidence:
    """All that rounds with predicted failures say of the groups of a pool."""

    groups: Groups
    sizes: Array  # (G,)
    index: NDArray[np.int64]  # (n,)
    labels: tuple[RoundLabels, ...]
    sums: tuple[GroupSums, ...]
    trust: float  # λ: how far weights are those by variance
    weights: Array  # (rounds,) the other weights
    reason: ClassVar[str | None] = None

    def since(self, first: int) -> "PredictedEvidence":
        """Return what the rounds from number ``first`` on say; the others count as labelled before."""
        weights = self.weights[first:] / self.weights[first:].sum()
        return replace(self, labels=self.labels[first:], sums=self.sums[first:], weights=weights)

    def shares(self, variable: Variable, domain: Codes, num_domains: int) -> "list[DomainShare]":
        """Return the mean of a variable over each domain."""
        return [DomainShare(*row) for row in zip(*self._combine(variable, domain, num_domains), strict=True)]

    def variance(self, variable: Variable, domain: Codes, num_domains: int) -> Array:
        """Return the variance of the mean of any variable over each domain."""
        return np.array([share.variance for share in self.shares(variable, domain, num_domains)])

    def _combine(self, variable: Variable, domain: Codes, num: int) -> list[list[float]]:
        def over(values: Array) -> Array:  # sums over the groups of each domain
            return added(domain, values, num)

        sizes = over(self.sizes)
        divisor = np.maximum(sizes, 1)
        group, factor = self.groups.code(self.index), self.groups.factor(self.index)
        where, mean = domain[group], variable.mean[group]
        spread = [over(own.odds * variable.square - own.square * variable.mean**2) for own in self.sums]
        foreseen = np.maximum(np.stack(spread) / divisor**2, _LEAST)
        weight = 1 / foreseen
        weight = self.trust * weight / weight.sum(axis=0) + (1 - self.trust) * self.weights[:, None]
        value, measured, first, second, met, expected = (np.zeros(num) for _ in range(6))
        signed = np.zeros((2, 3, num))  # Σ v̂|effect|^k of effects below and above 0, k = 1, 2, 4
        for w, part, sums in zip(weight, self.labels, self.sums, strict=True):
            known, own = part.before[where[part.before] >= 0], np.arange(part.places.start, part.places.stop)
            here = where[own] >= 0
            own, at = own[here], where[own][here]
            p, pi, h = part.expected[here], part.probability[here], part.leverage[here]
            scale, left = factor[own] * (w / divisor)[at], np.maximum(1 - pi, 0)
            forecast = p * mean[own]
            before = added(where[known], factor[known] * variable.values[known], num)
            error = scale * (variable.values[own] - forecast) / pi
            value += w * (before + over(sums.predicted * variable.mean)) / divisor + added(at, error, num)
            measured += added(at, error**2 * left / (1 - h), num)
            effect = scale * np.sqrt(left) / pi
            first += added(at, forecast * effect, num)
            second += added(at, forecast * effect**2, num)
            signed += [[added(at, forecast * np.maximum(s * effect, 0) ** k, num) for k in (1, 2, 4)] for s in (-1, 1)]
            met += added(at, variable.values[own] * effect, num)
            expected += added(at, forecast, num)
        labelled, events = labelled_in(self.index, where, variable.values, num)
        by_forecast = (weight**2 * foreseen).sum(axis=0)
        shrunk = (labelled * measured + PRIOR_LABELS * by_forecast) / (labelled + PRIOR_LABELS)
        variance = np.maximum(shrunk, _LEAST_SHARE * by_forecast)
        if np.ptp(factor) > 0:  # measured from few events, for they differ in size
            few = 2 * signed[:, 1].sum(axis=0) ** 2 / np.maximum(signed[:, 2].sum(axis=0), _LEAST)
            variance = np.maximum(variance, (few * measured + PRIOR_LABELS * by_forecast) / (few + PRIOR_LABELS))
        half = 0.5 / np.maximum(expected, _LEAST)
        last = self.labels[-1]
        own = np.arange(last.places.start, last.places.stop)[where[last.places] >= 0]
        drawn = added(where[own], factor[own] * last.expected[own - last.places.start] * mean[own], num)
        unseen = np.maximum(over(self.sums[-1].predicted * variable.mean) - drawn, 0)
        columns = value, variance, sizes, labelled, events, half * first, expected
        met_near, near = first * met / np.maximum(second, _LEAST), first**2 / np.maximum(second, _LEAST)
        unlike = half * second * variable.differs
        below, above = (0.5 * two / np.maximum(one, _LEAST) for one, two, _ in signed)
        return [column.tolist() for column in (*columns, unseen, met_near, near, unlike, below, above)]


def labelled_in(index: NDArray[np.int64], where: Codes, values: Array, num: int) -> tuple[Array, Array]:
    """Return the distinct labels in each of ``num`` domains, and the sum of their values; ``where`` (n,) may be -1."""
    _, once = np.unique(index, return_index=True)
    return added(where[once], np.ones(len(once)), num), added(where[once], values[once], num)


@dataclass(frozen=True)
class DomainMean(ABC):
    """The mean of a variable in [0, 1] over one domain, estimated."""

    value: float
    variance: float
    size: float  # N_D
    labelled: float  # distinct labels in D
    events: float  # their sum

    @property
    def error(self) -> float:
        """Standard error."""
        return 0.0 if self.labelled >= self.size else float(self.variance**0.5)

    @property
    def num(self) -> int:
        """Labels in the domain."""
        return int(self.labelled)

    def interval(self, level: float) -> Interval:
        """Return both ends at a confidence level, within what the labels prove: [0, 1] without a label."""
        if self.labelled >= self.size:
            known = self.events / max(self.size, 1)
            return known, known
        if not self.labelled:
            return 0.0, 1.0
        return cut(self._ends(level), self.events / self.size, 1 - (self.labelled - self.events) / self.size)

    @abstractmethod
    def _ends(self, level: float) -> Interval:
        """Return both ends, where some examples have labels and some have none."""


@dataclass(frozen=True)
class DomainShare(DomainMean):
    """The mean over one domain from predictions and labels."""

    half_event: float  # what half an event adds to the value
    expected: float  # events predicted among the labels
    unseen: float  # S: predicted among the other examples
    met_near: float  # O and E: events, and events predicted, among the labels by how far they stand for others
    expected_near: float
    unlike: float = 0.0  # what half an event adds to the variance, where events differ in size
    below: float = 0.0  # what half an event, of the size of those that make the variance, takes from the value
    above: float = 0.0  # and what one adds

    def as_predicted(self) -> PredictedShare:
        """Return the same mean, if the predictions hold for the examples without a label."""
        return PredictedShare(self.size, self.num, self.events, self.met_near, self.expected_near, self.unseen)

    def _ends(self, level: float) -> Interval:
        return self._low(level), self._high(level)

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
        return max(inside * (1 - inside) / max(self.variance + self.unlike, _LEAST), 1e-3)


def stated(share: Share, by_median: bool = False) -> float:
    """Return the estimate of a mean: with predictions, θ̂ combined with what they alone state (see above).

    That is a mean, or a median: of few events where many examples have no label, the distribution is skewed.
    """
    if not isinstance(share, DomainShare):
        return share.value
    predicted, variance = share.as_predicted(), share.error**2
    apart = (predicted.median if by_median else predicted.value) - share.value
    return share.value + variance / max(variance + predicted.error**2, apart**2, _LEAST) * apart


def added(code: Codes, values: Array, num: int) -> Array:
    """Add up values (k,) by their codes, (num,); those below 0 are left out."""
    if (out := code < 0).any():
        code, values = code[~out], values[~out]
    return np.bincount(code, weights=values, minlength=num).astype(np.float64)
