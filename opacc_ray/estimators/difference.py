"""The difference estimator: predictions of every example, corrected by a sample.

A batch is drawn from N_t examples that were not labelled before. With predictions p their share of failures is
estimated by

    r = (1/N_t) · [ Σ_rest p + Σ_batch (f - p) / π ]                                     (unbiased, whatever p)

``rounds.py`` combines several.

The interval is Wilson's for the sample size at which a simple random sample would have the variance, with Student's
quantile, and with two precautions against rare failures of large weight that no round met. The size is not taken above
the one that the predictions foresee; and half a failure is added, at weights as they are where failures are predicted,
as Jeffreys' prior adds half a success:

    size        min( c(1 - c) / (Σ w_t² v_t + h₂),  q(1 - q) / (Σ a² p(1 - p) + h₂) )         a = w_t · √(1 - π) / (N π)
    half        h₁ = ½ Σpa/Σp,  h₂ = ½ Σpa²/Σp                          q = max(c, Σ a p), the predicted share
    centre      c = θ̂ + h₁ for the upper end of the share of failures, θ̂ for the lower

with c and q not nearer to 0 or 1 than half a failure or half a success. So where few failures are met, the upper end
rests on where the predictions expect them, and the lower end on what was met alone. No interval contradicts what is
known for certain: the outcomes of the labelled examples, and 0 or 1 where no failure or no success was met.

For scores the added half is larger than most of their failures: the interval covers and is wide. So it is where a
confident model is nearly always wrong. With very few labels, rare failures and a worthless confidence it covers too
seldom; below 20 labels the estimate says so.

Legend: N pool, n labels, f = 1 - outcome, p predicted failure, π inclusion probability, a effect: by how much one
failure moves the estimate, in standard deviations.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs import Design
from opacc_ray.designs.base import Prediction
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.estimators import intervals
from opacc_ray.estimators.base import Estimate, Outcome, is_binary

_NAME = "adjusted Wilson"
_FEW = 20
_CAUTION = (
    f"with fewer than {_FEW} labels the interval rests on where failures are predicted; "
    "if they are rare and elsewhere, it covers less often than it says"
)


class Round(NamedTuple):
    """What one round says of the share of failures among the examples it was drawn from."""

    share: float
    variance: float
    effect: NDArray[np.float64]  # (n,)
    expected: NDArray[np.float64]  # (n,) p of the labelled examples
    assisted: bool  # whether p comes from a model, not from the labels
    design_based: bool = True
    reason: str | None = None  # what its interval rests on


class Known(NamedTuple):
    """What the labels say for certain."""

    failures: float
    num: int  # distinct examples
    pool_size: int
    binary: bool


def difference(design: InclusionProbability, outcome: Outcome, level: float) -> Estimate:
    """Accuracy among the examples that were not labelled before the round: unbiased."""
    known = Known(float((1 - outcome).sum()), len(outcome), design.population, is_binary(outcome))
    part = corrected(design, design.prediction, outcome)
    return accuracy(part.share, [part], np.ones(1), known, level)


def corrected(design: Design, prediction: Prediction, outcome: Outcome) -> Round:
    """What one round with predictions says."""
    failure = 1 - outcome
    share, variance = design.failure_share(failure), design.failure_variance(failure)
    return Round(share, variance, design.effects, prediction.labelled, True)


def accuracy(
    share: float, rounds: Sequence[Round], weight: NDArray[np.float64], known: Known, level: float
) -> Estimate:
    """1 - ``share`` with its interval; ``weight`` (rounds,) is that of each round's share in the estimate."""
    variance = float(sum(w**2 * part.variance for w, part in zip(weight, rounds, strict=True)))
    effect = np.concatenate([w * part.effect for w, part in zip(weight, rounds, strict=True)])
    expected = np.concatenate([part.expected for part in rounds])
    if known.num == known.pool_size:
        share = low = high = known.failures / known.pool_size
        variance = 0.0
    else:
        low, high = _bounds(share, variance, effect, expected, len(effect) - len(rounds), known, level)
    few = known.binary and len(effect) < _FEW and any(part.assisted for part in rounds)
    reasons = dict.fromkeys([*(part.reason for part in rounds if part.reason), *([_CAUTION] if few else [])])
    based, reason = all(part.design_based for part in rounds), "; ".join(reasons) or None
    return Estimate(1 - share, math.sqrt(variance), 1 - high, 1 - low, level, _NAME, len(effect), based, reason)


def _bounds(
    share: float,
    variance: float,
    effect: NDArray[np.float64],
    expected: NDArray[np.float64],
    degrees: int,
    known: Known,
    level: float,
) -> intervals.Interval:
    """The interval above, for the share of failures."""
    place = 0.5 * expected / expected.sum()
    failure, square = float(place @ effect), float(place @ effect**2)  # h₁, h₂
    success = float((1 - expected) @ effect) / max(float((1 - expected).sum()), 1e-300) / 2

    def spread(centre: float) -> float:
        inside = min(max(centre, min(failure, 0.5)), 1 - min(success, 0.5))
        return inside * (1 - inside)

    foreseen = float(effect**2 @ (expected * (1 - expected))) if known.binary else 0.0
    share_foreseen = float(effect @ expected)
    widen = intervals.student_widening(max(degrees, 1), level)

    def wilson(centre: float) -> intervals.Interval:
        size = spread(centre) / max(variance + square, 1e-300)
        size = min(size, spread(max(centre, share_foreseen)) / max(foreseen + square, 1e-300))
        return intervals.wilson(min(max(centre, 0.0), 1.0), size / widen**2, level)

    met, unknown = known.failures, known.pool_size - known.num
    low = wilson(share)[0] if met else 0.0
    high = wilson(max(share, 0.0) + failure)[1] if met < known.num else 1.0
    least, most = met / known.pool_size, (met + unknown) / known.pool_size
    return min(max(low, least), most), max(min(high, most), least)
