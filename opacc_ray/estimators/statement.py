"""State an estimate: choose the interval to report, and compare it with a simple random sample of as many labels.

**The interval.** The design gives one at the requested level. If sampling stopped at a planned width
(``interim_analyses.py``), the interval of the last analysis is reported, which holds under that rule. If second
opinions show that annotators' errors matter, the interval is widened for them (``label_noise.py``). With both, the
interval of the last analysis is widened. Where the pool is a sample of a population, all begin with the interval of
that (``population.py``).

Annotators' errors matter if they probably move the accuracy by more than a quarter of the half-width. They move it by
at most δ/2 if they are rare and equally likely everywhere, so if

    δ̂ / 2 > ¼ · (high - low) / 2

Beyond that an interval of 95 % covers at most 92 %. Fewer than `LEAST_OPINIONS` examples with two opinions are too few
to widen an interval: a note reports what they show.

**The simple random sample**, and the number of its labels that would be as precise:

    S² = n / (n - 1) · θ̂(1 - θ̂)                      for scores their variance, weighted by the design
    interval of a simple random sample of n, without replacement, whose mean is θ̂     (``design_based.py``)
    n_eff = 1 / (v / S² + 1/N)                        the n at which (1/n - 1/N)·S², its variance, is v

n_eff is L. Kish's effective sample size ("Survey Sampling", 1965): n_eff = 3n means that n labels of the design are
worth three times as many of a simple random sample. It is rough, because v is estimated from the same sample, and too
small if the sample missed the rare failures of large weight. So it is withheld where v is unreliable, and where it
contradicts the interval, which allows for such failures:

    d = (Σ (y - ȳ)²)² / Σ (y - ȳ)⁴ < 3                for 0/1 outcomes about the number of failures, or of successes
    n_eff > n, though the interval is no narrower than that of the simple random sample

Legend: N pool, n labels (each example once), θ̂ the estimate of the design, v its estimated variance, S² the variance of
outcomes, y outcomes, ȳ their mean, d effective number of outcomes in their variance.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.interim_analyses import interim_level
from opacc_ray.estimators.intervals import WEIGHTED, effective_number, hypergeometric, weighted_score_interval
from opacc_ray.estimators.label_noise import widen
from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.estimators.population import PoolAsSample
from opacc_ray.estimators.rounds import Outcome, Rounds, as_lists, is_binary, linear_estimator

LEAST_OPINIONS = 10
"""Examples with two opinions from which on the interval is widened."""

BY_CHANCE = 0.1
"""Largest value of Krippendorff's alpha that counts as agreement by chance."""

LEAST_DEVIANT = 3
"""Least d for which an effective size is reported."""

Allowance = Literal["sampling of the pool", "stopping", "label noise"]


class SecondOpinions(NamedTuple):
    """Agreement of annotators on the examples with two opinions."""

    examples: int
    differ: int  # examples on which the outcomes of the two opinions differ
    disagreement: Estimate  # mean difference of the outcomes of two opinions, over the pool
    alpha: float | None  # Krippendorff's, of the labels; None: not defined


class Statement(NamedTuple):
    """The reported estimate."""

    estimate: Estimate
    allows_for: tuple[Allowance, ...]
    notes: tuple[str, ...]  # sentences that a reader must know about the number


class Circumstances(NamedTuple):
    """Circumstances that decide which interval an audit reports.

    Attributes
    ----------
    level : coverage of the reported interval.
    goal : half-width at which sampling stopped; None without such a rule.
    goal_of : the number whose interval it was.
    earlier_goals : previous goals: half-widths of the accuracy, or texts.
    opinions : None without second opinions.
    population : what the pool is a sample of; None: the number is about the pool.
    """

    level: float
    goal: float | None = None
    goal_of: str = ACCURACY
    earlier_goals: tuple[float | str, ...] = ()
    opinions: SecondOpinions | None = None
    population: PoolAsSample | None = None

    @property
    def own_level(self) -> float:
        """Level of the estimate to report."""
        return self.level if self.goal is None else interim_level(self.level)

    def of_population(self, found: Estimate) -> Estimate:
        """Return the estimate of the population, if the pool is a sample of one."""
        return found if self.population is None else self.population.of_population(found)

    def statement(self, found: Estimate) -> Statement:
        """Return the reported estimate, from the one by the sampling design at :attr:`own_level`."""
        allows_for, notes, found = list[Allowance](), list[str](), self.of_population(found)
        if self.population is not None:
            allows_for.append("sampling of the pool")
            notes.append(self.population.note)
        stated = replace(found, level=self.level)
        if self.goal is not None:
            allows_for.append("stopping")
            stated = replace(stated, interval=f"{stated.interval} for stopping at ±{self.goal:g}")
            notes += self._stopping_notes(self.goal)
        if self.opinions:
            matters = self.opinions.differ > 0 and self.opinions.disagreement.value > (found.high - found.low) / 4
            if matters and self.opinions.examples >= LEAST_OPINIONS:
                allows_for.append("label noise")
                low, high = widen(found, self.opinions.disagreement)
                stated = replace(stated, low=low, high=high, interval=f"{stated.interval} widened for label noise")
            notes += _opinion_notes(self.opinions, matters)
        return Statement(stated, tuple(allows_for), tuple(notes))

    def _stopping_notes(self, goal: float) -> list[str]:
        of, them = ("", "interval allows") if self.goal_of == ACCURACY else (f" of {self.goal_of}", "intervals allow")
        notes = [f"Sampling stopped once the interval{of} was within ±{goal:g}; the stated {them} for that."]
        if self.earlier_goals:
            last = self.earlier_goals[-1]
            before = last if isinstance(last, str) else f"±{last:g}"
            notes.append(
                f"The goal was {before} before; if it was changed because of what the labels show, state the interval "
                "that holds at any time."
            )
        return notes


