"""Draws one by one, each with known probabilities that depend on the draws before.

After k - 1 draws, z_k estimates the mean of x from what is known and one more draw:

    z_k = (1/N) · (Σ_{j drawn before} x_j + x_k / q_k)            x̂ = mean z

(Eq. 6 of DeepEST: Guerriero, Pietrantuono, Russo, "Operation is the hardest teacher", ICSE 2021; Hansen and Hurwitz's
at k = 1). Given the earlier draws its expectation is the truth, whatever they were. So x̂ is unbiased, the z_k - θ are
martingale differences and hence uncorrelated, and Σ(z_k - z̄)²/(n(n - 1)) estimates its variance. The tails are heavy: a
failure that was unlikely to be drawn counts for many.

Where labels are missing, what was drawn before is extrapolated from the labelled draws.

Legend: N examples to draw from, n labels, q_k the probability with which draw k took its example.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from opacc_ray.designs.base import Array, Before, Design, Stream, equal_factor, scatter, times
from opacc_ray.designs.fields import Count, Numbers, Probabilities, Probability


@dataclass(frozen=True, eq=False)
class StepByStep(Design):
    """n draws without replacement, in their order, with the probability that each had at its turn."""

    name: ClassVar[str] = "step by step"

    draw_probability: Probabilities  # (n,) q
    num_before: Numbers  # (n,) draws before
    population: Count  # N
    least_probability: Probability  # the least q of any example at any draw

    @property
    def weights(self) -> Array:
        later = np.cumsum(self._extrapolated[::-1])[::-1] - self._extrapolated  # (n,) what later draws make of this one
        return (later + 1 / self.draw_probability) / (len(self) * self.population)

    def variance(self, x: Array) -> Any:
        before = np.cumsum(x, axis=0) - x
        z = (times(self._extrapolated, before) + times(1 / self.draw_probability, x)) / self.population
        return scatter(z, equal_factor(len(self)))

    @property
    def weight_bound(self) -> float:
        n = len(self)
        return (1 / self.least_probability + n - 1) / self.population / n

    @property
    def is_sequential(self) -> bool:
        return True

    @property
    def drawn_by_belief(self) -> bool:
        return True

    def stream(self, failure: Array, before: Before) -> Stream | None:
        n = len(self)
        if (self.num_before != np.arange(n)).any():  # labels are missing in between
            return None
        drawn, bound = before.failures + np.cumsum(failure) - failure, np.full(n, 1 / self.least_probability)
        return Stream(failure / self.draw_probability, drawn, bound, before.pool_size)

    @property
    def _extrapolated(self) -> Array:
        """Draws before each, by the labelled ones among them: (n,)."""
        return self.num_before / np.maximum(np.arange(len(self)), 1)
