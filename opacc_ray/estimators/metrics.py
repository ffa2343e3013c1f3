"""Numbers that people state: precision, recall, F1 and others, as functions of two totals.

Where examples have counts, ratios of their totals are such numbers too (:mod:`opacc_ray.estimators.ratios`).

One class c splits the pool in two parts of known size: A, predicted as c (P examples), and the rest. Two totals are not
known: TP, the examples of A that are of class c, and FN, those of class c in the rest:

    precision   TP/P              recall        TP/(TP + FN)            F_β   (1 + β²)TP/(P + β²(TP + FN))
    kappa       Cohen's: (a - e)/(1 - e), a the agreement (N - P + TP - FN)/N and e that of chance, by the two margins
    prevalence  (TP + FN)/N       specificity   (N - P - FN)/(N - TP - FN)    npv   1 - FN/(N - P)
    jaccard     TP/(P + FN)       balanced_accuracy   (recall + specificity)/2      mcc   Matthews' correlation

Each total has an estimate and, at every level, an interval: a confidence distribution, represented by its quantiles.
The interval of a metric has the quantiles of g(TP, FN) over all pairs of these, as if the two were independent: they
come from different labels. (Precision and npv have that of their only total.) It is never undefined, and agrees with
the closed form of G. Y. Zou and A. Donner ("Construction of confidence limits about effect measures", Statistics in
Medicine 27, 2008) where that exists. It is that form at levels beyond the outermost quantiles, such as those of many
joint intervals.

Where a class is rare, no design can know how many of its examples hide among very many others: if fewer than one is
predicted among 950 labels of these, 3/950 of them may still be of the class, and only the confidence says otherwise. So
a second interval is stated beside the first, which holds if the confidence is right, up to a factor that the labels
calibrate (:class:`opacc_ray.estimators.intervals.PredictedShare`), about the examples that no label reached. What is
stated of one class uses the median of that factor. Where few events are predicted among the labels, its mean is about
twice as much, and scores tend to predict too many events where none was seen. Averages use the mean: medians do not add
up.

Averages over all classes (``macro_f1``, …) are functions of 2C totals that share their labels. They are linearised: a
misprediction of true class y as ŷ moves the average by

    W(y, ŷ) = ∂g/∂FN_y - ∂g/∂TP_ŷ

so g is estimated from the totals, and its variance is that of the total of W over mispredictions; a mean cost is the
same with costs as W. The interval is Wilson's at the size of the simple random sample with the same variance,
with Student's quantile. A design alone measures no variance in a class whose few labels are all right, or all wrong. So
its interval includes Zou and Donner's of the mean of C metrics, from the interval of each (:func:`joined_ends`).

Legend: N pool, C classes, A predicted as c, P its size, TP and FN true positives and false negatives.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import SpecError, shown
from opacc_ray.estimators.accuracy_estimate import Estimate, IfPredicted, within_interval
from opacc_ray.estimators.intervals import PredictedShare, normal_quantile, student_quantile, wilson
from opacc_ray.estimators.ratios import Ratio
from opacc_ray.estimators.scores import OVERCONFIDENCE, RANKINGS, SCORES
from opacc_ray.estimators.totals import DomainShare, Share, stated

Array = NDArray[np.float64]

ACCURACY = "accuracy"
INTERVAL = "two totals"
"""Name of the interval of a function of two totals."""

FEWEST, WIDEST = 5, 0.25
"""Fewest labels, and largest half-width, of an interval that says something."""

_LEVELS, _POINTS = 48, 192
"""Quantiles of the distribution of a mean that are computed, and by which it is represented."""

_MUCH = 1.5
"""How much narrower an interval by predictions is before it is stated too."""

_BETA = re.compile(r"f(\d+(?:\.\d+)?)$")


class Parts(NamedTuple):
    """The sizes of the two parts that a class makes of a pool, or of a slice."""

    inside: Any  # P
    outside: Any  # N - P


Function = Callable[[Any, Any, Parts], Any]
"""g(TP, FN, sizes), elementwise."""


def _divided(top: Any, bottom: Any) -> Any:
    """Return top/bottom; where both are 0 there is no such example, and nothing was missed: 1."""
    return np.where(bottom > 0, top / np.maximum(bottom, 1e-300), 1.0)


def _precision(tp: Any, fn: Any, size: Parts) -> Any:
    """Return TP/P; where nothing is predicted as the class, 0 if there are examples of it, as usual, and else 1."""
    return np.where(size.inside > 0, _divided(tp, size.inside + 0 * tp), fn <= 0)


def _npv(tp: Any, fn: Any, size: Parts) -> Any:
    return _precision(size.outside - fn, size.inside - tp, Parts(size.outside, size.inside))


def _recall(tp: Any, fn: Any, _: Parts) -> Any:
    return _divided(tp, tp + fn)


def _specificity(tp: Any, fn: Any, size: Parts) -> Any:
    return _divided(size.outside - fn, size.outside - fn + size.inside - tp)


def _mcc(tp: Any, fn: Any, size: Parts) -> Any:
    fp, tn = size.inside - tp, size.outside - fn
    spread = size.inside * size.outside * (tp + fn) * (tn + fp)
    return np.where(spread > 0, (tp * tn - fp * fn) / np.sqrt(np.maximum(spread, 1e-300)), 0.0)


def _kappa(tp: Any, fn: Any, size: Parts) -> Any:
    fp, tn = size.inside - tp, size.outside - fn
    spread = size.inside * (fp + tn) + size.outside * (tp + fn)
    return np.where(spread > 0, 2 * (tp * tn - fp * fn) / np.maximum(spread, 1e-300), 0.0)


def f_score(beta: float) -> Function:
    """Return F_β."""
    square = beta * beta
    return lambda tp, fn, size: _divided((1 + square) * tp, size.inside + square * (tp + fn))


CLASS_METRICS: dict[str, Function] = {
    "precision": _precision,
    "recall": _recall,
    "f1": f_score(1.0),
    "specificity": _specificity,
    "npv": _npv,
    "balanced_accuracy": lambda tp, fn, size: (_recall(tp, fn, size) + _specificity(tp, fn, size)) / 2,
    "jaccard": lambda tp, fn, size: _divided(tp, size.inside + fn),
    "mcc": _mcc,
    "kappa": _kappa,
    "prevalence": lambda tp, fn, size: (tp + fn) / (size.inside + size.outside),
}
"""Metrics of one class against the rest; ``f2`` or ``f0.5`` are F_β."""

OF_ONE_TOTAL = ("precision", "npv")
"""Those that have the interval of a single total."""

AVERAGES = {"macro_f1": "f1", "macro_recall": "recall", "macro_precision": "precision"}
"""Means of a metric over all classes."""


class Metric(NamedTuple):
    """A number that is asked for."""

    name: str
    positive: str | None = None  # the class, for those of one class

    @property
    def function(self) -> Function:
        """Return g of TP and FN: its own, or that of the class that an average is over."""
        name = AVERAGES.get(self.name, self.name)
        found = _BETA.match(name)
        return CLASS_METRICS[name] if name in CLASS_METRICS or not found else f_score(float(found[1]))

    @property
    def judges_confidence(self) -> bool:
        """Whether it is about the confidence, not the answers: then it is stated of the whole pool only."""
        return self.name in (*SCORES, *RANKINGS)

    @property
    def ratio(self) -> Ratio | None:
        """The ratio of totals that it is; None for other numbers."""
        return Ratio.parse(self.name) if "/" in self.name else None

    @property
    def lowest(self) -> float:
        """The least value that it can have; the most is 1."""
        return -1.0 if self.name in ("mcc", "kappa", OVERCONFIDENCE) else 0.0

    def __str__(self) -> str:
        return self.name if self.positive is None else f"{self.name}@{self.positive}"


def is_of_class(text: str) -> bool:
    """Return whether a text is meant to be a metric of one class, such as ``f1`` or ``f1@CLASS``."""
    name, at, _ = text.partition("@")
    return bool(at) or _has_class(name)


def _has_class(name: str) -> bool:
    return name in CLASS_METRICS or name in RANKINGS or bool(_BETA.match(name))


def find_place(metric: Metric, classes: Sequence[str]) -> int:
    """Return the place of a metric's class among C names; of two, the second if it names none.

    Raises SpecError for a class that there is not.
    """
    if metric.positive is None and len(classes) == 2:
        return 1
    if metric.positive not in classes:
        given = "names no class" if metric.positive is None else f"has the class {shown(metric.positive)}"
        near = get_close_matches(str(metric.positive), classes, 1) if metric.positive is not None else []
        few = ", ".join(classes[:10]) + (", …" if len(classes) > 10 else "")
        hint = f"did you mean {near[0]!r}?" if near else f"give one of {few}, as in {metric.name}@CLASS"
        raise SpecError(f"metric {metric} {given}; {hint}")
    return list(classes).index(str(metric.positive))


def parse_metric(text: str) -> Metric:
    """Read ``accuracy``, ``macro_f1``, ``recall@CLASS`` or a ratio of totals; raise SpecError for anything else."""
    name, at, positive = text.partition("@")
    if "/" in name and not at:
        return Metric(str(Ratio.parse(text)))
    name = name.strip().lower().replace("-", "_")
    of_class = _has_class(name)
    if not of_class and name not in (ACCURACY, *AVERAGES, *SCORES):
        known = [ACCURACY, *AVERAGES, *SCORES, *(f"{own}@CLASS" for own in (*CLASS_METRICS, *RANKINGS))]
        raise SpecError(f"metric {text!r}: choose one of {', '.join(known)}")
    if not of_class and at:
        raise SpecError(f"metric {text!r}: {name} is of all classes; remove {at + positive!r}")
    return Metric(name, positive.strip() or None)


class Totals(NamedTuple):
    """The two totals of one class, in the pool or in a slice."""

    failures: Share  # of A: 1 - precision
    missed: Share  # of the rest: FN/(N - P)

    def estimate(self, metric: Metric, level: float) -> Estimate:
        """Return the metric with its interval, and with the one that trusts predictions where that says much more."""
        low, high = self._interval(metric, level)
        found = estimate_of(self._value(metric), low, high, level, self.failures.num + self.missed.num, metric.lowest)
        missed = self.missed
        if not isinstance(missed, DomainShare) or missed.unseen <= 0:
            return found
        other = self._replace(missed=missed.as_predicted())
        low, high = other._interval(metric, level)
        if found.high - found.low <= _MUCH * (high - low):
            return found
        most = missed.size * other.missed.interval(level)[1] - missed.events
        num = min(math.ceil(math.log((1 - level) / 2) / math.log1p(-min((most + 1) / missed.size, 0.5))), missed.size)
        other_interval = IfPredicted(min(max(found.value, low), high), low, high, most / missed.unseen, int(num))
        return replace(found, if_predicted=other_interval)

    def _value(self, metric: Metric) -> float:
        return float(metric.function(*self.point(), self._sizes()))

    def _interval(self, metric: Metric, level: float) -> tuple[float, float]:
        """Return the quantiles of the metric over all pairs of the two totals' quantiles."""
        if (1 - level) / 2 < 1 / _LEVELS or metric.name in OF_ONE_TOTAL:
            return self._combined(metric, level)
        found = self._at(metric, _quantiles(self.failures)[:, None], _quantiles(self.missed)[None, :])
        low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2]).tolist()
        return low, high

    def _combined(self, metric: Metric, level: float) -> tuple[float, float]:
        """Return the ends of Zou and Donner, from those of each total at the level."""
        value, below, above = self.deviations(metric, level)
        return value - below, value + above

    def deviations(self, metric: Metric, level: float) -> tuple[float, float, float]:
        """Return the metric, and how far the ends of Zou and Donner are below and above it."""
        points = [min(max(own.value, 0.0), 1.0) for own in self]
        value = float(self._at(metric, *points))
        ends = [np.array([points[k], *own.interval(level)]) for k, own in enumerate(self)]
        moved = self._at(metric, ends[0], points[1]) - value, self._at(metric, points[0], ends[1]) - value
        below, above = (math.hypot(*(float(end(own)) for own in moved)) for end in (np.min, np.max))
        return value, below, above

    def _at(self, metric: Metric, failures: Any, missed: Any) -> Array:
        """Return the metric at shares of the two totals."""
        size = self._sizes()
        failures, missed = np.broadcast_arrays(failures, missed)
        found: Array = metric.function(size.inside * (1 - failures), size.outside * missed, size)
        return found

    def _sizes(self) -> Parts:
        return Parts(self.failures.size, self.missed.size)

    def point(self, by_median: bool = True) -> tuple[float, float]:
        """Return the estimates of TP and FN; FN is a median, as far as it is predicted, unless it is to be added up."""
        failures, missed = (min(max(own, 0.0), 1.0) for own in (stated(self[0]), stated(self[1], by_median)))
        return self.failures.size * (1 - failures), self.missed.size * missed


