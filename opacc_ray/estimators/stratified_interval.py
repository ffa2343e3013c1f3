"""Compute the confidence interval for the share of successes from independent strata, of one sample or of many rounds.

The share is θ = Σ_j P_j p_j, estimated by θ̂ = Σ_j P_j x_j / n_j. Its interval is the widest of three rules:

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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.intervals import Interval, hypergeometric, mid_p, normal_quantile, wider

_ROUNDING = 1e-14

Array = NDArray[np.float64]


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
