"""Average a metric over classes of which each may have few labels: how often each is missed, and what that makes of g.

An average is the mean over C classes of g(TP, FN) (:mod:`opacc_ray.metrics.metric`). Of 200 classes with 400 labels
most have no missed example among these, and g is curved: at the estimated totals, or at their predictions, its mean is
biased. So it is averaged over what FN may be. A failure of predicted class ŷ without a label is of class k with

    r(k | ŷ) ∝ TP_k^β    k ≠ ŷ        FN_k = M_k + G_k,   S_k = Σ_ŷ F_ŷ r(k | ŷ)

TP_k are the examples that are predicted as k less the failures known and predicted among them (at least ½), so that
large classes are missed more often, or less, by one exponent β for all; classes that are neither predicted nor seen do
not exist. G_k has a gamma distribution with the mean S_k and the variance S_k + τ²S_k²: a count of Poisson's law around
a rate that differs by τ between classes. Labels show O_k misses of a class where E_k(β) are predicted among them, both
times Σap/Σa²p for labels of unequal effects a. The likelihood of β under that law, of seven values from -1.5 to 1.5
that are equally likely before,

    L(β) = Σ_k O_k ln E_k - (1/τ² + O_k) ln(1/τ² + E_k)

gives its mean. The expectation E g is over 24 quantiles of G_k. Labels correct it by one step, with its derivatives,

    W(y, ŷ) = ∂/∂FN_y - ∂/∂TP_ŷ        average = E g + [what labels add to the predicted sum of W]

taken at M = 0 and failures M + F: they must not know which classes the labels have. Where FN_y is large because a label
says so, its derivative is small, and the step is too short: for 200 classes up to 4 standard deviations of bias.

Legend: P predicted as a class, F failures predicted of the examples without labels, M misses that labels show, p
predicted failure of a label, a how far a failure moves an estimate, C classes, S slices, n labels.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimation.constants import AVERAGED, DIFFERENCE, EXPONENTS, SMALLEST
from opacc_ray.metrics.metric import Metric, Parts

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

_STEP = 0.5
"""Examples to each side over which derivatives are taken."""


def rivals(size: Array, exponent: float) -> Array:
    """Return r (C true, C predicted) from TP (C,), 0 for classes that there are not."""
    likely = np.where(size > 0, np.maximum(size, 0.5) ** exponent, 0.0)
    share = np.where(np.eye(len(size), dtype=bool), 0.0, likely[:, None])
    return np.asarray(share / np.maximum(share.sum(axis=0), SMALLEST))


def exponent(size: Array, met: Array, by_class: Array) -> float:
    """Return the mean of β from TP (C,), O (C,), and what is predicted of the labels by predicted class, (C,)."""
    rate = 1 / DIFFERENCE
    expected = np.stack([rivals(size, beta) @ by_class for beta in EXPONENTS])
    likelihood = (met * np.log(np.maximum(expected, SMALLEST)) - (rate + met) * np.log(rate + expected)).sum(axis=1)
    chance = np.exp(likelihood - likelihood.max())
    return float(chance @ EXPONENTS / chance.sum())


class Average(NamedTuple):
    """The expectation of an average, and its derivatives."""

    value: float
    variance: float  # for it is not known which classes there are
    by_tp: Array  # (C,)
    by_fn: Array  # (C,)


class Corrected(NamedTuple):
    """An average, and what labels make of it."""

    mean: float  # at what is known and predicted
    value: float
    variance: float
    half: float  # variance of half an event


def expected_average(metric: Metric, size: Parts, tp: Array, known: Array, left: Array) -> Average:
    """Return E g at TP, M and S, (C,) each, over the classes that there are; one that is not predicted counts as 0."""
    fn = known[:, None] + left[:, None] * _quantiles(left / (1 + DIFFERENCE * left))  # (C, quantiles)
    there = np.where(size.inside > 0, 1.0, (fn >= 0.5).mean(axis=1))  # (C,) probability
    num = max(float(there.sum()), 1.0)
    tp, sizes = np.broadcast_to(tp[:, None], fn.shape), Parts(size.inside[:, None], size.outside[:, None])

    def mean(values: Array) -> Array:
        return np.where(size.inside > 0, values.mean(axis=1), 0.0) / num

    def slope(by_tp: float, by_fn: float) -> Array:
        low = np.maximum(tp - by_tp, 0), np.maximum(fn - by_fn, 0)
        moved = metric.function(tp + by_tp, fn + by_fn, sizes) - metric.function(*low, sizes)
        return mean(moved / (tp + by_tp - low[0] + fn + by_fn - low[1]))

    value = float(mean(metric.function(tp, fn, sizes)).sum())
    return Average(value, float(there @ (1 - there)) * (value / num) ** 2, slope(_STEP, 0.0), slope(0.0, _STEP))


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
