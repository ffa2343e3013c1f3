"""Forecast of the number of labels for an interval of ±W, before any label, from the model's confidence.

    neyman      least n with z·√V(n) <= W,  V(n) = N⁻² Σ σ²(1/π - 1),  σ² = p(1 - p),  π as neyman would draw n at once
    srs         1/(W²/(z²·θ(1 - θ)) + 1/N)     at θ = mean p, the predicted share of failures
    worthless   (1 + price) · srs              if p does not predict which examples fail
    at worst    srs at θ = ½, times 1 + price  in any case

None of these is less than the number of labels for an interval without a failure, which is exact, not normal:

    least n with ½·(1 - (α/2)^(1/n)) <= W

A metric, a slice or a class has the interval that its labels are expected to give
(:mod:`opacc_ray.estimation.totals`), with π as neyman would draw n at once to serve it.

What judges are worth is the ratio of labels by p without and with them. By Godambe and Joshi's bound, the labels for an
interval are in proportion to

    E = (Σσ/N)² / (p̄(1 - p̄))        p̄ the mean of p

p is the failure model's prediction before any label: the model's confidence, tempered, and the history. If it is right,
`neyman` takes about as many labels as forecast. The model may be far worse than its confidence, and then only the last
number is certain.

Legend: N pool, n labels, W half-width, 1 - α level, z its normal quantile, θ share of failures.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import inclusion_probabilities
from opacc_ray.errors import LabelError
from opacc_ray.estimation.estimate import KnownPool, Numbers
from opacc_ray.estimation.intervals import Estimate, Value, clipped, normal_quantile, zero_failure_bound
from opacc_ray.estimation.sample import check_level
from opacc_ray.estimation.totals import Evidence, ForeseenEvidence, Groups, RandomEvidence
from opacc_ray.metrics.metric import Metric
from opacc_ray.parts.view import View
from opacc_ray.pool import NO_HISTORY, History
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import NO_PREVIOUS, Previous, Task
from opacc_ray.samplers.neyman.failure_model import predict_failure
from opacc_ray.samplers.neyman.sampling import signals_for
from opacc_ray.samplers.neyman.signals import JUDGE, JUDGED


class LabelForecast(NamedTuple):
    """Numbers of labels for an interval, each at most N."""

    neyman: int  # if the model's confidence, tempered, is right
    worthless: int  # if it does not predict which examples fail
    srs: int  # of a simple random sample
    at_worst: int | None = None  # whatever the accuracy; None for other numbers
    if_predicted: int | None = None  # if the confidence is right where no label is; None where that is no fewer


class HalfWidths(NamedTuple):
    """Half the width of an interval at some number of labels."""

    neyman: float
    srs: float  # of a simple random sample


class AccuracyForecast:
    """Expected half-widths of the interval of the accuracy, by the model's confidence."""

    def __init__(self, view: View, parameters: neyman.Parameters | None = None, history: History = NO_HISTORY) -> None:
        given = parameters or neyman.Parameters()
        task = Task(1, given, NO_PREVIOUS, history=history)
        self.view, self._plan, self._price = view, neyman.plan(view, task), 1 + given.price
        self._share = self._plan.expected / view.size  # of failures

    def value(self, num: int, level: float) -> float:
        """Return the accuracy that any number of labels is expected to state."""
        return 1 - self._share

    def labels(self, half_width: float, level: float = 0.95) -> LabelForecast:
        """Return the number of labels for an interval of ± ``half_width``.

        Raises LabelError if ``half_width`` or ``level`` is not between 0 and 1.
        """
        _check(half_width, level)
        size, variance = self.view.size, (half_width / normal_quantile(level)) ** 2
        by_srs, worst = (_labels_of_srs(variance, share, size) for share in (self._share, 0.5))
        own = _first(size, lambda num: self._variance(num) <= variance)
        least = _without_failures(half_width, level)
        found = (own, self._price * by_srs, by_srs, self._price * worst)
        return LabelForecast(*(math.ceil(min(max(num, least), size)) for num in found))

    def half_widths(self, num: int, level: float = 0.95) -> HalfWidths:
        """Return the half-widths at ``num`` labels.

        Raises LabelError if the level is not between 0 and 1, or ``num`` is not between 1 and N.
        """
        check_level(level)
        if not 0 < num <= self.view.size:
            raise LabelError(f"labels={num}: give numbers from 1 to the {self.view.size} examples of the pool")
        least = zero_failure_bound(num, level) / 2 if num < self.view.size else 0.0
        by_srs = self._share * (1 - self._share) * (1 / num - 1 / self.view.size)
        widths = (normal_quantile(level) * math.sqrt(max(own, 0.0)) for own in (self._variance(num), by_srs))
        return HalfWidths(*(max(own, least) for own in widths))

    def _variance(self, num: int) -> float:
        """Return V at ``num`` labels, N⁻² Σ σ²(1/π - 1)."""
        p = self._plan.failure[0]
        error = p * (1 - p) * (1 / inclusion_probabilities(self._plan.size, num) - 1)
        return float(error.sum()) / len(p) ** 2


