"""Draws one by one, each with known probabilities that depend on the earlier draws.

After k - 1 draws, z_k estimates the mean of x from what is known and one more draw:

    z_k = (1/N) · (Σ_{j drawn before} x_j + x_k / q_k)            x̂ = mean z

(Eq. 6 of DeepEST: Guerriero, Pietrantuono, Russo, "Operation is the hardest teacher", ICSE 2021; Hansen and Hurwitz's
at k = 1). Given the earlier draws, its expectation is the truth. So x̂ is unbiased, and the z_k - θ are martingale
differences, hence uncorrelated: Σ(z_k - z̄)²/(n(n - 1)) estimates its variance. The tails are heavy, because a failure
that was unlikely to be drawn counts for many.

Where labels are missing, the earlier draws are extrapolated from the labelled ones.

Legend: N examples to draw from, n labels, q_k the probability with which draw k took its example.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from opacc_ray.designs.design import Count, Design, Numbers, Probabilities, Probability, scatter, times
from opacc_ray.designs.draw_sequence import Array, DrawSequence, LabelledBefore


@dataclass(frozen=True, eq=False)
class StepByStep(Design):
    """n draws without replacement, in their order, each with its probability at the time."""

    name: ClassVar[str] = "step by step"
    is_sequential = True
    draws_by_risk = True

    draw_probability: Probabilities  # (n,) q
    num_before: Numbers  # (n,) draws before
    population: Count  # N
    least_probability: Probability  # the least q of any example at any draw

    @property
    def weights(self) -> Array:
        later = np.cumsum(self._extrapolated[::-1])[::-1] - self._extrapolated  # (n,) share in later draws
        return (later + 1 / self.draw_probability) / (len(self) * self.population)

    def variance(self, x: Array) -> Any:
        before = np.cumsum(x, axis=0) - x
        z = (times(self._extrapolated, before) + times(1 / self.draw_probability, x)) / self.population
        return scatter(z)

    @property
    def weight_bound(self) -> float:
        n = len(self)
        return (1 / self.least_probability + n - 1) / self.population / n

    def stream(self, failure: Array, before: LabelledBefore) -> DrawSequence | None:
        n = len(self)
        if (self.num_before != np.arange(n)).any():  # labels are missing in between
            return None
        drawn, bound = before.failures + np.cumsum(failure) - failure, np.full(n, 1 / self.least_probability)
        return DrawSequence(failure / self.draw_probability, drawn, bound, before.pool_size)

    @property
    def _extrapolated(self) -> Array:
        """(n,) number of earlier draws, divided by the labelled ones among them."""
        return self.num_before / np.maximum(np.arange(len(self)), 1)
