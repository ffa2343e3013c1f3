"""Compare models: two by paired outcomes, several by the labels of one sample, or two by independent samples.

**Two models, one sample.** The labels show for every example whether each model is right, so the difference of their
accuracies is the mean of d = y_first - y_second in [-1, 1], estimated by the design that drew the sample. Where both
are right or both are wrong d = 0: models with the same errors are compared far better than each is estimated.

The interval combines two sides of d: A = mean of max(d, 0), where the first model is better, and B = mean of max(-d,
0). Both are shares that may be small, each with the weighted Clopper-Pearson interval [l, u]. The difference of two
such estimates with correlation ρ has the bounds of G. Y. Zou and A. Donner, "Construction of confidence limits about
effect measures", Statistics in Medicine 27 (2008), after R. G. Newcombe (ibid. 17, 1998) for paired shares:

    low   A - B - √((A - l_A)² - 2ρ(A - l_A)(u_B - B) + (u_B - B)²)
    high  A - B + √((u_A - A)² - 2ρ(u_A - A)(B - l_B) + (B - l_B)²)

with ρ from v(A - B) = v(A) + v(B) - 2ρ√(v(A)·v(B)), v as in :mod:`opacc_ray.designs.design`. So the interval has a
width even if no label separates the models.

Models with the same prediction are right or wrong together. If the predictions of the whole pool are known, the
difference is certainly within

    (Σ_labelled d - U)/N   and   (Σ_labelled d + U)/N      U: unlabelled examples with different predictions

and the interval is cut to that: a short one for models that nearly agree, such as a model and its compressed form.

**Two samples** (two models, or one model on two pools) are compared by the same bounds with A and B the two accuracies,
each with the interval of its own design, and ρ = 0.

**Several models, one sample.** All P = M(M - 1)/2 differences hold together: each interval has the level 1 - (1 -
level)/P (Bonferroni). For six models that is 3 % wider than the exact quantile of the largest of 15 correlated
differences, whose distribution would depend on estimated correlations.

If each model has predicted failures (``failures.py``), with errors e = f - p and effects a of each label as
in ``distribution.py``, the difference of models A and B has the interval

    θ̂_A - θ̂_B ± t · s        s² = [m · v + 2 · v̂]/(m + 2) + h_A + h_B
    measured    v = Σ_t v_t(w_A e_A - w_B e_B)      from m = (Σr)²/Σr² terms,  r = (a_A e_A - a_B e_B)²
    predicted   v̂ = Σ a_A² p_A(1 - p_A) + Σ a_B² p_B(1 - p_B)    as for independent failures, which is conservative
    half        h = ½ Σpa²/Σp                       half a failure of each model, for those that the sample missed

and t Student's quantile. Without predictions it is the paired difference at that level. Both are cut as above.

The probability that a model is best is the share of draws in which it is the largest, from the normal distribution with
the estimates as mean and their estimated covariance, h added to the variances: a parametric bootstrap, seeded.

Legend: y outcome of one model, N pool, n labels, M models, f = 1 - outcome, p predicted failure, w weight of a round.

**A metric of several models, one sample.** The metric of a model is a function g of the totals TP and FN of its classes
(:mod:`opacc_ray.metrics.metric`). The design estimates them over parts of known size, as in
:mod:`opacc_ray.estimation.totals`:

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

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimation import intervals
from opacc_ray.estimation.constants import DRAWS, PRIOR_LABELS
from opacc_ray.estimation.distribution import shrunk_variance
from opacc_ray.estimation.estimate import KnownPool, measure_failures, numbers_of
from opacc_ray.estimation.failures import PoolFailures, failures_by_design, uses_regression
from opacc_ray.estimation.sample import Rounds, Sample, check_level, join
from opacc_ray.metrics.metric import AVERAGES, Metric, Parts, slopes
from opacc_ray.parts.view import View, views_of
from opacc_ray.pool import History, Pool, histories_of
from opacc_ray.samplers.select import refuse_other_pools
from opacc_ray.selection import Outcome, Selection, is_binary

PAIRED, INDEPENDENT = "paired difference", "difference of independent estimates"
PREDICTED = "difference of predicted models"


Array = NDArray[np.float64]


# -- two models ---------------------------------------------------------------------------------------------------


def independent_difference(first: intervals.Estimate, second: intervals.Estimate) -> intervals.Estimate:
    """Return the first accuracy minus the second one, in [-1, 1], from two independent samples and one level.

    ``n`` counts the labels of both.
    """
    a, b = intervals.clipped(first), intervals.clipped(second)
    low = a - b - _distance(a - first.low, second.high - b, 0.0)
    high = a - b + _distance(first.high - a, b - second.low, 0.0)
    found = intervals.Estimate(
        value=first.value - second.value,
        standard_error=math.hypot(first.standard_error, second.standard_error),
        low=max(low, -1.0),
        high=min(high, 1.0),
        level=first.level,
        method=INDEPENDENT,
        n=first.n + second.n,
        design_based=first.design_based and second.design_based,
        reason=intervals.joined_reasons((first.reason, second.reason)),
    )
    return intervals.within_interval(found)


class DifferenceLimits(NamedTuple):
    """Limits of the difference of two models that predictions of the whole pool and labels prove."""

    low: float
    high: float
    num_unlike: int  # examples of the pool on which the predictions differ


def difference_limits(
    first: NDArray[Any], second: NDArray[Any], index: NDArray[np.int64], d: Outcome
) -> DifferenceLimits:
    """Return the least and the largest possible mean of ``d`` over the pool.

    Parameters
    ----------
    first, second : (N,) predictions of each model for every example, in the same vocabulary
    index : (n,) the labelled examples, repeats included
    d : (n,) outcome of the first model minus that of the second

    Raises
    ------
    LabelError
        Both predict the same for a labelled example, and their outcomes differ.
    """
    unlike = first != second  # (N,)
    labelled, place = np.unique(index, return_index=True)
    conflict = labelled[~unlike[labelled] & (d[place] != 0)]
    if len(conflict):
        raise LabelError(
            f"two models predict {first[conflict[0]]!s} for example {conflict[0]} and have different outcomes there; "
            "give predictions in the same vocabulary for all models, or none"
        )
    met, num_unlike = float(d[place].sum()), int(np.count_nonzero(unlike))
    rest = num_unlike - int(np.count_nonzero(unlike[labelled]))
    return DifferenceLimits((met - rest) / len(unlike), (met + rest) / len(unlike), num_unlike)


def paired_difference(rounds: Rounds, d: Outcome, level: float) -> intervals.Estimate:
    """Estimate the mean of ``d`` (n,), in [-1, 1], with the interval of two models above."""
    sides = np.stack([np.maximum(d, 0), np.maximum(-d, 0)], axis=1)  # (n, 2)
    shares, rests = _moments(rounds, sides), _moments(rounds, 1 - sides)
    bounds_a, bounds_b = (
        intervals.weighted_share_interval(share, rest, rounds.largest_weight, level)
        for share, rest in zip(shares, rests, strict=True)
    )
    (a, variance_a), (b, variance_b) = shares
    variance = float(rounds.variance(d))
    product = 2 * math.sqrt(variance_a * variance_b)
    correlation = (variance_a + variance_b - variance) / product if product else 0.0
    low = max(a - b - _distance(a - bounds_a[0], bounds_b[1] - b, correlation), -1.0)
    high = min(a - b + _distance(bounds_a[1] - a, b - bounds_b[0], correlation), 1.0)
    reason = rounds.reason
    return intervals.Estimate(a - b, math.sqrt(variance), low, high, level, PAIRED, len(d), reason is None, reason)


def _moments(rounds: Rounds, x: NDArray[np.float64]) -> list[intervals.Moments]:
    """Return the estimated mean of each column of ``x`` (n, k), and its variance."""
    means, variances = rounds.mean(x).tolist(), rounds.variance(x).tolist()
    return [intervals.Moments(*own) for own in zip(means, variances, strict=True)]


def _distance(one: float, two: float, correlation: float) -> float:
    return math.sqrt(max(one**2 - 2 * correlation * one * two + two**2, 0.0))


# -- several models -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """Difference in accuracy of two models."""

    first: int  # place of the model
    second: int
    difference: intervals.Estimate  # first - second, in [-1, 1]; the intervals of all pairs hold together
    num_first_better: int  # labels on which the first has the higher outcome
    num_second_better: int
    num_unlike: int | None = None  # examples of the pool with different predictions; None: not known

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, under the names of the attributes."""
        return asdict(self) | {"difference": self.difference.to_dict()}


