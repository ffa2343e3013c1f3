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
width even if no label separates the models. With replicates [l, u] is widened by Student's quantile.

Models with the same prediction are right or wrong together. If the predictions of the whole pool are known, the
difference is certainly within

    (Σ_labelled d - U)/N   and   (Σ_labelled d + U)/N      U: unlabelled examples with different predictions

and the interval is cut to that: a short one for models that nearly agree, such as a model and its compressed form.

**Two samples** (two models, or one model on two pools) are compared by the same bounds with A and B the two accuracies,
each with the interval of its own design, and ρ = 0.

**Several models, one sample.** All P = M(M - 1)/2 differences hold together: each interval has the level 1 - (1 -
level)/P (Bonferroni). For six models that is 3 % wider than the exact quantile of the largest of 15 correlated
differences, whose distribution would depend on estimated correlations.

If each model has predicted failures (``neyman/regression.py``), with errors e = f - p and effects a of each label as
in ``difference_estimator.py``, the difference of models A and B has the interval

    θ̂_A - θ̂_B ± t · s        s² = [m · v + 2 · v̂]/(m + 2) + h_A + h_B
    measured    v = Σ_t v_t(w_A e_A - w_B e_B)      from m = (Σr)²/Σr² terms,  r = (a_A e_A - a_B e_B)²
    predicted   v̂ = Σ a_A² p_A(1 - p_A) + Σ a_B² p_B(1 - p_B)    as for independent failures, which is conservative
    half        h = ½ Σpa²/Σp                       half a failure of each model, for those that the sample missed

and t Student's quantile. Without predictions it is the paired difference at that level. Both are cut as above.

The probability that a model is best is the share of draws in which it is the largest, from the normal distribution with
the estimates as mean and their estimated covariance, h added to the variances: a parametric bootstrap, seeded.

Legend: y outcome of one model, N pool, n labels, M models, f = 1 - outcome, p predicted failure, w weight of a round.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError
from opacc_ray.estimators.accuracy_estimate import Estimate, joined_reasons, within_interval
from opacc_ray.estimators.design_based import design_based_estimate
from opacc_ray.estimators.difference_estimator import CombinedRounds, LabelEffects, label_effects, measured_weight
from opacc_ray.estimators.intervals import (
    Moments,
    clipped,
    cut,
    level_of_each,
    normal_quantile,
    student_widening,
    weighted_share_interval,
)
from opacc_ray.estimators.rounds import KnownOutcomes, LinearEstimator, Outcome, is_binary, linear_estimator
from opacc_ray.selection import Selection

PAIRED, INDEPENDENT = "paired difference", "difference of independent estimates"
PREDICTED = "difference of predicted models"

DRAWS = 20_000
"""Draws from the distribution of the estimates, for the probability of being best."""

Array = NDArray[np.float64]


# -- two models ---------------------------------------------------------------------------------------------------


def independent_difference(first: Estimate, second: Estimate) -> Estimate:
    """Return the first accuracy minus the second one, in [-1, 1], from two independent samples and one level.

    ``n`` counts the labels of both.
    """
    a, b = clipped(first), clipped(second)
    low = a - b - _distance(a - first.low, second.high - b, 0.0)
    high = a - b + _distance(first.high - a, b - second.low, 0.0)
    found = Estimate(
        value=first.value - second.value,
        standard_error=math.hypot(first.standard_error, second.standard_error),
        low=max(low, -1.0),
        high=min(high, 1.0),
        level=first.level,
        interval=INDEPENDENT,
        n=first.n + second.n,
        design_based=first.design_based and second.design_based,
        reason=joined_reasons((first.reason, second.reason)),
    )
    return within_interval(found)


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


