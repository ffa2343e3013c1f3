"""The interval of a weighted sum of failures: what unequal-probability designs have in common.

Each of these designs estimates the share of failures by Σ_k w_k · f_k over the sample, with weights w_k known from the
design and 1 in expected sum: 1/n each for a simple random sample, small where failures were looked for and large
elsewhere. Student's interval fails here. A sample that met none of the rare failures with a large weight has a low
estimate *and* a small variance.

What is missing is the failure of the largest weight that the sample did not happen to show. Clopper and Pearson's
exact interval ("The use of confidence or fiducial limits", Biometrika 26, 1934) reckons with one more failure for the
upper bound and one more success for the lower, and Fay and Feuer ("Confidence intervals for directly standardized
rates", Statistics in Medicine 16, 1997) with one more of the largest weight the design can give. Both are done here:

    upper    mean (y + w)/(1 + w)    variance (s² + (w·(1 - y))²) / ((1 + w)²·(1 + 2w))    beta law, 1 - α/2
    lower    mean  y     /(1 + w)    variance (s² + (w·y)²)       / ((1 + w)²·(1 + 2w))    beta or gamma law, α/2

For a simple random sample (w = 1/n) both bounds are Clopper and Pearson's to three digits. The lower bound is the less
of the two laws', for an estimate with unequal weights may exceed 1, which the beta law cannot. The interval covers more
often than it says, for it insures against the worst of populations.

The weights of a sample sum to 1 on average only, and the share of failures is off by as much as their sum is where most
examples fail. The share of successes Σ_k w_k · (1 - f_k) is not. So where failures have more of the weight, the lower
end of the accuracy is the lower one of the two. Mean costs and the sides of a difference are bounded alike.

Legend: N pool, n labels, f failure in [0, 1], y the estimated share of failures, s² its estimated variance, w the
largest weight the design can give.
"""

import math
from typing import NamedTuple

from opacc_ray.designs import Design
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.intervals import Interval

NAME = "weighted Clopper-Pearson"


def weighted(design: Design, outcome: Outcome, level: float) -> Estimate:
    """Accuracy by any design: unbiased and therefore not cut at [0, 1], with an interval that is."""
    failure = 1 - outcome
    failures = Moments(design.failure_share(failure), design.failure_variance(failure))
    successes = Moments(float(design.mean(outcome)), float(design.variance(outcome)))
    low, high = accuracy_bounds(failures, successes, design.weight_bound, level)
    error, reason = math.sqrt(failures.variance), design.reason
    return Estimate(1 - failures.mean, error, low, high, level, NAME, len(outcome), reason is None, reason)


class Moments(NamedTuple):
    """An estimated share, and its estimated variance."""

    mean: float
    variance: float

    def widened(self, factor: float) -> "Moments":
        """The same mean, with the variance times a factor."""
        return self._replace(variance=self.variance * factor)


def accuracy_bounds(failures: Moments, successes: Moments, largest_weight: float, level: float) -> Interval:
    """The interval above, for the accuracy."""
    few, many = share_bounds(failures, successes, largest_weight, level)
    return 1 - many, 1 - few


def share_bounds(share: Moments, rest: Moments, largest_weight: float, level: float) -> Interval:
    """The interval above, for a share of anything, ``rest`` being what is estimated of all else."""
    low, high = failure_bounds(max(share.mean, 0.0), share.variance, largest_weight, level)
    if share.mean > rest.mean:
        high = max(high, 1 - failure_bounds(max(rest.mean, 0.0), rest.variance, largest_weight, level)[0])
    return low, high


def failure_bounds(failures: float, variance: float, largest_weight: float, level: float) -> Interval:
    """The interval above, for the share of failures."""
    y, w, tail = failures, largest_weight, (1 - level) / 2
    if w == 0:  # the whole pool is labelled
        return y, y
    shrink = (1 + w) ** 2 * (1 + 2 * w)
    lower = y / (1 + w), (variance + (w * y) ** 2) / shrink
    upper = (y + w) / (1 + w), (variance + (w * (1 - y)) ** 2) / shrink
    return min(_gamma_quantile(tail, *lower), _beta_quantile(tail, *lower)), _beta_quantile(1 - tail, *upper)


def _gamma_quantile(probability: float, mean: float, variance: float) -> float:
    """Quantile of the gamma law with these moments."""
    from scipy.special import gammaincinv

    if mean <= 0:
        return 0.0
    return float(gammaincinv(mean**2 / variance, probability)) * variance / mean


def _beta_quantile(probability: float, mean: float, variance: float) -> float:
    """Quantile of the beta law with these moments; 1 where there is none."""
    from scipy.special import betaincinv

    if mean <= 0:
        return 0.0
    size = mean * (1 - mean) / variance - 1 if mean < 1 else 0.0
    if size <= 0:
        return 1.0
    return float(betaincinv(mean * size, (1 - mean) * size, probability))
