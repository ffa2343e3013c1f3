"""Make the interval of a total: the one place where a variance becomes an interval.

A :class:`Total` is the estimated mean of a variable in [0, 1] over a part of the pool of known size. Its *law* gives
the ends at every level, so the ends at all levels are a confidence distribution. Whatever the law, a part that is
labelled in full is known, one without labels has [0, 1], and all ends are cut to what the labels prove. The laws:

    Exact             a simple random sample: hypergeometric, or binomial for draws with replacement
    StratifiedScore   strata (:mod:`opacc_ray.estimation.intervals`)
    Weighted          weights that differ: weighted Clopper-Pearson, with one more event at the largest weight
    AdjustedWilson    failures of the pool, each label with a predicted failure
    DomainWilson      any variable in a part of the pool, with predictions for every example
    Wider             on each side the wider end of two laws

**Adjusted Wilson.** The interval is Wilson's, with Student's quantile, at the size s of the simple random sample with
the same variance. The residuals f - p are mostly small, and few large ones decide the variance: a sample that misses
these has a good estimate and a small variance. So the measured variance is shrunk towards the one that the predictions
imply, and half a failure is added, as Jeffreys' prior adds half a success:

    size        1/s = [ m · (v + h₂)/c(1 - c) + k · (v̂ + h₂)/q(1 - q) ] / (m + k)
    measured    v = Σ w_t² v_t             from         m = (Σr)²/Σr² terms,  r = a²(f - p)²
    predicted   v̂ = Σ a² p(1 - p)          for a share of failures  q = max(c, Σ a p)
    half        h₁ = ½ Σpa/Σp,  h₂ = ½ Σpa²/Σp                                           a = w_t · √(1 - π) / (N π)
    centre      c = θ̂ + h₁ for the upper end of the share of failures, θ̂ for the lower

c and q are kept half a failure or half a success away from 0 and 1. k = 1 if a model predicts failures; k = 2 if p is
the labels' own share of failures, which does not locate failures. The lower end is at most that of the mid-P interval
of size s, because a single failure proves little; the upper end is at least the exact bound for n labels without
failure, if no failure was found and less than one was predicted among the labels.

What is stated is the estimate moved towards θ_p, what predictions and labels alone say of the pool, by

    λ · ½ · c · min(1, V/(θ̂ - θ_p)²)        V the variance of θ̂,  c = max(0, 1 - 2z²),  z = Σ(f - p)/√Σp(1 - p)

of the way, which is half a standard error at most; λ is the trust in the predictions. The interval stays where it was.
Where the predictions are right, that halves the noise of the correction. Σ over all labels: a fit has z near 0, unless
what was believed before the labels still holds its level. Such a level is wrong in one direction, and the estimate does
not follow it. Without c, random numbers for a confidence had 1.28 times the squared error of a simple random sample
instead of 1.09 (``docs/neyman.md``).

**A part of the pool.** The measured variance M rests on the few labels of D, so it is shrunk towards the predicted V,
and it is never below half of that (:mod:`opacc_ray.estimation.totals`). Half an event is added to the upper end, at the
weight of labels where events are predicted; where events differ in size, as costs do, to the variance as well. The
lower end is at most that of mid-P. Without an event, and with fewer than one predicted among the labels, the upper end
is at least the exact one. What is stated is θ̂ moved towards θ_p of D (:class:`PredictedTotal`) by

    V / max(V + V_p, (θ̂ - θ_p)²)

of the way, with V_p the variance of θ_p if the predictions are right up to one factor: the weight of least variance of
a composite (J. N. K. Rao, I. Molina, "Small Area Estimation", 2015, 3.3), as long as the two differ by no more than
that. Where they differ by more, θ̂ moves less: by a standard error at most.

Legend: n labels, f = 1 - outcome, p predicted failure, π inclusion probability, a effect: standard deviation by which
one failure moves the estimate, w weight of a round.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimation import constants, intervals

Array = NDArray[np.float64]


class Law(ABC):
    """The distribution of a total."""

    name: str
    """Name of the interval."""

    @abstractmethod
    def ends(self, total: "Total", level: float) -> intervals.Interval:
        """Return both ends, where some examples of the part have labels and some have none."""

    def stated(self, total: "Total", by_median: bool) -> float:
        """Return the value to state."""
        return total.value


@dataclass(frozen=True)
class Total:
    """The estimated mean of a variable in [0, 1] over a part of the pool."""

    value: float
    variance: float
    size: float  # examples of the part
    labelled: float  # distinct ones with labels
    events: float  # their sum of the variable
    law: Law
    below: float = 0.0  # what half an event, of the size of those that make the variance, takes from the value
    above: float = 0.0  # and what one adds

    @property
    def error(self) -> float:
        """Standard error."""
        return 0.0 if self.labelled >= self.size else math.sqrt(self.variance)

    @property
    def num(self) -> int:
        """Labels in the part."""
        return int(self.labelled)

    def interval(self, level: float) -> intervals.Interval:
        """Return both ends at a confidence level, within what the labels prove: [0, 1] without a label."""
        if self.labelled >= self.size:
            known = self.events / max(self.size, 1)
            return known, known
        if not self.labelled:
            return 0.0, 1.0
        ends = self.law.ends(self, level)
        return intervals.cut(ends, self.events / self.size, 1 - (self.labelled - self.events) / self.size)

    def stated(self, by_median: bool = False) -> float:
        """Return the value to state: a mean, or a median, which of few events is smaller."""
        return self.law.stated(self, by_median)

    def quantiles(self) -> Array:
        """Return equally likely quantiles (POINTS,) that represent the distribution, in order."""
        return _quantiles(self)

    def complement(self) -> "Total":
        """Return the mean of 1 - v."""
        return Total(
            1 - self.value, self.variance, self.size, self.labelled, self.labelled - self.events, _Mirrored(self.law)
        )


@lru_cache(1024)
def _quantiles(total: Total) -> Array:
    """Return the quantiles of a total; LEVELS of them are computed, and the others lie between."""
    ends = [total.interval(1 - (2 * k + 1) / constants.LEVELS) for k in range(constants.LEVELS // 2)]
    found = np.array([low for low, _ in ends] + [high for _, high in reversed(ends)])
    return np.interp(_middles(constants.POINTS), _middles(constants.LEVELS), found)


def _middles(num: int) -> Array:
    """Return the probabilities (num,) in the middle of as many equal parts of [0, 1]."""
    return (2 * np.arange(num) + 1) / (2 * num)


# -- laws by the design -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exact(Law):
    """Failures of a simple random sample."""

    failures: int
    num: int
    population: int | None  # None: drawn with replacement
    name: str = "exact hypergeometric"

    def ends(self, total: Total, level: float) -> intervals.Interval:
        right = self.num - self.failures
        if self.population is None:
            low, high = intervals.clopper_pearson(right, self.num, level)
        else:
            low, high = intervals.hypergeometric(right, self.num, self.population, level)
        return 1 - high, 1 - low


@dataclass(frozen=True, eq=False)
class StratifiedScore(Law):
    """Failures of strata, of all rounds."""

    strata: intervals.Strata
    known: float = 0.0  # share of successes that each round knew before, weighted
    name: str = "stratified score"

    def ends(self, total: Total, level: float) -> intervals.Interval:
        low, high = intervals.stratified_interval(self.strata, total.variance, level)
        return 1 - self.known - high, 1 - self.known - low


@dataclass(frozen=True)
class Weighted(Law):
    """Weights that differ: one more event at the largest weight."""

    largest: float  # weight of a label
    rest: intervals.Moments | None = None  # mean and variance of 1 - v; None: v is a score
    unseen: float = 1.0  # probability of the further event
    name: str = intervals.WEIGHTED

    def ends(self, total: Total, level: float) -> intervals.Interval:
        if self.rest is None:
            return intervals.weighted_clopper_pearson(max(total.value, 0.0), total.variance, self.largest, level)
        share = intervals.Moments(total.value, total.variance)
        return intervals.weighted_share_interval(share, self.rest, self.largest, level, self.unseen)


@dataclass(frozen=True)
class Wider(Law):
    """On each side the wider end of two laws."""

    first: Law
    second: Law

    @property
    def name(self) -> str:  # type: ignore[override]
        """Names of both."""
        return f"{self.first.name}, or {self.second.name}"

    def ends(self, total: Total, level: float) -> intervals.Interval:
        return intervals.wider(self.first.ends(total, level), self.second.ends(total, level))


@dataclass(frozen=True)
class _Mirrored(Law):
    law: Law

    def ends(self, total: Total, level: float) -> intervals.Interval:
        low, high = self.law.ends(total.complement(), level)
        return 1 - high, 1 - low


# -- failures of the pool, predicted for each label -----------------------------------------------------------------


class LabelEffects(NamedTuple):
    """The labels of all rounds, as they move the share of failures in the pool."""

    effect: Array  # (n,) a
    expected: Array  # (n,) p
    error: Array  # (n,) f - p, corrected for the label's own influence on its p
    scale: Array  # (n,) w_t · N_t/N, by which the error counts in the round's estimate
    degrees: int  # degrees of freedom
    assisted: bool  # whether p comes from a model, not from the labels

    @property
    def half_failure(self) -> tuple[float, float]:
        """h₁ and h₂: half a failure's contribution to the estimate and to the variance."""
        place = self._or_ones(self.expected)
        place = place / place.sum()
        return 0.5 * float(place @ self.effect), 0.5 * float(place @ self.effect**2)

    @property
    def agreement(self) -> float:
        """c, how well the number of failures among the labels agrees with the predicted one, from 0 to 1."""
        apart = float(self.error.sum()) ** 2 / max(float(self.expected @ (1 - self.expected)), constants.SMALLEST)
        return max(1 - apart / constants.AGREEMENT_LIMIT, 0.0)

    @property
    def predicted_variance(self) -> float:
        """v̂, the variance that the predictions imply."""
        return float(self.effect**2 @ (self.expected * (1 - self.expected)))

    def size_at(self, centre: float, variance: float) -> float:
        """Return s, the size of the equivalent simple random sample, at a share of failures ``centre``."""
        failure, square = self.half_failure
        right = self._or_ones(1 - self.expected)
        success = 0.5 * float(right @ self.effect) / float(right.sum())  # half a success moves the estimate by that
        prior = constants.PRIOR_TERMS_OF_MODEL if self.assisted else constants.PRIOR_TERMS
        weight = measured_weight((self.effect * self.error) ** 2, prior)

        def spread(share: float) -> float:
            inside = min(max(share, min(failure, 0.5)), 1 - min(success, 0.5))
            return inside * (1 - inside)

        predicted = spread(max(centre, float(self.effect @ self.expected)))
        measured = weight * (variance + square) / spread(centre)
        return 1 / max(measured + (1 - weight) * (self.predicted_variance + square) / predicted, constants.SMALLEST)

    def _or_ones(self, values: Array) -> Array:
        """Return ``values`` (n,), or ones if they are 0 for all labels that move the estimate (a confidence of 1)."""
        return values if values @ self.effect > 0 else np.ones_like(values)


