"""Unequal probabilities without replacement, by random groups (Rao-Hartley-Cochran estimator).

J. N. K. Rao, H. O. Hartley, W. G. Cochran, "On a simple procedure of unequal probability sampling without replacement",
Journal of the Royal Statistical Society B 24 (1962):

    x̂ = Σ_g Q_g · x_g / (N·p_g)           one draw from each of n random groups, Q_g = Σ_{i in g} p_i
    v = F · Σ_g Q_g (x_g / (N·p_g) - x̂)²  F = (Σ N_g² - N) / (N² - Σ N_g²)

Where labels are missing, the labelled groups replace the pool: together they are a random part of it.

Legend: N examples to draw from, N_g those of group g, n groups, p the probability of an example (1 in sum).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from opacc_ray.designs.design import Counts, Design, Probabilities, Probability, scatter, times
from opacc_ray.designs.draw_sequence import Array


@dataclass(frozen=True, eq=False)
class RaoHartleyCochran(Design):
    """One draw from each of n random groups, with probabilities proportional to p within the group."""

    name: ClassVar[str] = "Rao-Hartley-Cochran"
    draws_by_risk = True

    draw_probability: Probabilities  # (n,) p
    group_probability: Probabilities  # (n,) Q
    group_size: Counts  # (n,) N_g
    least_probability: Probability  # the least p of the pool

    @property
    def population(self) -> int:
        """N, of the groups that have labels."""
        return int(self.group_size.sum())

    @property
    def weights(self) -> Array:
        return self.group_probability / (self.population * self.draw_probability)

    def variance(self, x: Array) -> Any:
        squares, population = float(self.group_size @ self.group_size), self.population
        factor = (squares - population) / (population**2 - squares) if len(self) > 1 else 0.0
        return scatter(times(self._scale, x), factor * self._share)

    @property
    def largest_weight(self) -> float:
        n, population = len(self), self.population
        average_group = math.sqrt(1 - (n - 1) / max(population - 1, 1))
        return float(self._scale.max()) / n * average_group

    @property
    def weight_bound(self) -> float:
        return float(self.group_probability.sum()) / (len(self) * self.population * self.least_probability)

    @property
    def _share(self) -> Array:
        """Q (n,), 1 in sum."""
        return self.group_probability / self.group_probability.sum()

    @property
    def _scale(self) -> Array:
        """1 / (N p) (n,), with p scaled to sum 1."""
        return self.group_probability.sum() / (self.population * self.draw_probability)