@dataclass(frozen=True)
class SeveralModels:
    """Accuracy of each model, and all differences."""

    models: tuple[intervals.Estimate, ...]
    best: tuple[float, ...]  # probability that each is the most accurate
    differences: tuple[Difference, ...]  # of each pair, in order: (0, 1), (0, 2), ... (1, 2), ...

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, under the names of the attributes."""
        return {
            "models": [item.to_dict() for item in self.models],
            "best": list(self.best),
            "differences": [item.to_dict() for item in self.differences],
        }


def compare_accuracies(
    samples: Sequence[Sample], failures: Sequence[PoolFailures], level: float, *, predicted: bool
) -> SeveralModels:
    """Compare models by one sample: its labels for each of them, and the total of failures of each.

    Each accuracy holds at ``level``, and all differences together. ``predicted`` is whether failures are predicted by
    all labels; otherwise differences are by the design alone.
    """
    rounds, rows = samples[0].rounds, np.stack([sample.outcome for sample in samples])  # (M, n)
    estimates, num = [own.accuracy(level) for own in failures], len(samples)
    if predicted:
        errors = np.stack([own.labels.scale * own.labels.error for own in failures], axis=1)  # (n, M)

        def variance(x: Array) -> Any:
            return sum(part.design.variance(x[part.places]) for part in rounds.parts)

        covariance = covariance_of(errors, variance) + np.diag([own.labels.half_failure[1] for own in failures])
    else:
        half = 0.5 * float(np.mean(rounds.weights**2)) * (rounds.largest_weight > 0)
        covariance = covariance_of(rows.T, rounds.variance) + half * np.eye(num)
    pairs, differences = list(combinations(range(num), 2)), []
    own_level, size = intervals.level_of_each(level, len(pairs)), rounds.pool_size if is_binary(rows) else None
    for a, b in pairs:
        if predicted:
            measured, both = float(variance(errors[:, a] - errors[:, b])), (failures[a], failures[b])
            found = _predicted_difference((estimates[a], estimates[b]), both, measured, own_level)
        else:
            found = paired_difference(rounds, rows[a] - rows[b], own_level)
        found = intervals.within_interval(replace(found, level=level), size)
        differences.append(Difference(a, b, found, int((rows[a] > rows[b]).sum()), int((rows[a] < rows[b]).sum())))
    values = np.array([own.value for own in estimates])
    return SeveralModels(tuple(estimates), tuple(best_probability(values, covariance)), tuple(differences))


def _predicted_difference(
    estimates: tuple[intervals.Estimate, intervals.Estimate],
    failures: tuple[PoolFailures, PoolFailures],
    measured: float,
    level: float,
) -> intervals.Estimate:
    first, second = (own.labels for own in failures)
    value = estimates[0].value - estimates[1].value
    confirmed, num = min(first.agreement, second.agreement) if failures[0].is_binary else 0.0, len(first.effect)
    foreseen = first.predicted_variance + second.predicted_variance if failures[0].is_binary else 0.0
    variance = shrunk_variance(measured, foreseen, num, confirmed) + first.half_failure[1] + second.half_failure[1]
    half_width = intervals.student_quantile(num + PRIOR_LABELS * confirmed - 1, level) * math.sqrt(variance)
    if failures[0].total.labelled >= failures[0].total.size:
        half_width = measured = 0.0
    low, high = max(value - half_width, -1.0), min(value + half_width, 1.0)
    reason = intervals.joined_reasons(own.reason for own in estimates)
    based = all(own.design_based for own in estimates)
    return intervals.Estimate(value, math.sqrt(measured), low, high, level, PREDICTED, estimates[0].n, based, reason)


def cut_to_predictions(
    found: SeveralModels,
    samples: Sequence[Sample],
    predictions: Sequence[NDArray[Any]],
) -> SeveralModels:
    """Cut the intervals of differences to the limits that ``predictions``, (N,) of each model, prove.

    Raises
    ------
    LabelError
        As :func:`difference_limits`.
    """
    index, rows = samples[0].rounds.index, [sample.outcome for sample in samples]

    def cut_pair(pair: Difference) -> Difference:
        a, b, stated = pair.first, pair.second, pair.difference
        limits = difference_limits(predictions[a], predictions[b], index, rows[a] - rows[b])
        low, high = intervals.cut((stated.low, stated.high), limits.low, limits.high)
        found = intervals.within_interval(replace(stated, low=low, high=high))
        return replace(pair, difference=found, num_unlike=limits.num_unlike)

    return replace(found, differences=tuple(map(cut_pair, found.differences)))


def best_probability(values: Array, covariance: Array) -> list[float]:
    """Return the probability that each of M models is best, from estimates (M,) and ``covariance`` (M, M)."""
    size, direction = np.linalg.eigh(covariance)
    root = direction * np.sqrt(np.maximum(size, 0))
    drawn = values + np.random.default_rng(0).standard_normal((DRAWS, len(values))) @ root.T
    best = drawn == drawn.max(axis=1, keepdims=True)
    share: list[float] = (best / best.sum(axis=1, keepdims=True)).mean(axis=0).tolist()
    return share


def covariance_of(x: Array, variance: Callable[[Array], Any]) -> Array:
    """Return the covariance (M, M) of the estimated means of ``x`` (n, M), from variances of differences."""
    num = x.shape[1]
    differences = (x[:, :, None] - x[:, None, :]).reshape(len(x), num * num)
    own: Array = np.asarray(variance(x), dtype=np.float64)
    apart: Array = np.asarray(variance(differences), dtype=np.float64).reshape(num, num)
    return (own[:, None] + own - apart) / 2


Codes = NDArray[np.integer]

DIFFERENCE = "linearised difference"

_BLOCK = 1 << 10


class Linearised(NamedTuple):
    """A metric of one model."""

    predicted: Codes  # (N,)
    value: float
    moves: Array  # (n,) u of each label
    effect: Array  # (C true, C predicted) e


def linearise(sample: Sample, metric: Metric, place: int, predicted: Codes, num: int) -> Linearised:
    """Return a metric of a model and how each label moves it; the sample has true classes, 0 .. ``num`` - 1.

    ``place`` is the class of the metric, which averages do not use; ``predicted`` (N,) has the class of every example.
    """
    assert sample.truth is not None
    rounds = sample.rounds
    classes = np.arange(num) if metric.name in AVERAGES else np.array([place])
    size = len(predicted)
    inside = np.bincount(predicted, minlength=num)[classes].astype(np.float64)
    parts = Parts(inside, size - inside)
    here = predicted[rounds.index][:, None] == classes  # (n, k)
    is_class = sample.truth[:, None] == classes
    wrong, wrong_rest, found = _share(rounds, here, ~is_class)
    missed, missed_rest, others = _share(rounds, ~here, is_class)
    value, _, _ = slopes(metric, inside * (1 - wrong), parts.outside * missed, parts)
    half = 0.5 * float(np.mean(rounds.weights)) * (rounds.largest_weight > 0)
    tp = inside * (1 - np.minimum(wrong + half / found, 1))
    _, by_tp, by_fn = slopes(metric, tp, parts.outside * np.minimum(missed + half / others, 1), parts)
    moves = missed_rest @ (by_fn * parts.outside / others) - wrong_rest @ (by_tp * inside / found)
    effect = np.zeros((num, num))
    effect[classes, :] += by_fn[:, None]
    effect[:, classes] -= by_tp
    effect[np.arange(num), np.arange(num)] = 0.0
    return Linearised(predicted, value, moves, size * effect)


def _share(rounds: Rounds, member: NDArray[np.bool_], event: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Return the share of events in each part, what each label differs from it (n, k), and the estimated sizes."""
    found = np.maximum(np.asarray(rounds.mean(member.astype(np.float64))), 1e-300)
    share = np.asarray(rounds.mean((member & event).astype(np.float64))) / found
    return share, member * (event - share), found


