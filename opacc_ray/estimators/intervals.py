"""Compute confidence intervals for a mean in [0, 1]: the building blocks of the estimators.

Legend: N pool, n labels, x successes, f = n/N, z the normal quantile of the level.
"""

import math
from bisect import bisect_left
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = tuple[float, float]

WEIGHTED = "weighted Clopper-Pearson"
"""Name of the interval of :func:`weighted_clopper_pearson`."""

MID_P = 0.5
"""Probability of a further, unseen failure for an end that is mid-P."""

_EXAMPLE_ROUNDING = 1e-6
"""Rounding error of a number of examples."""


class Value(Protocol):
    """A value with its interval, as in estimates and their documents."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def clipped(estimate: Value) -> float:
    """Return the value cut to its interval: unbiased estimates may be outside if few labels fail or few succeed."""
    return min(max(estimate.value, estimate.low), estimate.high)


def cut(bounds: Interval, least: float, most: float) -> Interval:
    """Return the part of an interval inside [least, most]; if there is none, the nearer of these two."""
    low, high = bounds
    return min(max(low, least), most), max(min(high, most), least)


def outward(bounds: Interval, size: int) -> Interval:
    """Round an interval outward to multiples of 1/``size``; ends that equal one up to rounding stay.

    A share of a pool of N examples is one of 0, 1/N, ... 1.
    """
    low, high = bounds
    return math.floor(low * size + _EXAMPLE_ROUNDING) / size, math.ceil(high * size - _EXAMPLE_ROUNDING) / size


def normal_quantile(level: float) -> float:
    """Return z with P(|Z| <= z) = level."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2))


def student_quantile(degrees: float, level: float) -> float:
    """Return t with P(|T| <= t) = level, for Student's distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + level / 2))


def student_widening(degrees: int | None, level: float) -> float:
    """Return Student's quantile over the normal one: the widening for few degrees of freedom; None means infinite."""
    return 1.0 if degrees is None else student_quantile(degrees, level) / normal_quantile(level)


def effective_number(terms: Array) -> float:
    """Return (Σr)²/Σr² of terms (n,) >= 0: the number of equal terms with their sum; 0 if all are 0."""
    return float(terms.sum()) ** 2 / max(float(terms @ terms), 1e-300)


def wilson(mean: float, size: float, level: float) -> Interval:
    """Return Wilson's score interval for the ``mean`` of an (effective) sample of ``size``, drawn with replacement.

    E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22 (1927).
    It is inside [0, 1], and has a width at 0 and at 1, where the normal interval has none.
    """
    z2 = normal_quantile(level) ** 2
    centre = (mean + z2 / (2 * size)) / (1 + z2 / size)
    half = math.sqrt(z2 * (mean * (1 - mean) / size + z2 / (4 * size * size))) / (1 + z2 / size)
    return max(0.0, centre - half), min(1.0, centre + half)


def mid_p_low(count: float, size: float, level: float) -> float:
    """Return the lower end of the mid-P interval for a share, from ``count`` > 0 events among ``size`` labels.

    The share θ at which ½·P(X >= count) + ½·P(X > count) is (1 - level)/2, with X binomial (H. O. Lancaster,
    "Significance tests in discrete distributions", JASA 56, 1961). Numbers need not be whole. With few events it is far
    below Wilson's end, which is too high after a single event; with many the two agree.
    """
    from scipy.optimize import brentq
    from scipy.special import betainc

    most = min(count / size, 1.0)
    tail, left = (1 - level) / 2, max(size - count, 0.0)

    def excess(share: float) -> float:
        at_least = betainc(count, left + 1, share)
        more = betainc(count + 1, left, share) if left else 0.0
        return float(at_least + more) / 2 - tail

    return float(brentq(excess, 0.0, most, xtol=1e-9)) if excess(most) > 0 else most


def mid_p(mean: float, size: float, level: float) -> Interval:
    """Return the mid-P interval for the ``mean`` of an (effective) sample of ``size``, by :func:`mid_p_low`."""
    low = mid_p_low(mean * size, size, level) if mean > 0 else 0.0
    return low, 1 - mid_p_low((1 - mean) * size, size, level) if mean < 1 else 1.0


def wider(first: Interval, second: Interval) -> Interval:
    """Return the wider end of two intervals on each side."""
    return min(first[0], second[0]), max(first[1], second[1])


def zero_failure_bound(num: int, level: float) -> float:
    """Return the upper end of the exact interval for the share of failures if none of ``num`` labels fails."""
    return float(1 - ((1 - level) / 2) ** (1 / num))


