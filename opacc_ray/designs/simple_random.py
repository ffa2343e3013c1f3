"""Simple random sample, with or without replacement, of the whole pool or of each of its strata.

In a purposive sample, chosen by optimisation to resemble the pool, nothing is random, so no design-based variance
exists. The estimate is the sample mean, with the interval of a simple random sample of as many labels.

In a stratified sample the examples of each stratum are a simple random sample of it, and the sizes of the strata are
known. A stratum with one label has no variance of its own. For any variable it is collapsed with the next stratum (W.
G. Cochran, "Sampling Techniques", 1977, 5A.12). For failures, which are in [0, 1], it gets the largest variance
possible for its smoothed mean.

Legend: N examples to draw from, n labels, f = n/N, N_h and n_h those of stratum h, P_h = N_h/N, f_h = n_h/N_h, H
strata.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.design import Array, Count, Design, DrawSequence, LabelledBefore, Number, Numbers, Sizes, scatter
from opacc_ray.errors import DataError, LabelError


@dataclass(frozen=True, eq=False)
class EqualWeights(Design):
    """n of N examples, estimated by the sample mean with the variance of a simple random sample."""

    num: Number  # n
    population: Count  # N

    def __len__(self) -> int:
        return self.num

    @property
    def weights(self) -> Array:
        return np.full(self.num, 1 / self.num)

    def mean(self, x: Array) -> Any:
        return x.mean(axis=0)

    def variance(self, x: Array) -> Any:
        return self._left * scatter(x)

    @property
    def largest_weight(self) -> float:
        return math.sqrt(self._left) / self.num

    @property
    def weight_bound(self) -> float:
        """An unlabelled failure moves the estimate by 1/N; in a large sample no label moves it more."""
        return max(self._left / self.num, 1 / self.population) if self._left > 0 else 0.0

    def failure_variance(self, failure: Array) -> float:
        """A single label has the largest variance possible for its mean."""
        if self.num > 1:
            return super().failure_variance(failure)
        return self._left * float(failure[0] * (1 - failure[0]))

    def restrict(self, keep: NDArray[np.bool_]) -> Self:
        return replace(super().restrict(keep), num=int(keep.sum()))

    def check(self, source: str) -> None:
        super().check(source)
        if self.num > self.population and self.is_distinct:
            raise DataError(f"{source}: num={self.num} of its design is more than its population={self.population}")

    @property
    def _left(self) -> float:
        """1 - f, or 1 with replacement."""
        return 1 - self.num / self.population if self.is_distinct else 1.0


@dataclass(frozen=True, eq=False)
class SimpleRandom(EqualWeights):
    """n of N examples, all samples equally likely; in later rounds N counts the examples left to draw from."""

    name: ClassVar[str] = "simple random"
    is_sequential = True

    replacement: bool

    @property
    def interval(self) -> str:
        return "exact binomial" if self.replacement else "exact hypergeometric"

    @property
    def is_distinct(self) -> bool:
        return not self.replacement

    @property
    def drawn_after(self) -> NDArray[np.int64] | None:
        """With replacement every round draws from the whole pool, whatever is labelled."""
        return np.empty(0, dtype=np.int64) if self.replacement else None

    def stream(self, failure: Array, before: LabelledBefore) -> DrawSequence | None:
        size, n = before.pool_size, self.num
        if self.replacement:
            return DrawSequence(size * failure, np.zeros(n), np.full(n, float(size)), size)
        left = size - before.num - np.arange(n, dtype=np.float64)  # 1 / q
        return DrawSequence(left * failure, before.failures + np.cumsum(failure) - failure, left, size)


@dataclass(frozen=True, eq=False)
class Purposive(EqualWeights):
    """n of N examples, chosen by optimisation."""

    name: ClassVar[str] = "purposive"
    interval = "as for a simple random sample"

    why: str  # no design-based variance exists
    phase: Numbers | None = None  # (n,) phase of the method that chose each example

    @property
    def stand_in(self) -> SimpleRandom:
        """The simple random sample whose interval is used."""
        return SimpleRandom(self.num, self.population, replacement=False)

    @property
    def reason(self) -> str | None:
        return f"{self.why}; the interval is that of a simple random sample of the same size"


@dataclass(frozen=True, eq=False)
class Stratified(Design):
    """Simple random samples without replacement within strata. Every stratum needs a label to be represented."""

    name: ClassVar[str] = "stratified"
    interval = "stratified score"

    stratum: Numbers  # (n,)
    sizes: Sizes  # (H,) N_h

    @property
    def population(self) -> int:
        """N, examples to draw from."""
        return int(self.sizes.sum())

    @property
    def shares(self) -> Array:
        """P_h (H,), sums to 1."""
        return self.sizes / self.population

    @property
    def num(self) -> NDArray[np.int64]:
        """n_h (H,); raises LabelError if a stratum has no label."""
        num = np.bincount(self.stratum, minlength=len(self.sizes))
        if (num == 0).any():
            empty = int(np.flatnonzero(num == 0)[0])
            raise LabelError(
                f"stratum {empty} has no label, so its share of the pool cannot be estimated; label some of it"
            )
        return num

    @property
    def left(self) -> Array:
        """1 - f_h (H,)."""
        return 1 - self.num / self.sizes

    @property
    def weights(self) -> Array:
        return (self.shares / self.num)[self.stratum]

    def variance(self, x: Array) -> Any:
        num = self.num
        group_of_stratum = collapse(num)
        group = group_of_stratum[self.stratum]
        total = np.bincount(group_of_stratum, weights=self.shares**2 * self.left / num)
        return scatter(x, (total / np.maximum(np.bincount(group) - 1, 1))[group], group)

    def failure_variance(self, failure: Array) -> float:
        num = self.num.astype(np.float64)
        total = np.bincount(self.stratum, weights=failure, minlength=len(num))
        mean = total / num
        squares = np.bincount(self.stratum, weights=(failure - mean[self.stratum]) ** 2, minlength=len(num))
        smooth = (total + 0.5) / (num + 1)
        own = np.where(num > 1, squares / np.maximum(num - 1, 1), smooth * (1 - smooth))  # (H,)
        return float((self.shares**2 * self.left / num * own).sum())

    @property
    def largest_weight(self) -> float:
        return float((self.shares / self.num * np.sqrt(self.left)).max())

    @property
    def weight_bound(self) -> float:
        """An unlabelled failure moves the estimate by 1/N; if most of a stratum is labelled, no label moves it more."""
        return float(np.maximum(self.shares / self.num * self.left, (self.left > 0) / self.population).max())

    def check(self, source: str) -> None:
        last = int(self.stratum.max(initial=0))
        if last >= len(self.sizes):  # before anything of that size is made
            raise DataError(f"{source}: stratum {last} of its design is none of the {len(self.sizes)} in sizes")
        num = np.bincount(self.stratum, minlength=len(self.sizes))
        if (num > self.sizes).any():
            h = int(np.argmax(num > self.sizes))
            raise DataError(
                f"{source}: {num[h]} examples of stratum {h} were drawn, and sizes of its design has {self.sizes[h]}"
            )


def collapse(num: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the group of each stratum (H,): every group has two labels, a stratum with one joins the next."""
    group, number, held = np.zeros(len(num), dtype=np.int64), 0, 0
    for h, own in enumerate(num):
        if held >= 2:
            number, held = number + 1, 0
        group[h] = number
        held += own
    if held < 2:  # the last group has one label
        group[group == number] = max(number - 1, 0)
    return group


# -- how examples are drawn -------------------------------------------------------------------------------------


def unlabelled_index(rank: NDArray[np.int64], taken: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the pool's index of the rank-th example that is not ``taken`` (sorted); any shape, same shape returned.

    Memory is needed for ``taken`` only, whatever the size of the pool. Below the r-th free example there are r free
    examples, and as many taken ones as have fewer than r + 1 free ones before them.
    """
    free_before = taken - np.arange(len(taken))  # (k,), not decreasing
    return rank + np.searchsorted(free_before, rank, side="right")


def draw_uniform(rng: np.random.Generator, size: int, taken: NDArray[np.int64], num: int) -> NDArray[np.int64]:
    """Draw ``num`` of the ``size`` examples that are not ``taken`` (sorted), at random without replacement."""
    rank = rng.choice(size - len(taken), size=num, replace=False, shuffle=True)
    return unlabelled_index(rank.astype(np.int64), taken)
