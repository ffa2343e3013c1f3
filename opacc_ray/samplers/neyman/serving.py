"""Draw for the number that is asked: how much each example's outcome moves a metric, a class or a slice.

A metric g of totals T_k moves with an example by u = Σ_k ∂g/∂T_k · v_k, so the best probabilities are in proportion to
the standard deviation of u given what is known of the example. With p its predicted failure, and each other class
equally likely where it fails:

    served                  standard deviation σ_m of u
    accuracy                √(p(1 - p))
    metric of class c       |∂g/∂TP|·√(p(1 - p)) where c is predicted, |∂g/∂FN|·√(q(1 - q)) elsewhere, q = p/(C - 1)
    average over classes    √(p·s - p²·m²), m and s the mean and mean square of W(k, ŷ) over the classes k ≠ ŷ
    prediction, a slice     √(p(1 - p))/Σ_S √(p(1 - p)): as many labels in every slice, so that none is the worst
    truth                   as the metric of each class, their variances added

with g at the totals that the predictions give (:mod:`opacc_ray.estimators.metrics`). For F1 = F these are the factors 2
- F where c is predicted and F elsewhere.

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
from opacc_ray.parts.view import View
from opacc_ray.samplers.neyman.failure_model import EXPERTS, Coefficient, Expert
from opacc_ray.samplers.neyman.signals import Signals, pool_signals

Array = NDArray[np.float64]
Codes = NDArray[np.integer]

PREDICTION, TRUTH = "prediction", "truth"
"""Serve the accuracy of every predicted class, and the recall of every true one."""

RARE = 0.02
"""Share of a class, as the model states it, below which its stated confidence alone predicts failures."""

STATED = (Expert(1e-9, {}), Expert(1.0, {"confidence": Coefficient(1.0, 0.3), "prediction": Coefficient(0.0, 1.0)}))
"""The stated confidence, with a level for each predicted class."""


class Served(NamedTuple):
    """What one number is to the examples that can be drawn, (n,)."""

    deviation: Array  # σ_m, up to a factor
    effect: Array | None = None  # by how much an outcome moves the number, up to a factor; None: equally


def serve(numbers: Sequence[str], view: View, signals: Signals, free: NDArray[np.int64], p: Array) -> list[Served]:
    """Return what each of the ``numbers`` is to the examples ``free`` (n,), whose predicted failures are ``p`` (n,).

    Raises SpecError for a number that there is not: parse them first with names of classes as their places, 0 .. C - 1.
    """
    return [_serve(name, view, signals, free, p) for name in numbers]


def experts_for(numbers: Sequence[str], view: View) -> tuple[Expert, ...]:
    """Return the experts that predict failures, where these numbers are served."""
    metrics = [parse_metric(name) for name in numbers if "@" in name]
    if not metrics or "confidence" not in view.fields:
        return EXPERTS
    signals = pool_signals(view, 0)
    doubt = 1 - view.column("confidence")
    stated = [_stated_share(_place(metric, signals), signals, doubt) for metric in metrics]
    return STATED if min(stated) < RARE else EXPERTS


def _stated_share(c: int, signals: Signals, doubt: Array) -> float:
    inside = _classes(signals) == c
    elsewhere = float(doubt[~inside].sum()) / max(signals.num_classes - 1, 1)
    return (float((1 - doubt[inside]).sum()) + elsewhere) / signals.size


def _serve(name: str, view: View, signals: Signals, free: NDArray[np.int64], p: Array) -> Served:
    whole = np.sqrt(p * (1 - p))
    if name == ACCURACY:
        return Served(whole)
    if name == TRUTH:
        classes = range(len(_names(signals)))
        every = [_of_class(Metric("recall"), c, signals, free, p) for c in classes]
        return Served(*(np.sqrt(sum(np.square(part) for part in parts)) for parts in zip(*every, strict=True)))
    if "@" in name:
        metric = parse_metric(name)
        return Served(*_of_class(metric, _place(metric, signals), signals, free, p))
    if name in AVERAGES:
        return Served(*_of_average(Metric(name), signals, free, p))
    codes = _classes(signals) if name == PREDICTION else view.slicing(name).codes
    here = codes[free]
    least = np.bincount(here, weights=whole)[here]
    return Served(whole / least, 1 / np.bincount(codes)[here])


def _of_class(metric: Metric, c: int, signals: Signals, free: NDArray[np.int64], p: Array) -> tuple[Array, Array]:
    """Return σ and effect of a metric of class ``c``."""
    inside = _classes(signals)[free] == c
    num = int(np.count_nonzero(_classes(signals) == c))
    size, rivals = Parts(float(num), float(signals.size - num)), max(signals.num_classes - 1, 1)
    q = np.where(inside, p, p / rivals)
    scale = signals.size / max(len(free), 1)  # what is labelled is as what is left
    fn = scale * float(q[~inside].sum())
    tp = min(scale * float((1 - p)[inside].sum()), size.inside)
    step = 1e-6 * signals.size
    slopes = [metric.function(tp + a, fn + b, size) - metric.function(max(tp - a, 0.0), max(fn - b, 0.0), size)
              for a, b in ((step, 0.0), (0.0, step))]  # fmt: skip
    effect = np.where(inside, abs(float(slopes[0])), abs(float(slopes[1])))
    return np.sqrt(q * (1 - q)) * effect, effect


def _of_average(metric: Metric, signals: Signals, free: NDArray[np.int64], p: Array) -> tuple[Array, Array]:
    """Return σ and effect of an average over all predicted classes."""
    classes, num = _classes(signals)[free], signals.num_classes
    rivals = max(num - 1, 1)
    sizes = np.bincount(_classes(signals), minlength=num).astype(np.float64)
    failed = np.bincount(classes, weights=p, minlength=num) * signals.size / max(len(free), 1)
    missed = (failed.sum() - failed) / rivals
    points = [_Known(size, failed[c] / size) for c, size in enumerate(sizes)]
    rest = [_Known(signals.size - size, missed[c] / max(signals.size - size, 1)) for c, size in enumerate(sizes)]
    _, weight = average([Totals(*pair) for pair in zip(points, rest, strict=True)], metric)
    mean, square = weight.sum(axis=0) / rivals, (weight**2).sum(axis=0) / rivals
    variance = p * square[classes] - (p * mean[classes]) ** 2
    return np.sqrt(np.maximum(variance, 0)), np.sqrt(square)[classes]


class _Known(NamedTuple):
    """A share without an interval."""

    size: float
    value: float
    error: float = 0.0
    num: int = 0

    def interval(self, level: float) -> tuple[float, float]:
        return self.value, self.value


def _names(signals: Signals) -> Array:
    if signals.names is None:
        raise SpecError("a metric of classes is served, and the pool has no predicted classes; give Pool(prediction=…)")
    return signals.names


def _classes(signals: Signals) -> Codes:
    _names(signals)
    assert signals.classes is not None
    return signals.classes


def _place(metric: Metric, signals: Signals) -> int:
    """Return the place of a metric's class among those that are predicted; -1 if it never is."""
    found = np.flatnonzero(_names(signals) == float(metric.positive or 0))
    return int(found[0]) if len(found) else -1
