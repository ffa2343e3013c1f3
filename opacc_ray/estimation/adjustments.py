"""Adjust an estimate to its circumstances: a population, annotators' errors, an interim look; and compare it.

**The population** that the pool is a random sample of. An interval by the sampling design is about the pool: chance
lies in the draw of labels. If the pool itself is a simple random sample of a population, such as 40 of 300 videos or
2,000 of 7,500 answers, the accuracy of the population has a second error, that of the pool's own mean. Its variance is

    V + (1 - M/M') B        V of the labels given the pool;   B of the mean of M units drawn with replacement

The units are what was drawn: examples, or *clusters* such as videos, whose examples are alike. For examples B is
S²/(N - 1). For clusters the deviations of all M of them,

    d_c = 1/N Σ_c (v̂ - θ̂) + Σ_labels of c w (v - v̂)        U = M/(M - 1) Σ (d_c - d̄)²

estimate V + B, however examples are drawn within (the ultimate cluster of M. H. Hansen, W. N. Hurwitz, W. G. Madow,
"Sample Survey Methods and Theory", 1953; C.-E. Särndal, B. Swensson, J. Wretman, "Model Assisted Survey Sampling",
1992, 4.6). So B = U - V, and at least S²/(N - 1). U has 2M/(κ - 1) degrees of freedom, with κ the kurtosis of d. Where
all labels agree, nothing is known of B, and clusters count as if each were one example.

The interval combines that of the pool with Wilson's at the size of the sample with variance (1 - M/M') B, end by end,
by the method of variance estimates recovery (G. Y. Zou, A. Donner, Statistics in Medicine 27, 2008). The estimate
stays.

Legend: N examples and M units of the pool, M' those of the population, w weight of a label, v its failure, v̂ forecast
of it, θ̂ the estimate, S² variance of v.

**Annotators' errors** and their effect on an accuracy are bounded from examples with two opinions. The target is θ, the
mean over the pool of the outcome t by the typical answer: the median of all possible opinions of an example, for
right-or-wrong outcomes that of the majority. The estimate is of μ, the mean of the outcome y by *one* opinion each.
With two independent opinions y, y' of an example,

    |E y - t| ≤ E|y - t| ≤ E|y - y'|

since a median t minimises E|y - c| over c, so that E|y - t| ≤ E[|y - y'| given y'] for every y'. So over the pool

    μ - δ ≤ θ ≤ μ + δ,    δ the mean of |y - y'|

whichever examples and direction the errors have. For right-or-wrong outcomes δ is the gross difference rate of a
reinterview (M. H. Hansen, W. N. Hurwitz, M. A. Bershad, "Measurement errors in censuses and surveys", Bulletin of the
International Statistical Institute 38, 1961), which is twice the simple response variance. The bound is reached if
opinions are evenly split; if errors are rare and equally likely everywhere, the accuracy moves by about δ/2 at most.

The interval for θ is from the lower limit of μ - δ to the upper limit of μ + δ. Each combines the intervals of its two
terms by the method of variance estimates recovery (G. Y. Zou, A. Donner, Statistics in Medicine 27, 2008):

    low = μ̂ - δ̂ - √((μ̂ - low_μ)² + (high_δ - δ̂)²),    high = μ̂ + δ̂ + √((high_μ - μ̂)² + (high_δ - δ̂)²)

δ̂ is estimated from the examples with two opinions, which must be a random part of the sample. Designs in which all
labels, or all of a stratum, have equal weights estimate it. Other designs search for failures and have heavy weights
elsewhere, and a part without examples of some stratum has no design; then the weights w of the whole sample make J.
Hájek's estimator, with the weighted Clopper-Pearson interval:

    δ̂ = Σ w d / Σ w        v = m/(m - 1) · Σ (w (d - δ̂))² / (Σ w)²        d = |y - y'| of m examples

Another number, such as F1 or a ratio of totals, is to first order a mean of what each example adds to it, so its δ is
the mean difference of that between two opinions; for rankings that is the difference of outcomes times the influence
of the example. Other numbers that judge the confidence take the δ of the accuracy. Numbers of slices and classes are
not widened: too few examples with two opinions are in each.

Opinions must be independent. Errors that all annotators share remain invisible.

**The interval to report** (:meth:`Circumstances.statement`). The design gives one at the requested level. If sampling
stopped at a planned width (``sequential.py``), the interval of the last analysis is reported, which holds under that
rule. If second opinions show that annotators' errors matter, the interval is widened for them. With both, the interval
of the last analysis is widened. Where the pool is a sample of a population, all begin with the interval of that.

Annotators' errors matter if they probably move the accuracy by more than a quarter of the half-width. They move it by
at most δ/2 if they are rare and equally likely everywhere, so if

    δ̂ / 2 > ¼ · (high - low) / 2

Beyond that an interval of 95 % covers at most 92 %. Fewer than `LEAST_OPINIONS` examples with two opinions are too few
to widen an interval: a note reports what they show.

**The simple random sample**, and the number of its labels that would be as precise:

    S² = n / (n - 1) · θ̂(1 - θ̂)                      for scores their variance, weighted by the design
    interval of a simple random sample of n, without replacement, whose mean is θ̂     (``failures.py``)
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
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimation import intervals
from opacc_ray.estimation.constants import BY_CHANCE, LEAST_DEVIANT, LEAST_OPINIONS
from opacc_ray.estimation.failures import Fit, failures_by_design
from opacc_ray.estimation.sample import Rounds, Sample
from opacc_ray.estimation.sequential import interim_level
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.selection import Outcome

Array = NDArray[np.float64]
Codes = NDArray[np.integer]

MORE = "more"
"""A population of any size: examples or clusters to come."""


class SampleOf(NamedTuple):
    """What the pool is a simple random sample of."""

    total: int | None  # M'; None: many more
    cluster: str | None = None  # what the units are called; None: examples

    @classmethod
    def parse(cls, given: int | str, cluster: str | None = None) -> "SampleOf":
        """Read a number or "more"; raises SpecError for anything else."""
        if given == MORE:
            return cls(None, cluster)
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise SpecError(f"sample_of={given!r}: give the size of the population, or {MORE!r} for any size")
        return cls(given, cluster)


class PoolAsSample(NamedTuple):
    """How well the pool represents its population."""

    size: float  # of the simple random sample with replacement whose mean is as uncertain as that of the pool
    note: str

    def of_population(self, found: intervals.Estimate) -> intervals.Estimate:
        """Return the estimate of the population from that of the pool."""
        low, high = self._widened(found)
        error = math.hypot(found.standard_error, math.sqrt(max(found.value * (1 - found.value), 0.0) / self.size))
        return replace(found, low=low, high=high, standard_error=error, method=f"{found.method} for a population")

    def _widened(self, found: intervals.Estimate) -> intervals.Interval:
        value = min(max(found.value, 0.0), 1.0)
        low, high = intervals.wilson(value, self.size, found.level) if self.size < math.inf else (value, value)
        below, above = math.hypot(value - found.low, value - low), math.hypot(found.high - value, high - value)
        return max(value - below, min(found.low, 0.0)), min(value + above, max(found.high, 1.0))


def cluster_deviations(
    codes: NDArray[np.integer], num: int, forecast: Array, labels: tuple[NDArray[np.int64], Array, Array], value: float
) -> Array:
    """Return d (M,) of each cluster.

    Parameters
    ----------
    codes : (N,) cluster of each example, 0 .. ``num`` - 1
    forecast : (N,) v̂
    labels : (n,) place, weight and failure of each label
    value : θ̂ of failures
    """
    index, weight, failure = labels
    own: Array = np.bincount(codes, weights=forecast - value, minlength=num) / len(codes)
    own += np.bincount(codes[index], weights=weight * (failure - forecast[index]), minlength=num)
    return own - own.mean()


def _of_clusters(deviation: Array, found: intervals.Estimate, least: float) -> tuple[float, float]:
    """Return the size for clusters, and the widening for few of them; ``least`` is S²/(N - 1)."""
    num = len(deviation)
    if num < 2:
        raise SpecError("sample_of: the pool has a single cluster, and says nothing of others; leave it out")
    square = deviation**2
    if least <= 0 or not square.any():
        return float(num), intervals.student_quantile(num - 1, found.level) / intervals.normal_quantile(found.level)
    total = num / (num - 1) * float(square.sum())
    kurtosis = num * float(square @ square) / float(square.sum()) ** 2
    degrees = min(max(2 * num / max(kurtosis - 1, 1e-9), 1.0), num - 1.0)
    variance = max(total - found.standard_error**2, least)
    size = max(found.value * (1 - found.value) / variance, 1.0)
    return size, intervals.student_quantile(degrees, found.level) / intervals.normal_quantile(found.level)


def represent(
    asked: SampleOf, found: intervals.Estimate, sample: Sample, clusters: Codes | None, fit: Fit | None
) -> PoolAsSample:
    """Return how well the pool of ``sample``, with the accuracy ``found``, represents its population.

    ``clusters`` (N,) numbers them from 0, if they were drawn. Raises SpecError for a population that is smaller than
    the pool, or for a single cluster.
    """
    rounds, failure = sample.rounds, sample.failure
    value, weight = min(max(found.value, 0.0), 1.0), rounds.weights
    spread = value * (1 - value)  # S²
    if not sample.is_binary:
        spread = min(spread, float(weight @ (failure - 1 + found.value) ** 2) / float(weight.sum()))
    num = rounds.pool_size if clusters is None else int(clusters.max()) + 1
    units = "examples" if asked.cluster is None else f"values of {asked.cluster}"
    if asked.total is not None and asked.total < num:
        raise SpecError(
            f"sample_of: the pool has {num:,} {units}, and cannot be a sample of {asked.total:,}; give the "
            f"size of the whole population, or {MORE}"
        )
    left = 1.0 if asked.total is None else 1 - num / asked.total
    size, widening = float(max(rounds.pool_size - 1, 1)), 1.0
    if spread > 0:
        size *= value * (1 - value) / spread
    if clusters is not None:
        forecast = np.full(rounds.pool_size, float(failure.mean())) if fit is None else fit.failure
        labels = rounds.index, weight, failure
        deviations = cluster_deviations(clusters, num, forecast, labels, 1 - found.value)
        size, widening = _of_clusters(deviations, found, value * (1 - value) / size if spread > 0 else 0.0)
    many = "more" if asked.total is None else f"{asked.total:,}"
    note = (
        f"The interval is about {many} {units}, of which the pool has {num:,}, drawn at random. That of the "
        "sampling design alone, metrics and slices are about the pool."
    )
    return PoolAsSample(size / (left * widening**2) if left > 0 else math.inf, note)


_BY_RISK = (intervals.WEIGHTED, "adjusted Wilson")
"""Intervals of designs whose weights depend on predicted failures."""


def disagreement(rounds: Rounds, twice: NDArray[np.bool_], differences: Outcome, level: float) -> intervals.Estimate:
    """Estimate δ over the pool.

    Parameters
    ----------
    rounds : with all their labels
    twice : (n,) which labels have two opinions; at least one has
    differences : (m,) their |y - y'|
    """
    if (part := _part_with_a_design(rounds, twice)) is not None:
        return failures_by_design(Sample(part, differences)).accuracy(level)
    weight = rounds.weights[twice]
    num, weight = len(weight), weight / weight.sum()
    mean = float(weight @ differences)
    variance = num / max(num - 1, 1) * float(((weight * (differences - mean)) ** 2).sum())
    low, high = intervals.weighted_clopper_pearson(mean, variance, float(weight.max()), level)
    return intervals.Estimate(mean, math.sqrt(variance), low, high, level, intervals.WEIGHTED, num, True)


def _part_with_a_design(rounds: Rounds, twice: NDArray[np.bool_]) -> Rounds | None:
    """Return the part of the rounds that has two opinions; None if it has no design of its own."""
    if any(part.design.interval in _BY_RISK for part in rounds.selections):
        return None
    marks = [twice[places] for places in rounds.places]
    parts = [part.restrict(has) for part, has in zip(rounds.selections, marks, strict=True) if has.any()]
    with suppress(LabelError):
        found = Rounds(parts)
        _ = found.weights  # raises for a stratum without labels
        return found
    return None


def widen(accuracy: intervals.Estimate, disagreement: intervals.Estimate) -> tuple[float, float]:
    """Return the interval of θ, the accuracy by the typical answers, from estimates of μ and δ at the same level.

    It is in [0, 1], unless the interval of ``accuracy`` is not, and never inside that. It covers θ at least as often as
    both intervals cover.
    """
    mean, by = accuracy.value, max(disagreement.value, 0.0)
    spread = max(disagreement.high - by, 0.0)
    low = mean - by - math.hypot(max(mean - accuracy.low, 0.0), spread)
    high = mean + by + math.hypot(max(accuracy.high - mean, 0.0), spread)
    least, most = min(accuracy.low, 0.0), max(accuracy.high, 1.0)
    return max(least, min(low, accuracy.low)), min(most, max(high, accuracy.high))


Allowance = Literal["sampling of the pool", "stopping", "label noise"]


class SecondOpinions(NamedTuple):
    """Agreement of annotators on the examples with two opinions."""

    examples: int
    differ: int  # examples on which the outcomes of the two opinions differ
    disagreement: intervals.Estimate  # mean difference of the outcomes of two opinions, over the pool
    alpha: float | None  # Krippendorff's, of the labels; None: not defined
    pairs: Sequence[Any] = ()  # agreement of each two annotators, as documents have it


class Statement(NamedTuple):
    """The reported estimate."""

    estimate: intervals.Estimate
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

    def of_population(self, found: intervals.Estimate) -> intervals.Estimate:
        """Return the estimate of the population, if the pool is a sample of one."""
        return found if self.population is None else self.population.of_population(found)

    def statement(self, found: intervals.Estimate) -> Statement:
        """Return the reported estimate, from the one by the sampling design at :attr:`own_level`."""
        allows_for, notes, found = list[Allowance](), list[str](), self.of_population(found)
        if self.population is not None:
            allows_for.append("sampling of the pool")
            notes.append(self.population.note)
        stated = replace(found, level=self.level)
        if self.goal is not None:
            allows_for.append("stopping")
            of = "" if self.goal_of == ACCURACY else f" of {self.goal_of}"
            stated = replace(stated, method=f"{stated.method} for stopping at ±{self.goal:g}{of}")
            notes += self._stopping_notes(self.goal)
        if self.opinions:
            matters = self.opinions.differ > 0 and self.opinions.disagreement.value > (found.high - found.low) / 4
            if matters and self.opinions.examples >= LEAST_OPINIONS:
                allows_for.append("label noise")
                low, high = widen(found, self.opinions.disagreement)
                stated = replace(stated, low=low, high=high, method=f"{stated.method} widened for label noise")
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
    method: str  # the formula of the interval
    effective_size: float | None  # None: withheld

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, under the names of the attributes."""
        return asdict(self)


