"""Estimate accuracy by the difference estimator: predicted failures of every example, corrected by a sample.

A batch is drawn from N_t examples that were not labelled before. With predictions p their share of failures is
estimated by

    r = (1/N_t) · [ Σ_rest p + Σ_batch (f - p) / π ]                                     (unbiased, whatever p)

and ``rounds.py`` combines rounds. The interval is Wilson's, with Student's quantile, at the size s of the simple random
sample with the same variance. The residuals f - p are mostly small, and few large ones decide the variance: a sample
that misses these has a good estimate and a small variance. So the measured variance is shrunk towards the one that the
predictions imply, and half a failure is added, as Jeffreys' prior adds half a success:

    size        1/s = [ m · (v + h₂)/c(1 - c) + k · (v̂ + h₂)/q(1 - q) ] / (m + k)
    measured    v = Σ w_t² v_t             from         m = (Σr)²/Σr² terms,  r = a²(f - p)²
    predicted   v̂ = Σ a² p(1 - p)          for a share of failures  q = max(c, Σ a p)
    half        h₁ = ½ Σpa/Σp,  h₂ = ½ Σpa²/Σp                                           a = w_t · √(1 - π) / (N π)
    centre      c = θ̂ + h₁ for the upper end of the share of failures, θ̂ for the lower

c and q are kept half a failure or half a success away from 0 and 1. k = 1 if a model predicts failures; k = 2 if p is
the labels' own share of failures, which does not locate failures. Two ends are moved outward:

- the lower end is at most that of the mid-P interval of size s, because a single failure proves little;
- the upper end is at least the exact bound for n labels without failure, if no failure was found and less than one was
  predicted among the labels: the predictions then do not locate failures.

:meth:`KnownOutcomes.clip` finally cuts the interval to what the labels prove. If fewer than three failures were
predicted among the labels, ``reason`` warns that the interval depends on the predictions.

For scores, neither labels nor predicted means show how rare a large loss is. Their interval is the weighted
Clopper-Pearson one, which assumes one unobserved large loss at the mean weight of the pool's examples, estimated by
Σa²/Σa.

Legend: N pool, n labels, f = 1 - outcome, p predicted failure, π inclusion probability, a effect: standard deviation by
which one failure moves the estimate, w weight of a round.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs import Design
from opacc_ray.designs.draw_sequence import PredictedFailures
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.estimators import intervals
from opacc_ray.estimators.accuracy_estimate import Estimate, joined_reasons
from opacc_ray.estimators.rounds import KnownOutcomes, Outcome, is_binary

NAME = "adjusted Wilson"
_FEW = 3
_CAUTION = (
    f"fewer than {_FEW} of the labelled examples were predicted to fail, and the interval depends on where failures "
    "are predicted; if they are rare and elsewhere, it covers less often than stated"
)
_PRIOR_TERMS, _PRIOR_TERMS_OF_MODEL = 2, 1
"""k."""

Array = NDArray[np.float64]


MOST_MOVED = 0.5
"""Largest share of the way to the prediction by which an estimate is moved."""

FARTHEST = 0.5
"""Squared distance of the failures among the labels from their predicted number, in variances, from which none is."""


class RoundEstimate(NamedTuple):
    """The share of failures among the examples that one round was drawn from."""

    share: float
    variance: float
    effect: Array  # (n,) a, without the weight of the round
    expected: Array  # (n,) p of the labelled examples
    error: Array  # (n,) f - p, for the variance: corrected for the label's own influence on its p
    assisted: bool  # whether p comes from a model, not from the labels
    design_based: bool = True
    reason: str | None = None  # assumption of its interval
    degrees: int | None = None  # degrees of freedom of the variance, if it comes from few replicates


class CombinedRounds(NamedTuple):
    """The share of failures in the pool, from all rounds."""

    share: float
    rounds: list[RoundEstimate]
    weight: Array  # (rounds,) of each round's share in it
    known: KnownOutcomes
    predicted: float | None = None  # the share that the predictions alone state
    trust: float = 1.0  # in them, up to 1

    def estimate(self, level: float) -> Estimate:
        """Return the accuracy with its interval; the value is moved towards what the predictions alone state."""
        found = accuracy_of_rounds(self.share, self.rounds, self.weight, self.known, level)
        if self.predicted is not None and self.known.binary:
            apart, variance = self.share - self.predicted, found.standard_error**2
            agreement = label_effects(self.rounds, self.weight).agreement
            share = self.trust * MOST_MOVED * agreement * min(1.0, variance / max(apart**2, 1e-300))
            found = replace(found, value=found.value + share * apart)
        return self.known.clip(found)


class LabelEffects(NamedTuple):
    """The labels of all rounds, as they move the estimate."""

    effect: Array  # (n,) a
    expected: Array  # (n,) p
    error: Array  # (n,) f - p
    degrees: int  # degrees of freedom
    assisted: bool  # whether p comes from a model

    @property
    def half_failure(self) -> tuple[float, float]:
        """h₁ and h₂: half a failure's contribution to the estimate and to the variance."""
        place = self._or_ones(self.expected)
        place = place / place.sum()
        return 0.5 * float(place @ self.effect), 0.5 * float(place @ self.effect**2)

    @property
    def agreement(self) -> float:
        """c, how well the number of failures among the labels agrees with the predicted one, from 0 to 1."""
        apart = float(self.error.sum()) ** 2 / max(float(self.expected @ (1 - self.expected)), 1e-300)
        return max(1 - apart / FARTHEST, 0.0)

    @property
    def predicted_variance(self) -> float:
        """v̂, the variance that the predictions imply."""
        return float(self.effect**2 @ (self.expected * (1 - self.expected)))

    def size_at(self, centre: float, variance: float) -> float:
        """Return s, the size of the equivalent simple random sample, at a share of failures ``centre``."""
        failure, square = self.half_failure
        right = self._or_ones(1 - self.expected)
        success = 0.5 * float(right @ self.effect) / float(right.sum())  # half a success moves the estimate by that
        prior = _PRIOR_TERMS_OF_MODEL if self.assisted else _PRIOR_TERMS
        weight = measured_weight((self.effect * self.error) ** 2, prior)

        def spread(share: float) -> float:
            inside = min(max(share, min(failure, 0.5)), 1 - min(success, 0.5))
            return inside * (1 - inside)

        predicted = spread(max(centre, float(self.effect @ self.expected)))
        measured = weight * (variance + square) / spread(centre)
        return 1 / max(measured + (1 - weight) * (self.predicted_variance + square) / predicted, 1e-300)

    def _or_ones(self, values: Array) -> Array:
        """Return ``values`` (n,), or ones if they are 0 for all labels that move the estimate (a confidence of 1)."""
        return values if values @ self.effect > 0 else np.ones_like(values)


