"""Rounds until the interval is ``value ± W``: when to stop, how many labels to draw next, how many it will take.

After every whole round k one looks. With n labels so far, h_k is half the width of the interval at level 1 - 0.95·α and
m the number of failures met (of successes, if they are fewer). One stops, and states that interval, as soon as

    h_k · √(1 + 1/(m + 1)²) <= W

Otherwise T, the labels that it takes in all, is forecast from the half-widths of this run alone:

    h(n) = h_k · (x(n)/x(n_k))^β        x(n) = 1/n - 1/N        β = (λ·β₀ + Σ Δlog x · Δlog h) / (λ + Σ (Δlog x)²)

summed over successive rounds. β is ½ for a simple random sample and more where a method learns; λ = 0.6 draws it
towards β₀ = 0.6 + ½/(1 + m), for with few failures h falls almost as 1/n. The next round brings the labels to 0.6·T,
but to 3n at most and 1.3n at least; and to 1.05·T, as the last round, where T is below 1.8·n. From a first round of a
tenth of T that makes rounds of 10, 20, 30 and 40 %. No round is smaller than 10 labels or a tenth of those so far.

**What the stated interval is worth.** A run states one interval, and that errs with probability

    Σ_k P(stop at k, and interval k excludes θ)

which is not the chance that any of the intervals errs, for most looks do not stop. Whether one stops depends on the
width, and in large samples the width says nothing of the error: F. J. Anscombe ("Large-sample theory of sequential
estimation", Proceedings of the Cambridge Philosophical Society 48, 1952) and Y. S. Chow and H. Robbins ("On the
asymptotic theory of fixed-width sequential confidence intervals for the mean", Annals of Mathematical Statistics 36,
1965) proved that such an interval errs as often as one of a fixed n. C. R. Mehta and A. A. Tsiatis ("Flexible sample
size considerations using information-based interim monitoring", Drug Information Journal 35, 2001) monitor trials so. A
look that is too wide to stop at therefore costs nothing, and the level is the same at every look: it depends neither on
the labels nor on the number of looks, nor on W.

Where few failures are met the width does say something: a sample that happens to miss them is narrow and too good. The
root above is for that. It is the correction of Chow and Robbins, who add 1/n to the variance, and fades as failures are
met. A twentieth of α is kept back for the rest of what depends on luck, such as the sizes of rounds. What that comes to
is measured in `docs/results/until.md`; J. Frey ("Fixed-width sequential confidence intervals for a proportion", The
American Statistician 64, 2010) has the exact account for proportions and a look after every label.

**What it is not.** It holds for one who stops by this rule. α spent over the looks (K. K. G. Lan and D. L. DeMets,
"Discrete sequential boundaries for clinical trials", Biometrika 70, 1983) would hold whatever makes one stop. But then
a look that fails by a little makes the next one stricter, and each failure costs a fifth to a half more labels, even
with the correlation of successive estimates taken into account. Intervals that hold at all looks at once are in
:mod:`opacc_ray.estimators.sequence`; whoever changes the goal for what the labels show needs those.

Legend: N pool, n labels, h half-width, W goal, T forecast of the labels in all, β rate of shrinkage, α = 1 - level.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from opacc_ray.errors import LabelError
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.intervals import effective_number
from opacc_ray.estimators.plain import plain_estimate
from opacc_ray.selection import Selection

LOOK_SHARE = 0.95
"""Share of α that the interval of a look is made with."""

LEAST_ROUND, LEAST_GROWTH = 10, 1.1
"""Labels of the smallest round, and what it multiplies the labels so far by."""

LEARNING_SHARE, LEARNING_GROWTH = 0.6, (1.3, 3.0)
"""Share of the forecast that a round aims at which is not the last; least and largest multiple of the labels so far."""

CLOSE, MARGIN = 1.8, 0.05
"""The last round is drawn where the forecast is below so many times the labels so far, with this margin."""

ROOT_LAW, USUAL_RATE, PRIOR_WEIGHT = 0.5, 0.6, 0.6
"""β of simple random samples, β₀ where many failures are met, and λ."""

SENSIBLE_SHARE, SENSIBLE_PRICE = 0.5, 1.5
"""A goal is worth a warning above this share of the pool, or this multiple of a simple random sample."""


class Look(NamedTuple):
    """What the labels say after a whole round."""

    labels: int  # n, of all rounds so far
    half_width: float  # h, at ``look_level``
    met: float  # m

    @property
    def cautious_half_width(self) -> float:
        """The half-width that decides."""
        return self.half_width * math.sqrt(1 + 1 / (self.met + 1) ** 2)


class Forecast(NamedTuple):
    """What a goal takes, as far as the rounds so far tell."""

    reached: bool
    total: int  # labels of all rounds, N at most
    sizes: tuple[int, ...]  # labels of the further rounds, if all goes as forecast; empty if the goal is reached
    rate: float  # β


def look_level(level: float) -> float:
    """Level of the interval of every look, for the one at which one stops to hold with ``level``."""
    return 1 - LOOK_SHARE * (1 - level)


Estimator = Callable[[Sequence[Selection], Sequence[Outcome], float], Estimate]
"""Accuracy from rounds, at a level."""


def look(
    selections: Sequence[Selection],
    outcomes: Sequence[Outcome],
    level: float = 0.95,
    estimator: Estimator = plain_estimate,
) -> tuple[Look, Estimate]:
    """Look at the labels of all rounds.

    Parameters
    ----------
    selections, outcomes : one of each per round, as for :func:`opacc_ray.estimate`
    level : probability with which the interval is to hold at which one stops
    estimator : whose interval it is; by default the rounds' own designs'

    Returns
    -------
    (Look, Estimate)
        The estimate has the interval to state if one stops here, made at ``look_level(level)``.
    """
    found = estimator(selections, outcomes, look_level(level))
    failure = 1 - np.concatenate(outcomes)
    met = min(effective_number(failure), effective_number(1 - failure))  # of scores: of losses like the large ones
    return Look(found.n, (found.high - found.low) / 2, met), found


def forecast(looks: Sequence[Look], goal: float, pool_size: int) -> Forecast:
    """Whether a goal is reached, and what it takes if not.

    Parameters
    ----------
    looks : at least one, after each round so far
    goal : W, the half-width to reach
    pool_size : N

    Raises
    ------
    LabelError
        If ``goal`` is not above 0.
    """
    if not goal > 0:
        raise LabelError(f"half_width={goal}: give a number above 0, such as 0.02")
    now, rate = looks[-1], shrinkage_rate(looks, pool_size)
    if now.cautious_half_width <= goal:
        return Forecast(True, now.labels, (), rate)
    total = labels_for(goal, now.labels, now.cautious_half_width, pool_size, rate)
    sizes = planned_rounds(now.labels, total, pool_size)
    return Forecast(False, now.labels + sum(sizes), tuple(sizes), rate)


def shrinkage_rate(looks: Sequence[Look], pool_size: int) -> float:
    """β of this run, between 0.3 and 1.2."""
    usual = USUAL_RATE + 0.5 / (1 + looks[-1].met)
    doubt = np.log([_doubt(item.labels, pool_size) for item in looks])  # (k,) log x
    width = np.log([max(item.half_width, 1e-12) for item in looks])  # (k,) log h
    step, shrunk = np.diff(doubt), np.diff(width)  # (k - 1,)
    rate = (PRIOR_WEIGHT * usual + step @ shrunk) / (PRIOR_WEIGHT + step @ step)
    return float(np.clip(rate, 0.3, 1.2))


def labels_for(goal: float, labels: int, half_width: float, pool_size: int, rate: float = ROOT_LAW) -> float:
    """n at which the half-width is ``goal``, if it is ``half_width`` after ``labels``; below N."""
    return 1 / (_doubt(labels, pool_size) * (goal / half_width) ** (1 / rate) + 1 / pool_size)


def expected_half_width(now: Look, labels: int, pool_size: int, rate: float) -> float:
    """h after ``labels`` labels."""
    return now.half_width * (_doubt(labels, pool_size) / _doubt(now.labels, pool_size)) ** rate


def planned_rounds(labels: int, total: float, pool_size: int) -> list[int]:
    """Sizes of the rounds that bring the labels from ``labels`` to ``total`` and a margin; at least one."""
    sizes: list[int] = []
    while not sizes or labels < min(total, pool_size):
        then = min(math.ceil(_after_next(labels, total) - 1e-6), pool_size)  # whole but for rounding
        sizes.append(max(then - labels, 1))
        labels = then
    return sizes


def _after_next(labels: int, total: float) -> float:
    """Labels after the next round."""
    if total <= CLOSE * labels:
        return max((1 + MARGIN) * total, LEAST_GROWTH * labels, labels + LEAST_ROUND)
    least, most = (growth * labels for growth in LEARNING_GROWTH)
    return max(min(LEARNING_SHARE * total, most), least, labels + LEAST_ROUND)


def advice(found: Forecast, by_srs: float, now: Look, pool_size: int) -> str | None:
    """One sentence if the goal is not reached, and will not be at a sensible price.

    Parameters
    ----------
    found : what the goal takes
    by_srs : labels that a simple random sample takes, planned in advance
    now : the last look
    pool_size : N
    """
    if found.reached:
        return None
    if found.total > SENSIBLE_SHARE * pool_size:
        said, labels = f"that is {found.total / pool_size:.0%} of the pool", 2 * now.labels
        if labels >= pool_size:
            return said
        width = expected_half_width(now, labels, pool_size, found.rate)
        return f"{said}; {labels} labels, twice as many as now, would give about ±{width:.2g}"
    if found.total > SENSIBLE_PRICE * max(by_srs, now.labels):
        return "that is more than simple random sampling takes; go on with --method srs"
    return None


def _doubt(labels: int, pool_size: int) -> float:
    """x: the variance of a simple random sample is proportional to it; above 0 even where draws outnumber the pool."""
    return max(1 / labels - 1 / pool_size, 1e-3 / pool_size)
