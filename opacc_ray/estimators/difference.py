"""The difference estimator: predictions of every example, corrected by a sample.

A batch is drawn from N_t examples that were not labelled before. With predictions p their share of failures is
estimated by

    r = (1/N_t) · [ Σ_rest p + Σ_batch (f - p) / π ]                                     (unbiased, whatever p)

``rounds.py`` combines several.

The interval is Wilson's for the sample size at which a simple random sample would have the variance, with Student's
quantile. Residuals f - p are mostly small, and few large ones decide the variance: a sample that happens to miss them
is too good, and estimates too small a variance. So it is drawn towards the one that the predictions foresee, the more
the fewer terms it rests on; and half a failure is added, at weights as they are where failures are predicted, as
Jeffreys' prior adds half a success:

    size        1/s = [ m · (v + h₂)/c(1 - c) + k · (v̂ + h₂)/q(1 - q) ] / (m + k)
    measured    v = Σ w_t² v_t             resting on   m = (Σr)²/Σr² terms,  r = a²(f - p)²
    foreseen    v̂ = Σ a² p(1 - p)          for a share of failures  q = max(c, Σ a p)
    half        h₁ = ½ Σpa/Σp,  h₂ = ½ Σpa²/Σp                                           a = w_t · √(1 - π) / (N π)
    centre      c = θ̂ + h₁ for the upper end of the share of failures, θ̂ for the lower

with c and q not nearer to 0 or 1 than half a failure or half a success; k = 1 where a model predicts failures, k = 2
where their own share among the labels does, which says nothing of where they are. Three ends are further out. The lower
one is not above that of the mid-P interval of this size (``intervals.py``): where failures are rare, a single one that
is met says little. The upper one is not below the exact bound for n labels without a failure, if none is met and less
than one was foreseen among them: the predictions then say nothing of where failures are. And no interval contradicts
what is known for certain: the outcomes of the labelled examples, and 0 or 1 where no failure or no success was met.
The stated interval (:meth:`Known.state`) ends at accuracies that a pool of N examples can have: multiples of 1/N where
every outcome is 0 or 1.

If fewer than three failures were foreseen among the labels, the estimate says that its interval rests on little.

Of scores neither the labels nor predictions of their mean tell how rare a large loss is. Their interval is that of
``weighted.py``, which reckons with one more failure that the sample did not happen to show, wherever it is: at the mean
weight of the pool's examples, were they labelled, which the sample estimates by Σa²/Σa.

Legend: N pool, n labels, f = 1 - outcome, p predicted failure, π inclusion probability, a effect: by how much one
failure moves the estimate, in standard deviations.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs import Design
from opacc_ray.designs.design import PredictedFailures
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.estimators import intervals
from opacc_ray.estimators.base import Estimate, Outcome, contain, is_binary, joined_reasons
from opacc_ray.estimators.weighted import NAME as NAME_OF_SCORES
from opacc_ray.estimators.weighted import failure_bounds

_NAME = "adjusted Wilson"
_FEW = 3
_CAUTION = (
    f"fewer than {_FEW} of the labelled examples were foreseen to fail, and the interval rests on where failures are "
    "predicted; if they are rare and elsewhere, it covers less often than it says"
)
_PRIOR_TERMS = 2
_PRIOR_TERMS_OF_MODEL = 1


class Round(NamedTuple):
    """What one round says of the share of failures among the examples it was drawn from."""

    share: float
    variance: float
    effect: NDArray[np.float64]  # (n,)
    expected: NDArray[np.float64]  # (n,) p of the labelled examples
    failure: NDArray[np.float64]  # (n,) f
    error: NDArray[np.float64]  # (n,) f - p, for the variance: as large as if no label had a part in its own p
    assisted: bool  # whether p comes from a model, not from the labels
    design_based: bool = True
    reason: str | None = None  # what its interval rests on
    degrees: int | None = None  # of freedom of the variance, where few replicates make it


class Known(NamedTuple):
    """What the labels say for certain."""

    failures: float
    num: int  # distinct examples
    pool_size: int
    binary: bool

    def state(self, found: Estimate) -> Estimate:
        """An accuracy as it is stated: within what is certain, and, of 0/1 outcomes, with ends that a pool can have."""
        least, most = (self.num - self.failures) / self.pool_size, (self.pool_size - self.failures) / self.pool_size
        if self.num == self.pool_size:
            return replace(found, value=most, standard_error=0.0, low=most, high=most)
        low, high = intervals.cut((found.low, found.high), least, most)
        return contain(replace(found, low=low, high=high), self.pool_size if self.binary else None)


class Combined(NamedTuple):
    """What all rounds say together of the share of failures in the pool."""

    share: float
    rounds: list[Round]
    weight: NDArray[np.float64]  # (rounds,) of each round's share in it
    known: Known

    def estimate(self, level: float) -> Estimate:
        """The accuracy with its interval."""
        return self.known.state(accuracy(self.share, self.rounds, self.weight, self.known, level))


def difference(design: InclusionProbability, outcome: Outcome, level: float) -> Estimate:
    """Accuracy among the examples that were not labelled before the round: unbiased."""
    known = Known(float((1 - outcome).sum()), len(outcome), design.population, is_binary(outcome))
    part = corrected(design, design.prediction, outcome)
    return accuracy(part.share, [part], np.ones(1), known, level)


def corrected(design: Design, prediction: PredictedFailures, outcome: Outcome) -> Round:
    """What one round with predictions says."""
    failure = 1 - outcome
    share, variance = design.failure_share(failure), design.failure_variance(failure)
    error = failure - prediction.labelled
    return Round(share, variance, design.effects, prediction.labelled, failure, error, True)


def accuracy(
    share: float, rounds: Sequence[Round], weight: NDArray[np.float64], known: Known, level: float
) -> Estimate:
    """1 - ``share`` with its interval; ``weight`` (rounds,) is that of each round's share in the estimate."""
    variance = float(sum(w**2 * part.variance for w, part in zip(weight, rounds, strict=True)))
    labels = labels_of(rounds, weight)
    if known.num == known.pool_size:
        share = low = high = known.failures / known.pool_size
        variance = 0.0
    else:
        low, high = _bounds(share, variance, labels, known, level)
    few = known.binary and labels.assisted and labels.expected.sum() < _FEW
    reason = joined_reasons([*(part.reason for part in rounds), _CAUTION if few else None])
    based = all(part.design_based for part in rounds)
    name = _NAME if known.binary else NAME_OF_SCORES
    return Estimate(1 - share, math.sqrt(variance), 1 - high, 1 - low, level, name, len(labels.effect), based, reason)