def paired_difference(design: LinearEstimator, d: Outcome, level: float) -> Estimate:
    """Estimate the mean of ``d`` (n,), in [-1, 1], with the interval of two models above."""
    sides = np.stack([np.maximum(d, 0), np.maximum(-d, 0)], axis=1)  # (n, 2)
    shares, rests = _moments(design, sides), _moments(design, 1 - sides)
    widen = student_widening(design.degrees, level) ** 2
    bounds_a, bounds_b = (
        weighted_share_interval(share.widened(widen), rest.widened(widen), design.largest_weight, level)
        for share, rest in zip(shares, rests, strict=True)
    )
    (a, variance_a), (b, variance_b) = shares
    variance = float(design.variance(d))
    product = 2 * math.sqrt(variance_a * variance_b)
    correlation = (variance_a + variance_b - variance) / product if product else 0.0
    low = max(a - b - _distance(a - bounds_a[0], bounds_b[1] - b, correlation), -1.0)
    high = min(a - b + _distance(bounds_a[1] - a, b - bounds_b[0], correlation), 1.0)
    reason = design.reason
    return Estimate(a - b, math.sqrt(variance), low, high, level, PAIRED, len(d), reason is None, reason)


def _moments(design: LinearEstimator, x: NDArray[np.float64]) -> list[Moments]:
    """Return the estimated mean of each column of ``x`` (n, k), and its variance."""
    means, variances = design.mean(x).tolist(), design.variance(x).tolist()
    return [Moments(*own) for own in zip(means, variances, strict=True)]


def _distance(one: float, two: float, correlation: float) -> float:
    return math.sqrt(max(one**2 - 2 * correlation * one * two + two**2, 0.0))


# -- several models -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """Difference in accuracy of two models."""

    first: int  # place of the model
    second: int
    difference: Estimate  # first - second, in [-1, 1]; the intervals of all pairs hold together
    num_first_better: int  # labels on which the first has the higher outcome
    num_second_better: int
    num_unlike: int | None = None  # examples of the pool with different predictions; None: not known

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, under the names of the attributes."""
        return asdict(self) | {"difference": self.difference.to_dict()}


@dataclass(frozen=True)
class SeveralModels:
    """Accuracy of each model, and all differences."""

    models: tuple[Estimate, ...]
    best: tuple[float, ...]  # probability that each is the most accurate
    differences: tuple[Difference, ...]  # of each pair, in order: (0, 1), (0, 2), ... (1, 2), ...

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, under the names of the attributes."""
        return {
            "models": [item.to_dict() for item in self.models],
            "best": list(self.best),
            "differences": [item.to_dict() for item in self.differences],
        }


def compare_by_design(
    selections: Sequence[Selection], outcomes: Sequence[Sequence[Outcome]], level: float
) -> SeveralModels:
    """Compare models by the design alone, from the outcomes (n_t,) of each model and round.

    Each accuracy holds at ``level``, and all differences together.
    """
    design = linear_estimator(selections)
    estimates = [design_based_estimate(selections, own, level) for own in outcomes]
    rows = _rows(outcomes)

    def difference(a: int, b: int, own_level: float) -> Estimate:
        return paired_difference(design, rows[a] - rows[b], own_level)

    half = 0.5 * float(np.mean(design.weights**2)) * (design.largest_weight > 0)
    covariance = covariance_of(rows.T, design.variance) + half * np.eye(len(rows))
    return _compared(estimates, rows, covariance, difference, level, selections[0].pool_size)


def compare_predicted(
    selections: Sequence[Selection],
    outcomes: Sequence[Sequence[Outcome]],
    combined: Sequence[CombinedRounds],
    level: float,
) -> SeveralModels:
    """Compare models that each have predicted failures; ``combined`` has the estimate of each."""
    estimates = [own.estimate(level) for own in combined]
    labels = [label_effects(own.rounds, own.weight) for own in combined]
    weighted = [[w * part.error for w, part in zip(own.weight, own.rounds, strict=True)] for own in combined]
    errors = np.stack([np.concatenate(own) for own in weighted], axis=1)  # (n, M) times the weight of the round
    ends = np.cumsum([len(part) for part in selections])[:-1]

    def variance(x: Array) -> Any:
        parts = zip(selections, np.split(x, ends), strict=True)
        return sum(selection.design.variance(part) for selection, part in parts)

    def difference(a: int, b: int, own_level: float) -> Estimate:
        measured = float(variance(errors[:, a] - errors[:, b]))
        pair = estimates[a], estimates[b]
        return _predicted_difference(pair, (labels[a], labels[b]), combined[a].known, measured, own_level)

    half = np.diag([own.half_failure[1] for own in labels])
    covariance = covariance_of(errors, variance) + half
    return _compared(estimates, _rows(outcomes), covariance, difference, level, selections[0].pool_size)