def measured_weight(terms: Array, prior: int = constants.PRIOR_TERMS) -> float:
    """Return m/(m + k): the weight of a variance measured as the sum of ``terms`` (n,), against k ``prior`` terms."""
    num = intervals.effective_number(terms)
    return num / (num + prior)


@dataclass(frozen=True, eq=False)
class AdjustedWilson(Law):
    """Failures of the pool, each label with a predicted failure."""

    labels: LabelEffects
    by_predictions: float | None = None  # θ_p; None: not known
    trust: float = 1.0  # λ
    name: str = "adjusted Wilson"

    def ends(self, total: Total, level: float) -> intervals.Interval:
        return self._low(total, level), self._high(total, level)

    def stated(self, total: Total, by_median: bool) -> float:
        if self.by_predictions is None:
            return total.value
        apart, variance = total.value - self.by_predictions, total.error**2
        moved = (
            self.trust
            * constants.MOST_MOVED
            * self.labels.agreement
            * min(1.0, variance / max(apart**2, constants.SMALLEST))
        )
        return total.value - moved * apart

    def _size_at(self, centre: float, variance: float, level: float) -> float:
        return self.labels.size_at(centre, variance) / intervals.student_widening(self.labels.degrees, level) ** 2

    def _low(self, total: Total, level: float) -> float:
        share = total.value
        if not total.events or share <= 0:
            return 0.0
        size = self._size_at(share, total.variance, level)
        low = intervals.wilson(min(share, 1.0), size, level)[0]
        return min(low, intervals.mid_p_low(share * size, size, level)) if share < 1 else low

    def _high(self, total: Total, level: float) -> float:
        if total.events >= total.labelled:
            return 1.0
        centre = max(total.value, 0.0) + self.labels.half_failure[0]
        high = intervals.wilson(min(centre, 1.0), self._size_at(centre, total.variance, level), level)[1]
        if not total.events and self.labels.assisted and self.labels.expected.sum() < 1:
            high = max(high, intervals.zero_failure_bound(len(self.labels.effect), level))
        return high