def compare_metric(
    sample: Sample, models: Sequence[Linearised], estimates: Sequence[intervals.Estimate], level: float
) -> SeveralModels:
    """Compare a metric of several models, whose ``estimates`` are given; all differences hold together at the level."""
    rounds = sample.rounds
    pairs = list(combinations(range(len(models)), 2))
    own_level = intervals.level_of_each(level, len(pairs))
    right = np.stack([model.predicted[rounds.index] == sample.truth for model in models])  # (M, n)
    differences = []
    for a, b in pairs:
        found = intervals.within_interval(
            replace(metric_difference(rounds, models[a], models[b], own_level), level=level)
        )
        better = int((right[a] & ~right[b]).sum()), int((~right[a] & right[b]).sum())
        unlike = int(np.count_nonzero(models[a].predicted != models[b].predicted))
        differences.append(Difference(a, b, found, *better, unlike))
    values = np.array([model.value for model in models])
    moves = np.stack([model.moves for model in models], axis=1)
    half = np.diag([_half_event(rounds, [model.effect], [model.predicted]) for model in models])
    best = best_probability(values, covariance_of(moves, rounds.variance) + half)
    return SeveralModels(tuple(estimates), tuple(best), tuple(differences))


def metric_difference(rounds: Rounds, first: Linearised, second: Linearised, level: float) -> intervals.Estimate:
    """Return the metric of the first model minus that of the second, in [-1, 1]."""
    moves = first.moves - second.moves
    measured = max(float(rounds.variance(moves)), 0.0)
    half = _half_event(rounds, [first.effect, -second.effect], [first.predicted, second.predicted])
    value, degrees = first.value - second.value, max(len(moves) - 1, 1)
    width = intervals.student_quantile(degrees, level) * float(np.sqrt(measured + half))
    return intervals.Estimate(
        value=value,
        standard_error=float(np.sqrt(measured)),
        low=max(value - width, -1.0),
        high=min(value + width, 1.0),
        level=level,
        method=DIFFERENCE,
        n=len(moves),
        design_based=rounds.reason is None,
        reason=rounds.reason,
    )


