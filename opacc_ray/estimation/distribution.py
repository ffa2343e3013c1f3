"""Make the interval of a total: the one place where a variance becomes an interval.

A :class:`Total` is the estimated mean of a variable in [0, 1] over a part of the pool of known size. Its *law* gives
the ends at every level, so the ends at all levels are a confidence distribution. Whatever the law, a part that is
labelled in full is known, one without labels has [0, 1], and all ends are cut to what the labels prove. The laws:

    Exact             a simple random sample: hypergeometric, or binomial for draws with replacement
    StratifiedScore   strata (:mod:`opacc_ray.estimation.intervals`)
    Weighted          weights that differ: weighted Clopper-Pearson, with one more event at the largest weight
    AdjustedWilson    any variable in a part of the pool, each label with a prediction: the accuracy is that of the pool
    Wider             on each side the wider end of two laws

**Adjusted Wilson.** The interval is Wilson's, with Student's quantile, at the size s of the simple random sample with
the same variance. The residuals v - v̂ are mostly small, and few large ones decide the measured variance M: a sample
that misses these has a good estimate and a small variance. So M is shrunk towards the variance V that the predictions
imply (:mod:`opacc_ray.estimation.totals`), as far as the labels of this part confirm them:

    W = max( (m·M + k·V)/(m + k), V/2 )      k = 20·c      c = max(0, 1 - z²/4) · max(0, 1 - z₀²/½)
    s = x(1 - x)/W                 m + 19 degrees of freedom
    z = Σ(v - v̂)/√(1 - h) / √ΣVar(v̂) over the m labels of the part, z₀ that of failures over all labels

The effects a of labels differ, and M is known as well as from some 2(Σ v̂a²)²/Σ v̂a⁴ events. A sample that met few of
those that weigh most has a value that is too low, and M as well. So the upper end of the whole pool has their number
for m in W, where that makes W larger. Parts of a pool, and scores, are covered without it.

x is θ̂ for the lower end and θ̂ + h for the upper one, with half an event added as Jeffreys' prior adds half a success:
h = ½ Σv̂a/Σv̂. In s, x is kept h away from 0 and 1. Where events differ in size, as costs do, half an event also adds
½ Σv̂a²/Σv̂ to the variance. z₀ is near 0 by the fit, unless what was believed before the labels still holds its level.

The lower end is at most that of mid-P at size s over the squared ratio of Student's quantile to the normal one, because
a single event proves little. Without an event it is 0, and where all labels are events the upper end is 1. Both ends
are at least as wide as the exact ones of m labels where only their number speaks: where there is no event and fewer
than one is predicted among the labels, or no other and fewer than one other. Where c = 0 they are the exact ones of the
labels alone: of their weighted share of events at their effective number, r = (Σw/π)²/Σ(w/π)², at most m. Without an
event, or another, the width shrinks by the factor 1 - (r - 1)/(2N_D), for no label is drawn twice: of K events r labels
meet none with a probability of at most (1 - K/(N_D - (r - 1)/2))^r.

Few labels may agree with wrong predictions by chance: ten in a tenth of the draws, where half of a part is wrong and a
seventh is predicted to be. So no end is nearer than e^(-m/20) of the way from its own place to that of Wilson's
interval of the labels alone, with the same share and number; it is exact without an event, and without another.

**Unseen events.** A draw that serves another number, or a sure model, leaves few labels for most examples. The
*remote* labels are those of the largest weights, as long as fewer than one event is predicted among them. With r their
effective number, S the share of the part that they stand for and CP the exact upper end of r labels with as many
events as they show, predictions may narrow what hides there by a factor of k:

    upper end >= θ̂ + S·CP/k        k = min(1 + c·failures, 10)

with all failures that the labels met, which confirm the predictions. A draw for metrics of a class alone leaves fewest
labels where it is sure. There k is at most 6 for failures, costs and the Brier score, not for what the class misses. A
factor above 2.5 between S·CP and what is stated is reported: where nothing was met, and predictions are wrong just
there, no interval of that width can hold. So are as many events in a part as have a probability below .01 if the
predictions are right.

What is stated is the estimate moved towards θ_p, what labels and the last round's predictions alone say, and where the
labels contradict them, towards θ_l, the estimate with weights that sum to the size of the part:

    λ · [ ½ · c · min(1, W/(θ̂ - θ_p)²) · (θ_p - θ̂) + (1 - c) · m/(m + 1) · (θ_l - θ̂) ]

The first is half a standard error at most; λ is the trust in fitted predictions. The interval stays where it was. Where
the predictions are right, that halves the noise of the correction. Without c, random numbers for a confidence had 1.28
times the squared error of a simple random sample instead of 1.09 (``docs/neyman.md``). Of three labels that all fail
where .15 is predicted, half the way or more is gone to the whole part failing.

Legend: m labels in the part, N_D its size, v variable, v̂ prediction, h (in z) leverage, w weight of the round, π
inclusion probability, a = w√(1 - π)/(N_D π) effect: standard deviation by which one event moves the estimate.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimation import constants, intervals
from opacc_ray.samplers.plausibility import agreement

Array = NDArray[np.float64]


class Law(ABC):
    """The distribution of a total."""

    name: str
    """Name of the interval."""

    degrees: float = math.inf
    """Degrees of freedom of the variance."""

    @abstractmethod
    def ends(self, total: "Total", level: float) -> intervals.Interval:
        """Return both ends, where some examples of the part have labels and some have none."""

    def stated(self, total: "Total", by_median: bool) -> float:
        """Return the value to state."""
        return total.value

    def assumption(self, total: "Total", level: float) -> str | None:
        """Return what the interval assumes; None if labels alone would say about as much."""
        return None


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

    def assumption(self, level: float) -> str | None:
        """Return what the interval assumes; None if labels alone would say about as much."""
        return self.law.assumption(self, level) if 0 < self.labelled < self.size else None

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
    degrees: float = math.inf  # of freedom, of the variance

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


# -- any variable in a part of the pool, predicted for every example ------------------------------------------------


def shrunk_variance(measured: Any, foreseen: Any, num: Any, confirmed: Any) -> Any:
    """Return W of parts with ``num`` labels, m, whose predictions their labels have ``confirmed``, c."""
    prior = constants.PRIOR_LABELS * confirmed
    mean = (num * measured + prior * foreseen) / np.maximum(num + prior, constants.SMALLEST)
    return np.maximum(mean, constants.LEAST_SHARE * foreseen)


class Remote(NamedTuple):
    """The labels that stand for most others, among which fewer than one event is predicted."""

    share: float = 0.0  # of the part that they stand for
    labels: float = 0.0  # effective number
    events: float = 0.0  # by weight

    def rate(self, level: float) -> float:
        """Return how many of the examples that these labels stand for may be events."""
        return intervals.clopper_pearson(self.events, self.labels, level)[1] if self.labels else 0.0

    def bound(self, level: float) -> float:
        """Return what they add to the total then."""
        return self.share * self.rate(level)


NOTHING = Remote()

CONTRADICTED = "labels contradict the predictions"
"""How the reason of a part begins whose labels do."""


@dataclass(frozen=True)
class AdjustedWilson(Law):
    """Any variable in a part of the pool; the variance of the total is W."""

    half_event: float  # what half an event adds to the value
    expected: float = 0.0  # events predicted among the labels
    agreement: float = 1.0  # c
    degrees: float = math.inf  # of freedom, of W
    unlike: float = 0.0  # what half an event adds to the variance, where events differ in size
    unmet: float = 0.0  # what W lacks at the upper end if the events that weigh most were not met
    share: float | None = None  # share of events by the labels alone, each with its weight; None: no share
    labels: float = math.inf  # effective number of labels, by their weights
    trust: float = 0.0  # λ
    by_predictions: float = 0.0  # θ_p
    by_labels: float = 0.0  # θ_l
    unseen: float = 0.0  # S: predicted among the other examples
    met_near: float = 0.0  # O and E: events, and events predicted, among the labels by how far they stand for others
    expected_near: float = 0.0
    remote: tuple[Remote, Remote] = (NOTHING, NOTHING)  # of events that lower the value, and of those that raise it
    failures: float = 0.0  # among all labels, in any part
    most_narrowed: float = constants.MOST_NARROWED
    name: str = "adjusted Wilson"

    def reach(self, level: float) -> tuple[float, float]:
        """Return how far below and above the value events may take it that no label met where none is predicted."""
        narrowed = min(1 + self.agreement * self.failures, self.most_narrowed)
        below, above = (own.bound(level) / narrowed for own in self.remote)
        return below, above

    def assumption(self, total: Total, level: float) -> str | None:
        if self._surprises(total):
            few = f"{total.events:g} of {total.num} labels here are failures, {self.expected:.2g} foreseen"
            return f"{CONTRADICTED}: {few}; the interval rests on the labels alone"
        if self.agreement <= 0 or self._is_unforeseen(total):
            return None
        half = intervals.normal_quantile(level) * total.error
        for own, stated in zip(self.remote, (half, max(half, self._high(total, level) - total.value)), strict=True):
            if own.bound(level) > constants.MUCH_NARROWED * stated:
                return (
                    f"where hardly any failure is predicted, {100 * min(own.share, 1):.0f} % of the examples, labels "
                    f"alone would allow {100 * own.rate(level):.2g} %: the interval trusts the predictions there"
                )
        return None

    def as_predicted(self, total: Total) -> "PredictedTotal":
        """Return the same mean, if the predictions hold for the examples without a label."""
        return PredictedTotal(total.size, total.num, total.events, self.met_near, self.expected_near, self.unseen)

    def stated(self, total: Total, by_median: bool) -> float:
        if not self.trust or total.labelled >= total.size:
            return total.value
        apart = (self.as_predicted(total).median if by_median else self.by_predictions) - total.value
        followed = constants.MOST_MOVED * min(1.0, total.variance / max(apart**2, constants.SMALLEST))
        alone = (self.by_labels - total.value) * total.labelled / (total.labelled + constants.PRIOR_ALONE)
        return total.value + self.trust * (self.agreement * followed * apart + (1 - self.agreement) * alone)

    def ends(self, total: Total, level: float) -> intervals.Interval:
        ends = self._low(total, level), self._high(total, level)
        if self.share is not None and self.agreement <= 0:
            return self._alone(total, level, intervals.clopper_pearson)
        if self._is_unforeseen(total):
            return intervals.wider(ends, intervals.clopper_pearson(total.events, total.labelled, level))
        if self.share is None:
            return ends
        alone, part = self._alone(total, level, _wilson), math.exp(-total.labelled / constants.PRIOR_LABELS)
        low, high = (own + part * (other - own) for own, other in zip(ends, alone, strict=True))
        return intervals.wider(ends, (low, high))

    def _surprises(self, total: Total) -> bool:
        """Whether so many events are improbable, by the binomial law of their predicted mean, which varies more."""
        from scipy.special import betainc

        if not self.agreement <= 0 < self.expected < total.events:
            return False
        chance = betainc(total.events, total.labelled - total.events + 1, self.expected / total.labelled)
        return bool(chance < constants.SURPRISE)

    def _alone(self, total: Total, level: float, interval: Callable[..., intervals.Interval]) -> intervals.Interval:
        """Return the ends by the labels alone; the exact ones if no label, or every one, is an event."""
        size = min(self.labels, total.labelled)
        if not total.events or total.events >= total.labelled:
            bound = (1 - (size - 1) / (2 * total.size)) * intervals.clopper_pearson(0, size, level)[1]
            return (1 - bound, 1.0) if total.events else (0.0, bound)
        return interval(min(max(self.share or 0.0, 0.0), 1.0) * size, size, level)

    def _is_unforeseen(self, total: Total) -> bool:
        """Whether only the number of labels bounds what is unseen: predictions foresee none."""
        without = not total.events and self.expected < 1
        return without or (total.events >= total.labelled and total.labelled - self.expected < 1)

    def _low(self, total: Total, level: float) -> float:
        if not total.events or total.value <= 0:
            return 0.0
        share = min(total.value, 1.0)
        size = self._size_at(share, total.variance, level)
        low = intervals.wilson(share, size, level)[0]
        return min(low, intervals.mid_p_low(share * size, size, level)) if share < 1 else low

    def _high(self, total: Total, level: float) -> float:
        if total.events >= total.labelled:
            return 1.0
        share = min(max(total.value, 0.0) + self.half_event, 1.0)
        high = intervals.wilson(share, self._size_at(share, total.variance + self.unmet, level), level)[1]
        return max(high, total.value + self.reach(level)[1])

    def _size_at(self, share: float, variance: float, level: float) -> float:
        """Return the size of the simple random sample with the same variance at a share of events."""
        nearest = min(self.half_event, 0.5)
        inside = min(max(share, nearest), 1 - nearest)
        size = inside * (1 - inside) / max(variance + self.unlike, constants.SMALLEST)
        return max(size / intervals.student_widening(max(self.degrees, 1.0), level) ** 2, 1e-3)


def _wilson(events: float, size: float, level: float) -> intervals.Interval:
    return intervals.wilson(events / size, size, level)


class LabelEffects(NamedTuple):
    """The labels of all rounds, as they move the share of failures in the pool."""

    effect: Array  # (n,) a
    expected: Array  # (n,) p
    error: Array  # (n,) f - p, corrected for the label's own influence on its p
    scale: Array  # (n,) w_t · N_t/N, by which the error counts in the round's estimate
    assisted: bool  # whether p comes from a model, not from the labels

    @property
    def half_failure(self) -> tuple[float, float]:
        """h₁ and h₂: half a failure's contribution to the estimate and to the variance."""
        place = self.expected if self.expected @ self.effect > 0 else np.ones_like(self.expected)
        place = place / place.sum()  # a confidence of 1 predicts none, and then failures may be anywhere
        return 0.5 * float(place @ self.effect), 0.5 * float(place @ self.effect**2)

    @property
    def agreement(self) -> float:
        """c, and 0 where the labels themselves are the prediction."""
        spread = float(self.expected @ (1 - self.expected))
        return float(agreement(float(self.error.sum()), spread, constants.AGREEMENT_LIMIT)) if self.assisted else 0.0

    @property
    def predicted_variance(self) -> float:
        """V, the variance that the predictions imply."""
        return float(self.effect**2 @ (self.expected * (1 - self.expected)))

    def law(self, share: float) -> AdjustedWilson:
        """Return the law of the share of failures, which by the labels alone is ``share``."""
        degrees = len(self.effect) + constants.PRIOR_LABELS * self.assisted - 1
        stated = share if self.assisted else None
        return AdjustedWilson(self.half_failure[0], float(self.expected.sum()), self.agreement, degrees, share=stated)


class PredictedTotal(NamedTuple):
    """The mean of a 0/1 variable over one domain, if predictions hold for its unlabelled examples up to one factor.

    Labels that stand for many others show O events where E are predicted, each label weighted by its effect a, so O is
    Σa v · Σa v̂/Σa²v̂, and E is (Σa v̂)²/Σa²v̂. The factor κ then has the distribution Gamma(O + ½)/(E + ½), and the
    events among the unlabelled, of which S are predicted, are Poisson of mean κS: together negative binomial. As exact
    intervals of a count do, the quantile of chance α takes α for ½: no event more at the lower end, and nearly one at
    the upper.
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
