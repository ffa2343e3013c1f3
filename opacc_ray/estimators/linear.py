"""What the labels of all rounds say of any variable of the pool, by the designs that drew them.

Accuracy is a mean over the pool. Accuracy in a class, the cells of a confusion matrix and the difference of two models
are such means too, or ratios of them. Every design estimates the mean of a variable x in one form, linear in x, and
:mod:`opacc_ray.designs.design` lists them. Rounds combine to

    x̂ = Σ_t w_t · [ Σ_labelled before x / N + (1 - N_before / N) · x̂_t ]        w_t as in `rounds.py`

Rounds of simple random samples are one such sample. Once all examples are labelled, every mean is known, and nothing
is left to chance.

Predictions of failures, which the estimate of accuracy may use, are of no help here: other variables have none.

Legend: N pool, n labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs import Design
from opacc_ray.estimators.rounds import common_pool, labelled_before, round_weights, simple_random_of
from opacc_ray.selection import Selection

Array = NDArray[np.float64]


class LinearEstimator(Protocol):
    """How n labels represent the pool; a design is one, and so are all rounds together.

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
        """Degrees of freedom of v where few replicates make it; None if the labels do."""

    @property
    def reason(self) -> str | None:
        """Why it is not design-based."""

    def mean(self, x: Array) -> Any:
        """x̂, for each variable."""

    def variance(self, x: Array) -> Any:
        """v(x̂), for each variable."""


@dataclass(frozen=True, eq=False)
class _Rounds:
    """Rounds of one pool; the labels of each are at ``places`` of the variables."""

    designs: tuple[Design, ...]
    places: tuple[slice, ...]
    before: tuple[NDArray[np.int64], ...]  # of each round: places of the labels that were there when it was drawn
    factor: tuple[float, ...]  # w_t
    pool_size: int

    @property
    def weights(self) -> Array:
        weights = np.concatenate([self._left(t) * design.weights for t, design in enumerate(self.designs)])
        for factor, before in zip(self.factor, self.before, strict=True):
            weights[before] += factor / self.pool_size
        return weights

    @property
    def largest_weight(self) -> float:
        return max(self._left(t) * design.largest_weight for t, design in enumerate(self.designs))

    @property
    def degrees(self) -> int | None:
        return min((few for design in self.designs if (few := design.degrees) is not None), default=None)

    @property
    def reason(self) -> str | None:
        return next((design.reason for design in self.designs if design.reason), None)

    def mean(self, x: Array) -> Any:
        total: Any = 0.0
        for t, (design, place) in enumerate(zip(self.designs, self.places, strict=True)):
            known = x[self.before[t]].sum(axis=0) / self.pool_size
            total = total + self.factor[t] * known + self._left(t) * design.mean(x[place])
        return total

    def variance(self, x: Array) -> Any:
        rounds = enumerate(zip(self.designs, self.places, strict=True))
        return sum(self._left(t) ** 2 * design.variance(x[place]) for t, (design, place) in rounds)

    def _left(self, t: int) -> float:
        return self.factor[t] * (1 - len(self.before[t]) / self.pool_size)


@dataclass(frozen=True, eq=False)
class _Census:
    """Labels of the whole pool; what is labelled again adds nothing."""

    weights: Array
    largest_weight: ClassVar[float] = 0.0
    degrees: ClassVar[int | None] = None
    reason: ClassVar[str | None] = None

    def mean(self, x: Array) -> Any:
        return self.weights @ x

    def variance(self, x: Array) -> Any:
        return np.zeros(x.shape[1:])


def linear_estimator(rounds: Selection | Sequence[Selection] | LinearEstimator) -> LinearEstimator:
    """How the labels of a selection, or of all rounds in their order, represent the pool.

    Raises
    ------
    LabelError
        If the rounds are of different pools, or a round is missing that a later one builds on.
    """
    if not isinstance(rounds, Selection | Sequence):
        return rounds
    selections = [rounds] if isinstance(rounds, Selection) else list(rounds)
    pool_size = common_pool(selections)
    index, first = np.unique(np.concatenate([selection.index for selection in selections]), return_index=True)
    before = labelled_before(selections)
    if len(index) == pool_size:
        weights = np.zeros(sum(map(len, selections)))
        weights[first] = 1 / pool_size
        return _Census(weights)
    whole = simple_random_of(selections)
    if whole is not None:
        return whole
    ends = np.cumsum([len(selection) for selection in selections])
    places = [slice(int(end) - len(selection), int(end)) for selection, end in zip(selections, ends, strict=True)]
    return _Rounds(
        designs=tuple(selection.design for selection in selections),
        places=tuple(places),
        before=tuple(before),
        factor=tuple(round_weights(selections).tolist()),
        pool_size=pool_size,
    )
