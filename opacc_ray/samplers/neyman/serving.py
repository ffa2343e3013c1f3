"""Draw for the number that is asked: how much each example's outcome moves a metric, a class or a slice.

A metric g of totals T_k moves with an example by u = Σ_k ∂g/∂T_k · v_k, so the best probabilities are in proportion to
the standard deviation of u given what is known of the example. With p its predicted failure, and each other class
equally likely where it fails:

    served                  standard deviation σ_m of u
    accuracy                √(p(1 - p))
    metric of class c       |∂g/∂TP|·√(p(1 - p)) where c is predicted, |∂g/∂FN|·√(q(1 - q)) elsewhere, q = p/(C - 1)
    average over classes    √(p·s - p²·m²), m and s the mean and mean square of W(k, ŷ) over the classes k ≠ ŷ
    brier, auc              |coefficient|·√(p(1 - p)), with the coefficient of the failure in the number
    prediction, a slice     √(p(1 - p))/Σ_S √(p(1 - p)): as many labels in every slice, so that none is the worst
    truth                   as the metric of each class, their variances added

with g at the totals that the predictions give (:mod:`opacc_ray.estimators.metrics`). For F1 = F these are the factors 2
- F where c is predicted and F elsewhere.

Where all examples that are predicted as the class take a tenth of the labels or less, all are drawn: their part of the
metric is then known.

Where a class is rare, most of its examples are among very many others, each unlikely. There a mixture of experts
overstates p: one that is slightly wrong about 100,000 examples predicts a hundred failures. So if the model itself
states that fewer than RARE of the pool are of a served class, p is its stated confidence alone, recalibrated by labels.

Legend: p predicted failure, C classes, ŷ predicted class, N_S size of a slice, W as in ``metrics.py``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import SpecError
from opacc_ray.estimators.metrics import ACCURACY, AVERAGES, Metric, Parts, Totals, average, parse_metric
from opacc_ray.estimators.scores import AUC, SCORES, Linear, auc_of, score_of
from opacc_ray.parts.view import View
from opacc_ray.samplers.neyman.signals import Signals, pool_signals

Array = NDArray[np.float64]
Codes = NDArray[np.integer]

PREDICTION, TRUTH = "prediction", "truth"
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
    free: NDArray[np.int64]  # (n,) the other examples
    p: Array  # (n,)

    @property
    def classes(self) -> Codes:
        """(N,) predicted class."""
        if self.signals.classes is None:
            raise SpecError("a metric of classes is served, and the pool predicts none; give Pool(prediction=…)")
        return self.signals.classes

    @property
    def rivals(self) -> int:
        """Classes other than the predicted one; at least 1."""
        return max(self.signals.num_classes - 1, 1)

    def failed(self) -> Array:
        """Return the failures of each predicted class, (C,), as known or predicted."""
        num = self.signals.num_classes
        known = np.bincount(self.classes[self.labelled], weights=self.failure, minlength=num).astype(np.float64)
        return known + np.bincount(self.classes[self.free], weights=self.p, minlength=num)


def serve(numbers: Sequence[str], known: Pieces) -> list[Served]:
    """Return what each of the ``numbers`` is to the examples that can be drawn.

    Raises SpecError for a number that there is not, or that needs classes. Classes are named by their places.
    """
    return [_serve(name, known) for name in numbers]


def is_rare(numbers: Sequence[str], view: View) -> bool:
    """Return whether the model states a share below RARE for the class of one of the numbers."""
    metrics = [parse_metric(name) for name in numbers if "@" in name]
    if not metrics or "confidence" not in view.fields:
        return False
    signals = pool_signals(view, 0)
    doubt = 1 - view.column("confidence")
    return min(_stated_share(_place(metric, signals), signals, doubt) for metric in metrics) < RARE


def _stated_share(c: int, signals: Signals, doubt: Array) -> float:
    inside = np.zeros(signals.size, dtype=bool) if signals.classes is None else signals.classes == c
    elsewhere = float(doubt[~inside].sum()) / max(signals.num_classes - 1, 1)
    return (float((1 - doubt[inside]).sum()) + elsewhere) / signals.size


def _serve(name: str, known: Pieces) -> Served:
    whole = np.sqrt(known.p * (1 - known.p))
    if name == ACCURACY:
        return Served(whole)
    if name == TRUTH:
        every = [_of_class(Metric("recall"), c, known) for c in range(known.signals.num_classes)]
        return Served(*(np.sqrt(sum(np.square(part) for part in parts)) for parts in zip(*every, strict=True)))
    if name in SCORES:
        return _linear(score_of(name, known.view.column("confidence")), known)
    if "@" in name:
        metric = parse_metric(name)
        c = _place(metric, known.signals)
        if metric.name == AUC:
            return _linear(_auc(c, known), known)
        return Served(*_of_class(metric, c, known), known.classes[known.free] == c)
    if name in AVERAGES:
        return Served(*_of_average(Metric(name), known))
    codes = known.classes if name == PREDICTION else known.view.slicing(name).codes
    here = codes[known.free]
    least = np.bincount(here, weights=whole)[here]
    return Served(whole / least, 1 / np.bincount(codes)[here])


def _linear(number: Linear, known: Pieces) -> Served:
    effect = np.abs(number.coefficient[known.free])
    return Served(np.sqrt(known.p * (1 - known.p)) * effect, effect)


def _auc(c: int, known: Pieces) -> Linear:
    """Return the AUC of one of two classes at what is known or predicted of every example."""
    failure = np.empty(known.signals.size)
    failure[known.free], failure[known.labelled] = known.p, known.failure
    inside, confidence = known.classes == c, known.view.column("confidence")
    return auc_of(np.where(inside, confidence, 1 - confidence), np.where(inside, 1 - failure, failure), inside)


def _of_class(metric: Metric, c: int, known: Pieces) -> tuple[Array, Array]:
    """Return σ and effect of a metric of class ``c``."""
    inside, failed, total = known.classes[known.free] == c, known.failed(), known.signals.size
    own, num = (float(failed[c]), int(np.count_nonzero(known.classes == c))) if c >= 0 else (0.0, 0)
    size, fn = Parts(float(num), float(total - num)), (float(failed.sum()) - own) / known.rivals
    tp, step, g = max(num - own, 0.0), 1e-6 * total, metric.function
    by_tp = float(g(tp + step, fn, size) - g(max(tp - step, 0.0), fn, size))
    by_fn = float(g(tp, fn + step, size) - g(tp, max(fn - step, 0.0), size))
    effect = np.where(inside, abs(by_tp), abs(by_fn))
    q = np.where(inside, known.p, known.p / known.rivals)
    return np.sqrt(q * (1 - q)) * effect, effect


def _of_average(metric: Metric, known: Pieces) -> tuple[Array, Array]:
    """Return σ and effect of an average over all predicted classes."""
    classes, failed = known.classes[known.free], known.failed()
    sizes = np.bincount(known.classes, minlength=known.signals.num_classes).astype(np.float64)
    missed, rest = (failed.sum() - failed) / known.rivals, known.signals.size - sizes
    totals = [
        Totals(_Known(own, f / own), _Known(others, m / max(others, 1)))
        for own, f, others, m in zip(sizes, failed, rest, missed, strict=True)
    ]
    _, weight = average(totals, metric)
    mean, square = weight.sum(axis=0) / known.rivals, (weight**2).sum(axis=0) / known.rivals
    variance = known.p * square[classes] - (known.p * mean[classes]) ** 2
    return np.sqrt(np.maximum(variance, 0)), np.sqrt(square)[classes]


class _Known(NamedTuple):
    """A share without an interval."""

    size: float
    value: float
    error: float = 0.0
    num: int = 0

    def interval(self, level: float) -> tuple[float, float]:
        return self.value, self.value


def _place(metric: Metric, signals: Signals) -> int:
    """Return the place of a metric's class among those that are predicted; -1 if it never is."""
    names = np.empty(0) if signals.names is None else signals.names
    found = np.flatnonzero(names == float(metric.positive or 0))
    return int(found[0]) if len(found) else -1
