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

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.accuracy_estimate import Outcome
from opacc_ray.estimators.difference_estimator import CombinedRounds, RoundEstimate
from opacc_ray.estimators.rounds import known_outcomes, labelled_before, round_weights, shares_left
from opacc_ray.selection import Selection

Array = NDArray[np.float64]


class TaughtRound(NamedTuple):
    """What the predictions say of one round."""

    labelled: Array  # (n_t,) p of each label
    leverage: Array  # (n_t,) h, in [0, 1)
    total: float  # Σ_free p
    variance: float  # V_t


def combine_taught(
    selections: Sequence[Selection], outcomes: Sequence[Outcome], taught: Sequence[TaughtRound], share: float = 1.0
) -> CombinedRounds:
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
    sure, before = known_outcomes(selections, outcomes), labelled_before(selections)
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
        rounds.append(RoundEstimate(share, variance, design.effects, part.labelled, 1 - outcome, error, True))
        value += weight[t] * (float(failure[before[t]].sum()) / sure.pool_size + left[t] * share)
    return CombinedRounds(value, rounds, weight * left, sure)


def weights_by_variance(variance: Sequence[float]) -> Array:
    """w (rounds,) in proportion to 1/V; a round with V = 0, which left nothing to chance, has all of it."""
    exact = np.array(variance) <= 0
    if exact.any():
        return exact / exact.sum()
    weight = 1 / np.array(variance)
    return weight / weight.sum()