class JudgesWorth(NamedTuple):
    """What the judges of a pool save, in multiples of the labels for an interval with them."""

    calls: int  # values of all judges
    without: float  # labels without the judges
    complete: float | None  # labels if every judge had judged every example; None if they have


def worth_of_judges(view: View, previous: Previous = NO_PREVIOUS, history: History = NO_HISTORY) -> JudgesWorth | None:
    """Return what the judges save, by the labels so far; None without judges.

    Examples without a judge are assumed to be like the others.
    """
    judges = view.judges(history.judges)
    if not judges:
        return None
    signals = signals_for(view, neyman.Parameters(), history)
    failure = 1 - previous.outcome
    own, bare = (
        predict_failure(one, previous.chosen, failure).failure for one in (signals, signals.without((JUDGE, JUDGED)))
    )
    judged = np.array([~np.isnan(score) for score in judges.values()])
    whole, of_all = _relative(own), judged.all(axis=0)
    complete = None if of_all.all() or not of_all.any() else _relative(own[of_all]) / whole
    return JudgesWorth(int(judged.sum()), _relative(bare) / whole, complete)


def _relative(p: NDArray[np.float64]) -> float:
    """Return E."""
    mean = float(p.mean())
    return float(np.sqrt(p * (1 - p)).mean()) ** 2 / (mean * (1 - mean))


class NumberForecast:
    """Expected half-widths of the interval of any number, from the model's confidence.

    Parameters
    ----------
    pool, parameters, history : as for :class:`AccuracyForecast`; the parameters serve the number
    metric : the number
    asked : chooses the part of it that decides, from numbers and a level
    """

    def __init__(
        self,
        pool: KnownPool,
        metric: Metric,
        asked: Callable[[Numbers, float], Estimate],
        parameters: neyman.Parameters,
        history: History = NO_HISTORY,
    ) -> None:
        task = Task(1, parameters, NO_PREVIOUS, history=history)
        self.view, self._pool, self._metric, self._asked = pool.view, pool, metric, asked
        self._plan, self._price = neyman.plan(pool.view, task), 1 + parameters.price

    def value(self, num: int, level: float) -> float:
        """Return the value that ``num`` labels are expected to state, within its interval."""
        return clipped(self._estimate(num, level))

    def labels(self, half_width: float, level: float) -> LabelForecast:
        """Return the number of labels for an interval of ± ``half_width``; raises as :class:`AccuracyForecast`."""
        _check(half_width, level)
        size = self.view.size

        def is_predicted(num: int) -> bool:
            found = self._estimate(num, level)
            return any(_half(own) <= half_width for own in (found, found.if_predicted) if own is not None)

        own, trusting = (
            _first(size, lambda num: _half(self._estimate(num, level)) <= half_width),
            _first(size, is_predicted),
        )
        by_srs = _first(size, lambda num: _half(self._random_sample(num, level)) <= half_width)
        worthless = min(math.ceil(self._price * by_srs), size)
        return LabelForecast(own, worthless, by_srs, if_predicted=trusting if trusting < own else None)

    def half_widths(self, num: int, level: float) -> HalfWidths:
        """Return the half-widths at ``num`` labels."""
        return HalfWidths(_half(self._estimate(num, level)), _half(self._random_sample(num, level)))

    def _estimate(self, num: int, level: float) -> Estimate:
        """Return what ``num`` labels are expected to state."""
        p, probability = self._plan.failure[0], self._plan.probability_of(num)
        return self._asked(self._numbers(lambda own: ForeseenEvidence(own, p, probability), p), level)

    def _random_sample(self, num: int, level: float) -> Estimate:
        """Return what a simple random sample of ``num`` labels is expected to state."""
        p = self._plan.failure[0]
        return self._asked(self._numbers(lambda own: RandomEvidence(own, p, num), p), level)

    def _numbers(self, evidence: Callable[[Groups], Evidence], p: NDArray[np.float64]) -> Numbers:
        pool, metric = self._pool, self._metric
        if metric.judges_confidence:
            pool.check(metric)
            groups, linear = pool.groups_for(metric, p)
            return Numbers(pool, {metric: evidence(groups)}, {} if linear is None else {metric: linear})
        return Numbers(pool, {key: evidence(pool.groups(key)) for key in (None, *pool.slicings)}, {})


def _half(found: Value) -> float:
    return (found.high - found.low) / 2


def _first(size: int, is_enough: Callable[[int], bool]) -> int:
    """Return the least number of labels that is enough, by halving."""
    return 1 + bisect_left(range(1, size), True, key=is_enough)


def _check(half_width: float, level: float) -> None:
    if not 0 < half_width < 1:
        raise LabelError(f"half_width={half_width}: give a number between 0 and 1, such as 0.02")
    check_level(level)


def _labels_of_srs(variance: float, share: float, size: int) -> float:
    return 1 / (variance / (share * (1 - share)) + 1 / size)


def _without_failures(half_width: float, level: float) -> float:
    """Return the fewest labels whose interval is ± ``half_width`` if none of them fails."""
    return math.log((1 - level) / 2) / math.log1p(-2 * half_width) if half_width < 0.5 else 1
