"""Several models by the labels of one sample: their accuracies, all differences, and which is best.

The labels say of every example whether each model is right, so all models are estimated by the same sample, and what
they have in common cancels in their differences. All P = M(M - 1)/2 differences hold together with the probability that
is stated: each interval has the level 1 - (1 - level)/P (Bonferroni). For six models that is 3 % wider than the exact
quantile of the largest of 15 correlated differences, whose law would rest on estimated correlations.

Where each model has predictions of its failures (``samplers/neyman/regression.py``), with errors e = f - p and
effects a of each label as in ``difference.py``, the difference of models A and B has the interval

    θ̂_A - θ̂_B ± t · s        s² = [m · v + 2 · v̂]/(m + 2) + h_A + h_B
    measured    v = Σ_t v_t(w_A e_A - w_B e_B)     resting on   m = (Σr)²/Σr² terms,  r = (a_A e_A - a_B e_B)²
    foreseen    v̂ = Σ a_A² p_A(1 - p_A) + Σ a_B² p_B(1 - p_B)    as if they failed independently, which is cautious
    half        h = ½ Σpa²/Σp                      half a failure of each, for those that the sample did not show

and t Student's quantile. Without predictions it is the paired difference of ``comparison.py``, at that level. Either is
cut to what is sure, if it is known what the models say of the whole pool.

The probability that a model is best is the share of draws in which it is the largest, from the normal law with the
estimates as its mean and their estimated covariance, h added to the variances: a parametric bootstrap, seeded. It is as
good as the normal law is here, and says nothing of how much better the best one is.

Legend: M models, n labels, f = 1 - outcome, p predicted failure, w weight of a round.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.base import Estimate, Outcome, contain, is_binary, joined_reasons
from opacc_ray.estimators.comparison import paired_difference, sure_difference
from opacc_ray.estimators.difference import Combined, Known, Labels, labels_of, trust_in
from opacc_ray.estimators.intervals import cut, normal_quantile, student_widening
from opacc_ray.estimators.linear import linear_estimator
from opacc_ray.estimators.plain import plain_estimate
from opacc_ray.selection import Selection

NAME = "difference of predicted models"
DRAWS = 20_000
"""Draws from the law of the estimates, for the probability to be best."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """How much more accurate a model is than another one."""

    first: int  # place of the model
    second: int
    difference: Estimate  # first - second, in [-1, 1]; the intervals of all pairs hold together
    num_first_better: int  # labels on which the first has the higher outcome
    num_second_better: int
    num_unlike: int | None = None  # examples of the pool on which the two say different things; None: not known


@dataclass(frozen=True)
class SeveralModels:
    """Accuracy of each model, and all their differences."""

    models: tuple[Estimate, ...]
    best: tuple[float, ...]  # probability that each is the most accurate
    differences: tuple[Difference, ...]  # of each pair, in order: (0, 1), (0, 2), ... (1, 2), ...

    def to_dict(self) -> dict[str, Any]:
        """JSON types, under the names of the attributes."""
        return asdict(self)


def compare_by_design(
    selections: Sequence[Selection], outcomes: Sequence[Sequence[Outcome]], level: float
) -> SeveralModels:
    """Compare models by the design alone.

    Parameters
    ----------
    selections : rounds of one pool
    outcomes : of each model: (n_t,) of each round
    level : at which each accuracy holds, and all differences together
    """
    design = linear_estimator(selections)
    estimates = [plain_estimate(selections, own, level) for own in outcomes]
    rows = _rows(outcomes)

    def difference(a: int, b: int, own_level: float) -> Estimate:
        return paired_difference(design, rows[a] - rows[b], own_level)

    half = 0.5 * float(np.mean(design.weights**2)) * (design.largest_weight > 0)
    covariance = _covariance(rows.T, design.variance) + half * np.eye(len(rows))
    return _compared(estimates, rows, covariance, difference, level, selections[0].pool_size)


def compare_predicted(
    selections: Sequence[Selection],
    outcomes: Sequence[Sequence[Outcome]],
    combined: Sequence[Combined],
    level: float,
) -> SeveralModels:
    """Compare models of which each has predictions of its own; ``combined`` is what the rounds say of each."""
    estimates = [own.estimate(level) for own in combined]
    labels = [labels_of(own.rounds, own.weight) for own in combined]
    moved = _moved(combined)  # (n, M)
    ends = np.cumsum([len(part) for part in selections])[:-1]

    def variance(x: Array) -> Any:
        parts = zip(selections, np.split(x, ends), strict=True)
        return sum(selection.design.variance(part) for selection, part in parts)

    def difference(a: int, b: int, own_level: float) -> Estimate:
        measured = float(variance(moved[:, a] - moved[:, b]))
        pair = estimates[a], estimates[b]
        return _predicted_difference(pair, (labels[a], labels[b]), combined[a].known, measured, own_level)

    half = np.diag([own.half_failure[1] for own in labels])
    covariance = _covariance(moved, variance) + half
    return _compared(estimates, _rows(outcomes), covariance, difference, level, selections[0].pool_size)


def _predicted_difference(
    pair: tuple[Estimate, Estimate], labels: tuple[Labels, Labels], known: Known, measured: float, level: float
) -> Estimate:
    first, second = labels
    value = pair[0].value - pair[1].value
    trust = trust_in((first.effect * first.error - second.effect * second.error) ** 2) if known.binary else 1.0
    variance = trust * measured + sum((1 - trust) * own.foreseen + own.half_failure[1] for own in labels)
    half_width = student_widening(first.degrees, level) * normal_quantile(level) * math.sqrt(variance)
    if known.num == known.pool_size:
        half_width = measured = 0.0
    low, high = max(value - half_width, -1.0), min(value + half_width, 1.0)
    reason = joined_reasons(own.reason for own in pair)
    based = all(own.design_based for own in pair)
    return Estimate(value, math.sqrt(measured), low, high, level, NAME, pair[0].n, based, reason)


def cut_to_predictions(
    found: SeveralModels,
    selections: Sequence[Selection],
    outcomes: Sequence[Sequence[Outcome]],
    predictions: Sequence[NDArray[Any]],
) -> SeveralModels:
    """Cut the intervals of differences to what ``predictions``, (N,) of each model, leave of them.

    Raises
    ------
    LabelError
        As :func:`opacc_ray.estimators.comparison.sure_difference`.
    """
    index, rows = np.concatenate([part.index for part in selections]), _rows(outcomes)

    def of_pair(pair: Difference) -> Difference:
        a, b, stated = pair.first, pair.second, pair.difference
        sure = sure_difference(predictions[a], predictions[b], index, rows[a] - rows[b])
        low, high = cut((stated.low, stated.high), sure.low, sure.high)
        return replace(pair, difference=contain(replace(stated, low=low, high=high)), num_unlike=sure.num_unlike)

    return replace(found, differences=tuple(map(of_pair, found.differences)))


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
    own_level = 1 - (1 - level) / max(len(pairs), 1)
    differences = [
        Difference(
            a,
            b,
            contain(replace(difference(a, b, own_level), level=level), size),
            int((rows[a] > rows[b]).sum()),
            int((rows[a] < rows[b]).sum()),
        )
        for a, b in pairs
    ]
    values = np.array([own.value for own in estimates])
    return SeveralModels(tuple(estimates), tuple(best_probability(values, covariance)), tuple(differences))


def best_probability(values: Array, covariance: Array) -> list[float]:
    """How probably each of M models is the best, for estimates (M,) with a ``covariance`` (M, M); equal ones share."""
    size, direction = np.linalg.eigh(covariance)
    root = direction * np.sqrt(np.maximum(size, 0))
    drawn = values + np.random.default_rng(0).standard_normal((DRAWS, len(values))) @ root.T
    best = drawn == drawn.max(axis=1, keepdims=True)
    share: list[float] = (best / best.sum(axis=1, keepdims=True)).mean(axis=0).tolist()
    return share


def _rows(outcomes: Sequence[Sequence[Outcome]]) -> Array:
    """Outcomes of each model over all rounds, (M, n)."""
    return np.array([np.concatenate(own) for own in outcomes], dtype=np.float64)


def _moved(combined: Sequence[Combined]) -> Array:
    """Errors of each label for each model, times the weight of their round: (n, M)."""
    return np.stack(
        [np.concatenate([w * part.error for w, part in zip(own.weight, own.rounds, strict=True)]) for own in combined],
        axis=1,
    )


def _covariance(x: Array, variance: Callable[[Array], Any]) -> Array:
    """Covariance of the estimated means of ``x`` (n, M), from the ``variance`` of sums and differences: (M, M)."""
    num = x.shape[1]
    differences = (x[:, :, None] - x[:, None, :]).reshape(len(x), num * num)
    own: Array = np.asarray(variance(x), dtype=np.float64)
    apart: Array = np.asarray(variance(differences), dtype=np.float64).reshape(num, num)
    return (own[:, None] + own - apart) / 2
