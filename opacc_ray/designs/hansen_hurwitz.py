"""Independent draws with unequal probabilities (Hansen-Hurwitz estimator).

M. H. Hansen, W. N. Hurwitz, "On the theory of sampling from finite populations", Annals of Mathematical Statistics 14
(1943):

    x̂ = (1/n) Σ_k x_k / (N·p_k)           n draws with replacement, k with probability p_k

Legend: N examples to draw from, n draws, p the probability of an example in one draw (1 in sum).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from opacc_ray.designs.design import Count, Design, Probabilities, Probability, scatter, times
from opacc_ray.designs.draw_sequence import Array, DrawSequence, LabelledBefore


@dataclass(frozen=True, eq=False)
class HansenHurwitz(Design):
    """n draws with replacement, each with the same known probabilities."""

    name: ClassVar[str] = "Hansen-Hurwitz"
    is_sequential = True
    is_distinct = False
    draws_by_risk = True

    draw_probability: Probabilities  # (n,) p
    population: Count  # N
    least_probability: Probability  # the least p of the pool

    @property
    def weights(self) -> Array:
        return self._scale / len(self)

    def variance(self, x: Array) -> Any:
        return scatter(times(self._scale, x))

    @property
    def weight_bound(self) -> float:
        return 1 / (len(self) * self.population * self.least_probability)

    def stream(self, failure: Array, before: LabelledBefore) -> DrawSequence | None:
        n = len(self)
        bound = np.full(n, 1 / self.least_probability)
        return DrawSequence(failure / self.draw_probability, np.full(n, before.failures), bound, before.pool_size)

    @property
    def _scale(self) -> Array:
        """1 / (N p) (n,)."""
        return 1 / (self.population * self.draw_probability)