# -- a part of the pool, predicted for every example -----------------------------------------------------------------


@dataclass(frozen=True)
class DomainWilson(Law):
    """Any variable in a part of the pool, with predictions for every example."""

    half_event: float  # what half an event adds to the value
    expected: float  # events predicted among the labels
    unseen: float = 0.0  # S: predicted among the other examples
    met_near: float = 0.0  # O and E: events, and events predicted, among the labels by how far they stand for others
    expected_near: float = 0.0
    unlike: float = 0.0  # what half an event adds to the variance, where events differ in size
    name: str = "two totals"

    def as_predicted(self, total: Total) -> "PredictedTotal":
        """Return the same mean, if the predictions hold for the examples without a label."""
        return PredictedTotal(total.size, total.num, total.events, self.met_near, self.expected_near, self.unseen)

    def stated(self, total: Total, by_median: bool) -> float:
        predicted, variance = self.as_predicted(total), total.error**2
        apart = (predicted.median if by_median else predicted.value) - total.value
        return total.value + variance / max(variance + predicted.error**2, apart**2, constants.SMALLEST) * apart

    def ends(self, total: Total, level: float) -> intervals.Interval:
        return self._low(total, level), self._high(total, level)

    def _low(self, total: Total, level: float) -> float:
        if not total.events or total.value <= 0:
            return 0.0
        share = min(total.value, 1.0)
        size = self._size_at(share, total.variance)
        low = intervals.wilson(share, size, level)[0]
        return min(low, intervals.mid_p_low(share * size, size, level)) if share < 1 else low

    def _high(self, total: Total, level: float) -> float:
        share = min(max(total.value, 0.0) + self.half_event, 1.0)
        high = intervals.wilson(share, self._size_at(share, total.variance), level)[1]
        if not total.events and self.expected < 1:
            high = max(high, intervals.zero_failure_bound(total.num, level))
        return high

    def _size_at(self, share: float, variance: float) -> float:
        """Return the size of the simple random sample with the same variance at a share of events."""
        nearest = min(self.half_event, 0.5)
        inside = min(max(share, nearest), 1 - nearest)
        return max(inside * (1 - inside) / max(variance + self.unlike, constants.SMALLEST), 1e-3)