def baseline(sample: Sample, estimate: intervals.Estimate) -> Baseline:
    """Return the interval of a simple random sample of as many labels as the sample of an estimate has."""
    values, n, pool_size = sample.outcome, sample.size, sample.rounds.pool_size
    mean = min(max(estimate.value, 0.0), 1.0)
    if sample.is_binary:
        spread = mean * (1 - mean) * n / max(n - 1, 1)
        low, high = intervals.hypergeometric(round(mean * n), n, pool_size, estimate.level)
        name = "exact hypergeometric"
    else:
        weight = sample.rounds.weights / sample.rounds.weights.sum()
        spread = float(weight @ (values - weight @ values) ** 2) * n / max(n - 1, 1)
        variance, bound = spread * (1 / n - 1 / pool_size), SimpleRandom(n, pool_size, False).weight_bound
        few, many = intervals.weighted_clopper_pearson(1 - mean, variance, bound, estimate.level)
        low, high, name = 1 - many, 1 - few, intervals.WEIGHTED
    effective = _effective_size(estimate, values, spread, pool_size)
    if effective is not None and effective > n * (1 + 1e-9) and estimate.high - estimate.low >= high - low:
        effective = None
    return Baseline(n, low, high, estimate.level, name, effective)


def _effective_size(estimate: intervals.Estimate, values: Outcome, spread: float, pool_size: int) -> float | None:
    if not estimate.design_based or estimate.standard_error == 0 or spread == 0:
        return None
    if np.ptp(values) == 0 or intervals.effective_number((values - values.mean()) ** 2) < LEAST_DEVIANT:
        return None
    return 1 / (estimate.standard_error**2 / spread + 1 / pool_size)
