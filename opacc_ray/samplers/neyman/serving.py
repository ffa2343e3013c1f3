"""Draw for the number that is asked: how much each example's outcome moves a metric, a class or a slice.

A metric g of totals T_k moves with an example by u = Σ_k ∂g/∂T_k · v_k, so the best probabilities are in proportion to
the standard deviation of u given what is known of the example. With p its predicted failure, and each other class
equally likely where it fails:

    served                  standard deviation σ_m of u
    accuracy                √(p(1 - p))
    metric of class c       |∂g/∂TP|·√(p(1 - p)) where c is predicted, |∂g/∂FN|·√(q(1 - q)) elsewhere, q = p/(C - 1)
    average over classes    √(p·s - p²·m²), m and s the mean and mean square of W(k, ŷ) over the classes k ≠ ŷ
    brier, rankings         |coefficient|·√(p(1 - p)), with the coefficient of the failure in the number
    prediction, a slice     √(p(1 - p))/Σ_S √(p(1 - p)): as many labels in every slice, so that none is the worst
    truth                   as the metric of each class, their variances added

with g at the totals that the predictions give (:mod:`opacc_ray.metrics.metric`). For F1 = F these are the factors 2
- F where c is predicted and F elsewhere.

Where all examples that are predicted as the class take a tenth of the labels or less, all are drawn: their part of the
metric is then known.

Where a class is rare, most of its examples are among very many others, each unlikely. There a mixture of experts
overstates p: one that is slightly wrong about 100,000 examples predicts a hundred failures. So if the model itself
states that fewer than RARE of the pool are of a served class, p is its stated confidence alone, recalibrated by labels.
Of what probabilities in proportion to σ give, most labels then go to the many, and an example that is likely of the
class is met by luck. So a share of each batch goes to the largest σ_m for certain, as large as the price of worthless
predictions allows (:func:`opacc_ray.samplers.neyman.sampling.sure_share`).

Legend: p predicted failure, C classes, ŷ predicted class, N_S size of a slice, W as in ``metrics.py``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import SpecError
from opacc_ray.metrics.metric import ACCURACY, AVERAGES, Metric, Parts, misprediction_weights, parse_metric, slopes
from opacc_ray.metrics.scores import CALIBRATION, RANKINGS, SCORES, Linear, ranking_of, score_of
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import unlabelled
from opacc_ray.samplers.neyman.signals import Signals
from opacc_ray.slices import BY_PREDICTION, BY_TRUTH

Array = NDArray[np.float64]
Codes = NDArray[np.integer]

"""Serve the accuracy of every predicted class, and the recall of every true one."""

RARE = 0.02
"""Share of a class, as the model states it, below which its stated confidence alone predicts failures."""


class Served(NamedTuple):
    """What one number is to the examples that can be drawn, (n,)."""

    deviation: Array  # σ_m, up to a factor
    effect: Array | None = None  # by how much an outcome moves the number, up to a factor; None: equally
    part: NDArray[np.bool_] | None = None  # a part to be labelled wholly if that is cheap: then the rest decides


class Pieces(NamedTuple):
    """What is known of a pool when a number is served."""

    view: View
    signals: Signals
    labelled: NDArray[np.int64]  # (k,)
    failure: Array  # (k,) f
    p: Array  # (n,) of the other examples

    @property
    def classes(self) -> Codes:
        """(N,) predicted class."""
        if self.signals.classes is None:
            raise SpecError("a metric of classes is served, and the pool predicts none; give Pool(prediction=…)")
        return self.signals.classes

    def free(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return those of ``values`` (N,) that belong to examples without a label, (n,)."""
        return unlabelled(values, self.labelled)

    @property
    def deviation(self) -> Array:
        """(n,) √(p(1 - p))."""
        found = 1 - self.p
        found *= self.p
        return np.sqrt(found, out=found)

    @property
    def rivals(self) -> int:
        """Classes other than the predicted one; at least 1."""
        return max(self.signals.num_classes - 1, 1)

    def slopes(self, metric: Metric, classes: Sequence[int]) -> tuple[Array, Array]:
        """Return the derivatives of the mean metric of some classes by TP and by FN of each, (k,).

        TP and FN are as known or predicted. Class -1 is one that is never predicted.
        """
        num, total = self.signals.num_classes, self.signals.size
        known = np.bincount(self.classes[self.labelled], weights=self.failure, minlength=num).astype(np.float64)
        failed = known + np.bincount(self.free(self.classes), weights=self.p, minlength=num)
        size, own = (np.append(values, 0.0)[classes] for values in (np.bincount(self.classes, minlength=num), failed))
        tp, fn = np.maximum(size - own, 0), (failed.sum() - own) / self.rivals
        return slopes(metric, tp, fn, Parts(size, total - size))[1:]


