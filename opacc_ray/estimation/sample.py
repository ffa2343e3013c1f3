"""Join rounds of any designs and their labels: one sample, a linear estimator of any variable of the pool.

Accuracy is a mean over the pool. Accuracy in a class, the cells of a confusion matrix and the difference of two models
are means as well, or ratios of means. Round t draws n_t examples from the N_t that were not labelled before, and its
design estimates the mean x̂_t of a variable x among them (:mod:`opacc_ray.designs.design`). For the whole pool it gives
z_t = (1/N) · (Σ_labelled before x + N_t · x̂_t). Given the earlier rounds z_t is unbiased, so the z_t - θ are martingale
differences and

    x̂ = Σ_t w_t z_t,   w_t ∝ ∛(n_1 + … + n_t) / u_t,   Σ_t w_t = 1,   Var(x̂) = Σ_t w_t² Var(z_t)

    u_t = (N_t/N)² · (1/n_t - 1/N_t)

is unbiased, because the weights do not depend on labels. u_t is proportional to the variance of z_t for a simple random
sample; it is small where a round leaves little unlabelled. (For draws with replacement 1/n_t - 1/N_t becomes 1/n_t.)
The cube root accounts for what later rounds have learned: A. B. Owen and Y. Zhou ("The square root rule for adaptive
importance sampling", ACM TOMACS 30, 2020) show that weights growing as a fixed power are near the best however fast
rounds improve. Simple random and stratified rounds do not learn, and have no root: simple random rounds together are
one simple random sample. (Weights inverse to *estimated* variances would favour rounds that missed the rare failures.)

Once all examples are labelled, every mean is known.

Legend: N pool, n labels, w weight of a round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs import Design
from opacc_ray.designs.simple_random import SimpleRandom, Stratified
from opacc_ray.errors import LabelError
from opacc_ray.estimation.constants import LEAST_LEFT
from opacc_ray.estimation.intervals import effective_number
from opacc_ray.pool import NO_HISTORY, History
from opacc_ray.selection import Outcome, Selection, checked_outcome, is_binary

Array = NDArray[np.float64]
Places = NDArray[np.int64]

_ROUNDING = 1e-12
"""Deviations from the mean that are smaller, relative to the values, are none: rounding must not decide degrees."""


# -- rounds -----------------------------------------------------------------------------------------------------


class Round(NamedTuple):
    """One round among all: its labels, and what was known when it was drawn."""

    design: Design
    places: slice  # of its labels among all
    before: Places  # places of the labels known when it was drawn, each example once
    weight: float  # w_t
    left: float  # N_t/N

    @property
    def scale(self) -> float:
        """w_t · N_t/N, by which the design's estimate counts."""
        return self.weight * self.left


