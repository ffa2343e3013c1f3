"""Compute confidence intervals for a mean in [0, 1], and define the estimate that every estimator returns.

Legend: N pool, n labels, x successes, f = n/N, z the normal quantile of the level.

**Independent strata**, of one sample or of many rounds (:func:`stratified_interval`). The share is θ = Σ_j P_j p_j,
estimated by θ̂ = Σ_j P_j x_j / n_j. Its interval is the widest of three rules:

    score      all θ with |θ̂ - θ| <= z √(Σ_j P_j² g_j p̃_j(1 - p̃_j) / n_j),   g_j = (1 - n_j/N_j) · n_j / (n_j - 1)
    mid-P      the lower end for failures is at most the mid-P end for f·s failures among s labels, and that for
               successes at most the mid-P end for (1 - f)·s successes,   s = f(1 - f)/V,   f = 1 - θ̂
    none       if no label fails, the upper end for failures is at least P_j times the exact bound of stratum j, which
               shows none among n_j of N_j examples; the same for successes

**Score.** p̃ are the shares of success that maximise the likelihood given Σ_j P_j p̃_j = θ. It is Wilson's interval,
generalised (for two strata: O. Miettinen and M. Nurminen, "Comparative analysis of two rates", Statistics in Medicine
4, 1985; g is their correction for few labels, and that for a finite stratum). A stratum without failures keeps a
variance that way, unlike with sample variances.

**Mid-P.** Like Wilson's, the score's lower end is too high after few failures: one failure in a stratum of large share
and few labels excludes shares that easily show one. The mid-P end does not (H. O. Lancaster, "Significance tests in
discrete distributions", JASA 56, 1961; A. Agresti and A. Gottard, "Nonconservative exact small-sample inference for
discrete data", Computational Statistics and Data Analysis 51, 2007). s is the size of the simple random sample with the
same variance (E. L. Korn and B. I. Graubard, "Confidence intervals for proportions with small expected number of
positive counts estimated from survey data", Survey Methodology 24, 1998).

Strata that are labelled in full are known: they are added to the interval of the others.

Legend: J strata, N_j and n_j examples and labels of stratum j, x_j its successes, P_j its share, f share of failures, V
estimated variance of θ̂, z normal quantile of the level.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = tuple[float, float]

WEIGHTED = "weighted Clopper-Pearson"
"""Name of the interval of :func:`weighted_clopper_pearson`."""


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


def student_widening(degrees: float, level: float) -> float:
    """Return Student's quantile over the normal one: the widening for few degrees of freedom."""
    return student_quantile(degrees, level) / normal_quantile(level)


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


def clopper_pearson(successes: float, size: float, level: float) -> Interval:
    """Return the exact interval for a share, from ``size`` independent draws. Coverage is at least ``level``.

    Numbers need not be whole.

    C. Clopper and E. Pearson, "The use of confidence or fiducial limits", Biometrika 26 (1934).
    """
    from scipy.special import betaincinv

    tail, failures = (1 - level) / 2, max(size - successes, 0.0)
    low = float(betaincinv(successes, failures + 1, tail)) if successes > 0 else 0.0
    return low, float(betaincinv(successes + 1, failures, 1 - tail)) if failures > 0 else 1.0


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


_ROUNDING = 1e-14


class Strata(NamedTuple):
    """Labels of independent strata: (J,) each, as floating numbers."""

    successes: Array  # x_j
    num: Array  # n_j
    sizes: Array  # N_j
    shares: Array  # P_j, of the pool; in rounds times the weight of the round

    @property
    def means(self) -> Array:
        """x_j / n_j (J,)."""
        return self.successes / self.num

    @property
    def factors(self) -> Array:
        """g_j (J,), of p(1 - p)/n_j: fitted to few labels, p(1 - p) is too small by (n_j - 1)/n_j."""
        return (1 - self.num / self.sizes) * self.num / np.maximum(self.num - 1, 0.5)

    def where(self, keep: NDArray[np.bool_]) -> "Strata":
        """Return the strata where ``keep`` (J,) is true."""
        return Strata(*(values[keep] for values in self))


