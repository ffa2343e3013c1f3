"""DeepReduce: coverage first, then the output distribution.

Zhou, Li, Dong, Zhang, Hao, "Cost-Effective Testing of a Deep Learning Model through Input Reduction", ISSRE 2020,
Algorithm 1, https://doi.org/10.1109/ISSRE5003.2020.00035.

Phase 1 selects few examples that together meet every coverage requirement that the pool meets
(:mod:`opacc_ray.neurons.requirements`). Phase 2 adds examples one by one until T is distributed as the pool S over the
sections of the output neurons:

    z_i = argmax_z P_S,i(z) / P_T,i(z)              the section that neuron i lacks most     (lines 8 to 18)
    C   = argmax_t #{i : t is in z_i}               among the examples not yet in T          (lines 19 to 27)
    t'  = argmin_{t in C} KL(P_S || P_{T + t})      is added                                 (lines 28 to 35)
    KL(P_S || P_T) = (1/m) Σ_i Σ_z P_S,i(z) · ln(P_S,i(z) / P_T,i(z)) < α ends it            (Formula 1, line 38)

Nothing is drawn at random, so the estimator is the sample mean and no design-based interval exists. Examples are listed
in the order of choice: the first k are the result for a budget of k.

Four parameters select the variants of the paper's sensitivity analysis: `coverage=False` omits phase 1,
`layer="hidden"` compares the last hidden layer, `division="equal_width"` cuts sections as CES does, and
`heuristic="random"` adds random examples in phase 2.

Deviations, and choices that the paper leaves open.
- An empty section of T counts as 1e-15, as in the released code.
- Ties go to the lowest section and the lowest index. For this, KLs are sums of whole multiples of 2^-56, which are the
  same in any order, and those that agree in steps of 2^-40 tie: ln 4/3 + ln 9/8 is ln 6/5 + ln 5/4.
- Algorithm 1 adds one example before it compares KL with α; here none is added if phase 1 has already reached α.
- With a budget the search stops at α or at the budget, whichever comes first. To stop at the budget only, set a tiny α.
- A budget smaller than phase 1 yields the first examples of phase 1. They do not represent the pool, and the estimate
  reports this.
- In later rounds T starts with the labelled examples, for both phases.

KL is never computed for a candidate: t changes one term per neuron, so m entries of a table of these changes are added.
A part keeps the number of sections that each of its examples agrees with, and after a choice recounts only the neurons
whose z_i has changed.

Legend: N pool, n budget, m neurons, K sections, T sample, S pool.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.simple_random import Purposive, draw_uniform
from opacc_ray.errors import DataError, SpecError
from opacc_ray.neurons.requirements import NO_REQUIREMENTS, Requirements, all_of, choose, met_by, rank_requirements
from opacc_ray.neurons.sections import (
    FLOOR,
    Sections,
    check_sections,
    equal_count,
    equal_width,
    part_codes,
    relative_entropy,
)
from opacc_ray.parts.view import Kept, View, key_of
from opacc_ray.pool import LAYERS, Pool
from opacc_ray.samplers.base import Draw, MethodParameters, Presets, Task, parameter

DIVISIONS = ("equal_count", "equal_width")
HEURISTICS = ("kl", "random")

_UNIT = 2.0**-56
"""What one example adds to KL is a whole multiple of it; all of KL is below 40."""

_TIE_BITS = 16
"""KLs are compared in steps of 2^16 units."""

_NO_SECTION = 255


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """The stopping rule and the variants."""

    alpha: float = parameter(0.001, "α: stop once the KL divergence is below it")
    lookahead: int | None = parameter(None, "cardinalities that phase 1 compares to break ties; null: all")
    sections: int = parameter(20, "K: sections of each neuron")
    coverage: bool = parameter(True, "whether phase 1 covers neurons first")
    layer: str = parameter("output", "layer that phase 2 compares: output or hidden")
    division: str = parameter("equal_count", "sections of equal_count or equal_width")
    heuristic: str = parameter("kl", "example that phase 2 adds: the best for kl, or random")
    stops_itself = True

    presets: ClassVar[Presets] = {
        "paper": {"alpha": 0.001},
        "released": {"lookahead": 3},
        "variant1": {"coverage": False},
        "variant2": {"layer": "hidden"},
        "variant3": {"division": "equal_width"},
        "variant4": {"heuristic": "random"},
        "random_kl": {"coverage": False, "heuristic": "random"},
    }

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise SpecError(f"alpha={self.alpha}: KL is never below it; give a number above 0, such as 0.001")
        ahead, is_bool = self.lookahead, isinstance(self.lookahead, bool)
        if ahead is not None and (is_bool or not isinstance(ahead, int) or ahead < 0):
            raise SpecError(
                f"lookahead={self.lookahead!r}: give a number of cardinalities, at least 0, or none for all"
            )
        check_sections(self.sections)
        for name, choices in (("layer", LAYERS), ("division", DIVISIONS), ("heuristic", HEURISTICS)):
            if getattr(self, name) not in choices:
                raise SpecError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(choices)}")

    @property
    def instead(self) -> dict[str, str]:
        return {"coverage": "omit phase 1 with coverage=False"}


class State(NamedTuple):
    """The sample so far."""

    sections: Sections  # cut on S
    key: str  # names the sections
    pool: NDArray[np.int64]  # (m, K) examples of S per section
    share: NDArray[np.float64]  # (m, K) P_S
    counts: NDArray[np.int64]  # (m, K) of T
    chosen: NDArray[np.int64]  # (n so far,) in order of choice
    taken: NDArray[np.int64]  # sorted: T, which is chosen now or labelled before
    requirements: Requirements
    unmet: NDArray[np.uint64]  # (W,) bits; phase 1 ends when none is set
    num_covering: int  # chosen by phase 1
    kl: float


class Candidate(NamedTuple):
    """The best example of a part; candidates are compared by the first two fields."""

    agreement: int  # neurons whose most wanted section it is in
    gain: int  # what it takes off KL, in steps of 2^-40
    row: int
    codes: NDArray[np.uint8]  # (m,)


def needs(parameters: Parameters) -> tuple[str, ...]:
    return (parameters.layer, "coverage") if parameters.coverage else (parameters.layer,)


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Add examples until the budget is spent, or all requirements are met and KL is below α."""
    state = _start(view, task)
    while not _is_finished(task, state):
        state = _cover(view, task, state) if state.unmet.any() else _approach(view, task, state, rng)
        task.progress(len(state.chosen), task.budget)
    num, num_unmet = len(state.requirements.source), int(np.bitwise_count(state.unmet).sum())
    phase = np.where(np.arange(len(state.chosen)) < state.num_covering, 1, 2)
    design = Purposive(len(state.chosen), view.size, _why(state.kl, num_unmet, num), phase)
    return Draw(state.chosen, design, {"kl": state.kl, "requirements": num, "requirements_unmet": num_unmet})


