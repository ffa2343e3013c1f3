"""CES: cross-entropy-based sampling.

Li, Ma, Xu, Cao, Xu, Lü, "Boosting Operational DNN Testing Efficiency through Conditioning", ESEC/FSE 2019,
section 3.2 and Algorithm 1, https://doi.org/10.1145/3338906.3338930.

The sample T grows until, neuron by neuron, the last hidden layer has the same distribution in T as in the pool S. It
starts with p random examples. Each step compares ℓ random groups of q distinct, unselected examples and keeps the group
that brings the sections of T closest to those of S. The estimator is the sample mean (Eq. 10). Examples are listed in
the order of choice, because each group compensates for what those before it lack.

    cross_entropy   -(1/m) Σ_i Σ_z P_S,i(z) · ln P_T,i(z)                     Eq. 8
    kl               (1/m) Σ_i Σ_z P_T,i(z) · ln (P_T,i(z) / P_S,i(z))        section 4.3.4, for small pools
    squared          (1/m) Σ_i Σ_z (P_T,i(z) - P_S,i(z))²                     ours, the default

The paper: objective="cross_entropy". For pools of a few hundred examples (Table 3): initial=5, objective="kl".

CES_kl of Zhou et al. ("Cost-Effective Testing of a Deep Learning Model through Input Reduction", ISSRE 2020, IV-B):
objective="cross_entropy", stop_at_kl=0.001 and no budget. KL(P_S || P_T) on the sections CES cuts is compared with α
after the initial examples and after every group; an empty section of T counts as 1e-15, as in
:func:`opacc_ray.neurons.sections.relative_entropy`. With a budget as well, whichever is reached first ends the search.

Deviations. Eq. 8 is infinite where T leaves a section empty, which the paper does not address: here P_T is smoothed,
(count + a) / (n + a·K). This rewards every rare section that is filled, so rare examples are chosen too often, more so
for a smaller a; a = 1e-13 is the floor of 1e-15 that released code uses. `kl` has the opposite bias. `squared` weights
both directions equally, and is the default (`jobs/study-ces.yaml`).

Objectives are compared as whole numbers of 2^-40 per section, so that ties do not depend on the order of summation; the
first of the best groups is taken. Examples labelled in earlier rounds belong to T and count among the p. The neurons of
several layers are concatenated with equal weight. Section 2.3 conditions on any variable that is close to the failures:
`layer` may also name confidence or surprise, each a layer of one neuron.

All three objectives are sums over sections of a function φ of the section's count, so a group is scored by looking up,
for each of its members, what one more example in that section changes: `_gains`, computed once per step, makes scoring
q·m look-ups.

Legend: N pool, n budget, m neurons, K sections, p initial, q group, ℓ candidates, T sample, S pool.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.simple_random import Purposive, draw_uniform, unlabelled_index
from opacc_ray.errors import DataError, SpecError
from opacc_ray.neurons.sections import Histogram, check_sections, equal_width, part_codes, relative_entropy
from opacc_ray.parts.loops import in_threads
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import Draw, MethodParameters, Presets, Task, parameter

WHY = "CES chooses groups by optimisation, so no design-based variance exists"

VECTORS = ("hidden", "output", "confidence", "dsa", "lsa")
"""What a sample can be conditioned on."""

OBJECTIVES = ("cross_entropy", "kl", "squared")

MAX_GROUP = 255
"""Repeats within a group fit uint8."""

_UNIT = 2.0**-40
"""Objectives are compared as whole numbers of it."""


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """The search and the sections that it compares."""

    sections: int = parameter(20, "K: equal sections of each neuron's range")
    initial: int = parameter(30, "p: random examples to start with")
    group: int = parameter(5, "q: examples added per step")
    candidates: int = parameter(300, "ℓ: random groups compared per step")
    objective: str = parameter("squared", "objective of each step: squared, cross_entropy or kl")
    smoothing: float = parameter(0.01, "a: added to each section's count, for cross_entropy and kl")
    layer: str | tuple[str, ...] = parameter(
        "hidden", f"what is compared: {', '.join(VECTORS[:-1])} or {VECTORS[-1]}, or several in a list"
    )
    stop_at_kl: float | None = parameter(None, "α: stop once the KL divergence is below it; budget is then optional")

    presets: ClassVar[Presets] = {
        "paper": {"objective": "cross_entropy"},
        "small_pools": {"objective": "kl", "initial": 5},  # Table 3
        "released": {"objective": "cross_entropy", "smoothing": 1e-13},
        "ces_kl": {"objective": "cross_entropy", "stop_at_kl": 0.001},  # of the DeepReduce paper
    }

    def __post_init__(self) -> None:
        check_sections(self.sections)
        for name in ("initial", "group", "candidates"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name}={getattr(self, name)}: give at least 1")
        if self.group > MAX_GROUP:
            raise SpecError(f"group={self.group}: give at most {MAX_GROUP}")
        if self.objective not in OBJECTIVES:
            raise SpecError(f"objective={self.objective!r}: choose one of {', '.join(OBJECTIVES)}")
        if not 1e-100 <= self.smoothing <= 1e100:
            raise SpecError(f"smoothing={self.smoothing}: give a number above 0, such as 0.01")
        if isinstance(self.layer, list):
            object.__setattr__(self, "layer", tuple(self.layer))
        if not self.layers or len(set(self.layers)) < len(self.layers) or not set(self.layers) <= set(VECTORS):
            named = f"{', '.join(VECTORS[:-1])} or {VECTORS[-1]}"
            raise SpecError(f"layer={self.layer!r}: give {named}, or a list of several")
        alpha, is_bool = self.stop_at_kl, isinstance(self.stop_at_kl, bool)
        if alpha is not None and (is_bool or not isinstance(alpha, int | float) or not 0 < alpha < math.inf):
            raise SpecError(f"stop_at_kl={self.stop_at_kl!r}: give a number above 0, such as 0.001, or none")

    @property
    def instead(self) -> dict[str, str]:
        return {"hidden": "compare the output layer with layer=output"} if self.layer == "hidden" else {}

    @property
    def layers(self) -> tuple[str, ...]:
        return self.layer if isinstance(self.layer, tuple) else (self.layer,)

    @property
    def stops_itself(self) -> bool:
        return self.stop_at_kl is not None


class State(NamedTuple):
    """The sample so far."""

    pool: Histogram  # sections of S and its counts in them
    counts: NDArray[np.int64]  # (m, K) of T
    chosen: NDArray[np.int64]  # (n so far,) in order of choice
    taken: NDArray[np.int64]  # sorted: chosen now or labelled before

    @property
    def kl(self) -> float:
        """KL(P_S || P_T)."""
        return relative_entropy(self.pool.share, self.counts)


def needs(parameters: Parameters) -> tuple[str, ...]:
    return parameters.layers


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Start at random, then add groups until the budget is spent or the KL divergence is below ``stop_at_kl``."""
    state = _start(view, task, rng)
    while not _is_finished(task, state):
        state = _grow(view, task, state, rng)
        task.progress(len(state.chosen), task.budget)
    return Draw(state.chosen, Purposive(len(state.chosen), view.size, WHY), {"kl": state.kl})


