"""Combine rounds of any designs into one linear estimator of any variable of the pool.

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
rounds improve. Simple random and stratified rounds do not learn, and have no root: simple random rounds together equal
one simple random sample. (Weights inverse to *estimated* variances would favour rounds that missed the rare failures.)

Once all examples are labelled, every mean is known. Predicted failures help accuracy only: other variables have none.

Legend: N pool, n labels, w weight of a round.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs import Design
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.designs.stratified import Stratified
from opacc_ray.errors import LabelError
from opacc_ray.estimators.accuracy_estimate import Estimate, within_interval
from opacc_ray.estimators.intervals import cut
from opacc_ray.selection import Selection

Array = NDArray[np.float64]
Outcome = NDArray[np.float64]
Outcomes = Sequence[Any] | Outcome
"""Outcomes of a selection, (n,), or of each round."""

Rounds = Selection | Sequence[Selection]
"""A selection, or all rounds in their order."""

_LEAST_LEFT = 0.5
"""Least number of examples that a round is assumed to leave unlabelled: keeps its weight finite."""


# -- outcomes ---------------------------------------------------------------------------------------------------


class KnownOutcomes(NamedTuple):
    """What the labels prove: the outcomes of the labelled examples."""

    failures: float  # their sum over labelled examples, each counted once
    num: int  # distinct labelled examples
    pool_size: int
    binary: bool  # whether every outcome is 0 or 1

    def clip(self, found: Estimate) -> Estimate:
        """Cut an estimate to what the labels leave possible; with 0/1 outcomes its ends are multiples of 1/N."""
        least, most = (self.num - self.failures) / self.pool_size, (self.pool_size - self.failures) / self.pool_size
        if self.num == self.pool_size:
            return replace(found, value=most, standard_error=0.0, low=most, high=most)
        low, high = cut((found.low, found.high), least, most)
        return within_interval(replace(found, low=low, high=high), self.pool_size if self.binary else None)


def checked_outcome(selection: Selection, outcome: Sequence[float] | Outcome) -> Outcome:
    """Return the outcomes as (n,) float64; raise LabelError unless they fit the selection, in its order."""
    try:
        values = np.asarray(outcome, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a tensor that has a gradient
        raise LabelError(
            f"the outcomes are not all numbers ({error}): give 1 for correct, 0 for a misprediction, or a score"
        ) from None
    if values.shape != selection.index.shape:
        raise LabelError(
            f"outcome has shape {values.shape} and the selection {len(selection.index)} examples: "
            "give one outcome per example, in the order of selection.index"
        )
    _check_order(selection, outcome)
    bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(bad):
        raise LabelError(
            f"outcome {values[bad[0]]} of example {selection.ids[bad[0]]!r} is not in [0, 1]: "
            "give 1 for correct, 0 for a misprediction, or a score between them"
        )
    return values


def _check_order(selection: Selection, outcome: Any) -> None:
    """Raise LabelError if the index of a table's column names the selected examples in another order."""
    index = getattr(outcome, "index", None)
    names = None if index is None or callable(index) else list(index)  # lists have a method of that name
    for which, own in (("index", selection.index.tolist()), ("ids", list(selection.ids))):
        if names is not None and names != own and set(names) == set(own):
            first = next(place for place, (name, is_own) in enumerate(zip(names, own, strict=True)) if name != is_own)
            raise LabelError(
                f"the index of the outcomes has {names[first]!r} where the selection has {own[first]!r}: sort them, as "
                f"in outcome.loc[list(selection.{which})], or give outcome.to_numpy() if only their index is wrong"
            )


def check_level(level: Any) -> None:
    """Raise LabelError unless ``level`` is between 0 and 1, and remains so after rounding."""
    if not (isinstance(level, Real) and 0.5 < 0.5 + float(level) / 2 < 1):
        given = level if isinstance(level, Real) else repr(level)
        raise LabelError(f"level={given}: give a confidence level between 0 and 1, such as 0.95")


def is_binary(outcome: Outcome) -> bool:
    """Return whether every outcome is 0 or 1."""
    return bool(np.isin(outcome, (0.0, 1.0)).all())


# -- the rounds and their labels --------------------------------------------------------------------------------


