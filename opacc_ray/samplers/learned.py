"""The estimate of `neyman` from all labels: what they teach, taken back to every round.

The pool's signals are read again; the failures of every example are predicted without each label's own fold
(:mod:`opacc_ray.failure.folds`), every round's inclusion probabilities are found as they were when it was drawn, and
:mod:`opacc_ray.estimators.cross_fitted` makes the estimate of them.
"""

import secrets
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.cross_fitted import FoldedRound, cross_fitted
from opacc_ray.estimators.difference import Combined
from opacc_ray.estimators.rounds import labelled_before
from opacc_ray.failure.folds import fold_of, predict_without_fold
from opacc_ray.failure.history import NO_HISTORY, History
from opacc_ray.failure.lessons import read_lessons
from opacc_ray.failure.model import Forecast, Mixture
from opacc_ray.failure.signals import part_signals, read_signals
from opacc_ray.parts.cache import part_keep, part_recall, repeat_if_forgotten
from opacc_ray.parts.sums import as_float, exact_sum
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import Previous, Task
from opacc_ray.samplers.chances import Chances, part_free
from opacc_ray.samplers.select import parse_parameters
from opacc_ray.selection import Selection

_KEPT = "mean prediction"


def learns_from_all(selections: Sequence[Selection]) -> bool:
    """Whether rounds were drawn to be combined so."""
    return all(
        isinstance(part.design, InclusionProbability) and part.parameters.get("combine") == "labels"
        for part in selections
    )


def learned_estimate(
    view: View,
    selections: Sequence[Selection],
    outcomes: Sequence[Outcome],
    level: float,
    history: History = NO_HISTORY,
) -> Estimate:
    """Accuracy on the pool that ``view`` shows, from rounds (or one) of `neyman` and the history they started from.

    Raises
    ------
    LabelError
        If a round was drawn when labels were there that are not given.
    """
    return learn_from_all(view, selections, outcomes, history).estimate(level)


def learn_from_all(
    view: View, selections: Sequence[Selection], outcomes: Sequence[Outcome], history: History = NO_HISTORY
) -> Combined:
    """The share of failures in the pool; raises LabelError as :func:`learned_estimate`.

    Rounds that were drawn for several models count as if this one had had all labels to itself: only their weights rest
    on that.
    """
    return repeat_if_forgotten([view], lambda: _learned(view, selections, outcomes, history))


def _learned(view: View, selections: Sequence[Selection], outcomes: Sequence[Outcome], history: History) -> Combined:
    before = labelled_before(selections)
    labelled = np.concatenate([part.index for part in selections])
    failure = 1 - np.concatenate(outcomes)
    sizes = [len(part) for part in selections]
    fold, round_of = fold_of(sizes), np.repeat(np.arange(len(sizes)), sizes)
    parameters = parse_parameters("neyman", selections[0].parameters)
    signals = read_signals(view, parameters.directions, history)
    lessons = read_lessons(view, parameters.directions, history)
    predicted = Predicted.of(predict_without_fold(signals, labelled, failure, fold, lessons), labelled)
    folded = []
    for t, selection in enumerate(selections):
        own = Previous(*_sorted(labelled[before[t]], 1 - failure[before[t]]))
        folded.append(_folded(view, selection, own, history, predicted, (round_of == t, before[t], fold)))
    return cross_fitted(selections, outcomes, folded)


class Predicted(NamedTuple):
    """What is predicted without each of K folds; the parts keep the mean of the K predictions."""

    key: str
    total: tuple[int, ...]  # (K,) exact sums over the pool
    at: NDArray[np.float64]  # (K, k) of the labelled examples

    @classmethod
    def of(cls, forecasts: Sequence[Forecast], labelled: NDArray[np.int64]) -> Self:
        """Let the parts predict every example once."""
        signals, key = forecasts[0].signals, secrets.token_hex(8)
        sums = signals.view.map(part_predict, key, signals.key, tuple(own.mixture for own in forecasts))
        at = np.array([forecast.at(labelled) for forecast in forecasts])
        return cls(key, tuple(sum(own) for own in zip(*sums, strict=True)), at)

    def unlabelled(self, labelled: NDArray[np.integer]) -> NDArray[np.float64]:
        """Sums (K,) over the pool without these of the labelled examples."""
        own = self.at[:, labelled]
        return np.array([as_float(total - exact_sum(row)) for total, row in zip(self.total, own, strict=True)])


def _folded(
    view: View,
    selection: Selection,
    previous: Previous,
    history: History,
    predicted: Predicted,
    labels: tuple[NDArray[np.bool_], NDArray[np.integer], NDArray[np.int64]],
) -> FoldedRound:
    """What the predictions of K folds say of one round: its labels among all, those before it, and all their folds."""
    design = selection.design
    assert isinstance(design, InclusionProbability)
    unlabelled, chances, _ = neyman.allocate(
        view, Task(design.num_drawn, parse_parameters("neyman", selection.parameters), previous, history=history)
    )
    kept = len(selection) / design.num_drawn
    variance = as_float(view.total(part_variance, unlabelled.key, predicted.key, chances, kept))
    own, before, fold = labels
    share = np.bincount(fold[own], minlength=len(predicted.total)) / len(selection)  # (K,) n_tk/n_t
    foreseen = float(share @ predicted.unlabelled(before))
    return FoldedRound(predicted.at[fold[own], np.flatnonzero(own)], foreseen, variance / view.size**2)


def part_predict(part: Pool, key: str, signals: str, mixtures: tuple[Mixture, ...]) -> list[int]:
    """Keep the mean of some predictions of a part, and return the exact sum of each."""
    mean, totals = np.zeros(part.size), []
    for mixture in mixtures:
        predicted = mixture.failure(part_signals(part, signals))
        totals.append(exact_sum(predicted))
        mean += predicted
    mean /= len(mixtures)
    part_keep(part, _KEPT, key, mean)
    return totals


def part_variance(part: Pool, key: str, predicted: str, chances: Chances, kept: float) -> int:
    """The exact sum, over a part's unlabelled examples, of the variance that the mean prediction foresees."""
    free = part_free(part, key)
    mean = free.of(part_recall(part, _KEPT, predicted))
    return exact_sum(mean * (1 - mean) * np.maximum(1 / (chances.of(free.foreseen) * kept) - 1, 0))


def _sorted(index: NDArray[np.int64], outcome: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    order = np.argsort(index)
    return index[order], outcome[order]