def clopper_pearson(successes: int, size: int, level: float) -> Interval:
    """Return the exact interval for a share, from ``size`` independent draws. Coverage is at least ``level``.

    C. Clopper and E. Pearson, "The use of confidence or fiducial limits", Biometrika 26 (1934).
    """
    from scipy.special import betaincinv

    tail, failures = (1 - level) / 2, size - successes
    low = float(betaincinv(successes, failures + 1, tail)) if successes else 0.0
    return low, float(betaincinv(successes + 1, failures, 1 - tail)) if failures else 1.0


def hypergeometric(successes: int, size: int, pool: int, level: float) -> Interval:
    """Return the exact interval for the share of successes in a pool, from a sample without replacement.

    It holds the shares M/N that neither one-sided test at (1 - level)/2 rejects. Coverage is at least ``level``.
    """
    tail, failures = (1 - level) / 2, size - successes
    shares = range(successes, pool - failures + 1)  # possible M
    low = bisect_left(shares[:-1], True, key=lambda M: hypergeometric_at_most(failures, size, pool - M, pool) > tail)
    high = bisect_left(shares, True, key=lambda M: hypergeometric_at_most(successes, size, M, pool) <= tail)
    return (successes + low) / pool, (successes + high - 1) / pool


def hypergeometric_at_most(count: int, size: int, events: int, pool: int) -> float:
    """Return P(X <= count), X the number of ``events`` of a pool among ``size`` examples drawn without replacement.

    Probabilities are summed as multiples of that of the mode, by the ratios of neighbours: no factorials, no
    cancellation.
    """
    rest = pool - events - size  # P(k + 1) / P(k) = (events - k)(size - k) / ((k + 1)(rest + k + 1))
    mode = (size + 1) * (events + 1) // (pool + 2)
    up = np.arange(mode, min(size, events), dtype=np.float64)
    down = np.arange(mode, max(0, -rest), -1, dtype=np.float64)
    above = np.cumprod((events - up) * (size - up) / ((up + 1) * (rest + up + 1)))  # of mode + 1, mode + 2, ...
    below = np.cumprod(down * (rest + down) / ((events - down + 1) * (size - down + 1)))  # of mode - 1, mode - 2, ...
    share = below[max(mode - count - 1, 0) :].sum()
    if count >= mode:
        share += 1 + above[: count - mode].sum()
    return float(share / (1 + below.sum() + above.sum()))


# -- weighted sums of failures ----------------------------------------------------------------------------------


TIE = 1e-9
"""Two shares are equal if they differ by less: rounding must not decide which one is larger."""


class Moments(NamedTuple):
    """An estimated share, and its estimated variance."""

    mean: float
    variance: float

    def widened(self, factor: float) -> "Moments":
        """Multiply the variance by a factor."""
        return self._replace(variance=self.variance * factor)


def weighted_clopper_pearson(
    failures: float, variance: float, largest_weight: float, level: float, unseen: float = 1.0
) -> Interval:
    """Return the interval for a share of failures y = Σ_k w_k f_k with estimated variance s² and largest weight w.

    The weights have expected sum 1: all are 1/n in a simple random sample, but designs that search for failures have
    small and large ones. Student's interval fails there: a sample without the rare failures of large weight has a low
    estimate *and* a small variance. So the interval assumes one more failure of the largest weight for the upper end,
    and one more success for the lower end, as C. Clopper and E. Pearson do ("The use of confidence or fiducial limits",
    Biometrika 26, 1934), and for weights M. Fay and E. Feuer ("Confidence intervals for directly standardized rates",
    Statistics in Medicine 16, 1997):

        upper    mean (y + w)/(1 + w)    variance (s² + (w·(1 - y))²) / ((1 + w)²·(1 + 2w))    beta quantile 1 - α/2
        lower    mean  y     /(1 + w)    variance (s² + (w·y)²)       / ((1 + w)²·(1 + 2w))    beta or gamma, α/2

    For w = 1/n both ends equal Clopper and Pearson's to three digits. The lower end is the smaller of two quantiles,
    because a weighted estimate may exceed 1 and a beta variable may not. It mostly covers more often than the level.

    ``unseen`` is the probability of that one more failure. With ½ the upper end is mid-P: the quantile of an equal
    mixture of its beta distribution and that without the failure, of mean y and variance s² (M. P. Fay and S. Kim,
    "Confidence intervals for directly standardized rates using mid-p gamma intervals", Biometrical Journal 59, 2017).
    """
    from scipy.special import gammaincinv

    y, w, tail = failures, largest_weight, (1 - level) / 2
    if w == 0:  # the whole pool is labelled
        return y, y
    shrink = (1 + w) ** 2 * (1 + 2 * w)
    mean, spread = y / (1 + w), (variance + (w * y) ** 2) / shrink
    by_gamma = float(gammaincinv(mean**2 / spread, tail)) * spread / mean if mean > 0 else 0.0
    low = min(by_gamma, _beta_quantile(tail, mean, spread))
    one_more = Moments((y + w) / (1 + w), (variance + (w * (1 - y)) ** 2) / shrink)
    high = _beta_quantile(1 - tail, *one_more)
    return low, high if unseen == 1 else _mixed_quantile(tail, one_more, Moments(y, variance), unseen, high)