def as_lists(selection: Rounds, outcome: Outcomes) -> tuple[list[Selection], list[Any]]:
    """Return the rounds and the outcomes of each as lists, also for a single selection."""
    if isinstance(selection, Selection):
        return [selection], [outcome]
    return list(selection), list(outcome)


def checked_rounds(selection: Rounds, outcome: Outcomes, level: float) -> tuple[list[Selection], list[Outcome]]:
    """Return rounds and the outcomes of each; raise LabelError if they do not fit, or the level is not valid."""
    check_level(level)
    rounds, given = as_lists(selection, outcome)
    if not rounds or len(rounds) != len(given):
        raise LabelError(f"{len(rounds)} rounds and {len(given)} lists of outcomes: give one list per round")
    seen = set()
    for part in rounds:
        own = part.round, part.method, part.seed, part.index.tobytes()
        if not len(part):
            raise LabelError(f"round {part.round} has no label: leave it out, or label some of it")
        if own in seen:
            raise LabelError(
                f"round {part.round} is given twice, and its labels would count twice: give each round once"
            )
        seen.add(own)
    return rounds, [checked_outcome(part, values) for part, values in zip(rounds, given, strict=True)]


def common_pool(selections: Sequence[Selection]) -> int:
    """Return N; raise LabelError if the rounds are from different pools."""
    sizes = {selection.pool_size for selection in selections}
    if len(sizes) != 1:
        raise LabelError(f"the rounds are from pools of {sorted(sizes)} examples: give rounds of one pool")
    return sizes.pop()


def known_outcomes(selections: Sequence[Selection], outcomes: Sequence[Outcome]) -> KnownOutcomes:
    """Return the outcomes that the labels of all rounds prove, each example counted once."""
    outcome = np.concatenate(outcomes)
    _, first = np.unique(np.concatenate([selection.index for selection in selections]), return_index=True)
    return KnownOutcomes(float((1 - outcome[first]).sum()), len(first), selections[0].pool_size, is_binary(outcome))


def labelled_before(selections: Sequence[Selection]) -> list[NDArray[np.int64]]:
    """Return, for each round, the places among all labels of those known when it was drawn, each example once.

    Raises
    ------
    LabelError
        A round was drawn after labels that no earlier round holds.
    """
    place: dict[int, int] = {}
    before, num = [], 0
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


def late_labels(selections: Sequence[Selection]) -> str | None:
    """Return why rounds are not design-based: a round was drawn before all labels of earlier ones had arrived."""
    size = common_pool(selections)
    for selection, places in zip(selections, labelled_before(selections), strict=True):
        drawn_from = getattr(selection.design, "population", size)
        late = drawn_from + len(places) - size
        if late > 0 and drawn_from < size:  # purposive samples count the whole pool in every round
            return f"{late} labels of earlier rounds came after round {selection.round} was drawn"
    return None


# -- the weights of rounds --------------------------------------------------------------------------------------


def shares_left(selections: Sequence[Selection]) -> Array:
    """Return N_t/N (rounds,): the share of the pool that was not labelled when each round was drawn."""
    size = common_pool(selections)
    return np.array([1 - len(places) / size for places in labelled_before(selections)])


def round_weights(selections: Sequence[Selection]) -> Array:
    """Return w (rounds,), from the numbers of labels alone."""
    size = common_pool(selections)
    num = np.array([len(selection) for selection in selections], dtype=np.float64)
    left = shares_left(selections)
    distinct = np.array([selection.design.is_distinct for selection in selections])
    after = np.maximum(left - distinct * num / size, _LEAST_LEFT / size)
    weight = num / (np.maximum(left, _LEAST_LEFT / size) * after)
    if not all(isinstance(selection.design, SimpleRandom | Stratified) for selection in selections):
        weight *= np.cbrt(np.cumsum(num))
    return weight / weight.sum()


def as_simple_random(selections: Sequence[Selection]) -> SimpleRandom | None:
    """Return the simple random sample that rounds of simple random samples form; None for other designs."""
    if not all(isinstance(part.design, SimpleRandom) and part.design.is_distinct for part in selections):
        return None
    return SimpleRandom(sum(map(len, selections)), common_pool(selections), replacement=False)


# -- the linear estimator ---------------------------------------------------------------------------------------


