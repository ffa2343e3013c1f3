"""Average a metric over classes of which each has few labels: what is foretold of every class, and how labels move it.

An average is the mean over C classes of g(TP, FN) (:mod:`opacc_ray.metrics.metric`). Of 200 classes with 400 labels
most have no missed example among these, and g is curved: at the estimated totals, or at their forecasts, its mean is
biased. So what is averaged is its expectation over what the totals may be. A failure without a label, of predicted
class ŷ, is of class k with

    r(k | ŷ) ∝ P_k^β    k ≠ ŷ        FN_k = M_k + Poisson(φ_k·S_k),   S_k = Σ_ŷ F_ŷ r(k | ŷ)

(P_k at least ½), so that large classes are missed more often, or less, by one exponent β for all. φ_k, with mean 1 and
variance τ², says how classes differ besides: Gamma(1/τ² + O_k)/(1/τ² + E_k), where the labels show O_k misses of the
class and E_k are foretold among them, both times Σap/Σa²p for labels of unequal effects a. These counts have a negative
binomial law, whose likelihood weighs seven β from -2 to 1 and eight τ² from 1/64 to 2, equally likely before. β is the
mean of what they say; the expectation is averaged over τ², and its variance over these is added to that of the labels.
FN_k is represented by 24 quantiles of the gamma distribution with its mean and variance, TP_k by
P_k less the failures that are known and foretold of it, and a standard deviation of these, or as far as there is room,
below and above.

One step corrects this by labels, to first order. With D_k derivatives of the expectation where no label has a class,

    W(y, ŷ) = ∂/∂FN_y - ∂/∂TP_ŷ        average = E g + Σ_k ∂/∂FN_k·(M_k + S_k - E FN_k) + [labels' correction of ΣW]

where the last one is what the errors v - p·m of a variable v, W of a misprediction, add to its predicted sum
(:mod:`opacc_ray.estimation.totals`). Each error is that of a prediction without its own label, (v - v̂)/(1 - h). W must
not know which classes the labels have: where FN_y is large because a label says so, its slope is small, and the step
too short. For 200 classes with 400 labels, that was up to 3.5 standard deviations (``benchmarks/many_classes.py``).

By a design alone the p of a predicted class is the share of failures of its m labels, with their weights over the mean
weight, shrunk towards that of all as by five labels, and h is the weight over m + 5. What the step adds is the design's
estimate of the total of errors, and so unbiased, also where a class has one label or none. To its variance half an
event is added, of the size of those that make the variance, Σa⁴/Σa²: a sample may have few labels of those that matter.

With fewer than five labels per class an average says so: it relies on classes that are alike but for their size. Of 200
classes unlike each other by other rules, 400 labels covered as little as 82 %.

Legend: P predicted as a class, F failures foretold of the examples without labels, M misses that labels
show, h leverage, C classes, S slices, n labels.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimation import constants
from opacc_ray.estimation.constants import AVERAGED, EXPONENTS, SMALLEST
from opacc_ray.estimation.totals import Foretold, added
from opacc_ray.metrics.metric import Metric, Parts, slopes

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

_SHAPES: Array = 1 / np.array(constants.SPREADS)[:, None]  # (spreads, 1) 1/τ²
_STEP = 0.5  # examples to each side, over which derivatives are taken


class TrueClasses(NamedTuple):
    """Of which classes failures are."""

    rivals: Array  # (C true, C predicted) r
    chance: Array  # of each τ²
    met: Array  # (C,) O
    expected: Array  # (C,) E

    @classmethod
    def learn(cls, size: Array, foretold: Foretold, predicted: Codes, truth: Codes) -> "TrueClasses":
        """Return what labels (n,) say; ``size`` (C,) is P."""
        effect, wrong = foretold.effect, truth != predicted
        first, second = (float(foretold.labelled @ effect**k) for k in (1, 2))
        scale = first / max(second, SMALLEST)
        met = scale * added(truth[wrong], effect[wrong], len(size))
        by_class = scale * added(predicted, effect * foretold.labelled, len(size))
        expected = np.stack([_rivals(size, beta) @ by_class for beta in EXPONENTS])[:, None]  # (exponents, 1, C)
        likelihood = _log_likelihood(met, expected).sum(axis=-1)  # (exponents, spreads)
        chance = np.exp(likelihood - likelihood.max())
        chance /= chance.sum()
        rivals = _rivals(size, float(chance.sum(axis=1) @ EXPONENTS))
        return cls(rivals, chance.sum(axis=0), met, rivals @ by_class)

    @property
    def before(self) -> "TrueClasses":
        """The same, of classes that no label is of."""
        return self._replace(met=0 * self.met, expected=0 * self.expected)

    def missed(self, left: Array) -> tuple[Array, Array]:
        """Return the mean and variance of what is missed of each class, (spreads, C), where ``left`` (C,) is S."""
        shape, rate = _SHAPES + self.met, _SHAPES + self.expected
        mean = left * shape / rate
        return mean, mean + left * mean / rate


def _rivals(size: Array, exponent: float) -> Array:
    """Return r (C true, C predicted)."""
    likely = np.maximum(size, 0.5) ** exponent
    share = np.where(np.eye(len(size), dtype=bool), 0.0, likely[:, None])
    return np.asarray(share / np.maximum(share.sum(axis=0), SMALLEST))


def _log_likelihood(met: Array, expected: Array) -> Array:
    """Return the logarithm of the negative binomial likelihood of counts for every τ², up to a constant."""
    from scipy.special import gammaln, xlogy

    found = gammaln(_SHAPES + met) - gammaln(_SHAPES) + xlogy(met, expected)
    found += _SHAPES * np.log(_SHAPES) - (_SHAPES + met) * np.log(_SHAPES + expected)
    return np.asarray(found)


class Average(NamedTuple):
    """The expectation of an average, and how it moves."""

    value: float
    variance: float  # over τ²
    by_tp: Array  # (C,) derivatives
    by_fn: Array
    missed: Array  # (C,) E FN


def expected_average(
    metric: Metric, size: Parts, tp: Array, spread: Array, known: Array, left: Array, classes: TrueClasses
) -> Average:
    """Return the expectation of an average at TP (C,) with the variance ``spread`` (C,), and M and S (C,) missed."""
    from scipy.special import gammaincinv

    mean, variance = classes.missed(left)
    shape = np.maximum(mean**2 / np.maximum(variance, SMALLEST), 1e-3)
    found = gammaincinv(shape[..., None], (np.arange(AVERAGED) + 0.5) / AVERAGED)  # (spreads, C, AVERAGED)
    found *= (mean / np.maximum(found.mean(axis=-1), SMALLEST))[..., None]
    deviation = np.minimum(np.sqrt(spread), np.minimum(tp, size.inside - tp))
    ends = tp + np.multiply.outer((-1, 1), deviation)  # (2, C)
    fn, tp = np.broadcast_arrays((found + known[:, None])[:, None], ends[..., None])  # (spreads, 2, C, AVERAGED)
    sizes = Parts(*(np.broadcast_to(own[:, None], fn.shape[1:]) for own in size))
    rows = [slopes(metric, *own, sizes, _STEP) for own in zip(tp, fn, strict=True)]
    values = np.array([value for value, _, _ in rows])
    value = float(classes.chance @ values)
    by_tp, by_fn = (np.einsum("t,tjcq->c", classes.chance, np.stack([own[k] for own in rows])) for k in (1, 2))
    return Average(value, float(classes.chance @ (values - value) ** 2), by_tp, by_fn, known + classes.chance @ mean)