def difference(design: InclusionProbability, outcome: Outcome, level: float) -> Estimate:
    """Estimate the accuracy among the examples that were not labelled before the round: unbiased."""
    known = KnownOutcomes(float((1 - outcome).sum()), len(outcome), design.population, is_binary(outcome))
    part = predicted_round(design, design.prediction, outcome)
    return accuracy_of_rounds(part.share, [part], np.ones(1), known, level)


def predicted_round(design: Design, prediction: PredictedFailures, outcome: Outcome) -> RoundEstimate:
    """Return the estimate of one round with predictions."""
    failure, expected = 1 - outcome, prediction.labelled
    share, variance = design.failure_share(failure), design.failure_variance(failure)
    return RoundEstimate(share, variance, design.effects, expected, failure - expected, True)


def accuracy_of_rounds(
    share: float, rounds: Sequence[RoundEstimate], weight: Array, known: KnownOutcomes, level: float
) -> Estimate:
    """Return 1 - ``share`` with its interval; ``weight`` (rounds,) is that of each round's share in the estimate."""
    variance = float(sum(w**2 * part.variance for w, part in zip(weight, rounds, strict=True)))
    labels = label_effects(rounds, weight)
    if known.num == known.pool_size:
        share = low = high = known.failures / known.pool_size
        variance = 0.0
    elif known.binary:
        low, high = _lower_end(share, variance, labels, known, level), _upper_end(share, variance, labels, known, level)
    else:
        unobserved = float(labels.effect @ labels.effect) / max(float(labels.effect.sum()), 1e-300)
        low, high = intervals.weighted_clopper_pearson(max(share, 0.0), variance, unobserved, level)
    few = known.binary and labels.assisted and labels.expected.sum() < _FEW
    reason = joined_reasons([*(part.reason for part in rounds), _CAUTION if few else None])
    based = all(part.design_based for part in rounds)
    name = NAME if known.binary else intervals.WEIGHTED
    return Estimate(1 - share, math.sqrt(variance), 1 - high, 1 - low, level, name, len(labels.effect), based, reason)


def label_effects(rounds: Sequence[RoundEstimate], weight: Array) -> LabelEffects:
    """Return the labels of all rounds; ``weight`` (rounds,) is that of each round's share in the estimate."""
    few = [part.degrees for part in rounds if part.degrees is not None]
    by_labels = max(sum(len(part.effect) - 1 for part in rounds), 1)
    return LabelEffects(
        effect=np.concatenate([w * part.effect for w, part in zip(weight, rounds, strict=True)]),
        expected=np.concatenate([part.expected for part in rounds]),
        error=np.concatenate([part.error for part in rounds]),
        degrees=min([by_labels, *few]),
        assisted=any(part.assisted for part in rounds),
    )


def measured_weight(terms: Array, prior: int = _PRIOR_TERMS) -> float:
    """Return m/(m + k): the weight of a variance measured as the sum of ``terms`` (n,), against k ``prior`` terms."""
    num = intervals.effective_number(terms)
    return num / (num + prior)


def _lower_end(share: float, variance: float, labels: LabelEffects, known: KnownOutcomes, level: float) -> float:
    """Return the lower end for the share of failures: Wilson's, and mid-P where a single failure proves little."""
    if not known.failures or share <= 0:
        return 0.0
    size = labels.size_at(share, variance) / intervals.student_widening(labels.degrees, level) ** 2
    low = intervals.wilson(min(share, 1.0), size, level)[0]
    return min(low, intervals.mid_p_low(share * size, size, level)) if share < 1 else low


def _upper_end(share: float, variance: float, labels: LabelEffects, known: KnownOutcomes, level: float) -> float:
    """Return the upper end for the share of failures: Wilson's, and the exact one if none was found or predicted."""
    if known.failures >= known.num:
        return 1.0
    centre = max(share, 0.0) + labels.half_failure[0]
    size = labels.size_at(centre, variance) / intervals.student_widening(labels.degrees, level) ** 2
    high = intervals.wilson(min(centre, 1.0), size, level)[1]
    if not known.failures and labels.assisted and labels.expected.sum() < 1:
        high = max(high, intervals.zero_failure_bound(len(labels.effect), level))
    return high
