"""Numbers that judge the model's confidence rather than its answers: Brier score, calibration, AUC, average precision.

All are linear in the failures f of single examples, or nearly. With c the confidence in the predicted class, the Brier
score of "this answer is right" and the overconfidence are, exactly,

    brier            mean of (1 - c)² + (2c - 1)·f               for two classes the usual score of the positive one
    overconfidence   mean of c - 1 + f                           mean confidence minus accuracy

The area under the ROC curve of class k, with scores s, is θ = P(s₊ > s₋) + ½·P(s₊ = s₋) for random examples of the
class and of the others. It is estimated in one step from the predictions q of the class: θ(q) plus the total over
labels of its influence function times their errors (J. Hájek's projection; E. DeLong and others, Biometrics 44, 1988),

    u = (F₋(s) - θ)/P₊ - (1 - F₊(s) - θ)/P₋       P₊, P₋ expected positives and negatives, F their scores' distributions

so its bias is of second order in the errors of q. So q is what labels show: it is known for examples with a label.
Elsewhere the failure model predicts it, or the labels of similar confidence where a design has none
(:func:`failures_along`). The average precision, the mean over the class of the precision among all examples with at
least the same score, is estimated likewise. With T and R the positives and the examples of at least the score s, and B
the sum of q/R over the others of at most s,

    θ(q) = Σ q·(1 + T - q)/R / P₊        u = ((1 + T - q)/R + B - θ)/P₊

The calibration error is Σ w_b·|d_b| over BINS parts of equal width of [0, 1], of known sizes w_b, with d_b the mean
confidence less the accuracy (C. Guo and others, "On calibration of modern neural networks", ICML 2017). The plain Σ
w·|d̂| is too large, by up to .80 standard errors s of each d̂, and no estimate of |d| is unbiased: it has a corner. What
is stated is

    Σ w·( |d̂| - 2·s·φ(d̂/s) )        φ the normal density

Where d̂ is normal each term has a bias of +.23·s for d = 0, of -.28·s or less elsewhere, most for d = ±1.2·s, and
none for large d: half of that of correcting |d̂| by its expected excess. Whatever the signs of d are, the plain one
exceeds the true one less a normal error of variance σ² = Σ w²·s², and by no more than Σ w·|e|, with e the noise. The
overconfidence is a lower bound. So

    upper    Σ w·|d̂| + z(α/2)·σ
    lower    max( Σ w·|d̂| - quantile of Σ w·|e|, |Σ w·d̂| - z(α/4)·σ )        both at α/4

are the ends of its interval. A number whose coefficients are 0 or more, such as a Brier score with c >= ½, has the
interval of its total, which is 0 without a failure. The others are Wilson's, with Student's quantile
(:func:`opacc_ray.estimation.class_totals.average_interval`) of n - 1 degrees of freedom, or those of the total where it
has fewer: by the design alone those of F. E. Satterthwaite (:mod:`opacc_ray.estimation.design_numbers`). Their ends are
moved outward by half an event, of the size Σ a²/Σ|a| by the effects a of events in that direction: a sample without one
of the few large ones has a number, and a variance, that are too small. The interval of the overconfidence is the
accuracy's.

Legend: N pool, f failure, c confidence, s score, q probability of the class.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

LABELS_PER_RUN = 10
"""Labels that show how often examples of similar confidence fail."""

BRIER, OVERCONFIDENCE, CALIBRATION = "brier", "overconfidence", "calibration_error"
SCORES = (BRIER, OVERCONFIDENCE, CALIBRATION)
"""Those of all answers."""

AUC, AVERAGE_PRECISION = "auc", "average_precision"
RANKINGS = (AUC, AVERAGE_PRECISION)
"""Those of one class, whose score the confidence is."""

BINS = 10
"""Parts of [0, 1] by which the calibration error groups confidences."""


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


def ranking_of(name: str, confidence: Array, failure: Array, inside: NDArray[np.bool_]) -> Linear:
    """Return AUC or average precision of one of two classes at the predicted ``failure`` p (N,), corrected by labels.

    The event is a failure where the class is predicted (``inside``), and a missed example of it elsewhere. ``base`` is
    θ(q) without the predicted part of the total, so that the mean of coefficient · event completes it.
    """
    chance = np.where(inside, 1 - failure, failure)
    order = _Ordered.of(np.where(inside, confidence, 1 - confidence))
    theta, slope = (_auc if name == AUC else _average_precision)(chance, order)
    coefficient = np.where(inside, -slope, slope) * len(chance)
    expected = np.where(inside, 1 - chance, chance)
    return Linear(theta - float(np.mean(coefficient * expected)), coefficient, 0.0)


def failures_along(confidence: Array, inside: NDArray[np.bool_], index: Codes, failure: Array, weight: Array) -> Array:
    """Return failures p (N,) by what labels show of similar confidences, inside and outside of the class.

    Runs of LABELS_PER_RUN labels or more, in the order of the confidence, have the mean of their ``failure`` (n,) by
    ``weight`` (n,) and of that of all labels, which counts as one.
    """
    found, weight = np.empty(len(confidence)), np.maximum(weight, 0)
    weight = weight * len(weight) / max(float(weight.sum()), 1e-300)
    common = float(weight @ failure) / len(weight)
    for part in (inside, ~inside):
        own = np.flatnonzero(part[index])
        own = own[np.argsort(confidence[index[own]], kind="stable")]
        runs = np.array_split(own, max(len(own) // LABELS_PER_RUN, 1))
        rate = [(common + float(weight[run] @ failure[run])) / (1 + float(weight[run].sum())) for run in runs]
        after = [confidence[index[run[0]]] for run in runs[1:]]
        found[part] = np.array(rate)[np.searchsorted(after, confidence[part], side="right")]
    return found


class _Ordered(NamedTuple):
    """Examples by score, equal ones together."""

    order: NDArray[np.int64]  # (N,) ascending
    edge: NDArray[np.int64]  # (k,) first of each run of equal scores
    group: NDArray[np.int64]  # (N,) run of each, in that order

    @classmethod
    def of(cls, score: Array) -> Self:
        order = np.argsort(score, kind="stable")
        ordered = score[order]
        first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        return cls(order, np.flatnonzero(first), np.cumsum(first) - 1)

    def below(self, weight: Array, own: float) -> Array:
        """Return the ``weight`` (N,) of the examples with a lower score, and a share ``own`` of that with the same."""
        total = np.add.reduceat(weight[self.order], self.edge)
        found = np.empty(len(weight))
        found[self.order] = (np.cumsum(total) - (1 - own) * total)[self.group]
        return found


def _auc(chance: Array, order: _Ordered) -> tuple[float, Array]:
    """Return θ(q) and u (N,) of the area under the curve."""
    positive, negative = max(float(chance.sum()), 1e-300), max(float((1 - chance).sum()), 1e-300)
    under, over = order.below(1 - chance, 0.5) / negative, 1 - order.below(chance, 0.5) / positive
    theta = float(chance @ under) / positive
    return theta, (under - theta) / positive - (over - theta) / negative


def _average_precision(chance: Array, order: _Ordered) -> tuple[float, Array]:
    """Return θ(q) and u (N,) of the average precision."""
    positive = max(float(chance.sum()), 1e-300)
    num = len(chance) - order.below(np.ones(len(chance)), 0.0)  # R
    precision = (1 + chance.sum() - order.below(chance, 0.0) - chance) / num
    theta = float(chance @ precision) / positive
    return theta, (precision + order.below(chance / num, 1.0) - chance / num - theta) / positive


def bins_of(confidence: Array) -> NDArray[np.int64]:
    """Return the bin of each confidence, 0 .. BINS - 1."""
    return np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
