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

    s² = v(u_A - u_B) + ½ w̄² · Σe⁴/Σe²        e = e_A(k) - e_B(k), summed over the pool and the C classes k

where e(k) is the effect of one example of the pool if its true class is k, and w̄² the mean squared weight: Σe⁴/Σe² is
the typical squared effect of the examples that have any. For the same reason the slopes are those with half an event
more in each part, so that a recall of 1 in the sample has some. Models that predict the same for every example have no
difference. All pairs hold together (Bonferroni).

Predictions of failures are not used. They make each metric more precise, but not the difference: labels on which both
models err alike cancel by the design, while the predictions of two models err apart. On Fashion-MNIST, with 200 labels
of `neyman`, predictions raise the error of a difference of F1 or recall by a fifth to a half where one model is the
other with 5 % of its answers changed, and by more than a half where the models are unlike.

Legend: N pool, n labels, C classes, k classes of the metric, ŷ predicted class, P its size, w weight of a label.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.accuracy_estimate import Estimate, within_interval
from opacc_ray.estimators.intervals import level_of_each, student_quantile
from opacc_ray.estimators.metrics import AVERAGES, Metric, Parts, slopes
from opacc_ray.estimators.model_comparison import Difference, SeveralModels, best_probability, covariance_of
from opacc_ray.estimators.rounds import LinearEstimator

Array = NDArray[np.float64]
Codes = NDArray[np.integer]

DIFFERENCE = "linearised difference"

_BLOCK = 1 << 10


class Linearised(NamedTuple):
    """A metric of one model."""

    predicted: Codes  # (N,)
    value: float
    moves: Array  # (n,) u of each label
    effect: Array  # (C true, C predicted) e


class Labelled(NamedTuple):
    """The labels of one sample."""

    places: NDArray[np.int64]  # (n,) the examples
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
    here = predicted[labels.places][:, None] == classes  # (n, k)
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
    return Linearised(predicted, value, moves, size * effect)


def _share(design: LinearEstimator, member: NDArray[np.bool_], event: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Return the share of events in each part, what each label differs from it (n, k), and the estimated sizes."""
    found = np.maximum(np.asarray(design.mean(member.astype(np.float64))), 1e-300)
    share = np.asarray(design.mean((member & event).astype(np.float64))) / found
    return share, member * (event - share), found


def compare_metric(
    design: LinearEstimator, models: Sequence[Linearised], estimates: Sequence[Estimate], labels: Labelled, level: float
) -> SeveralModels:
    """Compare a metric of several models, whose ``estimates`` are given; all differences hold together at the level."""
    pairs = list(combinations(range(len(models)), 2))
    own_level = level_of_each(level, len(pairs))
    right = np.stack([model.predicted[labels.places] == labels.truth for model in models])  # (M, n)
    differences = []
    for a, b in pairs:
        found = within_interval(replace(metric_difference(design, models[a], models[b], own_level), level=level))
        better = int((right[a] & ~right[b]).sum()), int((~right[a] & right[b]).sum())
        unlike = int(np.count_nonzero(models[a].predicted != models[b].predicted))
        differences.append(Difference(a, b, found, *better, unlike))
    values = np.array([model.value for model in models])
    moves = np.stack([model.moves for model in models], axis=1)
    half = np.diag([_half_event(design, [model.effect], [model.predicted]) for model in models])
    best = best_probability(values, covariance_of(moves, design.variance) + half)
    return SeveralModels(tuple(estimates), tuple(best), tuple(differences))


def metric_difference(design: LinearEstimator, first: Linearised, second: Linearised, level: float) -> Estimate:
    """Return the metric of the first model minus that of the second, in [-1, 1]."""
    moves = first.moves - second.moves
    measured = max(float(design.variance(moves)), 0.0)
    half = _half_event(design, [first.effect, -second.effect], [first.predicted, second.predicted])
    value, degrees = first.value - second.value, design.degrees or max(len(moves) - 1, 1)
    width = student_quantile(degrees, level) * float(np.sqrt(measured + half))
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


def _half_event(design: LinearEstimator, effects: Sequence[Array], predicted: Sequence[Codes]) -> float:
    """Return the variance that half an event adds; ``effects`` (C, C) and ``predicted`` (N,) of one or two models."""
    if not design.largest_weight:
        return 0.0
    pairs, count = np.unique(np.stack(predicted), axis=1, return_counts=True)  # (models, P)
    square = fourth = 0.0
    for at in range(0, len(count), _BLOCK):
        own = slice(at, at + _BLOCK)
        moved = sum(effect[:, place[own]] for effect, place in zip(effects, pairs, strict=True)) ** 2  # (C, P)
        square += float((moved * count[own]).sum())
        fourth += float((moved**2 * count[own]).sum())
    return 0.5 * float(np.mean(design.weights**2)) * fourth / max(square, 1e-300)
