"""CES: cross-entropy-based sampling.

Li, Ma, Xu, Cao, Xu, Lü, "Boosting Operational DNN Testing Efficiency through Conditioning", ESEC/FSE 2019,
section 3.2 and Algorithm 1, https://doi.org/10.1145/3338906.3338930.

A sample T is grown so that, neuron by neuron, the last hidden layer takes its values in T as often as in the pool S:
after p examples at random, each step looks at ℓ random groups of q unselected examples and keeps the group that
brings the sections of T closest to those of S. The estimator is the sample mean (Eq. 10).

    cross_entropy   -(1/m) Σ_i Σ_z P_S,i(z) · log P_T,i(z)                                            (Eq. 8)
    kl               (1/m) Σ_i Σ_z P_T,i(z) · log (P_T,i(z) / P_S,i(z))                               (Table 3, small
    pools) squared          (1/m) Σ_i Σ_z (P_S,i(z) - P_T,i(z))²                                             (ours)

Deviations. Eq. 8 is infinite where T leaves a section empty, and the paper does not say what is done. P_T is smoothed
here, (count + a) / (n + a·K). `squared` needs none.

All three are sums over sections of a function φ of the section's count, so a group is scored by looking up, for each
of its members, what one more example in that section changes: `_gains`, computed once per step, makes scoring q·m
look-ups.

Legend: N pool, n budget, m neurons, K sections, p initial, q group, ℓ candidates, T sample, S pool.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import SpecError
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.simple import representative
from opacc_ray.pool import LAYERS
from opacc_ray.samplers.base import Draw, MethodParameters, Task, draw_uniform, untaken
from opacc_ray.sections import Histogram, codes_of, equal_width
from opacc_ray.selection import Selection
from opacc_ray.view import View

OBJECTIVES = ("cross_entropy", "kl", "squared")


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """sections K, initial p, group q, candidates ℓ, objective, smoothing a, layer."""

    sections: int = 20
    initial: int = 30
    group: int = 5
    candidates: int = 300
    objective: str = "squared"
    smoothing: float = 0.01
    layer: str = "hidden"

    def __post_init__(self) -> None:
        for name in ("initial", "group", "candidates"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name}={getattr(self, name)}: give at least 1")
        if self.objective not in OBJECTIVES:
            raise SpecError(f"objective={self.objective!r}: choose one of {', '.join(OBJECTIVES)}")
        if self.smoothing <= 0:
            raise SpecError(f"smoothing={self.smoothing}: give a number above 0 (0.01 to 0.1 measured best)")
        if self.layer not in LAYERS:
            raise SpecError(f"layer={self.layer!r}: choose one of {', '.join(LAYERS)}")


class State(NamedTuple):
    pool: Histogram  # sections of S and its counts in them
    counts: NDArray[np.int64]  # (m, K) of T
    chosen: NDArray[np.int64]  # (n so far,) in order of choice
    taken: NDArray[np.int64]  # sorted: chosen now or labelled before


class Info(NamedTuple):
    objective: float  # of T, after the step


def needs(parameters: Parameters) -> tuple[str, ...]:
    return (parameters.layer,)


def init(view: View, task: Task, rng: np.random.Generator) -> State:
    """Cut the sections and draw p examples at random."""
    parameters, previous = task.parameters, task.previous.chosen
    assert task.budget is not None
    if task.budget < parameters.initial:
        raise SpecError(
            f"budget={task.budget} is below initial={parameters.initial}, the examples CES draws at random "
            "before it optimises; raise the budget or lower initial (the paper takes 5 on small pools)"
        )
    pool = equal_width(view, parameters.layer, parameters.sections)
    index = draw_uniform(rng, view.size, previous, parameters.initial)
    taken = np.sort(np.concatenate([previous, index]))
    codes = view.take(codes_of, taken, pool.sections)
    return State(pool, _count(codes, parameters.sections), index, taken)


def step(view: View, task: Task, state: State, rng: np.random.Generator) -> tuple[State, Info]:
    """Add the best of ℓ random groups (Algorithm 1, lines 3 to 5)."""
    parameters = task.parameters
    assert task.budget is not None
    q = min(parameters.group, task.budget - len(state.chosen))
    groups = _draw_groups(rng, view.size, state.taken, parameters.candidates, q)  # (ℓ, q)
    codes = view.take(codes_of, groups.ravel(), state.pool.sections)
    codes = codes.reshape(*groups.shape, -1)  # (ℓ, q, m)
    gains = _gains(state, parameters, q)
    best = int(np.argmin(_scores(codes, gains)))
    counts = state.counts + _count(codes[best], parameters.sections)
    index = np.concatenate([state.chosen, groups[best]])
    taken = np.sort(np.concatenate([state.taken, groups[best]]))
    return State(state.pool, counts, index, taken), Info(_objective(state.pool, counts, parameters))


def finished(task: Task, state: State) -> bool:
    return len(state.chosen) == task.budget


def draw(state: State) -> Draw:
    return Draw(state.chosen, {}, {})


def estimate(selection: Selection, outcome: Outcome, level: float) -> Estimate:
    """Eq. 10, the sample mean. The choice depends on the sample so far in a way that has no known variance."""
    return representative(
        outcome,
        selection.pool_size,
        level,
        "CES chooses groups by optimisation, so no design-based variance exists",
    )


def _draw_groups(rng: np.random.Generator, size: int, taken: NDArray[np.int64], num: int, q: int) -> NDArray[np.int64]:
    """``num`` groups of q distinct examples that are not taken, uniformly: (num, q)."""
    free = size - len(taken)
    if free < 4 * q * q:  # a collision is likely: order random keys instead
        rank = np.argsort(rng.random((num, free)), axis=1)[:, :q]
        return untaken(rank, taken)
    rank = rng.integers(free, size=(num, q))
    while True:
        ordered = np.sort(rank, axis=1)
        again = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if not len(again):
            return untaken(rank, taken)
        rank[again] = rng.integers(free, size=(len(again), q))


def _phi(
    counts: NDArray[np.int64], share: NDArray[np.float64], total: int, parameters: Parameters
) -> NDArray[np.float64]:
    """φ: what one section adds to the objective when T has ``total`` examples, ``counts`` of them in it."""
    if parameters.objective == "squared":
        return (share - counts / total) ** 2
    K, a = share.shape[1], parameters.smoothing
    smoothed = (counts + a) / (total + a * K)
    if parameters.objective == "cross_entropy":
        return -share * np.log(smoothed)
    inside = share > 0  # S leaves the section empty: so does T
    return np.where(inside, smoothed * np.log(smoothed / np.where(inside, share, 1)), 0.0)


def _objective(pool: Histogram, counts: NDArray[np.int64], parameters: Parameters) -> float:
    total = int(counts[0].sum())
    return float(_phi(counts, pool.share, total, parameters).sum() / len(counts))


def _gains(state: State, parameters: Parameters, q: int) -> NDArray[np.float64]:
    """Change of the objective by the (r + 1)-th example of a group in a section: (q, m, K)."""
    total = len(state.taken) + q
    values = [_phi(state.counts + r, state.pool.share, total, parameters) for r in range(q + 1)]
    return np.diff(np.stack(values), axis=0)


def _scores(codes: NDArray[np.uint8], gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """Objective after each group, up to a constant: codes (ℓ, q, m) -> (ℓ,)."""
    _, q, m = codes.shape
    neurons = np.arange(m)
    score = np.zeros(len(codes))
    for j in range(q):
        repeats = (codes[:, :j] == codes[:, j : j + 1]).sum(axis=1)  # (ℓ, m) earlier members in the same section
        score += gains[repeats, neurons, codes[:, j]].sum(axis=1)
    return score


def _count(codes: NDArray[np.uint8], K: int) -> NDArray[np.int64]:
    """Examples per section: codes (n, m) -> (m, K)."""
    m = codes.shape[1]
    return np.bincount((codes + np.arange(m) * K).ravel(), minlength=m * K).reshape(m, K)