class LinearEstimator(Protocol):
    """How n labels represent the pool: one design, or all rounds together.

    Variables are (n,) or, several at once, (n, q), in the order of the labels.
    """

    @property
    def weights(self) -> Array:
        """(n,): x̂ = Σ weights · x."""

    @property
    def largest_weight(self) -> float:
        """The most that a label moves the estimate; 0 if the whole pool is labelled."""

    @property
    def degrees(self) -> int | None:
        """Degrees of freedom of v if it comes from few replicates; None if it comes from the labels."""

    @property
    def reason(self) -> str | None:
        """Why the estimate is not design-based; None if it is."""

    def mean(self, x: Array) -> Any:
        """Return x̂, for each variable."""

    def variance(self, x: Array) -> Any:
        """Return v(x̂), for each variable."""


@dataclass(frozen=True, eq=False)
class _Rounds:
    """Rounds of one pool as one linear estimator."""

    designs: list[Design]
    places: list[slice]  # of the labels of each round among all labels
    before: list[NDArray[np.int64]]  # for each round: places of the labels known when it was drawn
    factor: list[float]  # w_t
    pool_size: int

    @property
    def scale(self) -> list[float]:
        """(rounds,) w_t · N_t/N."""
        return [w * (1 - len(before) / self.pool_size) for w, before in zip(self.factor, self.before, strict=True)]

    @property
    def weights(self) -> Array:
        weights = np.concatenate([s * design.weights for s, design in zip(self.scale, self.designs, strict=True)])
        for factor, before in zip(self.factor, self.before, strict=True):
            weights[before] += factor / self.pool_size
        return weights

    @property
    def largest_weight(self) -> float:
        return max(s * design.largest_weight for s, design in zip(self.scale, self.designs, strict=True))

    @property
    def degrees(self) -> int | None:
        return min((few for design in self.designs if (few := design.degrees) is not None), default=None)

    @property
    def reason(self) -> str | None:
        return next((design.reason for design in self.designs if design.reason), None)

    def mean(self, x: Array) -> Any:
        total: Any = 0.0
        rounds = zip(self.designs, self.places, self.before, self.factor, self.scale, strict=True)
        for design, place, before, factor, scale in rounds:
            known = x[before].sum(axis=0) / self.pool_size
            total = total + factor * known + scale * design.mean(x[place])
        return total

    def variance(self, x: Array) -> Any:
        rounds = zip(self.scale, self.designs, self.places, strict=True)
        return sum(scale**2 * design.variance(x[place]) for scale, design, place in rounds)


@dataclass(frozen=True, eq=False)
class _Census:
    """Labels of the whole pool; repeated labels have weight 0."""

    weights: Array
    largest_weight: ClassVar[float] = 0.0
    degrees: ClassVar[int | None] = None
    reason: ClassVar[str | None] = None

    def mean(self, x: Array) -> Any:
        return self.weights @ x

    def variance(self, x: Array) -> Any:
        return np.zeros(x.shape[1:])


def linear_estimator(rounds: Rounds | LinearEstimator, since: int = 0) -> LinearEstimator:
    """Return how the labels of a selection, or of all rounds in their order, represent the pool.

    The rounds before number ``since`` only count as labelled before the others.

    Raises
    ------
    LabelError
        The rounds are from different pools, or an earlier round is missing.
    """
    if not isinstance(rounds, Selection | Sequence):
        return rounds
    selections = [rounds] if isinstance(rounds, Selection) else list(rounds)
    pool_size, before = common_pool(selections), labelled_before(selections)
    index, first = np.unique(np.concatenate([selection.index for selection in selections]), return_index=True)
    ends = np.cumsum([len(selection) for selection in selections]).tolist()
    if len(index) == pool_size:
        weights = np.zeros(ends[-1])
        weights[first] = 1 / pool_size
        return _Census(weights)
    whole = as_simple_random(selections)
    if whole is not None and not since:
        return whole
    designs = [part.design for part in selections]
    places = [slice(end - len(part), end) for part, end in zip(selections, ends, strict=True)]
    weights = round_weights(selections)
    if since:
        weights[:since] = 0
        weights /= weights.sum()
    return _Rounds(designs, places, before, weights.tolist(), pool_size)