def _why(kl: float, num_unmet: int, num_requirements: int) -> str:
    """Return the reason why no design-based variance exists."""
    if not num_unmet:
        return f"DeepReduce is deterministic (KL to the pool {kl:.2g}), so no design-based variance exists"
    return (
        f"the budget ended DeepReduce with {num_unmet} of {num_requirements} coverage requirements unmet, before it "
        "compared the distribution of outputs: the sample does not represent the pool"
    )


def _start(view: View, task: Task) -> State:
    """Cut the sections, rank the requirements, and count the labelled examples."""
    parameters, previous = task.parameters, task.previous.chosen
    sections: Sections
    if parameters.division == "equal_count":
        sections = equal_count(view, parameters.layer, parameters.sections)
    else:
        (sections,) = equal_width(view, (parameters.layer,), parameters.sections).sections
    key = key_of(*sections)
    pool = sum(_kept(view, sections, key).map(_Codes.count, [()] * len(view.parts.sizes)))
    requirements = rank_requirements(view) if parameters.coverage else NO_REQUIREMENTS
    unmet = all_of(requirements) & ~met_by(view, requirements, previous)
    none = np.empty(0, dtype=np.int64)
    state = State(
        sections, key, pool, pool / view.size, np.zeros_like(pool), none, none, requirements, unmet, 0, np.inf
    )
    if len(previous):
        state = _add(state, previous, view.take(part_codes, previous, (sections,)))._replace(chosen=none)
    if _is_finished(task, state):
        raise SpecError(
            f"the {len(previous)} labelled examples are within KL {state.kl:.2g} of the pool, which is already below "
            f"alpha={parameters.alpha:g}; lower alpha"
        )
    return state


def _cover(view: View, task: Task, state: State) -> State:
    """Add an example by phase 1."""
    index, met = choose(view, state.requirements, state.unmet, task.parameters.lookahead)
    state = state._replace(unmet=state.unmet & ~met, num_covering=state.num_covering + 1)
    return _add(state, np.array([index]), _codes_at(view, state, index)[None])