class Rounds:
    """How the labels of all rounds represent their pool: x̂ = Σ weights · x.

    Variables are (n,) or, several at once, (n, q), in the order of the labels.

    Attributes
    ----------
    selections : the rounds in their order
    pool_size : N
    index : (n,) labelled examples
    first : (m,) places of the first label of each example
    before : for each round, places of the labels known when it was drawn
    left : (rounds,) N_t/N
    weight : (rounds,) w, from the numbers of labels alone

    Raises
    ------
    LabelError
        The rounds are from different pools, or one was drawn after labels that no earlier round holds.
    """

    def __init__(self, selections: Selection | Sequence[Selection]) -> None:
        self.selections = [selections] if isinstance(selections, Selection) else list(selections)
        sizes = {selection.pool_size for selection in self.selections}
        if len(sizes) != 1:
            raise LabelError(f"the rounds are from pools of {sorted(sizes)} examples: give rounds of one pool")
        self.pool_size = sizes.pop()
        self.index: Places = np.concatenate([selection.index for selection in self.selections])
        self.first: Places = np.unique(self.index, return_index=True)[1]
        self.before = _labelled_before(self.selections)
        self.left = np.array([1 - len(places) / self.pool_size for places in self.before])
        self.weight = self._weight()

    def _weight(self) -> Array:
        designs, size = [selection.design for selection in self.selections], self.pool_size
        num = np.array([len(selection) for selection in self.selections], dtype=np.float64)
        distinct = np.array([design.is_distinct for design in designs])
        after = np.maximum(self.left - distinct * num / size, LEAST_LEFT / size)
        weight = num / (np.maximum(self.left, LEAST_LEFT / size) * after)
        if not all(isinstance(design, SimpleRandom | Stratified) for design in designs):
            weight *= np.cbrt(np.cumsum(num))
        return np.asarray(weight / weight.sum())

    @cached_property
    def parts(self) -> list[Round]:
        """The rounds; those of simple random samples are one."""
        if (merged := self.simple_random) is not None:
            return [Round(merged, slice(0, len(self.index)), np.empty(0, dtype=np.int64), 1.0, 1.0)]
        designs = [selection.design for selection in self.selections]
        rows = zip(designs, self.places, self.before, self.weight.tolist(), self.left.tolist(), strict=True)
        return [Round(*row) for row in rows]

    @property
    def places(self) -> list[slice]:
        """Where the labels of each round are among all."""
        ends = np.cumsum([len(selection) for selection in self.selections]).tolist()
        return [slice(end - len(selection), end) for end, selection in zip(ends, self.selections, strict=True)]

    @property
    def is_census(self) -> bool:
        """Whether the whole pool is labelled."""
        return len(self.first) == self.pool_size

    @property
    def simple_random(self) -> SimpleRandom | None:
        """The simple random sample that rounds of simple random samples form; None for other designs."""
        designs = [selection.design for selection in self.selections]
        if not all(isinstance(design, SimpleRandom) and design.is_distinct for design in designs):
            return None
        return SimpleRandom(len(self.index), self.pool_size, replacement=False)

    @property
    def late(self) -> str | None:
        """Why the rounds are not design-based: one was drawn before all labels of earlier ones had arrived."""
        for selection, places in zip(self.selections, self.before, strict=True):
            population = getattr(selection.design, "population", self.pool_size)
            num = population + len(places) - self.pool_size
            if num > 0 and population < self.pool_size:  # purposive samples count the whole pool in every round
                return f"{num} labels of earlier rounds came after round {selection.round} was drawn"
        return None

    # -- the linear estimator ---------------------------------------------------------------------------------

    @cached_property
    def weights(self) -> Array:
        """(n,): x̂ = Σ weights · x; repeated labels of a whole pool have weight 0."""
        weights = np.zeros(len(self.index))
        if self.is_census:
            weights[self.first] = 1 / self.pool_size
            return weights
        for part in self.parts:
            weights[part.places] += part.scale * part.design.weights
            weights[part.before] += part.weight / self.pool_size
        return weights

    @property
    def largest_weight(self) -> float:
        """The most that a label moves the estimate; 0 if the whole pool is labelled."""
        return 0.0 if self.is_census else max(part.scale * part.design.largest_weight for part in self.parts)

    @property
    def reason(self) -> str | None:
        """Why the estimate is not design-based; None if it is."""
        designs = [] if self.is_census else [part.design for part in self.parts]
        return next((design.reason for design in designs if design.reason), None)

    def mean(self, x: Array) -> Any:
        """Return x̂, for each variable."""
        return self.weights @ x

    def variance(self, x: Array) -> Any:
        """Return v(x̂), for each variable."""
        if self.is_census:
            return np.zeros(x.shape[1:])
        return sum(part.scale**2 * part.design.variance(x[part.places]) for part in self.parts)

    def degrees(self, x: Array) -> float:
        """Return the degrees of freedom of v(x̂), from the fourth moment of what it is made of."""
        most, mean = float(max(len(x) - 1, 1)), float(self.mean(x))
        apart = np.where(np.abs(x - mean) > _ROUNDING * np.abs(x).max(), x - mean, 0.0)
        spread = (self.weights * apart) ** 2
        fewer = 1 / max(effective_number(spread), 1.0) - 1 / len(x)
        return most if fewer <= 0 else min(max(2 / fewer, 1.0), most)


