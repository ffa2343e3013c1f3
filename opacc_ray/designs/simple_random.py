"""Simple random sample, with or without replacement: every example has the same weight.

In a purposive sample, chosen by optimisation to resemble the pool, nothing is random, so no design-based variance
exists. The estimate is the sample mean, with the interval of a simple random sample of as many labels.

Legend: N examples to draw from, n labels, f = n/N.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.design import Array, Count, Design, DrawSequence, LabelledBefore, Number, Numbers, scatter
from opacc_ray.errors import DataError


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