def _approach(view: View, task: Task, state: State, rng: np.random.Generator) -> State:
    """Add an example by phase 2."""
    if task.budget is None and len(state.taken) == view.size - 1:
        raise DataError(
            f"alpha={task.parameters.alpha:g} is only reached with all {view.size} examples of the pool "
            f"(KL {state.kl:.2g} with one left out); raise it, or give a budget"
        )
    if task.parameters.heuristic == "random":
        index = int(draw_uniform(rng, view.size, state.taken, 1)[0])
        codes = _codes_at(view, state, index)
    else:
        index, codes = _closest(view, state)
    return _add(state, np.array([index]), codes[None])


def _is_finished(task: Task, state: State) -> bool:
    return len(state.chosen) == task.budget or (not state.unmet.any() and state.kl < task.parameters.alpha)


def _add(state: State, index: NDArray[np.int64], codes: NDArray[np.uint8]) -> State:
    """Add the examples ``index`` (k,) to T; codes (k, m) are their sections."""
    counts, neurons = state.counts.copy(), np.arange(len(state.counts))
    for row in codes:
        counts[neurons, row] += 1
    return state._replace(
        counts=counts,
        chosen=np.concatenate([state.chosen, index]),
        taken=np.sort(np.concatenate([state.taken, index])),
        kl=relative_entropy(state.share, counts),
    )


def _closest(view: View, state: State) -> tuple[int, NDArray[np.uint8]]:
    """Return the example that phase 2 adds, and its sections (m,)."""
    target = np.argmax(state.pool / np.maximum(state.counts, FLOOR), axis=1).astype(np.uint8)  # (m,) z_i
    gains, bounds = _gains(state), np.searchsorted(state.taken, view.starts)
    taken = [state.taken[low:high] - start for (low, high), start in zip(pairwise(bounds), view.starts, strict=False)]
    arguments = [(target, gains, rows) for rows in taken]
    answers = _kept(view, state.sections, state.key).map(_Codes.best, arguments)
    parts = [part for part, answer in enumerate(answers) if answer is not None]
    part = max(parts, key=lambda part: answers[part][:2])  # the first of those that tie
    return int(view.starts[part]) + answers[part].row, answers[part].codes


def _gains(state: State) -> NDArray[np.int64]:
    """Return the decrease of KL by one more example in a section, in units: (m, K)."""
    size = len(state.taken) + 1
    ratio = (state.counts + 1) / np.maximum(state.counts, FLOOR * size)  # P_{T + t} / P_T, with T + t examples in both
    return np.rint(state.share * np.log(ratio) / (len(state.share) * _UNIT)).astype(np.int64)


def _kept(view: View, sections: Sections, key: str) -> Kept:
    return Kept(view.parts, "sections", key, _Codes, [(sections,)] * len(view.parts.sizes))


def _codes_at(view: View, state: State, index: int) -> NDArray[np.uint8]:
    return view.take(part_codes, np.array([index]), (state.sections,))[0]


class _Codes:
    """The sections of a part's examples by neuron, and the number of target sections that each example is in."""

    def __init__(self, part: Pool, sections: Sections) -> None:
        codes = sections.codes(getattr(part, sections.layer))
        self._codes = np.ascontiguousarray(codes.T)  # (m, n)
        self._neurons = np.arange(len(self._codes))[:, None]
        self._num = sections.num
        nowhere = np.full(len(self._codes), _NO_SECTION, dtype=np.uint8)
        self._agreed = nowhere, np.zeros(self._codes.shape[1], dtype=np.int32)

    def count(self) -> NDArray[np.int64]:
        """Count the examples per section: (m, K)."""
        return np.stack([np.bincount(row, minlength=self._num) for row in self._codes])

    def best(self, target: NDArray[np.uint8], gains: NDArray[np.int64], taken: NDArray[np.int64]) -> Candidate | None:
        """Return the row in most sections of ``target`` (m,), except ``taken`` rows; ties go to the largest gain."""
        agreement = self._agreement(target).copy()  # (n,)
        agreement[taken] = -1
        most = agreement.max()
        if most < 0:
            return None
        rows = np.flatnonzero(agreement == most)
        codes = self._codes[:, rows]  # (m, rows)
        gain = gains[self._neurons, codes].sum(axis=0) >> _TIE_BITS
        best = int(np.argmax(gain))
        return Candidate(int(most), int(gain[best]), int(rows[best]), codes[:, best])

    def _agreement(self, target: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Count in how many of ``target`` (m,) each row is: (n,). Only changes since the last call are counted."""
        from opacc_ray.neurons.kernels import move_target

        before, agreement = self._agreed
        agreement = agreement.copy()
        move_target(self._codes, before, target, agreement)
        self._agreed = target, agreement  # replaced at once, so that two threads may ask
        return agreement
