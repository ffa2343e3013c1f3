"""A sample chosen by optimisation to resemble the pool: nothing is random, so no design-based variance exists.

The estimate is the sample mean, with the interval of a simple random sample of as many labels.
"""

from dataclasses import dataclass
from typing import ClassVar

from opacc_ray.designs.design import Numbers
from opacc_ray.designs.simple_random import EqualWeights, SimpleRandom


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