def _start(view: View, task: Task, rng: np.random.Generator) -> State:
    """Cut the sections and draw p examples at random (Algorithm 1, line 1); those labelled before count among them."""
    parameters, previous = task.parameters, task.previous.chosen
    initial, free = max(0, parameters.initial - len(previous)), view.size - len(previous)
    if task.budget is not None and task.budget < initial:
        raise SpecError(
            f"budget={task.budget} is below initial={initial}, the number of random examples that CES starts with; "
            "raise the budget or lower initial (the paper uses 5 on small pools)"
        )
    if task.budget is None and free <= initial:
        raise SpecError(f"initial={initial} uses all {free} unlabelled examples of the pool; lower it")
    pool = equal_width(view, parameters.layers, parameters.sections)
    index = draw_uniform(rng, view.size, previous, initial)
    taken = np.sort(np.concatenate([previous, index]))
    codes = view.take(part_codes, taken, pool.sections)
    state = State(pool, _count(codes, parameters.sections), index, taken)
    if not initial and _is_finished(task, state):
        raise DataError(
            f"the {len(previous)} labelled examples already reach stop_at_kl={parameters.stop_at_kl}; "
            "lower it, or give a budget instead"
        )
    return state


def _grow(view: View, task: Task, state: State, rng: np.random.Generator) -> State:
    """Add the best of ℓ random groups (Algorithm 1, lines 3 to 5)."""
    parameters = task.parameters
    q = _group_size(view.size - len(state.taken), task, len(state.chosen))
    groups = _draw_groups(rng, view.size, state.taken, parameters.candidates, q)  # (ℓ, q)
    codes = view.take(part_codes, groups.ravel(), state.pool.sections)
    codes = codes.reshape(*groups.shape, -1)  # (ℓ, q, m)
    best = int(np.argmin(_scores(codes, _gains(state, parameters, q))))
    counts = state.counts + _count(codes[best], parameters.sections)
    index = np.concatenate([state.chosen, groups[best]])
    taken = np.sort(np.concatenate([state.taken, groups[best]]))
    return State(state.pool, counts, index, taken)


