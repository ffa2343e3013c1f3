"""The estimate of `neyman` from all labels: what they teach, taken back to every round.

The pool's signals are read again, the failure of every example is predicted by all labels, every round's inclusion
probabilities are found as they were when it was drawn, and :mod:`opacc_ray.estimators.taught` makes the estimate of
them.
"""

import secrets
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.estimators.accuracy_estimate import Estimate, Outcome
from opacc_ray.estimators.difference_estimator import CombinedRounds
from opacc_ray.estimators.rounds import labelled_before
from opacc_ray.estimators.taught import TaughtRound, combine_taught
from opacc_ray.failure.history import NO_HISTORY, History
from opacc_ray.failure.lessons import read_signals
from opacc_ray.failure.model import Forecast, Mixture, predict_failure
from opacc_ray.failure.signals import part_signals
from opacc_ray.parts.cache import part_keep, part_recall, repeat_if_forgotten
from opacc_ray.parts.sums import as_float, exact_sum
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import Previous, Task
from opacc_ray.samplers.chances import Chances, part_free
from opacc_ray.samplers.select import parse_parameters
from opacc_ray.selection import Selection

UNTAUGHT, TAUGHT = 12, 32
"""Numbers of labels at which λ is 0 and 1."""

_KEPT = "taught prediction"


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
) -> CombinedRounds:
    """The share of failures in the pool; raises LabelError as :func:`learned_estimate`.

    Rounds that were drawn for several models count as if this one had had all labels to itself: only their weights rest
    on that.
    """
    return repeat_if_forgotten([view], lambda: _learned(view, selections, outcomes, history))


def _learned(
    view: View, selections: Sequence[Selection], outcomes: Sequence[Outcome], history: History
) -> CombinedRounds:
    before = labelled_before(selections)
    labelled = np.concatenate([part.index for part in selections])
    outcome = np.concatenate(outcomes)
    parameters = parse_parameters("neyman", selections[0].parameters)
    signals = read_signals(view, parameters.directions, history)
    forecast = predict_failure(signals, labelled, 1 - outcome)
    predicted = Predicted.of(forecast, labelled)
    start, taught, share = 0, [], taught_share(len(labelled))
    for selection, places in zip(selections, before, strict=True):
        own = slice(start, start + len(selection))
        previous = Previous.of(labelled[places], outcome[places])
        lesson = Lesson(predicted.at[own], forecast.leverage[own], predicted.unlabelled(places), predicted.key)
        taught.append(_taught(view, selection, previous, history, lesson, share))
        start = own.stop
    return combine_taught(selections, outcomes, taught, share)


def taught_share(num: int) -> float:
    """λ of ``num`` labels: how far they are trusted to predict (:mod:`opacc_ray.estimators.taught`)."""
    return min(max((num - UNTAUGHT) / (TAUGHT - UNTAUGHT), 0.0), 1.0)


class Predicted(NamedTuple):
    """What is predicted of all examples, which the parts keep."""

    key: str
    total: int  # exact sum over the pool
    at: NDArray[np.float64]  # (k,) of the labelled examples

    @classmethod
    def of(cls, forecast: Forecast, labelled: NDArray[np.int64]) -> Self:
        """Let the parts predict every example once."""
        signals, key = forecast.signals, secrets.token_hex(8)
        total = signals.view.total(part_predict, key, signals.key, forecast.mixture)
        return cls(key, total, forecast.at(labelled))

    def unlabelled(self, labelled: NDArray[np.integer]) -> float:
        """The sum over the pool without these of the labelled examples."""
        return as_float(self.total - exact_sum(self.at[labelled]))


class Lesson(NamedTuple):
    """What all labels predict of the examples that were free when a round was drawn."""

    labelled: NDArray[np.float64]  # (n_t,) of its labels
    leverage: NDArray[np.float64]  # (n_t,)
    total: float
    key: str  # of all predictions, which the parts keep


def _taught(
    view: View, selection: Selection, previous: Previous, history: History, lesson: Lesson, share: float
) -> TaughtRound:
    """A round with λ of the lesson, λ the ``share``, and 1 - λ of the predictions that it was drawn by."""
    design = selection.design
    assert isinstance(design, InclusionProbability)
    unlabelled, chances, _ = neyman.allocate(
        view, Task(design.num_drawn, parse_parameters("neyman", selection.parameters), previous, history=history)
    )
    kept = len(selection) / design.num_drawn
    variance = as_float(view.total(part_variance, unlabelled.key, lesson.key, share, chances, kept)) / view.size**2
    return TaughtRound(
        share * lesson.labelled + (1 - share) * unlabelled.at(selection.index).p,
        share * lesson.leverage,
        share * lesson.total + (1 - share) * unlabelled.expected,
        variance,
    )


def part_predict(part: Pool, key: str, signals: str, mixture: Mixture) -> int:
    """Keep the predictions of a part, and return their exact sum."""
    predicted = mixture.failure(part_signals(part, signals))
    part_keep(part, _KEPT, key, predicted)
    return exact_sum(predicted)


def part_variance(part: Pool, key: str, predicted: str, share: float, chances: Chances, kept: float) -> int:
    """The exact sum, over a part's unlabelled examples, of the variance that the predictions foresee."""
    free = part_free(part, key)
    p = share * free.of(part_recall(part, _KEPT, predicted)) + (1 - share) * free.foreseen.p
    return exact_sum(p * (1 - p) * np.maximum(1 / (chances.of(free.foreseen) * kept) - 1, 0))
