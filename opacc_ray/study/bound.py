"""Lower bound on the variance of any unbiased design, by V. P. Godambe and V. M. Joshi (AMS 36, 1965).

If every example fails with a probability p_i of its own, an unbiased estimate from n labels has at least the variance

    (1/N²) · Σ_i σ_i² (1/π_i - 1)         σ_i² = p_i (1 - p_i),   π_i ∝ σ_i, at most 1,   Σ π_i = n

on average over the outcomes. Here p is the prediction of `neyman`'s failure model, fitted to *all* outcomes of the
case. So no method that uses these features through this model can do better; one with a better model may. For scores
the model predicts the mean and not the variance, and there is no bound.

Legend: N pool, n labels, p probability of failure, π inclusion probability.
"""

from collections.abc import Iterable

import numpy as np

from opacc_ray.designs.inclusion_probability import inclusion_probabilities
from opacc_ray.estimators.rounds import Outcome, is_binary
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.parts.view import View
from opacc_ray.samplers import neyman
from opacc_ray.samplers.neyman.failure_model import predict_failure, read_signals


def least_variance(
    view: View, outcome: Outcome, budgets: Iterable[int], history: History = NO_HISTORY
) -> dict[int, float]:
    """Return the bound for each budget, for methods that use a ``history``; none if outcomes (N,) are scores."""
    if not is_binary(outcome):
        return {}
    signals = read_signals(view, neyman.Parameters().directions, history)
    p = predict_failure(signals, np.arange(view.size), 1 - outcome).failure
    variance = p * (1 - p)  # (N,)
    bound = {}
    for budget in budgets:
        probability = inclusion_probabilities(np.sqrt(variance), budget)
        bound[budget] = float(variance @ (1 / probability - 1)) / view.size**2
    return bound