def _half_event(rounds: Rounds, effects: Sequence[Array], predicted: Sequence[Codes]) -> float:
    """Return the variance that half an event adds; ``effects`` (C, C) and ``predicted`` (N,) of one or two models."""
    if not rounds.largest_weight:
        return 0.0
    pairs, count = np.unique(np.stack(predicted), axis=1, return_counts=True)  # (models, P)
    square = fourth = 0.0
    for at in range(0, len(count), _BLOCK):
        own = slice(at, at + _BLOCK)
        moved = sum(effect[:, place[own]] for effect, place in zip(effects, pairs, strict=True)) ** 2  # (C, P)
        square += float((moved * count[own]).sum())
        fourth += float((moved**2 * count[own]).sum())
    return 0.5 * float(np.mean(rounds.weights**2)) * fourth / max(square, 1e-300)


# -- from outcomes, or from labels ------------------------------------------------------------------------------


def compare_outcomes(
    selection: Selection | Sequence[Selection],
    outcomes: Sequence[Any],
    level: float = 0.95,
    *,
    pools: Iterable[Pool | View] | None = None,
    history: History | Sequence[History] | None = None,
    predictions: Sequence[ArrayLike] | None = None,
) -> SeveralModels:
    """Estimate the accuracy of each model, all differences, and the probability that each is the best.

    Parameters
    ----------
    selection : as for :func:`opacc_ray.estimate`: a selection, drawn for any of the models, or one per round
    outcomes : (models, n): a row per model; for rounds a list of these
    level : confidence level of each accuracy, and of all differences together
    pools : the pool of each model, with its features, of the same examples in the same order. For rounds drawn by
        `neyman` with ``combine="labels"``, all labels then predict the unlabelled outcomes
    history : data known before the first label, as given to select: one for all models or one for each
    predictions : (models, N) the prediction of each model for every example of the pool; a class has the same name or
        number for all models. Where two models agree, both are right or both are wrong, so their difference is at most
        the share of examples on which they disagree

    Returns
    -------
    SeveralModels
        Each difference is that of the two accuracies. Exception: `neyman` without pools, where accuracies use the
        predictions of the rounds, and differences the labels only.

    Raises
    ------
    LabelError
        There is no model, the outcomes do not fit the selection or the predictions, or rounds are missing.
    SpecError
        The number or size of pools or predictions is not that of the models and of the selection's pool.
    DataError
        A chosen example has another id in a pool.
    """
    check_level(level)
    selections = [selection] if isinstance(selection, Selection) else list(selection)
    given = _rows(selections, [outcomes] if isinstance(selection, Selection) else outcomes)
    num = len(given[0])
    first = join(selections, [rows[0] for rows in given])
    models = [
        first,
        *(replace(join(selections, [rows[m] for rows in given]), rounds=first.rounds) for m in range(1, num)),
    ]
    size = first.rounds.pool_size
    predicted = None if predictions is None else _checked(predictions, num, size)
    views = None if pools is None else _views(pools, num, selections, size)
    by_fit = views is not None and uses_regression(selections)
    if views is not None and by_fit:
        known = histories_of(history, num)
        models = [replace(sample, history=own) for sample, own in zip(models, known, strict=True)]
        failures = [measure_failures(view, sample)[0] for view, sample in zip(views, models, strict=True)]
    else:
        failures = [failures_by_design(sample) for sample in models]
    found = compare_accuracies(models, failures, level, predicted=by_fit)
    return found if predicted is None else cut_to_predictions(found, models, predicted)


