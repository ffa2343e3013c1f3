"""What a number is: its name, its class, and the function of totals that it is.

One class c splits the pool in two parts of known size: A, predicted as c (P examples), and the rest. Two totals are not
known: TP, the examples of A that are of class c, and FN, those of class c in the rest:

    precision   TP/P              recall        TP/(TP + FN)            F_β   (1 + β²)TP/(P + β²(TP + FN))
    kappa       Cohen's: (a - e)/(1 - e), a the agreement (N - P + TP - FN)/N and e that of chance, by the two margins
    prevalence  (TP + FN)/N       specificity   (N - P - FN)/(N - TP - FN)    npv   1 - FN/(N - P)
    jaccard     TP/(P + FN)       balanced_accuracy   (recall + specificity)/2      mcc   Matthews' correlation

Legend: N pool, A predicted as c, P its size, TP and FN true positives and false negatives.

A ratio is one of two sums of counts, such as ``2 tp / (2 tp + fp + fn)``.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, SpecError, shown
from opacc_ray.metrics.scores import OVERCONFIDENCE, RANKINGS, SCORES

_TERM = re.compile(r"(?:(\d+(?:\.\d+)?)\s*\*?\s*)?([A-Za-z_]\w*)$")
_FROM_ONE = re.compile(r"1\s*-\s*(?=\S)")

Terms = tuple[tuple[float, str], ...]


class Ratio(NamedTuple):
    """Two sums of counts, such as ``2 tp / (2 tp + fp + fn)``, or 1 minus their ratio."""

    top: Terms
    bottom: Terms
    from_one: bool = False

    @classmethod
    def parse(cls, text: str) -> "Ratio":
        """Read a ratio; raises SpecError for anything else."""
        start = _FROM_ONE.match(text.strip())
        sides = text.strip()[start.end() if start else 0 :].split("/")
        if len(sides) != 2:
            raise SpecError(f"ratio {shown(text)}: give two sums of names, such as 'tp / (tp + fn)'")
        top, bottom = (_terms(side.strip(), text) for side in sides)
        return cls(top, bottom, start is not None)

    def __str__(self) -> str:
        return f"{'1 - ' * self.from_one}{_text(self.top)} / {_text(self.bottom)}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the counts, each once."""
        return tuple(dict.fromkeys(name for _, name in (*self.top, *self.bottom)))

    def sides(self, counts: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return a and b from all counts by name: of one example, of many, (n,) each, or of totals."""
        top, bottom = (sum(k * counts[name] for k, name in side) for side in (self.top, self.bottom))
        return top, bottom

    def of_totals(self, totals: Mapping[str, float]) -> float:
        """Return the ratio of totals by name; 0 over 0 is 0."""
        top, bottom = self.sides(totals)
        own = top / bottom if bottom else 0.0
        return 1 - own if self.from_one else own

    def of_example(self, counts: Mapping[str, float]) -> float:
        """Return the ratio of one example within [0, 1]; where nothing is counted nothing is wrong: 1."""
        top, bottom = self.sides(counts)
        if top == bottom == 0:
            return 1.0
        own = min(top / bottom, 1.0) if bottom else 1.0
        return 1 - own if self.from_one else own


def _terms(side: str, ratio: str) -> Terms:
    inner = side[1:-1] if side.startswith("(") and side.endswith(")") else side
    terms = [_TERM.match(term.strip()) for term in inner.split("+")]
    if not all(terms):
        raise SpecError(f"ratio {shown(ratio)}: {shown(side)} is no sum of names, such as 'tp + fn' or '2 tp'")
    return tuple((float(term[1] or 1), term[2]) for term in terms if term)


def _text(terms: Terms) -> str:
    text = " + ".join(name if k == 1 else f"{k:g} {name}" for k, name in terms)
    return text if len(terms) == 1 else f"({text})"


def count_of(row: Mapping[str, Any], name: str, id: str) -> float:
    """Return a count of an example; raises LabelError unless it is a finite number of at least 0."""
    if name not in row:
        raise LabelError(f"{shown(id)} has no count {shown(name)}; it has {', '.join(map(str, row))}")
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise LabelError(f"{shown(id)} has {name}={shown(row[name])}; give a number of at least 0")
    return value


Array = NDArray[np.float64]


MAE, RMSE, BIAS = "mae", "rmse", "bias"
ERRORS = (MAE, RMSE, BIAS)

ACCURACY = "accuracy"

FEWEST, WIDEST = 5, 0.25
"""Fewest labels, and largest half-width, of an interval that says something."""

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

OF_BOTH_CLASSES = ("balanced_accuracy", "mcc", "kappa")
"""Those that are the same for each of two classes."""

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
        """Whether it is about the confidence, not the answers."""
        return self.name in (*SCORES, *RANKINGS)

    @property
    def is_best_high(self) -> bool:
        """Whether more is better, so that a goal can be its least value."""
        return self.name not in (*SCORES, *ERRORS)

    @property
    def is_error(self) -> bool:
        """Whether it is about the errors of predicted values, in their unit."""
        return self.name in ERRORS

    @property
    def is_of_pool(self) -> bool:
        """Whether it is stated of the whole pool only."""
        return self.judges_confidence or self.is_error

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
    if not of_class and name not in (ACCURACY, *AVERAGES, *SCORES, *ERRORS):
        known = [ACCURACY, *AVERAGES, *SCORES, *ERRORS, *(f"{own}@CLASS" for own in (*CLASS_METRICS, *RANKINGS))]
        raise SpecError(f"metric {text!r}: choose one of {', '.join(known)}")
    if not of_class and at:
        raise SpecError(f"metric {text!r}: {name} is of all classes; remove {at + positive!r}")
    return Metric(name, positive.strip() or None)


def tells(low: float, high: float, num: int) -> bool:
    """Return whether ``num`` labels are enough for their interval to say something."""
    return low == high or (num >= FEWEST and high - low <= 2 * WIDEST)


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

    value = float(np.where(there, g(tp, fn, size), 0.0).sum() / num)
    by_tp, by_fn = (np.where(there, own, 0.0) / num for own in differences(g, tp, fn, size, step))
    return value, by_tp, by_fn


def differences(g: Function, tp: Array, fn: Array, size: Parts, step: float) -> tuple[Array, Array]:
    """Return the derivatives of g by TP and by FN, as differences over ``step`` to each side, or down to 0."""

    def slope(by_tp: float, by_fn: float) -> Array:
        moved = g(tp + by_tp, fn + by_fn, size) - g(np.maximum(tp - by_tp, 0), np.maximum(fn - by_fn, 0), size)
        width = by_tp + np.minimum(tp, by_tp) + by_fn + np.minimum(fn, by_fn)
        return np.asarray(moved / np.maximum(width, 1e-300))

    return slope(step, 0.0), slope(0.0, step)
