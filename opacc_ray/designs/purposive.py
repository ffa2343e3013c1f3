"""A sample that was chosen to resemble the pool: no chance decides, and so no design-based variance exists.

The estimate is the sample mean, and its interval that of a simple random sample of as many labels.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.base import Array, Design
from opacc_ray.designs.fields import Count, Number, Numbers
from opacc_ray.designs.simple_random import SimpleRandom


@dataclass(frozen=True, eq=False)
class Purposive(Design):
    """n of N examples, chosen by optimisation."""

    name: ClassVar[str] = "purposive"

    num: Number  # n
    population: Count  # N
    why: str  # no design-based variance exists
    phase: Numbers | None = None  # (n,) that chose each example

    def __len__(self) -> int:
        return self.num

    @property
    def stand_in(self) -> SimpleRandom:
        """The design whose formulas are used instead."""
        return SimpleRandom(self.num, self.population, replacement=False)

    @property
    def weights(self) -> Array:
        return self.stand_in.weights

    def mean(self, x: Array) -> Any:
        return self.stand_in.mean(x)

    def variance(self, x: Array) -> Any:
        return self.stand_in.variance(x)

    def failure_variance(self, failure: Array) -> float:
        return self.stand_in.failure_variance(failure)

    @property
    def largest_weight(self) -> float:
        return self.stand_in.largest_weight

    @property
    def weight_bound(self) -> float:
        return self.stand_in.weight_bound

    @property
    def interval(self) -> str:
        return "as for a simple random sample"

    @property
    def reason(self) -> str | None:
        return f"{self.why}; the interval is that of a simple random sample of the same size"

    def restrict(self, keep: NDArray[np.bool_]) -> Self:
        return replace(super().restrict(keep), num=int(keep.sum()))

    def check(self, source: str) -> None:
        super().check(source)
        self.stand_in.check(source)
