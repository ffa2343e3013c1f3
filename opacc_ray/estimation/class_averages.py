"""Average a metric over classes of which each may have few labels: how often each is missed, and what that makes of g.

An average is the mean over C classes of g(TP, FN) (:mod:`opacc_ray.metrics.metric`). Of 200 classes with 400 labels
most have no missed example among these, and g is curved: at the estimated totals, or at their predictions, its mean is
biased. So it is averaged over what FN may be. A failure of predicted class ŷ without a label is of class k with

    r(k | ŷ) ∝ TP_k^β    k ≠ ŷ        FN_k = M_k + G_k,   S_k = Σ_ŷ F_ŷ r(k | ŷ)

TP_k are the examples that are predicted as k less the failures known and predicted among them (in r at least ½), so
that large classes are missed more often, or less, by one exponent β for all. Labels show O_k misses of a class where
E_k(β) are predicted among them, E_k = Σ p r(k | ŷ), both times Σap/Σa²p for labels of unequal effects a: w√(1 - π)/π
in rounds with a fit, and the weight by a design. β and E_k are of the whole pool, all else is of the slice. Classes of
one size differ by τ in how often they are missed, so these counts are negative binomial. Their likelihood of β, of
seven values from -1.5 to 1.5 that are equally likely before,

    ln L(β) = Σ_k O_k ln E_k - (1/τ² + O_k) ln(1/τ² + E_k)

gives its mean. G_k has a gamma distribution with the mean S_k and the variance S_k + τ_k²S_k², τ_k² = τ²/(1 + τ²E_k):
what labels leave open of a rate. E g is the mean over its quantiles of the probabilities (j + ½)/24, scaled so that
their mean is S_k; those of rare classes vary less. A class that is not predicted counts as 0, as far as it exists: in
the share t of quantiles at which FN_k is ½ or more. Then the mean is over Σt classes, and has the variance
Σt(1 - t)·(mean/Σt)². Classes that are neither predicted nor in labels are left out: of the pool, or of the slice if
at least three of its examples would be predicted as the class at its share of the pool.

Labels correct E g by one step, with its derivatives,

    W(y, ŷ) = ∂/∂FN_y - ∂/∂TP_ŷ        average = E g + [what labels add to the predicted sum of W]

They are differences over half an example to each side, or down to 0, at a fixed Σt, M = 0 and failures M + F: they must
not know which classes the labels have. Where FN_y is large because a label says so, its derivative is small, and the
step too short: for 200 classes up to 4 standard deviations.

With predictions the step is that of a total (:mod:`opacc_ray.estimation.totals`). **By a design alone** the p of a
predicted class is (Σwv + 10·p̄)/(Σw + 10), over its labels with weights w over their mean, p̄ the mean of all, and the
error of a label is that of a prediction without it, e = (v - v̂)/(1 - h), h = w/(Σw + 10). The step is the design's
estimate of the total of errors, less those of the labels, times n/(n + 10): in a slice of few labels predictions are
better. Its variance is that of the design, without this factor. Half an event is added, ½Σ(ca²)²/Σca² over the labels,
with c = Σ_k r W² of the predicted class and a = N times the largest weight: a sample may have few labels of those that
matter.

**A class speaks for itself** with at least 10 labels, or at least as many as classes are predicted in the slice. If at
least half of the predicted classes do, the variance has, instead of half an event, the square of how far the average is
from that of what is stated of each class. And by a design alone the errors of a predicted class count in the design's
estimate by P/Σa, if that is below 1, with a = N times the weight: a class has no more failures than examples. Neither
the errors of labels that are subtracted nor the variance have this factor. The interval includes that of the mean of C
metrics.

Legend: P predicted as a class, F failures predicted of the examples without labels, M misses that labels show, p
predicted failure of a label, a how far a failure moves an estimate, C classes, n labels.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimation.constants import AVERAGED, DIFFERENCE, EXPONENTS, SMALLEST
from opacc_ray.metrics.metric import Metric, Parts, differences

Array = NDArray[np.float64]

_STEP = 0.5


def rivals(size: Array, beta: float) -> Array:
    """Return r (C true, C predicted) from TP (C,), 0 for the same class and for those that there are not."""
    likely = np.where(size > 0, np.maximum(size, 0.5) ** beta, 0.0)
    share = np.where(np.eye(len(size), dtype=bool), 0.0, likely[:, None])
    return np.asarray(share / np.maximum(share.sum(axis=0), SMALLEST))


def exponent(size: Array, met: Array, by_class: Array) -> float:
    """Return the mean of β from TP (C,), O (C,), and what is predicted of the labels by predicted class, (C,)."""
    rate = 1 / DIFFERENCE
    expected = np.stack([rivals(size, beta) @ by_class for beta in EXPONENTS])
    likelihood = (met * np.log(np.maximum(expected, SMALLEST)) - (rate + met) * np.log(rate + expected)).sum(axis=1)
    chance = np.exp(likelihood - likelihood.max())
    return float(chance @ EXPONENTS / chance.sum())


def missed(known: Array, left: Array, expected: Array) -> Array:
    """Return equally likely values of FN, (C, AVERAGED), from M, S and E, (C,) each."""
    difference = DIFFERENCE / (1 + DIFFERENCE * expected)
    return np.asarray(known[:, None] + left[:, None] * _quantiles(left / (1 + difference * left)))


def expected_average(metric: Metric, size: Parts, tp: Array, fn: Array) -> tuple[float, float]:
    """Return E g, and its variance because classes may not exist, at TP (C,) and values of FN (C, k)."""
    there = _existing(size, fn)
    num = max(float(there.sum()), 1.0)
    tp, fn = np.broadcast_arrays(tp[:, None], fn)
    value = float(_means(metric.function(tp, fn, _columns(size)), size).sum()) / num
    return value, float(there @ (1 - there)) * (value / num) ** 2


def derivatives(metric: Metric, size: Parts, tp: Array, fn: Array) -> tuple[Array, Array]:
    """Return the derivatives of E g by TP and by FN, (C,) each, at TP (C,) and values of FN (C, k)."""
    num = max(float(_existing(size, fn).sum()), 1.0)
    tp, fn = np.broadcast_arrays(tp[:, None], fn)
    by_tp, by_fn = differences(metric.function, tp, fn, _columns(size), _STEP)
    return _means(by_tp, size) / num, _means(by_fn, size) / num


def _existing(size: Parts, fn: Array) -> Array:
    """Return how likely it is that there is a class, (C,)."""
    return np.where(size.inside > 0, 1.0, (fn >= 0.5).mean(axis=1))


def _columns(size: Parts) -> Parts:
    return Parts(size.inside[:, None], size.outside[:, None])


def _means(values: Array, size: Parts) -> Array:
    """Return the means of values (C, k), 0 for classes that are not predicted."""
    return np.where(size.inside > 0, values.mean(axis=1), 0.0)


def _quantiles(shape: Array) -> Array:
    """Return quantiles (k, AVERAGED) of gamma distributions with mean 1 and these shapes (k,)."""
    log, table = _table()
    place = np.interp(np.log(np.maximum(shape, SMALLEST)), log, np.arange(len(log)))
    below = np.minimum(place.astype(np.int64), len(log) - 2)
    part = (place - below)[:, None]
    return np.asarray(table[below] * (1 - part) + table[below + 1] * part)


@cache
def _table() -> tuple[Array, Array]:
    """Return logarithms of shapes, and the quantiles at each, in a table that is fifty times as fast as their law."""
    from scipy.special import gammaincinv

    log = np.linspace(np.log(1e-3), np.log(1e5), 200)
    found = gammaincinv(np.exp(log)[:, None], (np.arange(AVERAGED) + 0.5) / AVERAGED)
    return log, found / np.maximum(found.mean(axis=1, keepdims=True), SMALLEST)