class PredictedTotal(NamedTuple):
    """The mean of a 0/1 variable over one domain, if predictions hold for its unlabelled examples up to one factor.

    Labels that stand for many others show O events where E are predicted, each label weighted by its effect a, so E is
    (Σa v̂)²/Σa²v̂. The factor κ then has the distribution Gamma(O + ½)/(E + ½), and the events among the unlabelled, of
    which S are predicted, are Poisson of mean κS: together negative binomial. As exact intervals of a count do, the
    quantile of chance α takes α for ½: no event more at the lower end, and nearly one at the upper.
    """

    size: float
    num: int
    events: float  # known by labels
    met: float  # O
    expected: float  # E
    unseen: float  # S

    @property
    def value(self) -> float:
        """The estimate."""
        return (self.events + self.unseen * (self.met + 0.5) / (self.expected + 0.5)) / max(self.size, 1)

    @property
    def median(self) -> float:
        """The estimate at the median of κ."""
        from scipy.special import gammaincinv

        factor = float(gammaincinv(self.met + 0.5, 0.5)) / (self.expected + 0.5)
        return (self.events + self.unseen * factor) / max(self.size, 1)

    @property
    def error(self) -> float:
        """Standard error."""
        mean = self.value * self.size - self.events
        return float(np.sqrt(mean * (1 + self.unseen / (self.expected + 0.5)))) / max(self.size, 1)

    def stated(self, by_median: bool = False) -> float:
        """Return the estimate."""
        return self.value

    def interval(self, level: float) -> intervals.Interval:
        """Return both ends at a confidence level."""
        low, high = self._at(np.array([(1 - level) / 2, (1 + level) / 2])).tolist()
        return low, high

    def quantiles(self) -> Array:
        """Return equally likely quantiles (POINTS,)."""
        return self._at(_middles(constants.POINTS))

    def _at(self, chances: Array) -> Array:
        from scipy.stats import nbinom

        if self.num >= self.size or self.unseen <= 0:
            return np.full(len(chances), self.events / max(self.size, 1))
        share = (self.expected + 0.5) / (self.expected + 0.5 + self.unseen)
        found: Array = nbinom.ppf(chances, self.met + chances, share)
        return np.minimum((self.events + found) / self.size, 1.0)


Mean = Total | PredictedTotal
"""The mean of a variable in [0, 1] over a part of the pool: its value, and its interval at any level."""
