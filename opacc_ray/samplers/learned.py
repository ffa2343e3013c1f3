"""The estimate of `neyman` from all labels: what they teach, taken back to every round.

The pool's signals are read again; the failures of every example are predicted without each label's own fold
(:mod:`opacc_ray.failure.folds`), every round's inclusion probabilities are found as they were when it was drawn, and
:mod:`opacc_ray.estimators.cross_fitted` makes the estimate of them.
"""

from collections.abc import Sequence

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
from opacc_ray.parts.cache import repeat_if_forgotten
from opacc_ray.parts.sums import as_float, exact_sum
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import Previous, Task
from opacc_ray.samplers.chances import Chances, part_free
from opacc_ray.samplers.select import parse_parameters
from opacc_ray.selection import Selection


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
    predicted = predict_without_fold(signals, labelled, failure, fold, lessons)  # of each of K folds
    folded = []
    for t, selection in enumerate(selections):
        own = Previous(*_sorted(labelled[before[t]], 1 - failure[before[t]]))
        folded.append(_folded(view, selection, own, history, predicted, fold[round_of == t]))
    return cross_fitted(selections, outcomes, folded)


def _folded(
    view: View,
    selection: Selection,
    previous: Previous,
    history: History,
    predicted: Sequence[Forecast],
    fold: NDArray[np.int64],
) -> FoldedRound:
    """What the predictions of K folds say of one round; ``fold`` (n_t,) of its labels."""
    design = selection.design
    assert isinstance(design, InclusionProbability)
    unlabelled, chances, signals = neyman.allocate(
        view, Task(design.num_drawn, parse_parameters("neyman", selection.parameters), previous, history=history)
    )
    kept = len(selection) / design.num_drawn
    mixtures = tuple(forecast.mixture for forecast in predicted)
    sums = view.map(part_unknown, unlabelled.key, signals.key, mixtures, chances, kept)
    totals = [as_float(sum(own)) for own in zip(*sums, strict=True)]  # of each fold's predictions, and the variance
    share = np.bincount(fold, minlength=len(predicted)) / len(fold)  # (K,) n_tk/n_t
    own = np.array([forecast.at(selection.index) for forecast in predicted])[fold, np.arange(len(fold))]
    return FoldedRound(own, float(share @ totals[:-1]), totals[-1] / view.size**2)


def part_unknown(
    part: Pool, key: str, signals: str, mixtures: tuple[Mixture, ...], chances: Chances, kept: float
) -> list[int]:
    """Exact sums over a part's unlabelled examples: of each prediction, and of the variance by their mean."""
    free = part_free(part, key)
    seen = part_signals(part, signals)
    predicted = np.array([free.of(mixture.failure(seen)) for mixture in mixtures])  # (K, n)
    mean = predicted.mean(axis=0)
    variance = mean * (1 - mean) * np.maximum(1 / (chances.of(free.foreseen) * kept) - 1, 0)
    return [*map(exact_sum, predicted), exact_sum(variance)]


def _sorted(index: NDArray[np.int64], outcome: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    order = np.argsort(index)
    return index[order], outcome[order]