@lru_cache(1024)
def _quantiles(share: Share) -> Array:
    """Return equally likely quantiles (_POINTS,) that represent the distribution of a share, in order.

    _LEVELS of them are computed, and the others lie between: of fewer, one would stand for 2 % of a distribution.
    """
    if isinstance(share, PredictedShare):
        return share.quantiles(_middles(_POINTS))
    ends = [share.interval(1 - (2 * k + 1) / _LEVELS) for k in range(_LEVELS // 2)]
    found = np.array([low for low, _ in ends] + [high for _, high in reversed(ends)])
    return np.interp(_middles(_POINTS), _middles(_LEVELS), found)


def _middles(num: int) -> Array:
    """Return the probabilities (num,) in the middle of as many equal parts of [0, 1]."""
    return (2 * np.arange(num) + 1) / (2 * num)


def estimate_of(value: float, low: float, high: float, level: float, num: int, lowest: float = 0.0) -> Estimate:
    """Return an estimate with an interval that is not symmetric; its standard error is that of a normal one."""
    low, high = max(low, lowest), min(high, 1.0)
    error = (high - low) / (2 * normal_quantile(level))
    return within_interval(Estimate(value, error, low, high, level, INTERVAL, num, True))


def tells(low: float, high: float, num: int) -> bool:
    """Return whether ``num`` labels are enough for their interval to say something."""
    return low == high or (num >= FEWEST and high - low <= 2 * WIDEST)


def average(totals: Sequence[Totals], metric: Metric) -> tuple[float, Array]:
    """Return the mean of a metric over C classes, and W (C true, C predicted): how a misprediction moves it."""
    points = np.array([own.point(by_median=False) for own in totals])
    size = Parts(*(np.array([getattr(own, name).size for own in totals]) for name in ("failures", "missed")))
    value, by_tp, by_fn = slopes(metric, points[:, 0], points[:, 1], size)
    return value, misprediction_weights(by_tp, by_fn)


def joined_ends(totals: Sequence[Totals], metric: Metric, value: float, level: float) -> tuple[float, float]:
    """Return the ends of Zou and Donner of the mean of a metric over classes, from those of each class."""
    there = [own for own in totals if own.failures.size or own.missed.events]
    _, below, above = np.array([own.deviations(metric, level) for own in there]).T
    num = len(there)
    return max(value - math.hypot(*below) / num, 0.0), min(value + math.hypot(*above) / num, 1.0)


def misprediction_weights(by_tp: Array, by_fn: Array) -> Array:
    """Return W (C true, C predicted) from the derivatives of an average by TP and by FN of each class, (C,)."""
    weight: Array = by_fn[:, None] - by_tp[None, :]
    np.fill_diagonal(weight, 0.0)
    return weight


def slopes(metric: Metric, tp: Array, fn: Array, size: Parts) -> tuple[float, Array, Array]:
    """Return the mean of a metric over k classes, and its derivatives by TP and by FN of each, (k,).

    Classes that are neither predicted nor missed do not count.
    """
    g = metric.function
    there = (size.inside > 0) | (fn > 0)
    num = max(int(there.sum()), 1)
    step = 1e-6 * max(float(size.inside.sum()), 1.0)

    def slope(by_tp: float, by_fn: float) -> Array:
        moved = g(tp + by_tp, fn + by_fn, size) - g(np.maximum(tp - by_tp, 0), np.maximum(fn - by_fn, 0), size)
        width = by_tp + np.minimum(tp, by_tp) + by_fn + np.minimum(fn, by_fn)
        return np.where(there, moved / np.maximum(width, 1e-300), 0.0) / num

    value = float(np.where(there, g(tp, fn, size), 0.0).sum() / num)
    return value, slope(step, 0.0), slope(0.0, step)


def average_interval(value: float, error: float, degrees: float, level: float) -> tuple[float, float]:
    """Return Wilson's interval of an average in [0, 1], at the size of the simple random sample with the same error."""
    half = student_quantile(max(degrees, 1.0), level) * error
    if error <= 0:
        return value, value
    nearest = min(error, 0.5)
    inside = min(max(value, nearest), 1 - nearest)
    return wilson(min(max(value, 0.0), 1.0), inside * (1 - inside) * (normal_quantile(level) / half) ** 2, level)
