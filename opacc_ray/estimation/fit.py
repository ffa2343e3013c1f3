"""Fit the failures to the labels of all rounds: the predictions of the regression estimator.

The failure model is fitted to the labels of all rounds, and its predictions p replace those that each round was drawn
by, which are poor in the first ones. Round t then estimates, for the whole pool,

    z_t = (1/N) · [ Σ_before f + Σ_free p + Σ_batch (f - p)/π ]

    θ̂ = Σ_t w_t z_t        w_t ∝ 1/V_t,   V_t = N⁻² Σ_free p(1 - p)(1/π - 1)

with the sums over the examples that were free, not labelled yet, when the round was drawn: the generalised regression
estimator with a logistic model (R. Lehtonen, A. Veijanen, "Logistic generalized regression estimators", Survey
Methodology 24, 1998).

What is exact: if p were fixed before the labels, z_t would be unbiased for any p, and so would θ̂ with fixed weights.
They are not fixed: each label contributes to its own prediction; labels of later rounds, whose draw depends on those of
this one, contribute to p; and p decides V_t. The bias is measured, in ``docs/results/neyman.md``. Rounds without a fit
are exactly unbiased. Predictions without each label's own fold (cross-fitting) have less bias and more variance: the
errors of a fitted model sum to nearly zero over what it was fitted to, which balances the sample once more.

A fit to few labels is too good: of some twenty, the failures that happened to be drawn decide what is predicted. So
with λ = (n - 12)/20, between 0 and 1, the predictions are λp + (1 - λ)p_t, with p_t those that round t was drawn by.
The weights are λw_t + (1 - λ) times those of :mod:`opacc_ray.estimation.sample`. With a dozen labels the estimate is
that of rounds without a fit, and from 32 on it is as above.

A label that moves its own prediction by h, its leverage, has an error that is too small: of variance (1 - h) p(1 - p).
So variances are measured with errors over √(1 - h), as in linear regression (J. MacKinnon, H. White, Journal of
Econometrics 29, 1985: HC2).

Weights from V_t follow the predictions for the pool. Weights from the sample itself, such as 1/Σ_batch(1/π), are
biased, for they depend on which examples were drawn.

Legend: N pool, n labels, f = 1 - outcome, p predicted failure, π inclusion probability.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.estimation.constants import TRUSTED, UNTRUSTED
from opacc_ray.estimation.sample import Sample
from opacc_ray.parts.view import View
from opacc_ray.samplers import neyman, parse_parameters
from opacc_ray.samplers.base import Previous, Task, unlabelled
from opacc_ray.samplers.neyman.failure_model import predict_failure
from opacc_ray.samplers.neyman.sampling import signals_for
from opacc_ray.selection import Selection

Array = NDArray[np.float64]


class FittedRound(NamedTuple):
    """The predictions for one round, and the plan that it was drawn by."""

    before: NDArray[np.int64]  # sorted: it was drawn from the other examples
    failure: Array  # (k,) p of these
    odds: Array  # (k,) 1/π - 1
    labelled: Array  # (n_t,) p of each label
    leverage: Array  # (n_t,) h, in [0, 1)


@dataclass(frozen=True, eq=False)
class Fit:
    """What the labels of all rounds teach about failures."""

    view: View
    sample: Sample
    failure: Array  # (N,) p of every example
    leverage: Array  # (n,) h
    trust: float  # λ

    def rounds(self) -> Iterator[FittedRound]:
        """Yield each round, one by one: each has numbers of every example.

        The plan of a round is made again, from today's labels, and as if this model had had all labels to itself. Only
        the weights of rounds depend on that: labels weigh by the probabilities that were recorded when they were drawn.
        """
        rounds, sample = self.sample.rounds, self.sample
        for selection, part in zip(rounds.selections, rounds.parts, strict=True):
            previous = Previous.of(rounds.index[part.before], sample.outcome[part.before])
            parameters = parse_parameters("neyman", selection.parameters)
            task = Task(recorded(selection).num_drawn, parameters, previous, history=sample.history)
            yield self._round(selection, task, self.trust * self.leverage[part.places])

    def _round(self, selection: Selection, task: Task, leverage: Array) -> FittedRound:
        """Return a round with λ of what is fitted, and 1 - λ of what it was drawn by."""
        plan = neyman.plan(self.view, task)
        p, odds, labelled = plan.failure[0], plan.probability, plan.labelled
        del plan  # its arrays are as long as the pool; two are overwritten, and the others gone
        p *= 1 - self.trust
        p += self.trust * unlabelled(self.failure, labelled)
        odds *= len(selection) / task.budget
        places = selection.index - np.searchsorted(labelled, selection.index)
        np.divide(1, odds, out=odds)
        odds -= 1
        np.maximum(odds, 0, out=odds)
        return FittedRound(labelled, p, odds, p[places], leverage)

    @property
    def by_predictions(self) -> float:
        """The share of failures that predictions and labels alone state."""
        first, failure = self.sample.rounds.first, self.sample.failure
        index = self.sample.rounds.index[first]
        return float(self.failure.sum() + (failure[first] - self.failure[index]).sum()) / len(self.failure)


def uses_regression(selections: Sequence[Selection]) -> bool:
    """Return whether rounds were drawn to be combined by this estimator."""
    return all(
        type(part.design) is InclusionProbability and part.parameters.get("combine") == "labels" for part in selections
    )


def fit_failures(view: View | None, sample: Sample) -> Fit | None:
    """Fit the failure model to all labels; None where the design alone speaks, or without the pool."""
    if view is None or not uses_regression(sample.rounds.selections):
        return None
    parameters = parse_parameters("neyman", sample.rounds.selections[0].parameters)
    signals = signals_for(view, parameters, sample.history)
    forecast = predict_failure(signals, sample.rounds.index, sample.failure)
    return Fit(view, sample, forecast.failure, forecast.leverage, trusted_share(len(sample.outcome)))


def recorded(selection: Selection) -> InclusionProbability:
    """Return how a round of `neyman` was drawn."""
    assert isinstance(selection.design, InclusionProbability)
    return selection.design


def trusted_share(num: int) -> float:
    """Return λ of ``num`` labels: how far predictions that are fitted to them are trusted."""
    return min(max((num - UNTRUSTED) / (TRUSTED - UNTRUSTED), 0.0), 1.0)
