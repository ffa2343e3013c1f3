"""Sequential inference: stop at a planned width, or state intervals that hold at all times.

**Interim analyses** sample in rounds until the interval is ``value ± W``. An analysis analysis follows every round k.
With n labels so far, h_k is half the width of the interval at level 1 - 0.95·α, and m the number of failures found (of
successes, if they are fewer). Sampling stops, with that interval, as soon as

    h_k · √(1 + 1/(m + 1)²) <= W

Otherwise T, the total number of labels, is forecast from the half-widths of this run:

    h(n) = h_k · (x(n)/x(n_k))^β        x(n) = 1/n - 1/N        β = (λ·β₀ + Σ Δlog x · Δlog h) / (λ + Σ (Δlog x)²)

summed over successive rounds. β is ½ for a simple random sample and larger where a method learns; λ = 0.6 shrinks it
towards β₀ = 0.6 + ½/(1 + m), because with few failures h decreases almost as 1/n. The next round raises the labels to
0.6·T, within 1.3n and 3n; and to 1.05·T, as the last round, if T is below 1.8·n. A first round of T/10 is followed by
rounds of 20, 30 and 40 %. No round is smaller than 10 labels or a tenth of those so far.

**Coverage of the reported interval.** A run reports one interval, which errs with probability

    Σ_k P(stop at k, and interval k excludes θ)

That is not the probability that any interval errs, because most analyses do not stop. Stopping depends on the width,
which in large samples is independent of the error: F. J. Anscombe ("Large-sample theory of sequential estimation",
Proceedings of the Cambridge Philosophical Society 48, 1952) and Y. S. Chow and H. Robbins ("On the asymptotic theory of
fixed-width sequential confidence intervals for the mean", Annals of Mathematical Statistics 36, 1965) proved that such
an interval errs as often as one for a fixed n. C. R. Mehta and A. A. Tsiatis ("Flexible sample size considerations
using information-based interim monitoring", Drug Information Journal 35, 2001) monitor trials this way. An analysis
that does not stop costs nothing, and all have the same level, whatever the labels, the number of analyses, and W.

With few failures the width does depend on the error: a sample that misses failures by luck has a narrow interval. The
root above corrects it, as Chow and Robbins add 1/n to the variance, and vanishes as failures are found. A twentieth of
α is reserved for other dependence on luck, such as the sizes of rounds. ``docs/intervals.md`` has measurements; J.
Frey ("Fixed-width sequential confidence intervals for a proportion", The American Statistician 64, 2010) treats
proportions exactly, with an analysis after every label.

**Limits.** The interval holds for this stopping rule. Alpha spending (K. K. G. Lan and D. L. DeMets, "Discrete
sequential boundaries for clinical trials", Biometrika 70, 1983) would hold for any reason to stop, but each analysis
that does not stop would make the next one stricter: a fifth to a half more labels each, even with the correlation of
successive estimates. To change the goal after seeing labels, use a confidence sequence, whose
intervals hold at all analyses at once.

Legend: N pool, n labels, h half-width, W goal, T forecast of the total of labels, β rate of shrinkage, α = 1 - level.

**Confidence sequences** estimate accuracy at all times: intervals that hold together, for any reason to stop. Stopping
at one of many intervals because it pleases gives a coverage below the level. The intervals here hold all at once:
P(some of them excludes the truth) <= 1 - level. They are wider, typically by half. (To stop at a planned width,
whatever the value, interim analyses need fewer labels.)

**Label by label**, if each draw has known probabilities given the earlier draws (srs, sups, two_ups, deepest, and
rounds of them in any mix). With q_k the probability of the example in draw k, D_k the failures already drawn,

    g_k = f_k / q_k,    0 <= g_k <= b_k,    E[g_k | before] = N·m - D_k =: μ_k(m)        if m is the share of failures

A gambler bets the share c of his capital in each draw on a large g, at odds that are fair if m is true. He has

    K_n(m) = Π_k [1 + c·(g_k / μ_k(m) - 1)] >= 0,

a capital of constant expectation 1, which ever reaches 2/α with probability at most α/2 (J. Ville, 1939). So does the
mean of 24 gamblers with c from 0 to 1, which needs no guess of the variance. All m for which it was ever reached are
excluded; betting on b_k - g_k bounds m from above. Sources: I. Waudby-Smith and A. Ramdas, "Estimating means of bounded
random variables by betting", JRSS B 86 (2024), section 5 on sampling without replacement; F. Orabona and K.-S. Jun,
"Tight concentrations and confidence sequences from the regret of universal portfolio", IEEE Transactions on Information
Theory 70 (2024), on the mixture over c. K decreases in m, so bisection finds each end.

The draws must be in their order. Labels with gaps change the order at each interval, and such intervals do not hold
together: use the labels before the first gap, or whole rounds.

**Round by round**, for every other method: the interval after round k has the level 1 - α·6/(π²k²), and all intervals
are intersected. These α sum to α over all rounds, so the union bound holds. Only finished rounds count.

Legend: N pool, n labels, f = 1 - outcome, m a share of failures, α = 1 - level.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from opacc_ray.designs.design import DrawSequence, LabelledBefore
from opacc_ray.errors import LabelError
from opacc_ray.estimation import constants
from opacc_ray.estimation.failures import failures_by_design
from opacc_ray.estimation.intervals import Estimate, cut, effective_number, within_interval
from opacc_ray.estimation.sample import Sample


class InterimAnalysis(NamedTuple):
    """The precision after a whole round."""

    labels: int  # n, of all rounds so far
    half_width: float  # h, at ``interim_level``
    met: float  # m, failures found, or successes if fewer

    @property
    def cautious_half_width(self) -> float:
        """The half-width that the goal is compared with."""
        return self.half_width * math.sqrt(1 + 1 / (self.met + 1) ** 2)


class Forecast(NamedTuple):
    """Labels that a goal takes, forecast from the rounds so far."""

    reached: bool
    total: int  # labels of all rounds, N at most
    sizes: tuple[int, ...]  # labels of the further rounds, if all goes as forecast; empty if the goal is reached
    rate: float  # β


def interim_level(level: float) -> float:
    """Return the level of the interval of every analysis, such that the reported one holds with ``level``."""
    return 1 - constants.INTERIM_SHARE * (1 - level)


def analyse(sample: Sample, accuracy: Estimate) -> InterimAnalysis:
    """Return the interim analysis of all rounds, from the ``accuracy`` at :func:`interim_level`."""
    met = min(effective_number(sample.failure), effective_number(sample.outcome))
    return InterimAnalysis(accuracy.n, (accuracy.high - accuracy.low) / 2, met)


def forecast(analyses: Sequence[InterimAnalysis], goal: float, pool_size: int) -> Forecast:
    """Forecast whether a goal W is reached, and how many labels it takes if not, from the analyses of all rounds.

    Raises
    ------
    LabelError
        ``goal`` is not above 0.
    """
    if not goal > 0:
        raise LabelError(f"half_width={goal}: give a number above 0, such as 0.02")
    now, rate = analyses[-1], shrinkage_rate(analyses, pool_size)
    if now.cautious_half_width <= goal:
        return Forecast(True, now.labels, (), rate)
    total = labels_for(goal, now.labels, now.cautious_half_width, pool_size, rate)
    sizes = planned_rounds(now.labels, total, pool_size)
    return Forecast(False, now.labels + sum(sizes), tuple(sizes), rate)


def shrinkage_rate(analyses: Sequence[InterimAnalysis], pool_size: int) -> float:
    """Return β of this run."""
    usual = constants.USUAL_RATE + 0.5 / (1 + analyses[-1].met)
    remaining = np.log([_remaining(item.labels, pool_size) for item in analyses])  # (k,) log x
    width = np.log([max(item.half_width, 1e-12) for item in analyses])  # (k,) log h
    step, shrunk = np.diff(remaining), np.diff(width)  # (k - 1,)
    rate = (constants.PRIOR_WEIGHT * usual + step @ shrunk) / (constants.PRIOR_WEIGHT + step @ step)
    return float(np.clip(rate, *constants.RATES))


def labels_for(goal: float, labels: int, half_width: float, pool_size: int, rate: float = constants.ROOT_LAW) -> float:
    """Return the n < N with half-width ``goal``, if it is ``half_width`` after ``labels``."""
    return 1 / (_remaining(labels, pool_size) * (goal / half_width) ** (1 / rate) + 1 / pool_size)


def expected_half_width(now: InterimAnalysis, labels: int, pool_size: int, rate: float) -> float:
    """Return the forecast h after ``labels`` labels."""
    return now.half_width * (_remaining(labels, pool_size) / _remaining(now.labels, pool_size)) ** rate


def planned_rounds(labels: int, total: float, pool_size: int) -> list[int]:
    """Return the sizes, at least one, of the rounds that raise ``labels`` to ``total`` and a margin."""
    sizes: list[int] = []
    while not sizes or labels < min(total, pool_size):
        if total <= constants.CLOSE * labels:
            then = max((1 + constants.MARGIN) * total, constants.LEAST_GROWTH * labels, labels + constants.LEAST_ROUND)
        else:
            least, most = (growth * labels for growth in constants.LEARNING_GROWTH)
            then = max(min(constants.LEARNING_SHARE * total, most), least, labels + constants.LEAST_ROUND)
        then = min(math.ceil(then - 1e-6), pool_size)  # whole but for rounding
        sizes.append(max(then - labels, 1))
        labels = then
    return sizes


def advice(found: Forecast, by_srs: float, now: InterimAnalysis, pool_size: int) -> str | None:
    """Return one sentence if the goal is not reached, and takes too many labels; ``now`` is the last analysis.

    ``by_srs`` is the number of labels of a simple random sample planned in advance.
    """
    if found.reached:
        return None
    if found.total > constants.SENSIBLE_SHARE * pool_size:
        text, labels = f"that is {found.total / pool_size:.0%} of the pool", 2 * now.labels
        if labels >= pool_size:
            return text
        width = expected_half_width(now, labels, pool_size, found.rate)
        return f"{text}; {labels} labels, twice as many as now, would give about ±{width:.2g}"
    if found.total > constants.SENSIBLE_PRICE * max(by_srs, now.labels):
        return "that is more than simple random sampling takes; go on with --method srs"
    return None


def _remaining(labels: int, pool_size: int) -> float:
    """Return x, to which the variance of a simple random sample is proportional; kept above 0 for repeated draws."""
    return max(1 / labels - 1 / pool_size, 1e-3 / pool_size)


BETTING = "betting confidence sequence"
SPENDING = "confidence sequence over rounds"

_STAKES = ((np.arange(constants.GAMBLERS) + 0.5) / constants.GAMBLERS) ** 2
"""c of each gambler; small ones are frequent, because they win if each label contains little information."""


def confidence_sequence(sample: Sample, level: float = 0.95) -> Estimate:
    """Estimate accuracy with an interval that holds at all times, for any reason to stop.

    ``level`` is the probability with which *all* intervals of the sequence hold. More labels give an interval inside
    that of fewer, unless a method without label-by-label draws is added.
    """
    failures, stream = failures_by_design(sample), draw_sequence(sample)
    if stream is None:
        spent = [(1 - level) * 6 / (math.pi * k) ** 2 for k in range(1, len(sample.rounds.selections) + 1)]
        heads = [sample.head(k) for k in range(1, len(spent))]
        ends = [
            part.accuracy(1 - share).interval
            for part, share in zip([*map(failures_by_design, heads), failures], spent, strict=True)
        ]
        low, high, name = max(low for low, _ in ends), min(high for _, high in ends), SPENDING
    else:
        alpha = (1 - level) / 2
        low, high, name = lower_bound(stream.mirrored(), alpha), 1 - lower_bound(stream, alpha), BETTING
    low, high = min(low, high), max(low, high)  # the two bounds may cross
    total = failures.total
    ends_of_labels = 1 - (total.size - total.labelled + total.events) / total.size, 1 - total.events / total.size
    low, high = cut((low, high), *ends_of_labels)
    found = replace(failures.accuracy(level), low=low, high=high, method=name)
    return within_interval(found, int(total.size) if failures.is_binary else None)


def draw_sequence(sample: Sample) -> DrawSequence | None:
    """Return the draws of all rounds in order; None if a round is not drawn label by label, or has gaps."""
    rounds, drawn_before = sample.rounds, dict[int, float]()  # the failures of examples drawn in earlier rounds
    parts = []
    for selection, places in zip(rounds.selections, rounds.places, strict=True):
        values = sample.failure[places]
        before = LabelledBefore(len(drawn_before), sum(drawn_before.values()), rounds.pool_size)
        part = selection.design.stream(values, before)
        if part is None:
            return None
        parts.append(part)
        drawn_before |= zip(selection.index.tolist(), values.tolist(), strict=True)
    value, drawn, bound = (np.concatenate(columns) for columns in zip(*(part[:3] for part in parts), strict=True))
    return DrawSequence(value, drawn, bound, rounds.pool_size)


def lower_bound(stream: DrawSequence, alpha: float) -> float:
    """Return the lower confidence bound of m: shares are excluded if the capital ever reached 1/α."""
    from scipy.optimize import bisect  # not Brent's: the capital is infinite where m is impossible

    def excess(share: float) -> float:
        return largest_capital(stream, share) + math.log(alpha)

    if excess(0.0) < 0:
        return 0.0
    return float(bisect(excess, 0.0, 1.0, xtol=1e-15)) if excess(1.0) < 0 else 1.0


def largest_capital(stream: DrawSequence, share: float) -> float:
    """Return the log of the largest mean capital so far at m = ``share``; infinite if m is impossible."""
    expected = stream.pool_size * share - stream.drawn  # (n,) μ
    tolerance = 1e-12 * stream.pool_size  # of rounding
    if (expected < -tolerance).any() or (stream.value[expected <= tolerance] > tolerance).any():
        return math.inf
    odds = np.divide(stream.value, expected, out=np.ones_like(expected), where=expected > tolerance)
    capital = np.log1p(_STAKES[:, None] * (odds - 1)).cumsum(axis=1)  # (gamblers, n)
    return float((np.logaddexp.reduce(capital, axis=0) - math.log(len(_STAKES))).max(initial=0.0))