def weighted_share_interval(
    share: Moments, rest: Moments, largest_weight: float, level: float, unseen: float = 1.0
) -> Interval:
    """Return the interval of :func:`weighted_clopper_pearson` for any share, ``rest`` being the share of all others.

    The weights sum to 1 only on average, so a share near 1 is off by as much as their sum. If ``share`` exceeds
    ``rest``, the upper end is therefore the higher one of the two intervals.
    """
    low, high = weighted_clopper_pearson(max(share.mean, 0.0), share.variance, largest_weight, level, unseen)
    if share.mean > rest.mean + TIE:
        high = max(high, 1 - weighted_clopper_pearson(max(rest.mean, 0.0), rest.variance, largest_weight, level)[0])
    return low, high


def weighted_accuracy_interval(failures: Moments, successes: Moments, largest_weight: float, level: float) -> Interval:
    """Return the interval of the accuracy from :func:`weighted_share_interval` of the failures, its end mid-P."""
    few, many = weighted_share_interval(failures, successes, largest_weight, level, MID_P)
    return 1 - many, 1 - few


def weighted_score_interval(value: float, variance: float, largest_weight: float, level: float) -> Interval:
    """Return the interval of a mean ``value`` in [0, 1] from :func:`weighted_clopper_pearson` of 1 - value."""
    few, many = weighted_clopper_pearson(1 - value, variance, largest_weight, level)
    return 1 - many, 1 - few


def _beta_quantile(probability: float, mean: float, variance: float) -> float:
    """Return the quantile of the beta distribution with these moments; 1 if there is none."""
    from scipy.special import betaincinv

    if mean <= 0:
        return 0.0
    size = mean * (1 - mean) / variance - 1 if mean < 1 else 0.0
    if size <= 0:
        return 1.0
    return float(betaincinv(mean * size, (1 - mean) * size, probability))


def _mixed_quantile(tail: float, first: Moments, second: Moments, share: float, most: float) -> float:
    """Return q <= ``most`` with share · P(X > q) + (1 - share) · P(Y > q) = ``tail``, X and Y beta variables."""
    from scipy.optimize import brentq

    def excess(q: float) -> float:
        return share * _beta_tail(q, first) + (1 - share) * _beta_tail(q, second) - tail

    return float(brentq(excess, 0.0, most, xtol=1e-12)) if excess(most) < 0 else most


def _beta_tail(value: float, moments: Moments) -> float:
    """Return P(X > ``value``) of the beta distribution with these moments; of its mean, if there is none."""
    from scipy.special import betainc

    mean, variance = moments
    size = mean * (1 - mean) / variance - 1 if variance > 0 and mean < 1 else 0.0
    if mean <= 0 or size <= 0:
        return float(value < mean)
    return float(1 - betainc(mean * size, (1 - mean) * size, value))


def level_of_each(level: float, num: int) -> float:
    """Return the level (Bonferroni's) at which ``num`` intervals together hold with probability ``level``."""
    return 1 - (1 - level) / max(num, 1)


class PredictedShare(NamedTuple):
    """The mean of a 0/1 variable over one domain, if predictions hold for its unlabelled examples up to one factor.

    Labels that stand for many others show O events where E are predicted, each label weighted by its effect a, so E is
    (Σa v̂)²/Σa²v̂. The factor κ then has the distribution Gamma(O + ½)/(E + ½), and the events among the unlabelled, of
    which S are predicted, are Poisson of mean κS: together negative binomial. As exact intervals of a count do, the
    quantile of chance α takes α for ½: no event more at the lower end, and nearly one at the upper.
    """

    size: float  # N_D
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

    def interval(self, level: float) -> Interval:
        """Return both ends at a confidence level."""
        low, high = self.quantiles(np.array([(1 - level) / 2, (1 + level) / 2])).tolist()
        return low, high

    def quantiles(self, chances: Array) -> Array:
        """Return the quantiles (k,) at ``chances`` (k,)."""
        from scipy.stats import nbinom

        if self.num >= self.size or self.unseen <= 0:
            return np.full(len(chances), self.events / max(self.size, 1))
        share = (self.expected + 0.5) / (self.expected + 0.5 + self.unseen)
        found: Array = nbinom.ppf(chances, self.met + chances, share)
        return np.minimum((self.events + found) / self.size, 1.0)
