"""The regression estimator of several adaptive rounds: predictions fitted to the labels of all of them.

The failure model is fitted to the labels of all rounds, and its predictions p replace those that each round was drawn
by, which are poor in the first ones. Round t then estimates, for the whole pool,

    z_t = (1/N) · [ Σ_before f + Σ_free p + Σ_batch (f - p)/π ]

    θ̂ = Σ_t w_t z_t        w_t ∝ 1/V_t,   V_t = N⁻² Σ_free p(1 - p)(1/π - 1)

with the sums over the examples that were free, not labelled yet, when the round was drawn: the generalised regression
estimator with a logistic model (R. Lehtonen, A. Veijanen, "Logistic generalized regression estimators", Survey
Methodology 24, 1998).

What is exact: if p were fixed before the labels, z_t would be unbiased for any p, and so would θ̂ with fixed weights.
They are not fixed: each label contributes to its own prediction; labels of later rounds, whose draw depends on those of
this one, contribute to p; and p decides V_t. The bias is measured, in ``docs/results/neyman.md``. ``rounds.py`` is
exactly unbiased. Predictions without each label's own fold (cross-fitting) have less bias and more variance: the errors
of a fitted model sum to nearly zero over what it was fitted to, which balances the sample once more.

A fit to few labels is too good: of some twenty, the failures that happened to be drawn decide what is predicted. So
with λ = (n - 12)/20, between 0 and 1, the predictions are λp + (1 - λ)p_t, with p_t those that round t was drawn by.
The weights are λw_t + (1 - λ) times those of ``rounds.py``. With a dozen labels the estimate is that of ``rounds.py``,
and from 32 on it is as above.

The correction of the predictions by the sample is often within its own noise. So the stated value is θ̂ moved towards
θ_p, what predictions and labels alone say of the pool, by

    λ · ½ · c · min(1, V/(θ̂ - θ_p)²)        V the variance of θ̂,  c = max(0, 1 - 2z²),  z = Σ(f - p)/√Σp(1 - p)

of the way, which is half a standard error at most. The interval stays where it was, so it covers as before. Where the
predictions are right, that halves the noise of the correction; ``docs/results/nearer.md`` has measurements. Σ over all
labels: a fit has z near 0, unless what was believed before the labels still holds its level. Such a level is wrong in
one direction, and the estimate does not follow it. Without c, random numbers for a confidence had 1.28 times the
squared error of a simple random sample instead of 1.09 (``docs/results/misled.md``).

A label that moves its own prediction by h, its leverage, has an error that is too small: of variance (1 - h) p(1 - p).
So variances are measured with errors over √(1 - h), as in linear regression (J. MacKinnon, H. White, Journal of
Econometrics 29, 1985: HC2).

Weights from V_t follow the predictions for the pool. Weights from the sample itself, such as 1/Σ_batch(1/π), are
biased, for they depend on which examples were drawn.

Legend: N pool, n labels, f = 1 - outcome, p predicted failure, π inclusion probability.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.difference_estimator import CombinedRounds, RoundEstimate
from opacc_ray.estimators.rounds import Outcome, known_outcomes, labelled_before, round_weights, shares_left
from opacc_ray.estimators.totals import Groups, GroupSums, PredictedEvidence, RoundLabels
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.parts.view import View
from opacc_ray.samplers import neyman, parse_parameters
from opacc_ray.samplers.base import Previous, Task, unlabelled
from opacc_ray.samplers.neyman.failure_model import predict_failure
from opacc_ray.samplers.neyman.sampling import signals_for
from opacc_ray.selection import Selection

Array = NDArray[np.float64]

_COMBINED = "share of failures by regression"

UNTRUSTED, TRUSTED = 12, 32
"""Numbers of labels at which λ is 0 and 1."""


class FittedRound(NamedTuple):
    """The predictions for one round, and the plan that it was drawn by."""

    before: NDArray[np.int64]  # sorted: it was drawn from the other examples
    failure: Array  # (k,) p of these
    odds: Array  # (k,) 1/π - 1
    labelled: Array  # (n_t,) p of each label
    leverage: Array  # (n_t,) h, in [0, 1)


class FittedSums(NamedTuple):
    """What the accuracy needs of a fitted round."""

    predicted: float  # Σp
    spread: float  # Σp(1 - p)(1/π - 1)
    labelled: Array  # (n_t,) p of each label
    leverage: Array  # (n_t,) h

    @classmethod
    def of(cls, part: FittedRound) -> Self:
        """Return the sums over the examples that the round was drawn from."""
        p = part.failure
        spread = 1 - p
        spread *= p
        spread *= part.odds
        return cls(float(p.sum()), float(spread.sum()), part.labelled, part.leverage)


class Fit(NamedTuple):
    """What the labels of all rounds teach about failures."""

    failure: Array  # (N,) p of every example
    trust: float  # λ
    rounds: Iterator[FittedRound]  # made one by one: each has numbers of every example


def uses_regression(selections: Sequence[Selection]) -> bool:
    """Return whether rounds were drawn to be combined by this estimator."""
    return all(
        type(part.design) is InclusionProbability and part.parameters.get("combine") == "labels" for part in selections
    )


def regression_estimate(
    view: View,
    selections: Sequence[Selection],
    outcomes: Sequence[Outcome],
    level: float,
    history: History = NO_HISTORY,
) -> Estimate:
    """Estimate the accuracy on a pool from one or more rounds of `neyman`, and the history that they started from.

    Raises LabelError if a round was drawn after labels that are not given.
    """
    return combine_by_regression(view, selections, outcomes, history).estimate(level)


def combine_by_regression(
    view: View, selections: Sequence[Selection], outcomes: Sequence[Outcome], history: History = NO_HISTORY
) -> CombinedRounds:
    """Estimate the share of failures in the pool; raises LabelError as :func:`regression_estimate`."""

    def combined() -> CombinedRounds:
        found = fit(view, selections, outcomes, history)
        return _combined(selections, outcomes, found, [FittedSums.of(part) for part in found.rounds])

    return view.once(_COMBINED, _key(selections, outcomes, history), combined)


def gather_evidence(
    view: View,
    selections: Sequence[Selection],
    outcomes: Sequence[Outcome],
    history: History,
    groups: Callable[[Array], Sequence[Groups]],
) -> list[PredictedEvidence]:
    """Return what the rounds say of each of several partitions of the pool, made from p (N,) of every example.

    The view keeps the share of failures in the pool, so that the accuracy needs no further fit. Raises LabelError as
    :func:`regression_estimate`.
    """
    found, before = fit(view, selections, outcomes, history), labelled_before(selections)
    partitions, labels, fitted = groups(found.failure), list[RoundLabels](), list[FittedSums]()
    sums: list[list[GroupSums]] = [[] for _ in partitions]
    start = 0
    for selection, places, part in zip(selections, before, found.rounds, strict=True):
        end, drawn_with = start + len(part.labelled), recorded(selection).probability
        labels.append(RoundLabels(slice(start, end), places, part.labelled, drawn_with, part.leverage))
        fitted.append(FittedSums.of(part))
        for own, into in zip(partitions, sums, strict=True):
            into.append(own.sums(part.before, part.failure, part.odds))
        start = end
    key = _key(selections, outcomes, history)
    view.once(_COMBINED, key, lambda: _combined(selections, outcomes, found, fitted))
    index, weights = np.concatenate([part.index for part in selections]), round_weights(selections)
    return [
        PredictedEvidence(own, own.sizes(), index, tuple(labels), tuple(found_sums), found.trust, weights)
        for own, found_sums in zip(partitions, sums, strict=True)
    ]


def _key(selections: Sequence[Selection], outcomes: Sequence[Outcome], history: History) -> Hashable:
    """Return all that decides a fit on a pool."""
    rounds = tuple(
        (part.index.tobytes(), np.asarray(own).tobytes()) for part, own in zip(selections, outcomes, strict=True)
    )
    return rounds, tuple(str(part.parameters) for part in selections), history


def fit(view: View, selections: Sequence[Selection], outcomes: Sequence[Outcome], history: History = NO_HISTORY) -> Fit:
    """Fit the failure model to all labels; raises LabelError if a round was drawn after labels that are not given.

    The plan of a round is made again, from today's labels, and as if this model had had all labels to itself. Only the
    weights of rounds depend on that: labels weigh by the probabilities that were recorded when they were drawn.
    """
    before = labelled_before(selections)
    labelled, outcome = np.concatenate([part.index for part in selections]), np.concatenate(outcomes)
    parameters = parse_parameters("neyman", selections[0].parameters)
    forecast = predict_failure(signals_for(view, parameters, history), labelled, 1 - outcome)
    predicted, share = forecast.failure, trusted_share(len(labelled))
    leverages = np.split(forecast.leverage, np.cumsum([len(part) for part in selections])[:-1])

    def rounds() -> Iterator[FittedRound]:
        for selection, places, leverage in zip(selections, before, leverages, strict=True):
            num, own = recorded(selection).num_drawn, parse_parameters("neyman", selection.parameters)
            task = Task(num, own, Previous.of(labelled[places], outcome[places]), history=history)
            yield _fitted(view, selection, task, predicted, leverage, share)

    return Fit(predicted, share, rounds())


def recorded(selection: Selection) -> InclusionProbability:
    """Return how a round of `neyman` was drawn."""
    assert isinstance(selection.design, InclusionProbability)
    return selection.design


def trusted_share(num: int) -> float:
    """Return λ of ``num`` labels: how far predictions that are fitted to them are trusted."""
    return min(max((num - UNTRUSTED) / (TRUSTED - UNTRUSTED), 0.0), 1.0)


def _fitted(
    view: View, selection: Selection, task: Task, predicted: Array, leverage: Array, share: float
) -> FittedRound:
    """Return a round with λ of what is ``predicted`` (N,), λ the ``share``, and 1 - λ of what it was drawn by."""
    plan = neyman.plan(view, task)
    p, odds, labelled = plan.failure[0], plan.probability, plan.labelled
    del plan  # its arrays are as long as the pool; two are overwritten, and the others gone
    p *= 1 - share
    p += share * unlabelled(predicted, labelled)
    odds *= len(selection) / task.budget
    places = selection.index - np.searchsorted(labelled, selection.index)
    np.divide(1, odds, out=odds)
    odds -= 1
    np.maximum(odds, 0, out=odds)
    return FittedRound(labelled, p, odds, p[places], share * leverage)


def _combined(
    selections: Sequence[Selection], outcomes: Sequence[Outcome], found: Fit, fitted: Sequence[FittedSums]
) -> CombinedRounds:
    """Return the share of failures in the whole pool."""
    trust = found.trust
    sure, before = known_outcomes(selections, outcomes), labelled_before(selections)
    failure, left = 1 - np.concatenate(outcomes), shares_left(selections)
    rounds, variances = list[RoundEstimate](), list[float]()
    for t, (selection, outcome, part) in enumerate(zip(selections, outcomes, fitted, strict=True)):
        design, error = selection.design, 1 - outcome - part.labelled
        variances.append(part.spread / sure.pool_size**2)
        mean = part.predicted / (left[t] * sure.pool_size) + float(design.mean(error))
        error /= np.sqrt(1 - part.leverage)
        rounds.append(RoundEstimate(mean, float(design.variance(error)), design.effects, part.labelled, error, True))
    weight = trust * weights_by_variance(variances) + (1 - trust) * round_weights(selections)
    known = np.array([float(failure[places].sum()) / sure.pool_size for places in before])
    value = float(weight @ (known + left * np.array([part.share for part in rounds])))
    index, once = np.unique(np.concatenate([part.index for part in selections]), return_index=True)
    predicted = float(found.failure.sum() + (failure[once] - found.failure[index]).sum()) / sure.pool_size
    return CombinedRounds(value, rounds, weight * left, sure, predicted, trust)


def weights_by_variance(variance: Sequence[float]) -> Array:
    """Return w (rounds,) in proportion to 1/V; a round with V = 0, which was not random, has all of it."""
    exact = np.array(variance) <= 0
    if exact.any():
        return exact / exact.sum()
    weight = 1 / np.array(variance)
    return weight / weight.sum()
