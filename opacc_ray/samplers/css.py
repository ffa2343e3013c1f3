"""CSS: confidence-based stratified sampling.

Li, Ma, Xu, Cao, Xu, Lü, "Boosting Operational DNN Testing Efficiency through Conditioning", ESEC/FSE 2019,
section 3.1, https://doi.org/10.1145/3338906.3338930.

The pool is ordered by confidence and cut in strata: the 80 % most confident, the next 10 %, the last 10 %. The budget
is shared 20 / 40 / 40 %, and within a stratum examples are drawn at random without replacement. The estimator

    acc = Σ_j P_j · mean(y | stratum j),   P_j = N_j / N                                            (Eq. 4)

is unbiased for any strata and any allocation with n_j >= 1.

Deviations. The paper shares n · 20 %, which is seldom whole: shares are rounded by largest remainder, every stratum
gets at least one example, and what a small stratum cannot take goes to the others. Ties in confidence are ordered by
index. The paper's warning stands: where confidence does not tell right from wrong (a drifted or mutated model), CSS
is *less* precise than SRS.

Legend: N pool, n budget, J strata.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import SpecError
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.stratified import stratified
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import Draw, MethodParameters, Task
from opacc_ray.selection import Selection


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """fractions: share of the pool per stratum, most confident first. allocation: share of the budget."""

    fractions: tuple[float, ...] = (0.8, 0.1, 0.1)
    allocation: tuple[float, ...] = (0.2, 0.4, 0.4)

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


class State(NamedTuple):
    strata: list[NDArray[np.int64]]  # J arrays: the examples of each stratum that can still be drawn
    allocation: NDArray[np.int64]  # (J,) examples to draw
    chosen: NDArray[np.int64]  # (drawn so far,)
    stratum: NDArray[np.int64]  # (drawn so far,)


class Info(NamedTuple):
    stratum: int
    num_drawn: int


def needs(parameters: Parameters) -> tuple[str, ...]:
    return ("confidence",)


def init(view: View, task: Task, rng: np.random.Generator) -> State:
    """Order by confidence, cut the strata, share the budget."""
    order = np.argsort(-view.column("confidence"), kind="stable")
    order = order[~np.isin(order, task.previous.chosen)]
    cuts = np.round(np.cumsum(task.parameters.fractions)[:-1] * len(order)).astype(np.int64)
    strata = np.split(order, cuts)
    sizes = np.array([len(stratum) for stratum in strata])
    assert task.budget is not None
    allocation = allocate(task.budget, np.array(task.parameters.allocation), sizes)
    empty = np.empty(0, dtype=np.int64)
    return State(strata, allocation, empty, empty)


def step(view: View, task: Task, state: State, rng: np.random.Generator) -> tuple[State, Info]:
    """Draw one stratum's share."""
    j = int(state.stratum[-1]) + 1 if len(state.stratum) else 0
    drawn = rng.choice(state.strata[j], size=state.allocation[j], replace=False)
    index = np.concatenate([state.chosen, drawn])
    stratum = np.concatenate([state.stratum, np.full(len(drawn), j)])
    return state._replace(chosen=index, stratum=stratum), Info(j, len(drawn))


def finished(task: Task, state: State) -> bool:
    return len(state.chosen) == task.budget


def draw(state: State) -> Draw:
    facts = {"stratum_size": [len(stratum) for stratum in state.strata]}
    return Draw(state.chosen, {"stratum": state.stratum}, facts)


def estimate(selection: Selection, outcome: Outcome, level: float) -> Estimate:
    """Eq. 4: unbiased."""
    return stratified(outcome, selection.design["stratum"], selection.facts["stratum_size"], level)


def allocate(budget: int, shares: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Whole numbers near budget · shares, each between 1 and its stratum's size, with the budget as their sum."""
    if budget < len(sizes) or min(sizes) < 1:
        raise SpecError(
            f"budget={budget} over strata of {sizes.tolist()} examples: every stratum needs at least one; "
            "raise the budget or use fewer strata"
        )
    given = np.ones(len(sizes), dtype=np.int64)
    while (left := budget - given.sum()) > 0:
        want = np.maximum(budget * shares - given, 0) * (given < sizes)
        if want.sum() == 0:  # every share is met or full: the rest goes where there is room
            want = shares * (given < sizes)
        ideal = left * want / want.sum()
        add = np.minimum(np.floor(ideal).astype(np.int64), sizes - given)
        if add.sum() == 0:
            add[np.argmax(ideal)] = 1
        given += add
    return given
