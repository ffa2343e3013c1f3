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

**How it is drawn.** J.-C. Deville, "Une nouvelle (encore une!) méthode de tirage à probabilités inégales", INSEE 9804
(1998), known as Deville's systematic sampling; G. Chauvet, "On a characterization of ordered pivotal sampling",
Bernoulli 18 (2012), shows that it equals Deville and Tillé's pivotal method in a fixed order.

The inclusion probabilities are laid end to end, in a given order, on a line of length n. The line is cut in n intervals
of length 1, and one example is drawn from each. An example across a cut belongs to two intervals: the second draw
depends on whether the first one took it, so that it is included with exactly π and never twice. The sample has exactly
n examples, spread along the order as evenly as a stratified sample.

Legend: N examples to draw from, n labels, f = 1 - outcome, p predicted failure, π inclusion probability, h leverage.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs import design
from opacc_ray.errors import DataError, LabelError

_BLOCK = 1 << 16

SURE = 1 - 1e-9
"""Inclusion probabilities from here on count as 1: only rounding separates them."""


@dataclass(frozen=True, eq=False)
class InclusionProbability(design.Design):
    """n distinct examples; every example of the pool had a known probability of inclusion."""

    name: ClassVar[str] = "inclusion probability"
    predicted: ClassVar[tuple[str, ...]] = ("predicted_failure",)
    interval = "adjusted Wilson"
    is_sequential = True

    inclusion_probability: design.Probabilities  # (n,) π in the whole batch
    predicted_failure: design.Shares  # (n,) p
    predicted_failures: design.Amount  # Σp over all N
    population: design.Count  # N
    num_drawn: design.Count  # examples in the whole batch
    labelled_before: design.Places  # (k,) examples of the pool that could not be drawn

    @property
    def probability(self) -> design.Array:
        """π (n,) to be drawn and labelled."""
        return self.inclusion_probability * (len(self) / self.num_drawn)

    @property
    def weights(self) -> design.Array:
        return 1 / (self.population * self.probability)

    def variance(self, x: design.Array) -> Any:
        n = len(self)
        return design.scatter(design.times(n * self.weights, x), design.equal_factor(n) * self._excluded)

    @property
    def effects(self) -> design.Array:
        """(n,) weights times the standard deviation of the inclusion."""
        return self.weights * np.sqrt(self._excluded)

    @property
    def prediction(self) -> design.PredictedFailures:
        return design.PredictedFailures(self.predicted_failure, self.predicted_failures / self.population)

    def failure_share(self, failure: design.Array) -> float:
        return self.predicted_failures / self.population + float(self.mean(failure - self.predicted_failure))

    def failure_variance(self, failure: design.Array) -> float:
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
    def _excluded(self) -> design.Array:
        """1 - π (n,)."""
        return np.maximum(1 - self.probability, 0)