def _opinion_notes(opinions: SecondOpinions, matters: bool) -> list[str]:
    """Return the notes about them; ``matters`` is whether errors of annotators probably move the accuracy."""
    notes, shown = list[str](), f"on {opinions.differ} of {opinions.examples} examples with two opinions"
    if opinions.alpha is not None and opinions.alpha <= BY_CHANCE and opinions.differ > 1:
        notes.append(
            f"Annotators agree no better than chance (alpha {opinions.alpha:.2f}): they differ {shown}. "
            "Clarify the labelling instructions before you rely on this number."
        )
    if matters and opinions.examples < LEAST_OPINIONS:
        notes.append(
            f"Annotators differ {shown}, too few to widen the interval by; errors of labels may move the accuracy "
            f"beyond it. Collect second opinions on {LEAST_OPINIONS} examples or more."
        )
    elif matters and not notes:
        notes.append(
            f"Annotators differ {shown}; the stated interval is widened for errors of labels. Those of slices and "
            "classes assume that labels have none."
        )
    return notes


# -- comparison with a simple random sample ---------------------------------------------------------------------


@dataclass(frozen=True)
class Baseline:
    """A simple random sample of as many labels, with the estimated accuracy."""

    n: int  # labels
    low: float
    high: float
    level: float
    interval: str
    effective_size: float | None  # None: withheld

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, under the names of the attributes."""
        return asdict(self)


def baseline(rounds: Rounds, outcomes: Sequence[Any], estimate: Estimate) -> Baseline:
    """Return the interval of a simple random sample of as many labels, and the effective sample size.

    ``rounds`` and ``outcomes`` are as for :func:`opacc_ray.estimate`, and ``estimate`` is its result.
    """
    selections, given = as_lists(rounds, outcomes)
    values = np.concatenate(given).astype(np.float64)
    n, pool_size = len(np.unique(np.concatenate([part.index for part in selections]))), selections[0].pool_size
    mean = min(max(estimate.value, 0.0), 1.0)
    if is_binary(values):
        spread = mean * (1 - mean) * n / max(n - 1, 1)
        low, high = hypergeometric(round(mean * n), n, pool_size, estimate.level)
        name = "exact hypergeometric"
    else:
        weight = linear_estimator(selections).weights
        weight = weight / weight.sum()
        spread = float(weight @ (values - weight @ values) ** 2) * n / max(n - 1, 1)
        error, bound = math.sqrt(spread * (1 / n - 1 / pool_size)), SimpleRandom(n, pool_size, False).weight_bound
        low, high, name = *weighted_score_interval(mean, error**2, bound, estimate.level), WEIGHTED
    effective = _effective_size(estimate, values, spread, pool_size)
    if effective is not None and effective > n * (1 + 1e-9) and estimate.high - estimate.low >= high - low:
        effective = None
    return Baseline(n, low, high, estimate.level, name, effective)


def _effective_size(estimate: Estimate, values: Outcome, spread: float, pool_size: int) -> float | None:
    if not estimate.design_based or estimate.standard_error == 0 or spread == 0:
        return None
    if np.ptp(values) == 0 or effective_number((values - values.mean()) ** 2) < LEAST_DEVIANT:
        return None
    return 1 / (estimate.standard_error**2 / spread + 1 / pool_size)
