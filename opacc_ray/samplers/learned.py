"""The estimate of `neyman` from all labels: what they teach, taken back to every round.

The pool's signals are read again; the failures of every example are predicted without each label's own fold
(:mod:`opacc_ray.failure.folds`), every round's inclusion probabilities are found as they were when it was drawn, and
:mod:`opacc_ray.estimators.cross_fitted` makes the estimate of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

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
from opacc_ray.failure.signals import read_signals
from opacc_ray.parts.view import View
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import OtherModel, Previous, Task
from opacc_ray.samplers.select import parse_parameters
from opacc_ray.selection import Selection


def learns_from_all(selections: Sequence[Selection]) -> bool:
    """Whether rounds were drawn to be combined so."""
    return all(
        isinstance(part.design, InclusionProbability) and part.parameters.get("combine") == "labels"
        for part in selections
    )


class ModelOutcomes(NamedTuple):
    """A model on the pool, and how it did on the labelled examples."""

    view: View
    outcomes: Sequence[Outcome]  # (n_t,) of each round
    history: History = NO_HISTORY


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
    [combined] = learn_from_all([ModelOutcomes(view, outcomes, history)], selections)
    return combined.estimate(level)


def learn_from_all(models: Sequence[ModelOutcomes], selections: Sequence[Selection]) -> list[Combined]:
    """The share of failures of each model, by the labels of all rounds, which were drawn for the first models given.

    Raises
    ------
    LabelError
        If a round was drawn when labels were there that are not given.
    """
    before = labelled_before(selections)
    labelled = np.concatenate([part.index for part in selections])
    drawn = []
    for selection, places in zip(selections, before, strict=True):
        order = places[np.argsort(labelled[places])]
        own, *others = (
            OtherModel(model.view, np.concatenate(model.outcomes)[order], model.history)
            for model in models[: num_models(selection)]
        )
        drawn.append(_drawn_with(selection, own, tuple(others), labelled[order]))
    return [_combined(model, selections, drawn) for model in models]


def num_models(selection: Selection) -> int:
    """How many models a selection was drawn for."""
    return int(selection.facts.get("models", 1))


class _Drawn(NamedTuple):
    """How a round was drawn."""

    free: NDArray[np.int64]  # (N_r,) examples that were not labelled
    probability: NDArray[np.float64]  # (N_r,) π to be drawn and labelled


def _drawn_with(
    selection: Selection, own: OtherModel, others: tuple[OtherModel, ...], labelled: NDArray[np.int64]
) -> _Drawn:
    design = selection.design
    assert isinstance(design, InclusionProbability)
    parameters = parse_parameters("neyman", selection.parameters)
    previous = Previous(labelled, own.outcome)
    found = neyman.allocate(own.view, Task(design.num_drawn, parameters, previous, history=own.history, others=others))
    return _Drawn(found.free, found.probability * (len(selection) / design.num_drawn))


def _combined(model: ModelOutcomes, selections: Sequence[Selection], drawn: Sequence[_Drawn]) -> Combined:
    labelled = np.concatenate([part.index for part in selections])
    sizes = [len(part) for part in selections]
    fold, round_of = fold_of(sizes), np.repeat(np.arange(len(sizes)), sizes)
    directions = parse_parameters("neyman", selections[0].parameters).directions
    signals = read_signals(model.view, directions, model.history)
    lessons = read_lessons(model.view, directions, model.history)
    predicted = predict_without_fold(signals, labelled, 1 - np.concatenate(model.outcomes), fold, lessons)  # (K, N)
    folded = [_folded(selection, drawn[t], predicted, fold[round_of == t]) for t, selection in enumerate(selections)]
    return cross_fitted(selections, model.outcomes, folded)


def _folded(
    selection: Selection, drawn: _Drawn, predicted: NDArray[np.float64], fold: NDArray[np.int64]
) -> FoldedRound:
    """What the predictions (K, N) say of one round; ``fold`` (n_t,) of its labels."""
    share = np.bincount(fold, minlength=len(predicted)) / len(fold)  # (K,) n_tk/n_t
    unknown = predicted[:, drawn.free]
    mean = unknown.mean(axis=0)
    chance = np.maximum(1 / drawn.probability - 1, 0)
    variance = float((mean * (1 - mean)) @ chance) / predicted.shape[1] ** 2
    return FoldedRound(predicted[fold, selection.index], float(share @ unknown.sum(axis=1)), variance)
