"""Simple random sample, with or without replacement: every example has the same weight.

Legend: N pool, n labels, f = n/N.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.base import Array, Before, Design, Stream, equal_factor, scatter
from opacc_ray.designs.fields import Count, Number
from opacc_ray.errors import DataError


@dataclass(frozen=True, eq=False)
class SimpleRandom(Design):
    """n of N examples, all samples equally likely.

    In later rounds N counts what was left to draw from. In selections that 0.1.0 saved it counts all of the pool, which
    makes the variance a little too large.
    """

    name: ClassVar[str] = "simple random"

    num: Number  # n
    population: Count  # N
    replacement: bool

    def __len__(self) -> int:
        return self.num

    @property
    def weights(self) -> Array:
        return np.full(self.num, 1 / self.num)

    def mean(self, x: Array) -> Any:
        return x.mean(axis=0)

    def variance(self, x: Array) -> Any:
        return self._left * scatter(x, equal_factor(self.num))

    @property
    def largest_weight(self) -> float:
        return math.sqrt(self._left) / self.num

    @property
    def weight_bound(self) -> float:
        """A failure without a label moves it by 1/N, and of a large sample no label moves it by more."""
        return max(self._left / self.num, 1 / self.population) if self._left > 0 else 0.0

    @property
    def interval(self) -> str:
        return "wilson" if self.replacement else "exact hypergeometric"

    @property
    def is_sequential(self) -> bool:
        return True

    @property
    def is_distinct(self) -> bool:
        return not self.replacement

    @property
    def drawn_after(self) -> NDArray[np.int64] | None:
        """With replacement every round draws from all of the pool, whatever is labelled."""
        return np.empty(0, dtype=np.int64) if self.replacement else None

    def failure_variance(self, failure: Array) -> float:
        """One label alone is given the largest variance that a mean like it could have."""
        if self.num > 1:
            return super().failure_variance(failure)
        return self._left * float(failure[0] * (1 - failure[0]))

    def stream(self, failure: Array, before: Before) -> Stream | None:
        size, n = before.pool_size, self.num
        if self.replacement:
            return Stream(size * failure, np.zeros(n), np.full(n, float(size)), size)
        left = size - before.num - np.arange(n, dtype=np.float64)  # 1 / q
        return Stream(left * failure, before.failures + np.cumsum(failure) - failure, left, size)

    def restrict(self, keep: NDArray[np.bool_]) -> Self:
        return replace(self, num=int(keep.sum()))

    def check(self, source: str) -> None:
        if self.num > self.population and not self.replacement:
            raise DataError(f"{source}: num={self.num} of its design is more than its population={self.population}")

    @property
    def _left(self) -> float:
        """1 - f."""
        return 1.0 if self.replacement else 1 - self.num / self.population