def _labelled_before(selections: Sequence[Selection]) -> list[Places]:
    """Return, for each round, the places among all labels of those known when it was drawn, each example once."""
    place: dict[int, int] = {}
    before, num = list[Places](), 0
    for selection in selections:
        after = selection.design.drawn_after
        named = list(place) if after is None else after.tolist()
        missing = [index for index in named if index not in place]
        if missing:
            raise LabelError(
                f"round {selection.round} was drawn when {len(missing)} more examples were labelled than the earlier "
                f"rounds given here hold (the first is number {missing[0]} of the pool): give all rounds, in order; if "
                "labels are gone since, give selection.forget(index) of this one"
            )
        before.append(np.array([place[index] for index in named], dtype=np.int64))
        place |= {index: num + k for k, index in enumerate(selection.index.tolist()) if index not in place}
        num += len(selection)
    return before


# -- labels -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sample:
    """Labelled rounds of one pool, their labels as columns in the order of ``rounds.index``."""

    rounds: Rounds
    outcome: Outcome  # (n,) 1 right, 0 wrong, or a score
    truth: NDArray[np.int64] | None = None  # (n,) true class; None: only outcomes are known
    history: History = NO_HISTORY
    counts: Mapping[str, Array] | None = None  # name -> (n,) counts
    errors: Array | None = None  # (n,) predicted value less label

    @cached_property
    def failure(self) -> Array:
        """(n,) 1 - outcome."""
        return 1 - self.outcome

    @cached_property
    def is_binary(self) -> bool:
        """Whether every outcome is 0 or 1."""
        return is_binary(self.outcome)

    @property
    def size(self) -> int:
        """Labelled examples, each counted once."""
        return len(self.rounds.first)

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of each round, (n_t,)."""
        return [self.outcome[places] for places in self.rounds.places]

    def head(self, num: int) -> "Sample":
        """Return the first ``num`` rounds with their outcomes alone."""
        rounds = Rounds(self.rounds.selections[:num])
        return Sample(rounds, self.outcome[: len(rounds.index)], history=self.history)


def join(selection: Selection | Sequence[Selection], outcome: Sequence[Any] | Outcome, **labels: Any) -> Sample:
    """Return a selection with its outcomes, or rounds with those of each, as one sample.

    ``labels`` are further columns of :class:`Sample`. Raises LabelError if outcomes do not fit, a round has no label or
    is given twice, and as :class:`Rounds`.
    """
    if isinstance(selection, Selection):
        selections, outcomes = [selection], [outcome]
    else:
        selections, outcomes = list(selection), list(outcome)
    if not selections or len(selections) != len(outcomes):
        raise LabelError(f"{len(selections)} rounds and {len(outcomes)} lists of outcomes: give one list per round")
    seen = set()
    for part in selections:
        identity = part.round, part.method, part.seed, part.index.tobytes()
        if not len(part):
            raise LabelError(f"round {part.round} has no label: leave it out, or label some of it")
        if identity in seen:
            raise LabelError(
                f"round {part.round} is given twice, and its labels would count twice: give each round once"
            )
        seen.add(identity)
    columns = [checked_outcome(part, values) for part, values in zip(selections, outcomes, strict=True)]
    return Sample(Rounds(selections), np.concatenate(columns), **labels)


def check_level(level: Any) -> None:
    """Raise LabelError unless ``level`` is between 0 and 1, and remains so after rounding."""
    if not (isinstance(level, Real) and 0.5 < 0.5 + float(level) / 2 < 1):
        given = level if isinstance(level, Real) else repr(level)
        raise LabelError(f"level={given}: give a confidence level between 0 and 1, such as 0.95")
