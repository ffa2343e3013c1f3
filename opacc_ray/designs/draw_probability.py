"""Unequal probabilities of single draws: with replacement, one from each of random groups, or step by step.

**Hansen-Hurwitz**: independent draws. M. H. Hansen, W. N. Hurwitz, "On the theory of sampling from finite populations",
Annals of Mathematical Statistics 14 (1943):

    x̂ = (1/n) Σ_k x_k / (N·p_k)           n draws with replacement, k with probability p_k

**Rao-Hartley-Cochran**: without replacement, by random groups. J. N. K. Rao, H. O. Hartley, W. G. Cochran, "On a simple
procedure of unequal probability sampling without replacement", Journal of the Royal Statistical Society B 24 (1962):

    x̂ = Σ_g Q_g · x_g / (N·p_g)           one draw from each of n random groups, Q_g = Σ_{i in g} p_i
    v = F · Σ_g Q_g (x_g / (N·p_g) - x̂)²  F = (Σ N_g² - N) / (N² - Σ N_g²)

Where labels are missing, the labelled groups replace the pool: together they are a random part of it.

**Step by step**: draws one by one, each with known probabilities that depend on the earlier draws. After k - 1 draws,
z_k estimates the mean of x from what is known and one more draw:

    z_k = (1/N) · (Σ_{j drawn before} x_j + x_k / q_k)            x̂ = mean z

(Eq. 6 of DeepEST: Guerriero, Pietrantuono, Russo, "Operation is the hardest teacher", ICSE 2021; Hansen and Hurwitz's
at k = 1). Given the earlier draws, its expectation is the truth. So x̂ is unbiased, and the z_k - θ are martingale
differences, hence uncorrelated: Σ(z_k - z̄)²/(n(n - 1)) estimates its variance. The tails are heavy, because a failure
that was unlikely to be drawn counts for many.

Where labels are missing, the earlier draws are extrapolated from the labelled ones.

Legend: N examples to draw from, N_g those of group g, n draws, labels or groups, p the probability of an example in one
draw (1 in sum), q_k the probability with which draw k took its example.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from opacc_ray.designs import design


@dataclass(frozen=True, eq=False)
class HansenHurwitz(design.Design):
    """n draws with replacement, each with the same known probabilities."""

    name: ClassVar[str] = "Hansen-Hurwitz"
    is_sequential = True
    is_distinct = False

    draw_probability: design.Probabilities  # (n,) p
    population: design.Count  # N
    least_probability: design.Probability  # the least p of the pool

    @property
    def weights(self) -> design.Array:
        return self._scale / len(self)

    def variance(self, x: design.Array) -> Any:
        return design.scatter(design.times(self._scale, x))

    @property
    def weight_bound(self) -> float:
        return 1 / (len(self) * self.population * self.least_probability)

    def stream(self, failure: design.Array, before: design.LabelledBefore) -> design.DrawSequence | None:
        n = len(self)
        bound = np.full(n, 1 / self.least_probability)
        return design.DrawSequence(
            failure / self.draw_probability, np.full(n, before.failures), bound, before.pool_size
        )

    @property
    def _scale(self) -> design.Array:
        """1 / (N p) (n,)."""
        return 1 / (self.population * self.draw_probability)


@dataclass(frozen=True, eq=False)
class RaoHartleyCochran(design.Design):
    """One draw from each of n random groups, with probabilities proportional to p within the group."""

    name: ClassVar[str] = "Rao-Hartley-Cochran"

    draw_probability: design.Probabilities  # (n,) p
    group_probability: design.Probabilities  # (n,) Q
    group_size: design.Counts  # (n,) N_g
    least_probability: design.Probability  # the least p of the pool

    @property
    def population(self) -> int:
        """N, of the groups that have labels."""
        return int(self.group_size.sum())

    @property
    def weights(self) -> design.Array:
        return self.group_probability / (self.population * self.draw_probability)

    def variance(self, x: design.Array) -> Any:
        squares, population = float(self.group_size @ self.group_size), self.population
        factor = (squares - population) / (population**2 - squares) if len(self) > 1 else 0.0
        return design.scatter(design.times(self._scale, x), factor * self._share)

    @property
    def largest_weight(self) -> float:
        n, population = len(self), self.population
        average_group = math.sqrt(1 - (n - 1) / max(population - 1, 1))
        return float(self._scale.max()) / n * average_group

    @property
    def weight_bound(self) -> float:
        return float(self.group_probability.sum()) / (len(self) * self.population * self.least_probability)

    @property
    def _share(self) -> design.Array:
        """Q (n,), 1 in sum."""
        return self.group_probability / self.group_probability.sum()

    @property
    def _scale(self) -> design.Array:
        """1 / (N p) (n,), with p scaled to sum 1."""
        return self.group_probability.sum() / (self.population * self.draw_probability)


@dataclass(frozen=True, eq=False)
class StepByStep(design.Design):
    """n draws without replacement, in their order, each with its probability at the time."""

    name: ClassVar[str] = "step by step"
    is_sequential = True

    draw_probability: design.Probabilities  # (n,) q
    num_before: design.Numbers  # (n,) draws before
    population: design.Count  # N
    least_probability: design.Probability  # the least q of any example at any draw

    @property
    def weights(self) -> design.Array:
        later = np.cumsum(self._extrapolated[::-1])[::-1] - self._extrapolated  # (n,) share in later draws
        return (later + 1 / self.draw_probability) / (len(self) * self.population)

    def variance(self, x: design.Array) -> Any:
        before = np.cumsum(x, axis=0) - x
        z = (design.times(self._extrapolated, before) + design.times(1 / self.draw_probability, x)) / self.population
        return design.scatter(z)

    @property
    def weight_bound(self) -> float:
        n = len(self)
        return (1 / self.least_probability + n - 1) / self.population / n

    def stream(self, failure: design.Array, before: design.LabelledBefore) -> design.DrawSequence | None:
        n = len(self)
        if (self.num_before != np.arange(n)).any():  # labels are missing in between
            return None
        drawn, bound = before.failures + np.cumsum(failure) - failure, np.full(n, 1 / self.least_probability)
        return design.DrawSequence(failure / self.draw_probability, drawn, bound, before.pool_size)

    @property
    def _extrapolated(self) -> design.Array:
        """(n,) number of earlier draws, divided by the labelled ones among them."""
        return self.num_before / np.maximum(np.arange(len(self)), 1)