def _is_finished(task: Task, state: State) -> bool:
    alpha = task.parameters.stop_at_kl
    return len(state.chosen) == task.budget or (alpha is not None and state.kl < alpha)


def _group_size(free: int, task: Task, num_chosen: int) -> int:
    """Return q, or the rest of the budget if that is less."""
    if task.budget is not None:
        return min(task.parameters.group, task.budget - num_chosen)
    if free <= task.parameters.group:
        raise DataError(
            f"stop_at_kl={task.parameters.stop_at_kl} is only reached with all {free + num_chosen} unlabelled "
            "examples of the pool; raise it, or give a budget"
        )
    return int(task.parameters.group)


def _draw_groups(rng: np.random.Generator, size: int, taken: NDArray[np.int64], num: int, q: int) -> NDArray[np.int64]:
    """Draw ``num`` uniform groups of q distinct examples that are not ``taken``: (num, q)."""
    free = size - len(taken)
    if free < 4 * q * q:  # a repeat within a group is likely
        rank = np.stack([rng.choice(free, size=q, replace=False) for _ in range(num)])
        return unlabelled_index(rank, taken)
    rank = rng.integers(free, size=(num, q))
    while True:
        ordered = np.sort(rank, axis=1)
        again = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if not len(again):
            return unlabelled_index(rank, taken)
        rank[again] = rng.integers(free, size=(len(again), q))


def _phi(
    counts: NDArray[np.int64], share: NDArray[np.float64], total: int, parameters: Parameters
) -> NDArray[np.float64]:
    """Return φ, the term of one section when T has ``total`` examples, ``counts`` of them in it."""
    if parameters.objective == "squared":
        return (counts / total - share) ** 2
    if parameters.objective == "cross_entropy":
        K, a = share.shape[1], parameters.smoothing
        return -share * np.log((counts + a) / (total + a * K))
    sample = counts / total
    held = (counts > 0) & (share > 0)  # 0 · log 0 = 0
    return sample * np.log(np.divide(sample, share, out=np.ones_like(sample), where=held))


def _gains(state: State, parameters: Parameters, q: int) -> NDArray[np.int64]:
    """Return the change of φ by the (r + 1)-th example of a group in a section, in units of 2^-40: (m, K, q)."""
    total, share = len(state.taken) + q, state.pool.share
    values = [_phi(state.counts + r, share, total, parameters) for r in range(q + 1)]
    whole: NDArray[np.int64] = np.rint(np.stack(values, axis=-1) / _UNIT).astype(np.int64)  # (m, K, q + 1)
    return whole[..., 1:] - whole[..., :-1]


def _scores(codes: NDArray[np.uint8], gains: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the objective after each group, up to a constant: codes (ℓ, q, m), gains (m, K, q) -> (ℓ,)."""
    from opacc_ray.neurons.kernels import score  # Numba loads where it is used

    scores = in_threads(lambda start, stop: score(codes[start:stop], gains), len(codes), codes[0].size)
    return np.concatenate(scores)


def _count(codes: NDArray[np.uint8], K: int) -> NDArray[np.int64]:
    """Count the examples per section: codes (n, m) -> (m, K)."""
    m = codes.shape[1]
    return np.bincount((codes + np.arange(m) * K).ravel(), minlength=m * K).reshape(m, K)
