"""CSS: confidence-based stratified sampling.

Li, Ma, Xu, Cao, Xu, Lü, "Boosting Operational DNN Testing Efficiency through Conditioning", ESEC/FSE 2019,
section 3.1, https://doi.org/10.1145/3338906.3338930.

The pool is ordered by confidence and cut in strata: the 80 % most confident, the next 10 %, the last 10 %. The budget
is shared 20 / 40 / 40 %, and within a stratum examples are drawn at random without replacement. The estimator

    acc = Σ_j P_j · mean(y | stratum j),   P_j = N_j / N                                            (Eq. 4)

is unbiased for any strata and any allocation with n_j >= 1.

Deviations. The paper shares n · 20 %, which is seldom whole: shares are rounded by largest remainder, every stratum
gets at least one example, and what a small stratum cannot take goes to the others. Ties in confidence are ordered by
index. The sample is handed out in random order, after one example of each stratum: the first labels give an estimate,
and the order does not tell annotators how sure the model is. The paper's warning stands: where confidence does not tell
right from wrong (a drifted or mutated model), CSS is *less* precise than SRS.

Legend: N pool, n budget, J strata.
"""

import secrets
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.stratification import allocate, draw_strata
from opacc_ray.designs.stratified import Stratified
from opacc_ray.errors import SpecError
from opacc_ray.parts.order import Line, part_lay
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers.base import Draw, MethodParameters, Task, parameter

_LINE = "line"  # what the parts keep under this name


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """Strata and their shares."""

    fractions: tuple[float, ...] = parameter((0.8, 0.1, 0.1), "share of the pool in each stratum, most confident first")
    allocation: tuple[float, ...] = parameter((0.2, 0.4, 0.4), "share of the budget that each stratum gets")

    def __post_init__(self) -> None:
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


def needs(parameters: Parameters) -> tuple[str, ...]:
    return ("confidence",)


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Order by confidence, cut the strata, share the budget, and draw each stratum's share."""
    assert task.budget is not None
    line = _order(view, task.previous.chosen)
    cuts = np.round(np.cumsum(task.parameters.fractions)[:-1] * line.total).astype(np.int64)
    edges = np.concatenate([[0], cuts, [line.total]])
    sizes = np.diff(edges)
    allocation = allocate(task.budget, np.array(task.parameters.allocation), sizes)
    place, stratum = draw_strata(rng, sizes, allocation)
    return Draw(line.find(place + edges[stratum]).index, Stratified(stratum, sizes), {})


def _order(view: View, labelled: NDArray[np.int64]) -> Line:
    """A line of the examples that are not ``labelled`` (k,), the most confident first, each of length 1."""
    view.bounds("confidence")
    key = secrets.token_hex(8)
    view.map_each(part_order, [(key, own) for own in view.rows_of(labelled)])
    return Line(view, _LINE, key)


def part_order(part: Pool, key: str, labelled: NDArray[np.int64]) -> None:
    """Lay a part's examples in the order of their confidence, without some rows."""
    assert part.confidence is not None
    row = np.delete(np.arange(part.size), labelled)
    part_lay(part, _LINE, key, -part.confidence[row].astype(np.float64), row, np.ones(len(row), dtype=np.int64))