def compare_by(metric: Metric, models: Sequence[tuple[KnownPool, Sample]], level: float) -> SeveralModels:
    """Compare a metric of several models, which have the same labels and classes; differences are by the design alone.

    Raises SpecError for a number that judges the confidence, and as :func:`estimate`.
    """
    if metric.judges_confidence:
        raise SpecError(f"{metric} is not compared between models; estimate it for each, or compare the accuracy")
    numbers = [numbers_of(pool, sample) for pool, sample in models]
    place, (pool, sample) = numbers[0].place_of(metric), models[0]
    found = [linearise(sample, metric, place, own.predicted, len(pool.classes)) for own, _ in models]
    return compare_metric(sample, found, [own.estimate(metric, level) for own in numbers], level)


def _views(pools: Iterable[Pool | View], num_models: int, selections: Sequence[Selection], size: int) -> list[View]:
    """Return the pools of all models; raises SpecError or DataError if one is not the pool of the selections."""
    views = views_of(pools)
    if len(views) != num_models or views[0].size != size:
        raise SpecError(
            f"{len(views)} pools of {views[0].size} examples, for {num_models} models and a selection of {size} "
            "examples: give one pool per model, each the pool of the selection"
        )
    refuse_other_pools(views, selections)
    return views


def _checked(predictions: Sequence[ArrayLike], num_models: int, size: int) -> list[NDArray[Any]]:
    """Return the predictions of each model, (N,); raises SpecError unless each model has one for every example."""
    given = [np.asarray(own) for own in predictions]
    shapes = [own.shape for own in given]
    if shapes != [(size,)] * num_models:
        raise SpecError(
            f"predictions have the shapes {shapes}, for {num_models} models and a pool of {size} examples: give "
            "(N,) predictions for each model"
        )
    return given


def _rows(selections: Sequence[Selection], outcomes: Sequence[Any]) -> list[Any]:
    """Return the outcomes (models, n) of each round; raises LabelError unless all rounds have the same models."""
    given = list(outcomes)
    if len(given) != len(selections) or not given or not len(given[0]):
        raise LabelError(f"{len(selections)} rounds and outcomes of {len(given)}: give (models, n) for each round")
    nums = {len(rows) for rows in given}
    if len(nums) > 1:
        raise LabelError(f"the rounds have outcomes of {sorted(nums)} models; give a row per model in every round")
    return given
