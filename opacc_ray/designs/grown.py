"""Sample of a pool that grew: labels of an earlier sample, and a sample of what is new.

An example that was drawn with the inclusion probability π keeps it, whatever joins or leaves the pool: the sample of
the old pool, without the examples that are gone, is one of the part that both pools have in common. The new part has a
sample of its own. With the weights 1/(Nπ) both together estimate the mean of the whole pool, as strata of known size:

    r = (1/N) · [ Σ_all p + Σ_old (f - p)/π + Σ_new (f - p)/π ]

Of several earlier rounds that were combined with weights, π is 1/(N₀w), with w the weight of a label in the mean over
the old pool of N₀ examples. The variance is that of each part on its own, as for one draw with these π: of several
rounds it is slightly too large.

If p was fitted to the carried labels, an error of one that moves its own p by h is too small; its square is divided by
1 - h (HC2: J. MacKinnon, H. White, Journal of Econometrics 29, 1985), and the estimate of the old part has the small
bias of a regression estimator. That of the new part is unbiased for any p.

Legend: N examples of the pool, f = 1 - outcome, p predicted failure, h leverage.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from opacc_ray.designs.design import Numbers, Shares, Sizes, equal_factor, scatter, times
from opacc_ray.designs.draw_sequence import Array
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.errors import DataError, LabelError

OLD, NEW = 0, 1

CARRIED = "carried"
"""Among the facts of a selection: the run before, its labels that count, their part of the pool, and their reason."""


@dataclass(frozen=True, eq=False)
class Grown(InclusionProbability):
    """Distinct examples of two parts of a pool, each with its inclusion probability in its part."""

    name: ClassVar[str] = "grown pool"
    predicted: ClassVar[tuple[str, ...]] = ("predicted_failure", "leverage")
    is_sequential = False

    part: Numbers  # (n,) OLD: drawn from an earlier pool; NEW: from what is new or changed since
    leverage: Shares  # (n,) h
    drawn: Sizes  # (parts,) examples drawn from each part

    @property
    def probability(self) -> Array:
        """π (n,) to be drawn and labelled; raises LabelError if a part has no label."""
        num = np.bincount(self.part, minlength=len(self.drawn))
        if not num.all():
            which = "new or changed examples" if num[OLD] else "examples of the earlier run"
            raise LabelError(f"none of the {which} has a label; import some")
        return self.inclusion_probability * (num / self.drawn)[self.part]

    def variance(self, x: Array) -> Any:
        num = np.bincount(self.part, minlength=len(self.drawn))[self.part]
        factor = np.array([equal_factor(n) for n in num.tolist()]) * self._excluded
        return scatter(times(num * self.weights, x), factor, self.part)

    def failure_variance(self, failure: Array) -> float:
        error = (failure - self.predicted_failure) / np.sqrt(np.maximum(1 - self.leverage, 1e-6))
        return float(self.variance(error))

    def check(self, source: str) -> None:
        super().check(source)
        if len(self.part) and (self.part.min() < 0 or self.part.max() >= len(self.drawn)):
            raise DataError(f"{source}: part of its design names a part that drawn, {self.drawn.tolist()}, lacks")