def stratified_interval(strata: Strata, variance: float, level: float) -> Interval:
    """Return the interval for Σ_j P_j p_j, whose estimate has the ``variance`` V, by the rules above."""
    in_full = strata.num >= strata.sizes
    known = float(strata.shares[in_full] @ strata.means[in_full])
    if in_full.all():
        return known, known
    part = strata.where(~in_full)
    whole = float(part.shares.sum())
    score = stratified_score(part._replace(shares=part.shares / whole), level)
    low, high = wider(score, _few_events(part, variance / whole**2, level))
    return known + whole * low, known + whole * high


def _few_events(part: Strata, variance: float, level: float) -> Interval:
    """Return the ends of mid-P, or those of no failure or success, for the mean of strata with shares of sum 1."""
    shares = part.shares / part.shares.sum()
    mean = float(shares @ part.means)
    if part.successes.any() and (part.successes < part.num).any():
        return mid_p(mean, mean * (1 - mean) / max(variance, 1e-300), level)
    counts = zip(shares, part.num.astype(int).tolist(), part.sizes.astype(int).tolist(), strict=True)
    bound = max(share * (1 - hypergeometric(num, num, size, level)[0]) for share, num, size in counts)
    return (0.0, bound) if mean < 0.5 else (1 - bound, 1.0)


def stratified_score(strata: Strata, level: float) -> Interval:
    """Return the ends of the score rule above, of strata that are not labelled in full."""
    from scipy.optimize import brentq

    successes, sizes, shares = strata.successes, strata.num, strata.shares
    estimate, weights = float(shares @ strata.means), shares**2 * strata.factors / sizes
    z = normal_quantile(level)

    def end(sign: int) -> float:
        pulled = successes if sign > 0 else sizes - successes  # pulling successes down is pulling failures up

        def likely(strength: float) -> Array:
            share = _constrained(pulled, sizes, math.exp(strength) * shares)
            return share if sign > 0 else 1 - share

        def beyond(strength: float) -> float:
            p = likely(strength)
            error = z * math.sqrt(float(weights @ (p * (1 - p))))
            excess = sign * (float(shares @ p) - estimate) - error
            return excess if abs(excess) > _ROUNDING else -1.0  # a weak pull may move nothing

        weak, strong = math.log(1e-9), math.log(1e12 * float(sizes.sum()))
        if beyond(strong) > 0:
            strong = brentq(beyond, weak, strong, xtol=1e-15)
        return float(shares @ likely(strong))

    return end(-1), end(+1)


def _constrained(successes: Array, sizes: Array, pull: Array) -> Array:
    """Return the most likely shares of success under a pull up: the root in [0, 1] of a·p² + (n - a)·p - x = 0."""
    rest = sizes - pull
    apart = np.sqrt(rest * rest + 4 * pull * successes)
    falls = rest > 0
    # two forms of the root: each avoids cancellation on its side
    share: Array = np.where(falls, 2 * successes, apart - rest) / np.where(falls, rest + apart, 2 * pull)
    return np.minimum(np.maximum(share, 0, out=share), 1, out=share)


# -- an estimate with its interval --------------------------------------------------------------------------------


_LEAST_MOVE = 1e-9
"""A smaller move of a value into its interval is not reported."""

_LINE_WIDTH = 240
"""Pixels of the line from 0 to 1."""


@dataclass(frozen=True)
class IfPredicted:
    """The interval of a metric if the confidence is right about the examples that no label reached, up to a factor.

    ``factor`` is how many times as many examples of the class may hide among them as the confidence says before the
    metric is below ``low``, and ``labels`` the number of labels there, drawn at random, that would settle it without
    that assumption.
    """

    value: float
    low: float
    high: float
    factor: float
    labels: int


