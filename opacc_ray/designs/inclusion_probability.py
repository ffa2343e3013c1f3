"""Fixed-size sample with known, unequal inclusion probabilities and predicted failures of all examples.

Any variable is estimated by x̂ = (1/N) Σ_batch x / π (D. G. Horvitz, D. J. Thompson, JASA 47, 1952). Failures have
predictions p, known for all N examples before the labels. The difference estimator uses them (C.-E. Särndal, B.
Swensson, J. Wretman, "Model Assisted Survey Sampling", 1992, 6.3):

    r = (1/N) · [ Σ_all p + Σ_batch (f - p) / π ]                                        (unbiased, whatever p)

The variance is that of draws with replacement, reduced by 1 - π, as if pairs were included nearly independently. For
systematic samples along p it is slightly too large.

The probabilities are those of the draw, which the selection records: they stay valid whatever is learnt later of the
labels that they followed from. An example that has lost its label since counts as one of the N that could be drawn
(:meth:`InclusionProbability.forget`): what the batch says of these is taken to hold for it as well.

The batch is labelled in random order. Where labels are missing, the labelled examples are a random part of the batch,
and their π is reduced by that share.

**A pool that grew** has labels of an earlier sample, and a sample of what is new. An example that was drawn with the
inclusion probability π keeps it, whatever joins or leaves the pool: the sample of the old pool, without the examples
that are gone, is one of the part that both pools have in common. The new part has a sample of its own. With the weights
1/(Nπ) both together estimate the mean of the whole pool, as strata of known size:

    r = (1/N) · [ Σ_all p + Σ_old (f - p)/π + Σ_new (f - p)/π ]

Of several earlier rounds that were combined with weights, π is 1/(N₀w), with w the weight of a label in the mean over
the old pool of N₀ examples. The variance is that of each part on its own, as for one draw with these π: of several
rounds it is slightly too large.

If p was fitted to the carried labels, an error of one that moves its own p by h is too small; its square is divided by
1 - h (HC2: J. MacKinnon, H. White, Journal of Econometrics 29, 1985), and the estimate of the old part has the small
bias of a regression estimator. That of the new part is unbiased for any p.

Legend: N examples to draw from, n labels, f = 1 - outcome, p predicted failure, π inclusion probability, h leverage.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.design import (
    Amount,
    Array,
    Count,
    Design,
    Numbers,
    Places,
    PredictedFailures,
    Probabilities,
    Shares,
    Sizes,
    equal_factor,
    scatter,
    times,
)
from opacc_ray.errors import DataError, LabelError

SURE = 1 - 1e-9
"""Inclusion probabilities from here on count as 1: only rounding separates them."""


@dataclass(frozen=True, eq=False)
class InclusionProbability(Design):
    """n distinct examples; every example of the pool had a known probability of inclusion."""

    name: ClassVar[str] = "inclusion probability"
    predicted: ClassVar[tuple[str, ...]] = ("predicted_failure",)
    interval = "adjusted Wilson"
    is_sequential = True

    inclusion_probability: Probabilities  # (n,) π in the whole batch
    predicted_failure: Shares  # (n,) p
    predicted_failures: Amount  # Σp over all N
    population: Count  # N
    num_drawn: Count  # examples in the whole batch
    labelled_before: Places  # (k,) examples of the pool that could not be drawn

    @property
    def probability(self) -> Array:
        """π (n,) to be drawn and labelled."""
        return self.inclusion_probability * (len(self) / self.num_drawn)

    @property
    def weights(self) -> Array:
        return 1 / (self.population * self.probability)

    def variance(self, x: Array) -> Any:
        n = len(self)
        return scatter(times(n * self.weights, x), equal_factor(n) * self._excluded)

    @property
    def effects(self) -> Array:
        """(n,) weights times the standard deviation of the inclusion."""
        return self.weights * np.sqrt(self._excluded)

    @property
    def prediction(self) -> PredictedFailures:
        return PredictedFailures(self.predicted_failure, self.predicted_failures / self.population)

    def failure_share(self, failure: Array) -> float:
        return self.predicted_failures / self.population + float(self.mean(failure - self.predicted_failure))

    def failure_variance(self, failure: Array) -> float:
        return float(self.variance(failure - self.predicted_failure))

    @property
    def drawn_after(self) -> NDArray[np.int64] | None:
        return self.labelled_before

    def forget(self, index: NDArray[np.int64]) -> Self:
        return replace(self, labelled_before=np.setdiff1d(self.labelled_before, index))

    def check(self, source: str) -> None:
        super().check(source)
        if not len(self) <= self.num_drawn <= self.population:
            raise DataError(
                f"{source}: num_drawn={self.num_drawn} of its design is not between its {len(self)} examples and "
                f"its population={self.population}"
            )

    @property
    def _excluded(self) -> Array:
        """1 - π (n,)."""
        return np.maximum(1 - self.probability, 0)


def inclusion_probabilities(
    size: NDArray[np.float64], num: int, count: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """Return π (N,) proportional to ``size`` (N,) > 0, at most 1, with sum ``num`` <= N.

    Examples whose size exceeds their share are certain to be included, and the rest share what is left. With ``count``
    (N,), each size belongs to that many examples, which may be 0.
    """
    sure = np.zeros(len(size), dtype=bool)
    total = size if count is None else size * count
    while True:
        left = num - int(sure.sum() if count is None else count[sure].sum())
        scale = left / (total[~sure] if sure.any() else total).sum() if left else 0.0
        found = scale * size
        more = found >= SURE
        more &= ~sure
        if not more.any():
            found[sure] = 1.0
            return found
        sure |= more
        del found  # before the next pass takes as much


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