class Labels(NamedTuple):
    """The labels of all rounds, as they move the estimate."""

    effect: NDArray[np.float64]  # (n,) a
    expected: NDArray[np.float64]  # (n,) p
    failure: NDArray[np.float64]  # (n,) f
    error: NDArray[np.float64]  # (n,) f - p
    degrees: int  # of freedom
    assisted: bool

    @property
    def half_failure(self) -> tuple[float, float]:
        """h₁ and h₂."""
        place = self._placed(self.expected)
        place = place / place.sum()
        return 0.5 * float(place @ self.effect), 0.5 * float(place @ self.effect**2)

    @property
    def unmet_weight(self) -> float:
        """Weight of a label that may be any example of the pool."""
        return float(self.effect @ self.effect) / max(float(self.effect.sum()), 1e-300)

    @property
    def half_success(self) -> float:
        right = self._placed(1 - self.expected)
        return 0.5 * float(right @ self.effect) / float(right.sum())

    @property
    def foreseen(self) -> float:
        """v̂, the variance that the predictions foresee."""
        return float(self.effect**2 @ (self.expected * (1 - self.expected)))

    @property
    def trust(self) -> float:
        """m/(m + k), how far the measured variance counts."""
        terms = (self.effect * self.error) ** 2
        return trust_in(terms, _PRIOR_TERMS_OF_MODEL if self.assisted else _PRIOR_TERMS)

    def _placed(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """``values`` (n,), or ones if all that move the estimate are 0: a confidence of 1 foresees no failure there."""
        return values if values @ self.effect > 0 else np.ones_like(values)

    def size_at(self, centre: float, variance: float, trust: float) -> float:
        """s for a share of failures ``centre``."""
        failure, square = self.half_failure
        success = self.half_success

        def spread(share: float) -> float:
            inside = min(max(share, min(failure, 0.5)), 1 - min(success, 0.5))
            return inside * (1 - inside)

        foreseen = self.foreseen
        predicted = spread(max(centre, float(self.effect @ self.expected)))
        inverse = trust * (variance + square) / spread(centre) + (1 - trust) * (foreseen + square) / predicted
        return 1 / max(inverse, 1e-300)


def labels_of(rounds: Sequence[Round], weight: NDArray[np.float64]) -> Labels:
    """The labels of all rounds; ``weight`` (rounds,) is that of each round's share in the estimate."""
    few = [part.degrees for part in rounds if part.degrees is not None]
    of_labels = max(sum(len(part.effect) - 1 for part in rounds), 1)
    return Labels(
        effect=np.concatenate([w * part.effect for w, part in zip(weight, rounds, strict=True)]),
        expected=np.concatenate([part.expected for part in rounds]),
        failure=np.concatenate([part.failure for part in rounds]),
        error=np.concatenate([part.error for part in rounds]),
        degrees=min([of_labels, *few]),
        assisted=any(part.assisted for part in rounds),
    )


def trust_in(terms: NDArray[np.float64], prior: int = _PRIOR_TERMS) -> float:
    """m/(m + k): how far a variance counts that was measured as the sum of ``terms`` (n,), beside ``prior`` terms k."""
    num = intervals.effective_number(terms)
    return num / (num + prior)


def _bounds(share: float, variance: float, labels: Labels, known: Known, level: float) -> intervals.Interval:
    """The interval above, for the share of failures, before it is cut at what is known for certain."""
    if not known.binary:
        return failure_bounds(max(share, 0.0), variance, labels.unmet_weight, level)
    met, trust = known.failures, labels.trust
    widen = intervals.student_widening(labels.degrees, level) ** 2
    low, high = 0.0, 1.0
    if met and share > 0:
        size = labels.size_at(share, variance, trust) / widen
        low = intervals.wilson(min(share, 1.0), size, level)[0]
        if share < 1:
            low = min(low, intervals.mid_p_low(share * size, size, level))
    if met < known.num:
        centre = max(share, 0.0) + labels.half_failure[0]
        high = intervals.wilson(min(centre, 1.0), labels.size_at(centre, variance, trust) / widen, level)[1]
        if not met and labels.assisted and labels.expected.sum() < 1:
            high = max(high, intervals.zero_failure_bound(len(labels.effect), level))
    return low, high
