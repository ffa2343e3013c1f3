"""CSS: confidence-based stratified sampling.

Li, Ma, Xu, Cao, Xu, Lü, "Boosting Operational DNN Testing Efficiency through Conditioning", ESEC/FSE 2019,
section 3.1, https://doi.org/10.1145/3338906.3338930.

The pool is ordered by confidence and cut in strata: the 80 % most confident, the next 10 %, the last 10 %. They get
20 / 40 / 40 % of the budget. Within a stratum, examples are drawn at random without replacement. The estimator

    acc = Σ_j P_j · mean(y | stratum j),   P_j = N_j / N                                            (Eq. 4)

is unbiased for any strata and any allocation with n_j >= 1. Footnote 4 of the paper names surprise as another variable
to order by: auxiliary="dsa" or "lsa", the least surprising examples first.

Deviations. The paper's shares, such as n · 20 %, are seldom whole. Here they are rounded by largest remainder, every
stratum gets at least one example, and what a small stratum cannot take goes to the others. Ties are ordered by
index. The sample is in random order, after one example of each stratum: so the first labels give an
estimate, and the order does not show annotators how confident the model is. As the paper warns, CSS is *less* precise
than SRS where confidence does not separate right from wrong (a drifted or mutated model).

Legend: N pool, n budget, J strata.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import SpecError
from opacc_ray.parts.view import View
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.base import Draw, Presets, Task, parameter

needs = auxiliary.needs


@dataclass(frozen=True)
class Parameters(auxiliary.Scored):
    """Strata and their shares."""

    fractions: tuple[float, ...] = parameter(
        (0.8, 0.1, 0.1), "share of the pool in each stratum, least likely to fail first"
    )
    allocation: tuple[float, ...] = parameter((0.2, 0.4, 0.4), "share of the budget that each stratum gets")

    presets: ClassVar[Presets] = {"paper": {}}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fractions", "allocation"):
            shares = tuple(float(share) for share in getattr(self, name))
            object.__setattr__(self, name, shares)
            if min(shares, default=0) <= 0 or abs(sum(shares) - 1) > 1e-9:
                raise SpecError(f"{name}={list(shares)}: give positive shares that sum to 1")
        if len(self.fractions) != len(self.allocation):
            raise SpecError(
                f"fractions has {len(self.fractions)} strata and allocation {len(self.allocation)}: "
                "give one share of the budget per stratum"
            )


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Order the pool, cut the strata, share the budget, and draw each stratum's share."""
    free = task.free(view.size)
    ordered = free[
        np.argsort(_order(view, task.parameters.auxiliary)[free], kind="stable")
    ]  # least likely to fail first
    cuts = np.round(np.cumsum(task.parameters.fractions)[:-1] * len(free)).astype(np.int64)
    sizes = np.diff(cuts, prepend=0, append=len(free))
    allocation = auxiliary.allocate(task.budget, np.array(task.parameters.allocation), sizes)
    return auxiliary.draw_strata(rng, ordered, np.repeat(np.arange(len(sizes)), sizes), allocation)


def _order(view: View, name: str) -> NDArray[np.float64]:
    """Return values (N,) that rise with the risk of failure; a confidence may have any scale, such as a margin."""
    return -view.column("confidence") if name == "confidence" else auxiliary.read(view, name).score()