def serve(numbers: Sequence[str], known: Pieces) -> list[Served]:
    """Return what each of the ``numbers`` is to the examples that can be drawn.

    Raises SpecError for a number that there is not, or that needs classes. Classes are named by their places.
    """
    return [_serve(name, known) for name in numbers]


def is_rare(numbers: Sequence[str], view: View, signals: Signals) -> bool:
    """Return whether the model states a share below RARE for the class of one of the numbers."""
    metrics = [parse_metric(name) for name in numbers if "@" in name]
    if not metrics or "confidence" not in view.fields:
        return False
    doubt = 1 - view.column("confidence")
    return min(_stated_share(_place(metric, signals), signals, doubt) for metric in metrics) < RARE


def _stated_share(c: int, signals: Signals, doubt: Array) -> float:
    inside = np.zeros(signals.size, dtype=bool) if signals.classes is None else signals.classes == c
    elsewhere = float(doubt[~inside].sum()) / max(signals.num_classes - 1, 1)
    return (float((1 - doubt[inside]).sum()) + elsewhere) / signals.size


def _serve(name: str, known: Pieces) -> Served:
    if name in (ACCURACY, CALIBRATION):  # a calibration error is a sum of accuracies, up to signs
        return Served(known.deviation)
    if name in SCORES:
        return _linear(score_of(name, known.view.column("confidence")), known)
    if "@" in name:
        metric = parse_metric(name)
        c = _place(metric, known.signals)
        return _linear(_ranking(metric, c, known), known) if metric.name in RANKINGS else _of_class(metric, c, known)
    if name == BY_TRUTH:
        return _of_every_class(Metric("recall"), known)
    if name in AVERAGES:
        return _of_average(Metric(name), known)
    codes = known.classes if name == BY_PREDICTION else known.view.slicing(name).codes
    here = known.free(codes)
    whole = known.deviation
    least = np.bincount(here, weights=whole)[here]
    return Served(whole / least, 1 / np.bincount(codes)[here])


def _linear(number: Linear, known: Pieces) -> Served:
    effect = np.abs(known.free(number.coefficient))
    return Served(known.deviation * effect, effect)


def _ranking(metric: Metric, c: int, known: Pieces) -> Linear:
    """Return AUC or average precision of one of two classes at what is known or predicted of every example."""
    failure = np.empty(known.signals.size)
    failure[known.free(np.arange(len(failure)))] = known.p
    failure[known.labelled] = known.failure
    return ranking_of(metric.name, known.view.column("confidence"), failure, known.classes == c)


def _of_class(metric: Metric, c: int, known: Pieces) -> Served:
    """Return what a metric of class ``c`` is to the examples; -1: of a class that is never predicted."""
    inside = known.free(known.classes) == c
    [by_tp], [by_fn] = known.slopes(metric, [c])
    effect = np.where(inside, abs(by_tp), abs(by_fn))
    q = np.where(inside, known.p, known.p / known.rivals)
    return Served(np.sqrt(q * (1 - q)) * effect, effect, inside)


def _of_every_class(metric: Metric, known: Pieces) -> Served:
    """Return what the metrics of all predicted classes are, their variances added."""
    by_tp, by_fn = (own**2 for own in known.slopes(metric, range(known.signals.num_classes)))
    classes, p, q = known.free(known.classes), known.p, known.p / known.rivals
    others = (by_fn.sum() - by_fn)[classes]
    return Served(np.sqrt(by_tp[classes] * p * (1 - p) + others * q * (1 - q)), np.sqrt(by_tp[classes] + others))


def _of_average(metric: Metric, known: Pieces) -> Served:
    """Return what an average over all predicted classes is."""
    classes = known.free(known.classes)
    weight = misprediction_weights(*known.slopes(metric, range(known.signals.num_classes)))
    mean, square = weight.sum(axis=0) / known.rivals, (weight**2).sum(axis=0) / known.rivals
    variance = known.p * square[classes] - (known.p * mean[classes]) ** 2
    return Served(np.sqrt(np.maximum(variance, 0)), np.sqrt(square)[classes])


def _place(metric: Metric, signals: Signals) -> int:
    """Return the place of a metric's class among those that are predicted; -1 if it never is."""
    names = np.empty(0) if signals.names is None else signals.names
    found = np.flatnonzero(names == float(metric.positive or 0))
    return int(found[0]) if len(found) else -1
