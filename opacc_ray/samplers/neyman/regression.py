"""Rounds combined by predictions that all labels have taught: the estimate of several adaptive rounds.

The failure model is fitted to the labels of all rounds, and its predictions p take the place of those that each round
was drawn by, which are poor in the first ones. Round t then says of the whole pool

    z_t = (1/N) · [ Σ_before f + Σ_free p + Σ_batch (f - p)/π ]

    θ̂ = Σ_t w_t z_t        w_t ∝ 1/V_t,   V_t = N⁻² Σ_free p(1 - p)(1/π - 1)

with the sums over the examples that were free, not labelled yet, when the round was drawn: the generalised regression
estimator with a logistic model (R. Lehtonen, A. Veijanen, "Logistic generalized regression estimators", Survey
Methodology 24, 1998).

What is exact: if p were fixed before the labels, z_t would be unbiased whatever it is, and so would θ̂ with fixed
weights. They are not fixed: each label has a part in its own prediction, labels of later rounds, whose draw depends on
those of this one, teach p, and p decides V_t. The bias is measured, in ``docs/results/neyman.md``. ``rounds.py`` is
exactly unbiased. Predictions without each label's own fold (cross-fitting) have less of a bias and more variance: the
errors of a fitted model sum to nearly zero over what it was fitted to, which balances the sample once more.

Few labels teach too much: of some twenty, the failures that happened to be met decide what is predicted, and the
estimate is too good. So with λ = (n - 12)/20, between 0 and 1, the predictions are λp + (1 - λ)p_t, with p_t those that
round t was drawn by, and the weights λw_t + (1 - λ) times those of ``rounds.py``: with a dozen labels the estimate is
that of ``rounds.py``, and from 32 on all is as above.

A label that moves its own prediction by h, its leverage, has an error that is too small: of variance (1 - h) p(1 - p).
So variances are measured with errors over √(1 - h), as in linear regression (J. MacKinnon, H. White, Journal of
Econometrics 29, 1985: HC2).

Weights from V_t follow what the predictions say of the pool; those from the sample itself, such as 1/Σ_batch(1/π), are
biased, for they depend on which examples were drawn.

Legend: N pool, n labels, f = 1 - outcome, p predicted failure, π inclusion probability.
"""

import secrets
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.difference import Combined, Round
from opacc_ray.estimators.rounds import known, labelled_before, round_weights, shares_left
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.parts.cache import part_keep, part_recall, repeat_if_forgotten
from opacc_ray.parts.sums import as_float, exact_sum
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import Previous, Task
from opacc_ray.samplers.neyman.failure_model import Forecast, Mixture, predict_failure, read_signals
from opacc_ray.samplers.neyman.inclusion import Chances, part_free
from opacc_ray.samplers.neyman.signals import part_signals
from opacc_ray.samplers.select import parse_parameters
from opacc_ray.selection import Selection

Array = NDArray[np.float64]

UNTAUGHT, TAUGHT = 12, 32
"""Numbers of labels at which λ is 0 and 1."""

_KEPT = "taught prediction"


class TaughtRound(NamedTuple):
    """What the predictions say of one round."""

    labelled: Array  # (n_t,) p of each label
    leverage: Array  # (n_t,) h, in [0, 1)
    total: float  # Σ_free p
    variance: float  # V_t


def combine_taught(
    selections: Sequence[Selection], outcomes: Sequence[Outcome], taught: Sequence[TaughtRound], share: float = 1.0
) -> Combined:
    """The share of failures in the whole pool, from rounds whose designs have inclusion probabilities.

    Parameters
    ----------
    selections, outcomes : rounds of one pool in their order, and (n_t,) outcomes of each
    taught : of each round
    share : λ of these weights, and 1 - λ of those of ``rounds.py``

    Raises
    ------
    LabelError
        If the rounds are of different pools, or a round was drawn when labels were there that are not given.
    """
    sure, before = known(selections, outcomes), labelled_before(selections)
    failure = 1 - np.concatenate(outcomes)
    left = shares_left(selections)
    by_variance = weights_by_variance([part.variance for part in taught])
    weight = share * by_variance + (1 - share) * round_weights(selections)
    rounds, value = [], 0.0
    for t, (selection, outcome, part) in enumerate(zip(selections, outcomes, taught, strict=True)):
        design, error = selection.design, 1 - outcome - part.labelled
        share = part.total / (left[t] * sure.pool_size) + float(design.mean(error))
        error /= np.sqrt(1 - part.leverage)
        variance = float(design.variance(error))
        rounds.append(Round(share, variance, design.effects, part.labelled, 1 - outcome, error, True))
        value += weight[t] * (float(failure[before[t]].sum()) / sure.pool_size + left[t] * share)
    return Combined(value, rounds, weight * left, sure)


def weights_by_variance(variance: Sequence[float]) -> Array:
    """w (rounds,) in proportion to 1/V; a round with V = 0, which left nothing to chance, has all of it."""
    exact = np.array(variance) <= 0
    if exact.any():
        return exact / exact.sum()
    weight = 1 / np.array(variance)
    return weight / weight.sum()


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
    """λ of ``num`` labels: how far they are trusted to predict ."""
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
