"""Compare a metric of several models by the labels of one sample.

The metric of a model is a function g of the totals TP and FN of its classes (:mod:`opacc_ray.estimators.metrics`). The
design estimates them over parts of known size, as in :mod:`opacc_ray.estimators.design_evidence`:

    TP_c = P_c(1 - R_c)        R_c  share of failures among the P_c examples predicted as c
    FN_c = (N - P_c)Q_c        Q_c  share of examples of class c among the others

with R = x̂/d̂, d the membership. To first order the estimate is θ plus the estimated mean of (C.-E. Särndal, B. Swensson,
J. Wretman, "Model Assisted Survey Sampling", 1992, 5.5)

    u = Σ_c [ ∂g/∂FN_c · (N - P_c)/d̂ · (missed_c - Q_c)[ŷ ≠ c]  -  ∂g/∂TP_c · P_c/d̂ · (wrong_c - R_c)[ŷ = c] ]

so the difference of two models has the variance of the mean of u_A - u_B: labels on which both err alike cancel. The
interval is normal, with Student's quantile, and allows for half an event that no label has shown:

    s² = v(u_A - u_B) + ½ w̄² · mean over the pool and the C classes k of (e_A(k) - e_B(k))²

where e(k) is the effect of one example of the pool if its true class is k, and w̄² the mean squared weight. Models that
predict the same for every example have no difference. All pairs hold together (Bonferroni). Predictions of failures are
not used: `neyman` states each model's metric more precisely than their difference.

Legend: N pool, n labels, C classes, k classes of the metric, ŷ predicted class, P its size, w weight of a label.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.metrics import AVERAGES, Metric, Parts, slopes
from opacc_ray.estimators.rounds import LinearEstimator

Array = NDArray[np.float64]
Codes = NDArray[np.integer]

DIFFERENCE = "linearised difference"


class Linearised(NamedTuple):
    """A metric of one model."""

    value: float
    moves: Array  # (n,) u of each label
    effect: Array  # (C true, C predicted) e


class Labelled(NamedTuple):
    """The labels of one sample."""

    index: NDArray[np.int64]  # (n,) the examples
    truth: Codes  # (n,) their true classes, 0 .. C - 1
    num: int  # C


def linearise(design: LinearEstimator, metric: Metric, place: int, predicted: Codes, labels: Labelled) -> Linearised:
    """Return a metric of a model and how each label moves it.

    ``place`` is the class of the metric, which averages do not use; ``predicted`` (N,) has the class of every example.
    """
    num = labels.num
    classes = np.arange(num) if metric.name in AVERAGES else np.array([place])
    size = len(predicted)
    inside = np.bincount(predicted, minlength=num)[classes].astype(np.float64)
    parts = Parts(inside, size - inside)
    here = predicted[labels.index][:, None] == classes  # (n, k)
    is_class = labels.truth[:, None] == classes
    wrong, wrong_rest, found = _share(design, here, ~is_class)
    missed, missed_rest, others = _share(design, ~here, is_class)
    value, _, _ = slopes(metric, inside * (1 - wrong), parts.outside * missed, parts)
    half = 0.5 * float(np.mean(design.weights)) * (design.largest_weight > 0)
    tp = inside * (1 - np.minimum(wrong + half / found, 1))
    _, by_tp, by_fn = slopes(metric, tp, parts.outside * np.minimum(missed + half / others, 1), parts)
    moves = missed_rest @ (by_fn * parts.outside / others) - wrong_rest @ (by_tp * inside / found)
    effect = np.zeros((num, num))
    effect[classes, :] += by_fn[:, None]
    effect[:, classes] -= by_tp
    effect[np.arange(num), np.arange(num)] = 0.0
    return Linearised(value, moves, size * effect)


def _share(design: LinearEstimator, member: NDArray[np.bool_], event: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Return the share of events in each part, what each label differs from it (n, k), and the estimated sizes."""
    found = np.maximum(np.asarray(design.mean(member.astype(np.float64))), 1e-300)
    share = np.asarray(design.mean((member & event).astype(np.float64))) / found
    return share, member * (event - share), found


def metric_difference(
    design: LinearEstimator, pair: tuple[Linearised, Linearised], predicted: tuple[Codes, Codes], level: float
) -> Estimate:
    """Return the metric of the first model minus that of the second; ``predicted`` (N,) of each model."""
    from scipy.stats import t

    first, second = pair
    moves = first.moves - second.moves
    measured = float(design.variance(moves))
    num = len(first.effect)
    cells = np.bincount(predicted[0].astype(np.int64) * num + predicted[1], minlength=num * num).reshape(num, num)
    apart = first.effect[:, :, None] - second.effect[:, None, :]  # (true, first, second)
    power = [float((cells * (apart**k).mean(axis=0)).sum()) for k in (2, 4)]
    unseen = power[1] / max(power[0], 1e-300)
    half = 0.5 * float(np.mean(design.weights**2)) * unseen * (design.largest_weight > 0)
    value, degrees = first.value - second.value, design.degrees or max(len(moves) - 1, 1)
    width = float(t.ppf((1 + level) / 2, degrees)) * float(np.sqrt(measured + half))
    return Estimate(
        value=value,
        standard_error=float(np.sqrt(measured)),
        low=max(value - width, -1.0),
        high=min(value + width, 1.0),
        level=level,
        interval=DIFFERENCE,
        n=len(moves),
        design_based=design.reason is None,
        reason=design.reason,
    )