def _predicted_difference(
    pair: tuple[Estimate, Estimate],
    labels: tuple[LabelEffects, LabelEffects],
    known: KnownOutcomes,
    measured: float,
    level: float,
) -> Estimate:
    first, second = labels
    value = pair[0].value - pair[1].value
    shrunk = measured_weight((first.effect * first.error - second.effect * second.error) ** 2) if known.binary else 1.0
    variance = shrunk * measured + sum((1 - shrunk) * own.predicted_variance + own.half_failure[1] for own in labels)
    half_width = student_widening(first.degrees, level) * normal_quantile(level) * math.sqrt(variance)
    if known.num == known.pool_size:
        half_width = measured = 0.0
    low, high = max(value - half_width, -1.0), min(value + half_width, 1.0)
    reason = joined_reasons(own.reason for own in pair)
    based = all(own.design_based for own in pair)
    return Estimate(value, math.sqrt(measured), low, high, level, PREDICTED, pair[0].n, based, reason)


def cut_to_predictions(
    found: SeveralModels,
    selections: Sequence[Selection],
    outcomes: Sequence[Sequence[Outcome]],
    predictions: Sequence[NDArray[Any]],
) -> SeveralModels:
    """Cut the intervals of differences to the limits that ``predictions``, (N,) of each model, prove.

    Raises
    ------
    LabelError
        As :func:`difference_limits`.
    """
    index, rows = np.concatenate([part.index for part in selections]), _rows(outcomes)

    def cut_pair(pair: Difference) -> Difference:
        a, b, stated = pair.first, pair.second, pair.difference
        limits = difference_limits(predictions[a], predictions[b], index, rows[a] - rows[b])
        low, high = cut((stated.low, stated.high), limits.low, limits.high)
        found = within_interval(replace(stated, low=low, high=high))
        return replace(pair, difference=found, num_unlike=limits.num_unlike)

    return replace(found, differences=tuple(map(cut_pair, found.differences)))


def _compared(
    estimates: Sequence[Estimate],
    rows: Array,
    covariance: Array,
    difference: Callable[[int, int, float], Estimate],
    level: float,
    pool_size: int,
) -> SeveralModels:
    """``rows`` (M, n) outcomes; ``difference`` of two models at a level of its own."""
    size = pool_size if is_binary(rows) else None
    pairs = list(combinations(range(len(rows)), 2))
    own_level = level_of_each(level, len(pairs))
    differences = []
    for a, b in pairs:
        found = within_interval(replace(difference(a, b, own_level), level=level), size)
        differences.append(Difference(a, b, found, int((rows[a] > rows[b]).sum()), int((rows[a] < rows[b]).sum())))
    values = np.array([own.value for own in estimates])
    return SeveralModels(tuple(estimates), tuple(best_probability(values, covariance)), tuple(differences))


def best_probability(values: Array, covariance: Array) -> list[float]:
    """Return the probability that each of M models is best, from estimates (M,) and ``covariance`` (M, M)."""
    size, direction = np.linalg.eigh(covariance)
    root = direction * np.sqrt(np.maximum(size, 0))
    drawn = values + np.random.default_rng(0).standard_normal((DRAWS, len(values))) @ root.T
    best = drawn == drawn.max(axis=1, keepdims=True)
    share: list[float] = (best / best.sum(axis=1, keepdims=True)).mean(axis=0).tolist()
    return share


def _rows(outcomes: Sequence[Sequence[Outcome]]) -> Array:
    """Return the outcomes of each model over all rounds, (M, n)."""
    return np.array([np.concatenate(own) for own in outcomes], dtype=np.float64)


def covariance_of(x: Array, variance: Callable[[Array], Any]) -> Array:
    """Return the covariance (M, M) of the estimated means of ``x`` (n, M), from variances of differences."""
    num = x.shape[1]
    differences = (x[:, :, None] - x[:, None, :]).reshape(len(x), num * num)
    own: Array = np.asarray(variance(x), dtype=np.float64)
    apart: Array = np.asarray(variance(differences), dtype=np.float64).reshape(num, num)
    return (own[:, None] + own - apart) / 2
