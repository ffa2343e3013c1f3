"""SSRS: stratified simple random sampling along the auxiliary variable.

Guerriero, Pietrantuono, Russo, "DeepSample: DNN sampling-based testing for operational accuracy assessment", ICSE 2024,
https://doi.org/10.1145/3597503.3639584.

The pool is cut in ten strata by 1-D k-means of the belief that an example fails (:mod:`opacc_ray.failure.auxiliary`),
the budget is shared by Neyman's rule with the spread of the belief in place of the unknown spread of the outcomes,

    n_h = n · N_h · S_h / Σ_h N_h · S_h,

and examples are drawn at random without replacement in each stratum. The estimator Σ_h (N_h / N) · mean(y | stratum h)
is unbiased as long as every stratum is seen.

Corrected. The original rounds each n_h by itself: a stratum may get none and then counts as free of failures, and the
sum may exceed the budget. Here every stratum gets at least one example and the budget is kept. The clusters are the
best there are instead of those of a random start. A later round samples the examples not labelled so far.

Legend: N pool, N_h stratum, n budget, S_h standard deviation of the belief in stratum h.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.kmeans import kmeans_1d
from opacc_ray.errors import SpecError
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.stratified import stratified
from opacc_ray.failure import auxiliary
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import Draw, MethodParameters, Task
from opacc_ray.samplers.css import allocate
from opacc_ray.selection import Selection


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """auxiliary variable; strata: at most so many, and no more than the budget."""

    auxiliary: str = "confidence"
    strata: int = 10

    def __post_init__(self) -> None:
        auxiliary.check(self.auxiliary)
        if self.strata < 1:
            raise SpecError(f"strata={self.strata}: give at least 1")


class State(NamedTuple):
    members: list[NDArray[np.int64]]  # the examples of each stratum that can be drawn
    allocation: NDArray[np.int64]  # (H,) examples to draw
    chosen: NDArray[np.int64]  # (n,) in random order
    stratum: NDArray[np.int64]  # (n,)


class Info(NamedTuple):
    allocation: list[int]  # examples drawn from each stratum


def needs(parameters: Parameters) -> tuple[str, ...]:
    return auxiliary.NEEDS[parameters.auxiliary]


def init(view: View, task: Task, rng: np.random.Generator) -> State:
    """Cut the strata and share the budget."""
    assert task.budget is not None
    name = task.parameters.auxiliary
    beliefs = auxiliary.belief(auxiliary.read(view, name), name)
    free = np.delete(np.arange(view.size), task.previous.chosen)
    stratum = kmeans_1d(beliefs[free], task.parameters.strata)
    members = [free[stratum == h] for h in range(stratum.max() + 1)]
    sizes = np.array([len(examples) for examples in members])
    spread = sizes * np.array([beliefs[examples].std() for examples in members])  # N_h · S_h
    shares = spread / spread.sum() if spread.sum() > 0 else sizes / sizes.sum()
    return start(members, allocate(task.budget, shares, sizes))


def start(members: list[NDArray[np.int64]], allocation: NDArray[np.int64]) -> State:
    """Nothing drawn yet."""
    nothing = np.empty(0, dtype=np.int64)
    return State(members, allocation, nothing, nothing)


def step(view: View, task: Task, state: State, rng: np.random.Generator) -> tuple[State, Info]:
    """Draw the whole sample.

    In random order: should labelling stop early, no stratum is left out because it came last.
    """
    drawn = [
        rng.choice(examples, size=num, replace=False)
        for examples, num in zip(state.members, state.allocation, strict=True)
    ]
    stratum = np.repeat(np.arange(len(drawn)), state.allocation)
    order = rng.permutation(len(stratum))
    state = state._replace(chosen=np.concatenate(drawn)[order], stratum=stratum[order])
    return state, Info(state.allocation.tolist())


def finished(task: Task, state: State) -> bool:
    return len(state.chosen) == task.budget


def draw(state: State) -> Draw:
    facts = {"stratum_size": [len(examples) for examples in state.members]}
    return Draw(state.chosen, {"stratum": state.stratum}, facts)


def estimate(selection: Selection, outcome: Outcome, level: float) -> Estimate:
    """The weighted mean of the strata: unbiased."""
    return stratified(outcome, selection.design["stratum"], selection.facts["stratum_size"], level)
