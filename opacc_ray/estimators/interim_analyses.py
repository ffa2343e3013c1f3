"""Sample in rounds until the interval is ``value ± W``: when to stop, and how many labels it takes.

An interim analysis follows every round k. With n labels so far, h_k is half the width of the interval at level 1 -
0.95·α, and m the number of failures found (of successes, if they are fewer). Sampling stops, with that interval, as
soon as

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
α is reserved for other dependence on luck, such as the sizes of rounds. ``docs/results/until.md`` has measurements; J.
Frey ("Fixed-width sequential confidence intervals for a proportion", The American Statistician 64, 2010) treats
proportions exactly, with an analysis after every label.

**Limits.** The interval holds for this stopping rule. Alpha spending (K. K. G. Lan and D. L. DeMets, "Discrete
sequential boundaries for clinical trials", Biometrika 70, 1983) would hold for any reason to stop, but each analysis
that does not stop would make the next one stricter: a fifth to a half more labels each, even with the correlation of
successive estimates. To change the goal after seeing labels, use :mod:`opacc_ray.estimators.design_based`, whose
intervals hold at all analyses at once.

Legend: N pool, n labels, h half-width, W goal, T forecast of the total of labels, β rate of shrinkage, α = 1 - level.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from opacc_ray.errors import LabelError
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.design_based import design_based_estimate
from opacc_ray.estimators.intervals import effective_number
from opacc_ray.estimators.rounds import Outcome
from opacc_ray.selection import Selection

INTERIM_SHARE = 0.95
"""Share of α that the interval of an interim analysis uses."""

LEAST_ROUND, LEAST_GROWTH = 10, 1.1
"""Least labels of a round, and least factor by which it multiplies the labels so far."""

LEARNING_SHARE, LEARNING_GROWTH = 0.6, (1.3, 3.0)
"""Share of the forecast that a round other than the last aims at; least and largest multiple of the labels."""

CLOSE, MARGIN = 1.8, 0.05
"""The last round follows if the forecast is below this multiple of the labels so far, with this margin."""

ROOT_LAW, USUAL_RATE, PRIOR_WEIGHT = 0.5, 0.6, 0.6
"""β of simple random samples, β₀ with many failures, and λ."""

SENSIBLE_SHARE, SENSIBLE_PRICE = 0.5, 1.5
"""Share of the pool, and multiple of a simple random sample, above which a goal causes advice."""


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
    return 1 - INTERIM_SHARE * (1 - level)


Estimator = Callable[[Sequence[Selection], Sequence[Outcome], float], Estimate]
"""Estimates accuracy from rounds, at a level."""


def analyse(
    selections: Sequence[Selection],
    outcomes: Sequence[Outcome],
    level: float = 0.95,
    estimator: Estimator = design_based_estimate,
) -> tuple[InterimAnalysis, Estimate]:
    """Compute the interim analysis of all rounds, and the estimate to report if sampling stops here.

    ``level`` is the coverage of the interval reported at the end; that of the estimate is ``interim_level(level)``.
    """
    found = estimator(selections, outcomes, interim_level(level))
    failure = 1 - np.concatenate(outcomes)
    met = min(effective_number(failure), effective_number(1 - failure))
    return InterimAnalysis(found.n, (found.high - found.low) / 2, met), found


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
    """Return β of this run, between 0.3 and 1.2."""
    usual = USUAL_RATE + 0.5 / (1 + analyses[-1].met)
    remaining = np.log([_remaining(item.labels, pool_size) for item in analyses])  # (k,) log x
    width = np.log([max(item.half_width, 1e-12) for item in analyses])  # (k,) log h
    step, shrunk = np.diff(remaining), np.diff(width)  # (k - 1,)
    rate = (PRIOR_WEIGHT * usual + step @ shrunk) / (PRIOR_WEIGHT + step @ step)
    return float(np.clip(rate, 0.3, 1.2))


def labels_for(goal: float, labels: int, half_width: float, pool_size: int, rate: float = ROOT_LAW) -> float:
    """Return the n < N with half-width ``goal``, if it is ``half_width`` after ``labels``."""
    return 1 / (_remaining(labels, pool_size) * (goal / half_width) ** (1 / rate) + 1 / pool_size)


def expected_half_width(now: InterimAnalysis, labels: int, pool_size: int, rate: float) -> float:
    """Return the forecast h after ``labels`` labels."""
    return now.half_width * (_remaining(labels, pool_size) / _remaining(now.labels, pool_size)) ** rate


def planned_rounds(labels: int, total: float, pool_size: int) -> list[int]:
    """Return the sizes, at least one, of the rounds that raise ``labels`` to ``total`` and a margin."""
    sizes: list[int] = []
    while not sizes or labels < min(total, pool_size):
        if total <= CLOSE * labels:
            then = max((1 + MARGIN) * total, LEAST_GROWTH * labels, labels + LEAST_ROUND)
        else:
            least, most = (growth * labels for growth in LEARNING_GROWTH)
            then = max(min(LEARNING_SHARE * total, most), least, labels + LEAST_ROUND)
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
    if found.total > SENSIBLE_SHARE * pool_size:
        text, labels = f"that is {found.total / pool_size:.0%} of the pool", 2 * now.labels
        if labels >= pool_size:
            return text
        width = expected_half_width(now, labels, pool_size, found.rate)
        return f"{text}; {labels} labels, twice as many as now, would give about ±{width:.2g}"
    if found.total > SENSIBLE_PRICE * max(by_srs, now.labels):
        return "that is more than simple random sampling takes; go on with --method srs"
    return None


def _remaining(labels: int, pool_size: int) -> float:
    """Return x, to which the variance of a simple random sample is proportional; kept above 0 for repeated draws."""
    return max(1 / labels - 1 / pool_size, 1e-3 / pool_size)