def inclusion_probabilities(
    size: NDArray[np.float64], num: int, count: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """Return π (N,) proportional to ``size`` (N,) > 0, at most 1, with sum ``num`` <= N.

    Examples whose size exceeds their share are certain to be included, and the rest share what is left. With ``count``
    (N,), each size belongs to that many examples, which may be 0.
    """
    scale, sure = inclusion_scale(size, num, count)
    found = scale * size
    found[sure] = 1.0
    return found


def inclusion_scale(
    size: NDArray[np.float64], num: int, count: NDArray[np.int64] | None = None
) -> tuple[float, NDArray[np.bool_]]:
    """Return the factor of ``size`` (N,) in :func:`inclusion_probabilities`, and which examples are sure, (N,)."""
    sure = np.zeros(len(size), dtype=bool)
    total = size if count is None else size * count
    while True:
        left = num - int(sure.sum() if count is None else count[sure].sum())
        if not left:
            return 0.0, sure
        scale = left / float((total[~sure] if sure.any() else total).sum())
        more = size >= SURE / scale
        more &= ~sure
        if not more.any():
            return scale, sure
        sure |= more


def line_lengths(probability: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """Return lengths (N,) on a line of ``num`` intervals, in units so small that their sum fits in 2^61."""
    length = probability * 2.0 ** (61 - int(num).bit_length())
    np.rint(length, out=length)
    np.maximum(length, 1, out=length)
    whole = length.view(np.int64)  # in the same memory
    for start in range(0, len(length), _BLOCK):
        whole[start : start + _BLOCK] = length[start : start + _BLOCK]
    return whole


def draw_along(rng: np.random.Generator, probability: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """Draw ``num`` distinct places of a line, one per interval, each with its ``probability`` (N,); ``num`` in sum.

    In interval k the example across its lower cut has the probability after / (1 - before) if interval k - 1 did not
    take it, else 0. The other examples share the rest by their lengths. Nearly all intervals are in the first case,
    which is computed for all of them at once; the second case is then followed from the first interval on.
    """
    if num == 0:
        return np.empty(0, dtype=np.int64)
    ends = line_lengths(probability, num)
    np.cumsum(ends, out=ends)

    def find(at: NDArray[np.int64]) -> Segments:
        place = np.searchsorted(ends, at, side="right")
        return Segments(place, np.where(place > 0, ends[place - 1], 0), ends[place])

    return draw_found(rng, find, int(ends[-1]), num)


class Segments(NamedTuple):
    """Examples of a line."""

    place: NDArray[np.int64]  # (k,)
    begin: NDArray[np.int64]  # (k,) in units of the line
    end: NDArray[np.int64]  # (k,)


def draw_found(
    rng: np.random.Generator, find: Callable[[NDArray[np.int64]], Segments], total: int, num: int
) -> NDArray[np.int64]:
    """Draw as :func:`draw_along` from a line of ``total`` units, of which ``find`` returns the example at each (k,)."""
    unit = total / num  # the lengths sum to a whole number of intervals, but for rounding
    cut = np.arange(num)
    across, begin, end = find(np.minimum(np.floor(cut * unit).astype(np.int64), total - 1))
    before = np.maximum(cut - begin / unit, 0.0)  # (n,) in the interval below, of the example across each cut
    after = np.maximum(end / unit - cut, 0.0)  # and above
    uniform, chance = rng.random(num), np.minimum(after / (1 - before), 1.0)
    rest = np.flatnonzero(uniform >= chance)
    left = (uniform[rest] - chance[rest]) / np.maximum(1 - chance[rest], 1e-300)  # uniform again, given >= chance
    # at ``way`` from the end of the one across a cut to the next cut: of the rest, and where that one was taken before
    interval, way = np.concatenate([rest, cut]), np.concatenate([left, uniform])
    way = interval + (after[interval] + np.maximum(way, 0.0) * (1 - after[interval]))
    others = find(np.clip(np.floor(way * unit).astype(np.int64), end[interval], total - 1)).place
    chosen, if_taken = across.copy(), others[len(rest) :]
    chosen[rest] = others[: len(rest)]
    for k in range(1, num):
        if chosen[k - 1] == across[k]:
            chosen[k] = if_taken[k]
    return chosen


OLD, NEW = 0, 1

CARRIED = "carried"
"""Among the facts of a selection: the run before, its labels that count, their part of the pool, and their reason."""


@dataclass(frozen=True, eq=False)
class Grown(InclusionProbability):
    """Distinct examples of two parts of a pool, each with its inclusion probability in its part."""

    name: ClassVar[str] = "grown pool"
    predicted: ClassVar[tuple[str, ...]] = ("predicted_failure", "leverage")
    is_sequential = False

    part: design.Numbers  # (n,) OLD: drawn from an earlier pool; NEW: from what is new or changed since
    leverage: design.Shares  # (n,) h
    drawn: design.Sizes  # (parts,) examples drawn from each part

    @property
    def probability(self) -> design.Array:
        """π (n,) to be drawn and labelled; raises LabelError if a part has no label."""
        num = np.bincount(self.part, minlength=len(self.drawn))
        if not num.all():
            which = "new or changed examples" if num[OLD] else "examples of the earlier run"
            raise LabelError(f"none of the {which} has a label; import some")
        return self.inclusion_probability * (num / self.drawn)[self.part]

    def variance(self, x: design.Array) -> Any:
        num = np.bincount(self.part, minlength=len(self.drawn))[self.part]
        factor = np.array([design.equal_factor(n) for n in num.tolist()]) * self._excluded
        return design.scatter(design.times(num * self.weights, x), factor, self.part)

    def failure_variance(self, failure: design.Array) -> float:
        error = (failure - self.predicted_failure) / np.sqrt(np.maximum(1 - self.leverage, 1e-6))
        return float(self.variance(error))

    def check(self, source: str) -> None:
        super().check(source)
        if len(self.part) and (self.part.min() < 0 or self.part.max() >= len(self.drawn)):
            raise DataError(f"{source}: part of its design names a part that drawn, {self.drawn.tolist()}, lacks")
