"""The accuracy: one minus the total of failures over the pool, by the design, by a fit to all labels, or a prediction.

Round t estimates the share of failures among the N_t examples that it was drawn from, and rounds are combined as in
:mod:`opacc_ray.estimation.sample`. With predictions p of every failure that share is

    r = (1/N_t) · [ Σ_rest p + Σ_batch (f - p) / π ]                                     (unbiased, whatever p)

The law of the total, and so its interval, is that of the one design:

    simple random sample     exact hypergeometric; with replacement exact binomial; several rounds of them are one
    strata                   stratified score; several rounds: over the strata of all of them, stratum j of round t with
                             the share w_t · (1 - N_t/N) · P_tj
    inclusion probability    adjusted Wilson
    purposive                as for a simple random sample: not design-based
    all others               weighted Clopper-Pearson, with one more failure at the largest weight, with probability ½
    scores                   weighted Clopper-Pearson: Student's interval misses rare, large losses; with a fit adjusted
                             Wilson, as in the parts of a pool

Other rounds have the adjusted Wilson law, each label of a round without predictions with the same effect. Where some
labels weigh more than others, it is on each side the wider end of that and the weighted Clopper-Pearson one. The wider
end matters where a few labels move the estimate far more than the rest: in the confident stratum of CSS, or for
examples that DeepEST, SUPS, RHC-S or 2-UPS were unlikely to draw. A sample that found few failures among those has too
high an estimate and too narrow an interval.

For scores with predictions, one unobserved large loss has the mean weight of the pool's examples, Σa²/Σa.

**By a fit.** The failure model is fitted to the labels of all rounds, and its predictions p replace those that each
round was drawn by, which are poor in the first ones. Round t then estimates, for the whole pool,

    z_t = (1/N) · [ Σ_before f + Σ_free p + Σ_batch (f - p)/π ]

    θ̂ = Σ_t w_t z_t        w_t ∝ 1/V_t,   V_t = N⁻² Σ_free p(1 - p)(1/π - 1)

with the sums over the examples that were free, not labelled yet, when the round was drawn, here or in any part of the
pool (:mod:`opacc_ray.estimation.totals`): the generalised regression estimator with a logistic model (R. Lehtonen, A.
Veijanen, "Logistic generalized regression estimators", Survey Methodology 24, 1998).

What is exact: if p were fixed before the labels, z_t would be unbiased for any p, and so would θ̂ with fixed weights.
They are not fixed: each label contributes to its own prediction; labels of later rounds, whose draw depends on those of
this one, contribute to p; and p decides V_t. The bias is measured, in ``docs/results/neyman.md``. Rounds without a fit
are exactly unbiased. Predictions without each label's own fold (cross-fitting) have less bias and more variance: the
errors of a fitted model sum to nearly zero over what it was fitted to, which balances the sample once more.

A fit to few labels is too good: of some twenty, the failures that happened to be drawn decide what is predicted. So
with λ = (n - 12)/20, between 0 and 1, the predictions are λp + (1 - λ)p_t, with p_t those that round t was drawn by.
The weights are λw_t + (1 - λ) times those of :mod:`opacc_ray.estimation.sample`. With a dozen labels the estimate is
that of rounds without a fit, and from 32 on it is as above.

A label that moves its own prediction by h, its leverage, has an error that is too small: of variance (1 - h) p(1 - p).
So variances are measured with errors over √(1 - h), as in linear regression (J. MacKinnon, H. White, Journal of
Econometrics 29, 1985: HC2).

Weights from V_t follow the predictions for the pool. Weights from the sample itself, such as 1/Σ_batch(1/π), are
biased, for they depend on which examples were drawn.

**By a prediction of every outcome** of the pool, for every design: prediction-powered. The model's confidence, or the
agreement with another model, predicts the outcome of each example at no cost. Its mean over the pool is known, so
labels only correct it. With q = 1 - prediction the predicted failure and D(·) the design's estimate of the mean of a
variable (:mod:`opacc_ray.designs.design`), the share of failures is

    θ̂ = λ·Q + D(f - λq) = D(f) + λ·(Q - D(q))        Q the mean of q over the pool, 0 <= λ <= 1

λ = 0 is the estimate of :func:`opacc_ray.estimate` and λ = 1 the difference estimator (W. G. Cochran, "Sampling
Techniques", 1977, 7.2; C.-E. Särndal, B. Swensson, J. Wretman, "Model Assisted Survey Sampling", 1992, 6.3). D is
linear, so for fixed λ θ̂ is unbiased where the design's estimator is, however poor the prediction. It is computed for
failures, as the designs are: for designs that search for failures D(1) is not 1, and D(y) is a poor estimate.

If ``strength`` is None, λ is tuned to the least estimated variance, as in regression estimators (Cochran, 7.3) and in
PPI++ (A. N. Angelopoulos, J. C. Duchi, T. Zrnic, "PPI++: Efficient Prediction-Powered Inference", 2023), with b² added:

    λ = C(f, q) / (v(q) + b²)  cut to [0, 1]         C = (v(f + q) - v(f - q)) / 4
                                                     b = max(max_k w_k q_k, Q - D(q)), at most w · max q

b is one more label, a false alarm: as large as the largest predicted failure of the sample, or as the predicted
failures that the sample lacks. Many labels make it negligible against v(q). With few labels it limits λ, because one
failure that was predicted by luck proves little. Without failures λ = 0. Tuning has a bias of order 1/n.

The interval is the weighted Clopper-Pearson one for θ̂, with one more label of the worst kind at either end: an
unpredicted failure of the largest weight at the upper end, and the false alarm at the lower end,

    lower    mean (θ̂ - λb)/(1 + w)    variance (v + (wθ̂ + λb)²) / ((1 + w)²·(1 + 2w))

(Zou and Donner's interval of ``model_comparison.py`` for the two sides of f - λq covers as well, but is up to 1.5 times
as wide as without assistance.) λ = 0 is the design's own interval.

Designs that already use the confidence for the draw gain little.

Legend: N pool, n labels, N_t examples left by earlier rounds, w_t weight of a round, P_tj share of a stratum, f = 1 -
outcome, p predicted failure, π inclusion probability, a effect of a label; w_k weight of a label, w the largest, v
estimated variance of D.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.designs import Design
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.designs.simple_random import Purposive, SimpleRandom, Stratified
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimation import constants, distribution, intervals
from opacc_ray.estimation.constants import FEW_PREDICTED, MID_P, SMALLEST
from opacc_ray.estimation.sample import Rounds, Sample
from opacc_ray.parts.view import View
from opacc_ray.pool import SOFTMAX_ROUNDING
from opacc_ray.samplers import neyman, parse_parameters
from opacc_ray.samplers.base import Previous, Task, unlabelled
from opacc_ray.samplers.neyman.failure_model import predict_failure
from opacc_ray.samplers.neyman.sampling import signals_for
from opacc_ray.samplers.plausibility import contradiction
from opacc_ray.selection import Selection

Array = NDArray[np.float64]

_UNEQUAL = ("stratified score", intervals.WEIGHTED)
"""Intervals, for one sample, of designs in which some labels weigh more than others."""

_CAUTION = (
    f"fewer than {FEW_PREDICTED} of the labelled examples were predicted to fail, and the interval depends on where "
    "failures are predicted; if they are rare and elsewhere, it covers less often than stated"
)


class PoolFailures(NamedTuple):
    """The total of failures over the pool."""

    total: distribution.Total
    labels: distribution.LabelEffects
    is_binary: bool
    design_based: bool
    reason: str | None

    def accuracy(self, level: float) -> intervals.Estimate:
        """Return the accuracy with its interval; with 0/1 outcomes the ends are multiples of 1/N."""
        total, num = self.total, len(self.labels.effect)
        low, high = total.interval(level)
        found = intervals.Estimate(
            value=1 - total.stated(),
            standard_error=total.error,
            low=1 - high,
            high=1 - low,
            level=level,
            method=total.law.name,
            n=num,
            design_based=self.design_based,
            reason=intervals.joined_reasons((self.reason, total.assumption(level))),
        )
        return intervals.within_interval(found, int(total.size) if self.is_binary else None)


def accuracy_of(failures: PoolFailures, sample: Sample, level: float) -> intervals.Estimate:
    """Return the accuracy, with a reason if the labels contradict what was predicted before them."""
    found, contradicted = failures.accuracy(level), contradiction(sample.rounds.selections, sample.outcomes())
    return replace(found, reason=intervals.joined_reasons((found.reason, contradicted)))


def failures_by_design(sample: Sample) -> PoolFailures:
    """Return the share of failures by the designs, and by what each round itself predicted."""
    share, variance, rows = 0.0, 0.0, list[tuple[Array, Array, Array]]()
    rounds, failure = sample.rounds, sample.failure
    for part in rounds.parts:
        design, of_round = part.design, failure[part.places]
        share += part.weight * float(failure[part.before].sum()) / rounds.pool_size
        share += part.scale * design.failure_share(of_round)
        variance += part.scale**2 * design.failure_variance(of_round)
        if design.prediction is not None:
            effect, expected = design.effects, design.prediction.labelled
        else:  # labels have equal effects, and p is their share of failures
            n = len(of_round)
            left = max(1 - n / rounds.pool_size, 0) if design.is_distinct else 1.0
            effect = np.full(n, math.sqrt(left) / n)
            expected = np.full(n, (float(of_round.sum()) + 0.5) / (n + 1))
        rows.append((part.scale * effect, expected, of_round - expected))
    effect, expected, error = (np.concatenate(column) for column in zip(*rows, strict=True))
    scale = np.repeat([part.scale for part in rounds.parts], [len(row[0]) for row in rows])
    assisted = any(part.design.prediction is not None for part in rounds.parts)
    labels, events = distribution.LabelEffects(effect, expected, error, scale, assisted), failure[rounds.first].sum()
    if rounds.is_census:
        share, variance = float(events) / rounds.pool_size, 0.0
    elif assisted and sample.is_binary:  # scores vary less than their predictions imply
        variance = distribution.shrunk_variance(variance, labels.predicted_variance, len(effect), labels.agreement)
    by_labels = float(rounds.mean(failure)) / max(float(rounds.weights.sum()), SMALLEST)
    total = distribution.Total(
        share, float(variance), rounds.pool_size, sample.size, float(events), labels.law(by_labels)
    )
    return pool_failures(sample, total, labels, is_fitted=False)


def pool_failures(
    sample: Sample, total: distribution.Total, labels: distribution.LabelEffects, *, is_fitted: bool
) -> PoolFailures:
    """Return the total of failures over the pool with what is to be said of it; its law is that of predictions."""
    rounds, parts = sample.rounds, sample.rounds.parts
    if not is_fitted:
        law = total.law
        if not sample.is_binary:
            largest = float(labels.effect @ labels.effect) / max(float(labels.effect.sum()), SMALLEST)
            law = distribution.Weighted(largest)
        law = _law_of_sample(parts[0].design, sample, law) if len(parts) == 1 else _law_of_rounds(sample, law)
        total = replace(total, law=law)
    reasons = [part.design.reason for part in parts]
    late = rounds.late if len(rounds.selections) > 1 and not is_fitted else None
    few = sample.is_binary and labels.assisted and labels.expected.sum() < FEW_PREDICTED
    return PoolFailures(
        total=total,
        labels=labels,
        is_binary=sample.is_binary,
        design_based=not any(reasons) and late is None,
        reason=intervals.joined_reasons([*reasons, _CAUTION if few else None, late]),
    )


def _law_of_sample(design: Design, sample: Sample, by_predictions: distribution.Law) -> distribution.Law:
    """Return the law that belongs to the design of one sample; raises KeyError for one without an interval."""
    if design.interval == "adjusted Wilson":
        return by_predictions
    if design.interval == intervals.WEIGHTED:
        return distribution.Weighted(design.weight_bound, _successes(sample), MID_P)
    as_random = f" ({design.interval})" if isinstance(design, Purposive) else ""
    if not sample.is_binary:
        return distribution.Weighted(design.weight_bound, name=intervals.WEIGHTED + as_random)
    if isinstance(design, Stratified):
        return distribution.StratifiedScore(_strata(sample))
    failures, num = round(float(sample.failure.sum())), len(sample.failure)
    if isinstance(design, Purposive):
        return distribution.Exact(failures, num, design.population, design.stand_in.interval + as_random)
    if isinstance(design, SimpleRandom):
        return distribution.Exact(failures, num, None if design.replacement else design.population, design.interval)
    raise KeyError(design.interval)


def _law_of_rounds(sample: Sample, by_labels: distribution.Law) -> distribution.Law:
    """Return the law of rounds of several designs; ``by_labels`` is that of labels that weigh alike."""
    parts = sample.rounds.parts
    unequal = any(part.design.prediction is None and part.design.interval in _UNEQUAL for part in parts)
    if not unequal or sample.rounds.is_census:
        return by_labels
    if sample.is_binary and all(isinstance(part.design, Stratified) for part in parts):
        right = [float(sample.outcome[part.before].sum()) for part in parts]
        known = sum(part.weight * own for part, own in zip(parts, right, strict=True)) / sample.rounds.pool_size
        return distribution.StratifiedScore(_strata(sample), known)
    largest = max(part.scale * part.design.weight_bound for part in parts)
    return distribution.Wider(distribution.Weighted(largest, _successes(sample), MID_P), by_labels)


def _successes(sample: Sample) -> intervals.Moments:
    return intervals.Moments(float(sample.rounds.mean(sample.outcome)), float(sample.rounds.variance(sample.outcome)))


def _strata(sample: Sample) -> intervals.Strata:
    """Return the strata of all rounds, each with its share of the estimate."""
    columns = []
    for part in sample.rounds.parts:
        assert isinstance(part.design, Stratified)
        design, right = part.design, sample.outcome[part.places]
        successes = np.bincount(design.stratum, weights=right, minlength=len(design.sizes))
        columns.append((successes, design.num, design.sizes, part.scale * design.shares))
    return intervals.Strata(*(np.concatenate(own).astype(np.float64) for own in zip(*columns, strict=True)))


# -- by a fit to all labels ---------------------------------------------------------------------------------------


class FittedRound(NamedTuple):
    """What is predicted for the labels of one round."""

    labelled: Array  # (n_t,) p
    leverage: Array  # (n_t,) h, in [0, 1)


class Free(NamedTuple):
    """The k examples that a round was drawn from."""

    before: NDArray[np.int64]  # (N - k,) sorted: the others
    failure: Array  # (k,) p
    odds: Array  # (k,) 1/π - 1


@dataclass(frozen=True, eq=False)
class Fit:
    """What the labels of all rounds teach about failures."""

    view: View
    sample: Sample
    failure: Array  # (N,) p of every example
    leverage: Array  # (n,) h
    trust: float  # λ

    def rounds(self) -> Iterator[tuple[FittedRound, Free]]:
        """Yield each round, with numbers of every example, one by one.

        The plan of a round is made again, from today's labels, and as if this model had had all labels to itself. Only
        the weights of rounds depend on that: labels weigh by the probabilities that were recorded when they were drawn.
        The predictions are λ of what is fitted, and 1 - λ of what the round was drawn by.
        """
        rounds, sample = self.sample.rounds, self.sample
        for selection, part in zip(rounds.selections, rounds.parts, strict=True):
            previous = Previous.of(rounds.index[part.before], sample.outcome[part.before])
            parameters = parse_parameters("neyman", selection.parameters)
            task = Task(recorded(selection).num_drawn, parameters, previous, history=sample.history)
            plan = neyman.plan(self.view, task)
            p, odds, before = plan.failure[0], plan.probability, plan.labelled
            del plan  # its arrays are as long as the pool; two are overwritten, and the others gone
            p *= 1 - self.trust
            p += self.trust * unlabelled(self.failure, before)
            odds *= len(selection) / task.budget
            np.divide(1, odds, out=odds)
            odds -= 1
            np.maximum(odds, 0, out=odds)
            labelled = p[selection.index - np.searchsorted(before, selection.index)]
            yield FittedRound(labelled, self.trust * self.leverage[part.places]), Free(before, p, odds)


def uses_regression(selections: Sequence[Selection]) -> bool:
    """Return whether rounds were drawn to be combined by this estimator."""
    return all(
        type(part.design) is InclusionProbability and part.parameters.get("combine") == "labels" for part in selections
    )


def fit_failures(view: View | None, sample: Sample) -> Fit | None:
    """Fit the failure model to all labels; None where the design alone speaks, or without the pool."""
    if view is None or not uses_regression(sample.rounds.selections):
        return None
    parameters = parse_parameters("neyman", sample.rounds.selections[0].parameters)
    signals = signals_for(view, parameters, sample.history)
    forecast = predict_failure(signals, sample.rounds.index, sample.failure)
    return Fit(view, sample, forecast.failure, forecast.leverage, trusted_share(len(sample.outcome)))


def recorded(selection: Selection) -> InclusionProbability:
    """Return how a round of `neyman` was drawn."""
    assert isinstance(selection.design, InclusionProbability)
    return selection.design


def trusted_share(num: int) -> float:
    """Return λ of ``num`` labels: how far predictions that are fitted to them are trusted."""
    return min(max((num - constants.UNTRUSTED) / (constants.TRUSTED - constants.UNTRUSTED), 0.0), 1.0)


# -- by a prediction of every outcome -----------------------------------------------------------------------------

_ROUNDING = 1e-12
"""Covariances smaller than the variances by this factor count as 0."""


class PredictedOutcomes(NamedTuple):
    """Predicted failures of the labels and of the pool."""

    failure: Array  # (n,) q
    mean: float  # Q
    largest: float


def assisted_estimate(
    sample: Sample, prediction: ArrayLike, level: float = 0.95, strength: float | None = None
) -> intervals.Estimate:
    """Estimate accuracy from the labels and a prediction of every outcome of the pool.

    Parameters
    ----------
    prediction : (N,) in [0, 1], in the order of the pool: the expected outcome, such as the model's confidence. It
        must not depend on the labels
    strength : λ in [0, 1]; None tunes it

    Returns
    -------
    Estimate
        Unbiased where :func:`opacc_ray.estimate` is if ``strength`` is given, else with a bias of order 1/n.

    Raises
    ------
    DataError
        The predictions are not N numbers in [0, 1].
    SpecError
        ``strength`` is not in [0, 1], or a selection was drawn by ``neyman``.
    """
    return assisted_failures(sample, prediction, strength).accuracy(level)


def assisted_failures(sample: Sample, prediction: ArrayLike, strength: float | None) -> PoolFailures:
    """Return the share of failures of :func:`assisted_estimate`; that of the design where λ = 0."""
    _refuse_predictions(sample)
    rounds, plain = sample.rounds, failures_by_design(sample)
    predicted = predict(sample, prediction)
    if strength is not None and (isinstance(strength, bool) or not 0 <= strength <= 1):
        raise SpecError(f"strength={strength!r}: give a number from 0 (no assistance) to 1, or None to tune it")
    used = _tuned(sample, predicted) if strength is None else float(strength)
    if used == 0:
        return plain
    error = sample.failure - used * predicted.failure
    share, variance = used * predicted.mean + float(rounds.mean(error)), float(rounds.variance(error))
    law = _Assisted(rounds.largest_weight, used * _false_alarm(rounds, predicted))
    if not rounds.is_census:
        plain = plain._replace(total=replace(plain.total, value=share, variance=variance))
    return plain._replace(total=replace(plain.total, law=law))


@dataclass(frozen=True)
class _Assisted(distribution.Law):
    """The weighted Clopper-Pearson law, with an unpredicted failure at one end and a false alarm at the other."""

    largest: float
    alarm: float  # λb
    name: str = "assisted weighted Clopper-Pearson"

    def ends(self, total: distribution.Total, level: float) -> intervals.Interval:
        weight, y, variance = self.largest, max(total.value, 0.0), total.variance
        shifted = variance + (weight * y + self.alarm) ** 2 - (weight * (y - self.alarm)) ** 2  # of the lower end
        low, _ = intervals.weighted_clopper_pearson(max(y - self.alarm, 0.0), shifted, weight, level)
        return low, intervals.weighted_clopper_pearson(y, variance, weight, level)[1]


def tuned_strength(sample: Sample, prediction: ArrayLike) -> float:
    """Return the λ that :func:`assisted_estimate` tunes: 0 if the prediction does not help, or no label fails."""
    _refuse_predictions(sample)
    return _tuned(sample, predict(sample, prediction))


def _refuse_predictions(sample: Sample) -> None:
    """Raise SpecError for rounds that predict every outcome themselves."""
    predicts = next((part.method for part in sample.rounds.selections if part.design.prediction is not None), None)
    if predicts:
        raise SpecError(
            f"{predicts} predicts every outcome itself, from the labels before each draw, and its estimate includes "
            "that prediction: leave the other one out"
        )


def predict(sample: Sample, prediction: ArrayLike) -> PredictedOutcomes:
    """Return the predicted failures of labels and pool; raises DataError unless each example has one in [0, 1]."""
    size = sample.rounds.pool_size
    try:
        values = np.asarray(prediction)
    except ValueError as error:  # rows that differ in length
        raise DataError(
            f"prediction is not made of numbers ({error}): give one per example of the whole pool"
        ) from None
    if values.shape != (size,) or values.dtype.kind not in "biuf":
        raise DataError(
            f"prediction has shape {values.shape} and type {values.dtype}, and the pool {size} examples: give one "
            "number per example of the whole pool, in its order"
        )
    bad = np.flatnonzero(~((values >= 0) & (values <= 1 + SOFTMAX_ROUNDING)))
    if len(bad):
        raise DataError(
            f"prediction {values[bad[0]]} of example number {bad[0]} of the pool is not in [0, 1]: give the "
            "expected outcome, 1 for correct"
        )
    values = np.minimum(values, 1)
    mean, least = float(values.mean(dtype=np.float64)), float(values.min())
    return PredictedOutcomes(1 - values[sample.rounds.index].astype(np.float64), 1 - mean, 1 - least)


def _tuned(sample: Sample, predicted: PredictedOutcomes) -> float:
    rounds, failure, q = sample.rounds, sample.failure, predicted.failure
    sums, differences, own = rounds.variance(np.stack([failure + q, failure - q, q], axis=1)).tolist()
    covariance, rounding = (sums - differences) / 4, _ROUNDING * (sums + differences)
    variance = own + _false_alarm(rounds, predicted) ** 2
    return min(covariance / variance, 1.0) if variance > 0 and covariance > rounding else 0.0


def _false_alarm(rounds: Rounds, predicted: PredictedOutcomes) -> float:
    """Return b, the most that one false alarm moves the estimate."""
    weight, q = rounds.weights, predicted.failure
    seen = float((weight * q).max()) * rounds.largest_weight / float(weight.max())
    lacking = predicted.mean - float(rounds.mean(q))
    return min(max(seen, lacking), rounds.largest_weight * predicted.largest)