@dataclass(frozen=True)
class Estimate:
    """Accuracy of a model on the whole pool, with its interval.

    ``value`` is between ``low`` and ``high``: an unbiased estimate outside of them is moved to the nearer end, and
    ``reason`` reports it. ``low`` .. ``high`` covers the accuracy with probability ``level`` where ``design_based`` is
    true; otherwise ``reason`` states the assumption of the interval. ``method`` names its formula.

    ``effective_size`` is the number of labels of a simple random sample that would be as precise. Only
    :func:`opacc_ray.estimate` sets it; it is None where it is unknown: too few failures were seen, or the interval is
    not design-based. ``if_predicted`` is a second statement on metrics of a rare class. Equality and :meth:`to_dict`
    ignore both.
    """

    value: float
    standard_error: float
    low: float
    high: float
    level: float
    method: str
    n: int
    design_based: bool
    reason: str | None = None
    effective_size: float | None = field(default=None, compare=False)
    if_predicted: IfPredicted | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("value", "standard_error", "low", "high", "level"):  # NumPy numbers are not JSON types
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def interval(self) -> tuple[float, float]:
        """Return (low, high)."""
        return self.low, self.high

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, under the names of the attributes, without the two that equality ignores."""
        content = asdict(self)
        del content["effective_size"], content["if_predicted"]
        return content

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        return as_text(self)


def within_interval(found: Estimate, size: int | None = None) -> Estimate:
    """Move the value into the interval, and round the ends outward to multiples of 1/``size`` if that is given.

    An unbiased estimate may be outside of its interval, even below 0, where few labels fail or few succeed. ``reason``
    reports such a move.
    """
    low, high = (found.low, found.high) if size is None else outward((found.low, found.high), size)
    value, reason = min(max(found.value, low), high), found.reason
    if abs(value - found.value) > _LEAST_MOVE:
        reason = joined_reasons((reason, f"the unbiased estimate, {found.value:.4f}, is outside the interval"))
    return replace(found, value=value, low=low, high=high, reason=reason)


def joined_reasons(reasons: Iterable[str | None]) -> str | None:
    """Join reasons in one text, each once; None if there is none."""
    return "; ".join(dict.fromkeys(filter(None, reasons))) or None


def as_text(estimate: Any) -> str:
    """Return an estimate, or its document, as one line of text, with its reason."""
    kind = "" if estimate.design_based else ", not design-based"
    reason = f": {estimate.reason}" if estimate.reason else ""
    return (
        f"{estimate.value:.4f} [{estimate.low:.4f}, {estimate.high:.4f}] "
        f"({100 * estimate.level:g}% {estimate.method} interval, {estimate.n} labels{kind}){reason}"
    )


def as_html(estimate: Any) -> str:
    """Return an estimate, or its document, as HTML in the colours of the page; every text is escaped."""
    between = f"{100 * estimate.level:g}% interval {estimate.low:.4f} to {estimate.high:.4f}"
    note = f"; {escape(estimate.reason)}" if estimate.reason else ""
    return (
        f'<div><strong style="font-size:1.3em">{estimate.value:.4f}</strong>&ensp;{between}<br>'
        f"{_interval_line(estimate, between)}"
        f"<small>{escape(estimate.method)} interval, {estimate.n} labels{note}</small></div>"
    )


def _interval_line(estimate: Any, between: str) -> str:
    if not 0 <= estimate.low <= estimate.high <= 1:
        return ""
    low, high, value = (8 + _LINE_WIDTH * min(max(x, 0.0), 1.0) for x in (estimate.low, estimate.high, estimate.value))
    title = f"{estimate.value:.4f}, {between}"
    return (
        f'<svg role="img" width="{_LINE_WIDTH + 16}" height="18" stroke="currentColor"><title>{title}'
        f'</title><path d="M8 5V13M{_LINE_WIDTH + 8} 5V13M8 9H{_LINE_WIDTH + 8}" opacity=".35"/>'
        f'<path d="M{low:.1f} 9H{high:.1f}" stroke-width="4"/>'
        f'<circle cx="{value:.1f}" cy="9" r="5" fill="currentColor"/></svg><br>'
    )
