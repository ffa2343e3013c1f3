"""State an accuracy of the population that the pool is a random sample of, not of the pool.

An interval by the sampling design is about the pool: chance lies in the draw of labels. If the pool itself is a simple
random sample of a population, such as 40 of 300 videos or 2,000 of 7,500 answers, the accuracy of the population has a
second error, that of the pool's own mean. Its variance is

    V + (1 - M/M') B        V of the labels given the pool;   B of the mean of M units drawn with replacement

The units are what was drawn: examples, or *clusters* such as videos, whose examples are alike. For examples B is
S²/(N - 1). For clusters the deviations of all M of them,

    d_c = 1/N Σ_c (v̂ - θ̂) + Σ_labels of c w (v - v̂)        U = M/(M - 1) Σ (d_c - d̄)²

estimate V + B, however examples are drawn within (the ultimate cluster of M. H. Hansen, W. N. Hurwitz, W. G. Madow,
"Sample Survey Methods and Theory", 1953; C.-E. Särndal, B. Swensson, J. Wretman, "Model Assisted Survey Sampling",
1992, 4.6). So B = U - V, and at least S²/(N - 1). U has 2M/(κ - 1) degrees of freedom, with κ the kurtosis of d. Where
all labels agree, nothing is known of B, and clusters count as if each were one example.

The interval combines that of the pool with Wilson's at the size of the sample with variance (1 - M/M') B, end by end,
by the method of variance estimates recovery (G. Y. Zou, A. Donner, Statistics in Medicine 27, 2008). The estimate
stays.

Legend: N examples and M units of the pool, M' those of the population, w weight of a label, v its failure, v̂ forecast
of it, θ̂ the estimate, S² variance of v.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import SpecError
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.intervals import Interval, normal_quantile, student_quantile, wilson

Array = NDArray[np.float64]

MORE = "more"
"""A population of any size: examples or clusters to come."""


class SampleOf(NamedTuple):
    """What the pool is a simple random sample of."""

    total: int | None  # M'; None: many more
    cluster: str | None = None  # what the units are called; None: examples

    @classmethod
    def parse(cls, given: int | str, cluster: str | None = None) -> "SampleOf":
        """Read a number or "more"; raises SpecError for anything else."""
        if given == MORE:
            return cls(None, cluster)
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise SpecError(f"sample_of={given!r}: give the size of the population, or {MORE!r} for any size")
        return cls(given, cluster)


class PoolAsSample(NamedTuple):
    """How well the pool represents its population."""

    size: float  # of the simple random sample with replacement whose mean is as uncertain as that of the pool
    note: str

    def of_population(self, found: Estimate) -> Estimate:
        """Return the estimate of the population from that of the pool."""
        low, high = self._widened(found)
        error = math.hypot(found.standard_error, math.sqrt(max(found.value * (1 - found.value), 0.0) / self.size))
        return replace(found, low=low, high=high, standard_error=error, interval=f"{found.interval} for a population")

    def _widened(self, found: Estimate) -> Interval:
        value = min(max(found.value, 0.0), 1.0)
        low, high = wilson(value, self.size, found.level) if self.size < math.inf else (value, value)
        below, above = math.hypot(value - found.low, value - low), math.hypot(found.high - value, high - value)
        return max(value - below, min(found.low, 0.0)), min(value + above, max(found.high, 1.0))


def pool_as_sample(
    asked: SampleOf, found: Estimate, pool_size: int, spread: float, clusters: Array | None
) -> PoolAsSample:
    """Return how well a pool represents its population.

    Parameters
    ----------
    found : the accuracy of the pool, with the variance of the labels
    spread : S²
    clusters : (M,) d; None: examples were drawn

    Raises SpecError for a population that is smaller than the pool, or for a single cluster.
    """
    num = pool_size if clusters is None else len(clusters)
    if asked.total is not None and asked.total < num:
        raise SpecError(
            f"sample_of: the pool has {num:,} {_units(asked)}, and cannot be a sample of {asked.total:,}; give the "
            f"size of the whole population, or {MORE}"
        )
    left = 1.0 if asked.total is None else 1 - num / asked.total
    value = min(max(found.value, 0.0), 1.0)
    size, widening = float(max(pool_size - 1, 1)), 1.0
    if spread > 0:
        size *= value * (1 - value) / spread
    if clusters is not None:
        size, widening = _of_clusters(clusters, found, value * (1 - value) / size if spread > 0 else 0.0)
    return PoolAsSample(size / (left * widening**2) if left > 0 else math.inf, _note(asked, num))


def cluster_deviations(
    codes: NDArray[np.integer], num: int, forecast: Array, labels: tuple[NDArray[np.int64], Array, Array], value: float
) -> Array:
    """Return d (M,) of each cluster.

    Parameters
    ----------
    codes : (N,) cluster of each example, 0 .. ``num`` - 1
    forecast : (N,) v̂
    labels : (n,) place, weight and failure of each label
    value : θ̂ of failures
    """
    index, weight, failure = labels
    own: Array = np.bincount(codes, weights=forecast - value, minlength=num) / len(codes)
    own += np.bincount(codes[index], weights=weight * (failure - forecast[index]), minlength=num)
    return own - own.mean()


def _of_clusters(deviation: Array, found: Estimate, least: float) -> tuple[float, float]:
    """Return the size for clusters, and the widening for few of them; ``least`` is S²/(N - 1)."""
    num = len(deviation)
    if num < 2:
        raise SpecError("sample_of: the pool has a single cluster, and says nothing of others; leave it out")
    square = deviation**2
    if least <= 0 or not square.any():
        return float(num), student_quantile(num - 1, found.level) / normal_quantile(found.level)
    total = num / (num - 1) * float(square.sum())
    kurtosis = num * float(square @ square) / float(square.sum()) ** 2
    degrees = min(max(2 * num / max(kurtosis - 1, 1e-9), 1.0), num - 1.0)
    variance = max(total - found.standard_error**2, least)
    size = max(found.value * (1 - found.value) / variance, 1.0)
    return size, student_quantile(degrees, found.level) / normal_quantile(found.level)


def _units(asked: SampleOf) -> str:
    return "examples" if asked.cluster is None else f"values of {asked.cluster}"


def _note(asked: SampleOf, num: int) -> str:
    many = "more" if asked.total is None else f"{asked.total:,}"
    return (
        f"The interval is about {many} {_units(asked)}, of which the pool has {num:,}, drawn at random. That of the "
        "sampling design alone, metrics and slices are about the pool."
    )
