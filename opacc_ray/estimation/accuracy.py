"""The accuracy: one minus the total of failures over the whole pool, by the design, its predictions, or a fit.

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
    scores                   weighted Clopper-Pearson: Student's interval misses rare, large losses

Other rounds have the adjusted Wilson law, each label of a round without predictions with the same effect. Where some
labels weigh more than others, it is on each side the wider end of that and the weighted Clopper-Pearson one. The wider
end matters where a few labels move the estimate far more than the rest: in the confident stratum of CSS, or for
examples that DeepEST, SUPS, RHC-S or 2-UPS were unlikely to draw. A sample that found few failures among those has too
high an estimate and too narrow an interval.

For scores with predictions, one unobserved large loss has the mean weight of the pool's examples, Σa²/Σa.

Legend: N pool, n labels, N_t examples left by earlier rounds, w_t weight of a round, P_tj share of a stratum, f = 1 -
outcome, p predicted failure, π inclusion probability, a effect of a label.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs import Design
from opacc_ray.designs.simple_random import Purposive, SimpleRandom
from opacc_ray.designs.stratified import Stratified
from opacc_ray.estimation.constants import FEW_PREDICTED, MID_P, SMALLEST
from opacc_ray.estimation.distribution import (
    AdjustedWilson,
    Exact,
    LabelEffects,
    Law,
    StratifiedScore,
    Total,
    Weighted,
    Wider,
)
from opacc_ray.estimation.intervals import WEIGHTED, Moments, Strata
from opacc_ray.estimation.result import Estimate, joined_reasons, within_interval
from opacc_ray.estimation.sample import Round, Sample
from opacc_ray.samplers.plausibility import contradiction

Array = NDArray[np.float64]

_UNEQUAL = ("stratified score", WEIGHTED)
"""Intervals, for one sample, of designs in which some labels weigh more than others."""

_CAUTION = (
    f"fewer than {FEW_PREDICTED} of the labelled examples were predicted to fail, and the interval depends on where "
    "failures are predicted; if they are rare and elsewhere, it covers less often than stated"
)


class RoundPrediction(NamedTuple):
    """Predictions for the examples that one round was drawn from, and for its labels."""

    predicted: float  # Σp of the former
    spread: float  # Σp(1 - p)(1/π - 1)
    labelled: Array  # (n_t,) p
    leverage: Array  # (n_t,) h, in [0, 1)


class PoolFailures(NamedTuple):
    """The total of failures over the pool."""

    total: Total
    labels: LabelEffects
    is_binary: bool
    design_based: bool
    reason: str | None

    def accuracy(self, level: float) -> Estimate:
        """Return the accuracy with its interval; with 0/1 outcomes the ends are multiples of 1/N."""
        total, num = self.total, len(self.labels.effect)
        low, high = total.interval(level)
        found = Estimate(
            value=1 - total.stated(),
            standard_error=total.error,
            low=1 - high,
            high=1 - low,
            level=level,
            method=total.law.name,
            n=num,
            design_based=self.design_based,
            reason=self.reason,
        )
        return within_interval(found, int(total.size) if self.is_binary else None)


def accuracy_of(failures: PoolFailures, sample: Sample, level: float) -> Estimate:
    """Return the accuracy, with a reason if the labels contradict what was predicted before them."""
    found, contradicted = failures.accuracy(level), contradiction(sample.rounds.selections, sample.outcomes())
    return replace(found, reason=joined_reasons((found.reason, contradicted)))


def failures_by_design(sample: Sample) -> PoolFailures:
    """Return the share of failures by the designs, and by what each round itself predicted."""
    share, variance, rows = 0.0, 0.0, list[tuple[Array, Array, Array]]()
    parts, failure, size = sample.rounds.parts, sample.failure, sample.rounds.pool_size
    for part in parts:
        design, of_round = part.design, failure[part.places]
        share += part.weight * float(failure[part.before].sum()) / size
        share += part.scale * design.failure_share(of_round)
        variance += part.scale**2 * design.failure_variance(of_round)
        effect, expected = _of_labels(design, of_round, size)
        rows.append((effect, expected, of_round - expected))
    assisted = any(part.design.prediction is not None for part in parts)
    return _pool_failures(sample, share, variance, _labels(parts, [part.scale for part in parts], rows, assisted))


def _of_labels(design: Design, failure: Array, size: int) -> tuple[Array, Array]:
    """Return effect and p of each label; without predictions they are equal, and p is the share of failures."""
    if design.prediction is not None:
        return design.effects, design.prediction.labelled
    n = len(failure)
    left = max(1 - n / size, 0) if design.is_distinct else 1.0
    return np.full(n, math.sqrt(left) / n), np.full(n, (float(failure.sum()) + 0.5) / (n + 1))


def failures_by_fit(
    sample: Sample, predictions: Sequence[RoundPrediction], trust: float, by_predictions: float
) -> PoolFailures:
    """Return the share of failures by rounds whose ``predictions`` are fitted to all labels.

    ``by_predictions`` is the share that predictions and labels alone state, and ``trust`` λ.
    """
    rounds, failure, size = sample.rounds, sample.failure, sample.rounds.pool_size
    weight = trust * weights_by_variance([own.spread / size**2 for own in predictions]) + (1 - trust) * rounds.weight
    share, variance, rows, scales = 0.0, 0.0, list[tuple[Array, Array, Array]](), (weight * rounds.left).tolist()
    for part, w, scale, own in zip(rounds.parts, weight.tolist(), scales, predictions, strict=True):
        error = failure[part.places] - own.labelled
        share += w * (float(failure[part.before].sum()) + own.predicted) / size + scale * float(part.design.mean(error))
        error = error / np.sqrt(1 - own.leverage)
        variance += scale**2 * float(part.design.variance(error))
        rows.append((part.design.effects, own.labelled, error))
    labels = _labels(rounds.parts, scales, rows, assisted=True)
    return _pool_failures(sample, share, variance, labels, by_predictions, trust)


def weights_by_variance(variance: Sequence[float]) -> Array:
    """Return w (rounds,) in proportion to 1/V; a round with V = 0, which was not random, has all of it."""
    exact = np.array(variance) <= 0
    weight = exact if exact.any() else 1 / np.array(variance)
    return np.asarray(weight / weight.sum())


def _labels(
    parts: Sequence[Round], scales: Sequence[float], rows: Sequence[tuple[Array, Array, Array]], assisted: bool
) -> LabelEffects:
    effect, expected, error = zip(*rows, strict=True)
    num = [len(row) for row in effect]
    return LabelEffects(
        effect=np.concatenate([scale * row for scale, row in zip(scales, effect, strict=True)]),
        expected=np.concatenate(expected),
        error=np.concatenate(error),
        scale=np.repeat(scales, num),
        degrees=max(sum(num) - len(parts), 1),
        assisted=assisted,
    )


def _pool_failures(
    sample: Sample,
    share: float,
    variance: float,
    labels: LabelEffects,
    by_predictions: float | None = None,
    trust: float = 1.0,
) -> PoolFailures:
    rounds = sample.rounds
    events, parts = float(sample.failure[rounds.first].sum()), rounds.parts
    if rounds.is_census:
        share, variance = events / rounds.pool_size, 0.0
    law: Law = AdjustedWilson(labels, by_predictions, trust)
    if not sample.is_binary:
        law = Weighted(float(labels.effect @ labels.effect) / max(float(labels.effect.sum()), SMALLEST))
    if by_predictions is None:
        law = _law_of_sample(parts[0].design, sample, law) if len(parts) == 1 else _law_of_rounds(sample, law)
    reasons = [part.design.reason for part in parts]
    late = rounds.late if len(rounds.selections) > 1 and by_predictions is None else None
    few = sample.is_binary and labels.assisted and labels.expected.sum() < FEW_PREDICTED
    return PoolFailures(
        total=Total(share, variance, rounds.pool_size, sample.size, events, law),
        labels=labels,
        is_binary=sample.is_binary,
        design_based=not any(reasons) and late is None,
        reason=joined_reasons([*reasons, _CAUTION if few else None, late]),
    )


def _law_of_sample(design: Design, sample: Sample, by_predictions: Law) -> Law:
    """Return the law that belongs to the design of one sample; raises KeyError for one without an interval."""
    if design.interval == "adjusted Wilson":
        return by_predictions
    if design.interval == WEIGHTED:
        return Weighted(design.weight_bound, _successes(sample), MID_P)
    as_random = f" ({design.interval})" if isinstance(design, Purposive) else ""
    if not sample.is_binary:
        return Weighted(design.weight_bound, name=WEIGHTED + as_random)
    if isinstance(design, Stratified):
        return StratifiedScore(_strata(sample))
    failures, num = round(float(sample.failure.sum())), len(sample.failure)
    if isinstance(design, Purposive):
        return Exact(failures, num, design.population, design.stand_in.interval + as_random)
    if isinstance(design, SimpleRandom):
        return Exact(failures, num, None if design.replacement else design.population, design.interval)
    raise KeyError(design.interval)


def _law_of_rounds(sample: Sample, by_labels: Law) -> Law:
    """Return the law of rounds of several designs; ``by_labels`` is that of labels that weigh alike."""
    parts = sample.rounds.parts
    unequal = any(part.design.prediction is None and part.design.interval in _UNEQUAL for part in parts)
    if not unequal or sample.rounds.is_census:
        return by_labels
    if sample.is_binary and all(isinstance(part.design, Stratified) for part in parts):
        right = [float(sample.outcome[part.before].sum()) for part in parts]
        known = sum(part.weight * own for part, own in zip(parts, right, strict=True)) / sample.rounds.pool_size
        return StratifiedScore(_strata(sample), known)
    largest = max(part.scale * part.design.weight_bound for part in parts)
    return Wider(Weighted(largest, _successes(sample), MID_P), by_labels)


def _successes(sample: Sample) -> Moments:
    return Moments(float(sample.rounds.mean(sample.outcome)), float(sample.rounds.variance(sample.outcome)))


def _strata(sample: Sample) -> Strata:
    """Return the strata of all rounds, each with its share of the estimate."""
    columns = []
    for part in sample.rounds.parts:
        assert isinstance(part.design, Stratified)
        design, right = part.design, sample.outcome[part.places]
        successes = np.bincount(design.stratum, weights=right, minlength=len(design.sizes))
        columns.append((successes, design.num, design.sizes, part.scale * design.shares))
    return Strata(*(np.concatenate(own).astype(np.float64) for own in zip(*columns, strict=True)))
