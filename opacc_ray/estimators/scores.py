"""Numbers that judge the model's confidence rather than its answers: Brier score, overconfidence and AUC.

All are linear in the failures f of single examples, or nearly. With c the confidence in the predicted class, the Brier
score of "this answer is right" and the overconfidence are, exactly,

    brier            mean of (1 - c)² + (2c - 1)·f               for two classes the usual score of the positive one
    overconfidence   mean of c - 1 + f                           mean confidence minus accuracy

The area under the ROC curve of class k, with scores s, is θ = P(s₊ > s₋) + ½·P(s₊ = s₋) for random examples of the
class and of the others. It is estimated in one step from the predictions q of the class: θ(q) plus the total over
labels of its influence function times their errors (J. Hájek's projection; E. DeLong and others, Biometrics 44, 1988),

    u = (F₋(s) - θ)/P₊ - (1 - F₊(s) - θ)/P₋       P₊, P₋ expected positives and negatives, F their scores' distributions

so its bias is of second order in the errors of q. The intervals are Wilson's, with Student's quantile
(:func:`opacc_ray.estimators.metrics.average_interval`); that of the overconfidence is normal.

Legend: N pool, f failure, c confidence, s score, q probability of the class.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BRIER, OVERCONFIDENCE, AUC = "brier", "overconfidence", "auc"
SCORES = (BRIER, OVERCONFIDENCE)
"""Those of all answers; AUC is of one class."""


class Linear(NamedTuple):
    """A number that is base + mean over the pool of coefficient · event."""

    base: float
    coefficient: Array  # (N,)
    lowest: float  # that it can be


def score_of(name: str, confidence: Array) -> Linear:
    """Return the Brier score or the overconfidence; the event is a failure."""
    if name == BRIER:
        return Linear(float(np.mean((1 - confidence) ** 2)), 2 * confidence - 1, 0.0)
    return Linear(float(confidence.mean()) - 1, np.ones(len(confidence)), -1.0)


def auc_of(confidence: Array, failure: Array, inside: NDArray[np.bool_]) -> Linear:
    """Return the AUC of one of two classes at the predicted ``failure`` p (N,), corrected by the labels.

    The event is a failure where the class is predicted (``inside``), and a missed example of it elsewhere. ``base`` is
    θ(q) without the predicted part of the total, so that the mean of coefficient · event completes it.
    """
    score, chance = np.where(inside, confidence, 1 - confidence), np.where(inside, 1 - failure, failure)
    order = np.argsort(score, kind="stable")
    ordered = score[order]
    edge = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    group = np.cumsum(np.concatenate([[True], ordered[1:] != ordered[:-1]])) - 1

    def below(weight: Array) -> Array:  # middle distribution function at every score
        total = np.add.reduceat(weight[order], edge)
        middle = np.cumsum(total) - total / 2
        found = np.empty(len(score))
        found[order] = (middle / max(float(weight.sum()), 1e-300))[group]
        return found

    positive, negative = max(float(chance.sum()), 1e-300), max(float((1 - chance).sum()), 1e-300)
    under, over = below(1 - chance), 1 - below(chance)
    theta = float(chance @ under) / positive
    slope = (under - theta) / positive - (over - theta) / negative
    coefficient = np.where(inside, -slope, slope) * len(score)
    expected = np.where(inside, 1 - chance, chance)
    return Linear(theta - float(np.mean(coefficient * expected)), coefficient, 0.0)
