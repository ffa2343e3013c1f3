"""Estimate any metric of any class in any slice, from what labels say of the groups of a pool.

The failure model predicts that an example fails, with p. Of which class it is then, the labels predict: with the share
r(k | ŷ) of true classes among the failures of predicted class ŷ that they have shown, shrunk towards equal shares as by
five labels, an example is of class k ≠ ŷ with probability p·r(k | ŷ). So every variable of the totals
(:mod:`opacc_ray.estimation.totals`) has a forecast.

The mean cost of errors is the total of another variable, the cost of each misprediction. If every error costs the same,
it is the share of failures times that cost.

**A metric of a class** is a function g of its totals TP and FN (:mod:`opacc_ray.metrics.metric`).
Each total has an estimate and, at every level, an interval: a confidence distribution, represented by 192 quantiles
that lie between 48. The interval of a metric has the quantiles of g(TP, FN) over all pairs of these, as if the two were
independent: they come from different labels. (Precision and npv have that of their only total.) It is never undefined,
and agrees with the closed form of G. Y. Zou and A. Donner ("Construction of confidence limits about effect measures",
Statistics in Medicine 27, 2008) where that exists. It is that form, around the unbiased totals, at levels beyond the
outermost quantiles, such as those of many joint intervals.

Where a class is rare, no design can know how many of its examples hide among very many others: if fewer than one is
predicted among 950 labels of these, 3/950 of them may still be of the class, and only the confidence says otherwise. So
a second interval is stated beside the first, which holds if the confidence is right, up to a factor that the labels
calibrate (:class:`opacc_ray.estimation.distribution.PredictedTotal`), about the examples that no label reached. What is
stated of one class uses the median of that factor. Where few events are predicted among the labels, its mean is about
twice as much, and scores tend to predict too many events where none was seen. Numbers that are the same for each of two
classes, such as kappa, use the mean, which treats both alike.

Averages over all classes (``macro_f1``, …) are expected values of a metric, which labels correct by one step: by what
they add to the predicted total of a weighted misprediction (:mod:`opacc_ray.estimation.class_averages`). A mean cost is
such a total, with costs as weights. The interval is Wilson's, with Student's quantile of n - 1 degrees of freedom, at
the size x(1 - x)/variance, x the average, kept one standard error, or ½ if that is less, away from 0 and 1. Where at
least half of the predicted classes have ten labels, or as many as there are such classes, each speaks for itself, too:

- To the variance is added the square of how far the average is from that of what is stated of each class.
- A design alone measures no variance in a class whose few labels are all right, or all wrong. So the interval includes
  Zou and Donner's of the mean of C metrics, from the interval of each (:func:`joined_ends`).

Legend: ŷ predicted class, C classes, S slices, G groups, n labels, P examples predicted as a class.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import counted
from opacc_ray.estimation import intervals
from opacc_ray.estimation.class_averages import derivatives, expected_average, exponent, missed, rivals
from opacc_ray.estimation.constants import ABSENT, COMMON_LABELS, LEVELS, MUCH_NARROWER, PRIOR_FAILURES, SMALLEST
from opacc_ray.estimation.distribution import AdjustedWilson, Mean, Total
from opacc_ray.estimation.sample import Sample
from opacc_ray.estimation.totals import Evidence, Variable, added
from opacc_ray.metrics.metric import (
    ACCURACY,
    AVERAGES,
    FEWEST,
    OF_BOTH_CLASSES,
    OF_ONE_TOTAL,
    Metric,
    Parts,
    misprediction_weights,
    slopes,
)
from opacc_ray.metrics.scores import Linear

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

INTERVAL = "two totals"
"""Name of the interval of a function of two totals."""


class Totals(NamedTuple):
    """The two totals of one class, in the pool or in a slice."""

    failures: Mean  # of A: 1 - precision
    missed: Mean  # of the rest: FN/(N - P)

    def estimate(self, metric: Metric, level: float) -> intervals.Estimate:
        """Return the metric with its interval, and with the one that trusts predictions where that says much more."""
        low, high = self._interval(metric, level)
        point, num = self.point(metric.name not in OF_BOTH_CLASSES), self.failures.num + self.missed.num
        value = float(metric.function(*point, self.sizes))
        found = estimate_of(value, low, high, level, num, metric.lowest)
        missed = self.missed
        if not isinstance(missed, Total) or not isinstance(missed.law, AdjustedWilson) or missed.law.unseen <= 0:
            return found
        other = self._replace(missed=missed.law.as_predicted(missed))
        low, high = other._interval(metric, level)
        if found.high - found.low <= MUCH_NARROWER * (high - low):
            return found
        most = missed.size * other.missed.interval(level)[1] - missed.events
        labels = math.ceil(math.log((1 - level) / 2) / math.log1p(-min((most + 1) / missed.size, 0.5)))
        value, factor = min(max(found.value, low), high), most / missed.law.unseen
        return replace(
            found, if_predicted=intervals.IfPredicted(value, low, high, factor, int(min(labels, missed.size)))
        )

    def _interval(self, metric: Metric, level: float) -> tuple[float, float]:
        """Return the quantiles of the metric over all pairs of the two totals' quantiles."""
        if (1 - level) / 2 < 1 / LEVELS or metric.name in OF_ONE_TOTAL:
            value, below, above = self.deviations(metric, level)
            return value - below, value + above
        found = self._at(metric, self.failures.quantiles()[:, None], self.missed.quantiles()[None, :])
        low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2]).tolist()
        return low, high

    def deviations(self, metric: Metric, level: float) -> tuple[float, float, float]:
        """Return the metric, and how far the ends of Zou and Donner are below and above it."""
        points = [min(max(own.value, 0.0), 1.0) for own in self]
        value = float(self._at(metric, *points))
        ends = [np.array([points[k], *own.interval(level)]) for k, own in enumerate(self)]
        moved = self._at(metric, ends[0], points[1]) - value, self._at(metric, points[0], ends[1]) - value
        below, above = (math.hypot(*(float(end(own)) for own in moved)) for end in (np.min, np.max))
        return value, below, above

    def _at(self, metric: Metric, failures: Any, missed: Any) -> Array:
        """Return the metric at shares of the two totals."""
        size = self.sizes
        failures, missed = np.broadcast_arrays(failures, missed)
        found: Array = metric.function(size.inside * (1 - failures), size.outside * missed, size)
        return found

    @property
    def sizes(self) -> Parts:
        """The sizes of the two parts."""
        return Parts(self.failures.size, self.missed.size)

    def point(self, by_median: bool = True) -> tuple[float, float]:
        """Return the estimates of TP and FN; FN is a median, as far as it is predicted, unless it is to be added up."""
        failures, missed = (min(max(own, 0.0), 1.0) for own in (self[0].stated(), self[1].stated(by_median)))
        return self.failures.size * (1 - failures), self.missed.size * missed


def estimate_of(
    value: float, low: float, high: float, level: float, num: int, lowest: float = 0.0
) -> intervals.Estimate:
    """Return an estimate with an interval that is not symmetric; its standard error is that of a normal one."""
    low, high = max(low, lowest), min(high, 1.0)
    error = (high - low) / (2 * intervals.normal_quantile(level))
    return intervals.within_interval(intervals.Estimate(value, error, low, high, level, INTERVAL, num, True))


def plain_average(totals: Sequence[Totals], metric: Metric) -> float:
    """Return the mean of what is stated of each class, of those that half an example is predicted of at least."""
    tp, fn = np.array([own.point(by_median=False) for own in totals]).T
    inside, outside = np.array([own.sizes for own in totals]).T
    return slopes(metric, tp, np.where((inside > 0) | (fn >= 0.5), fn, 0.0), Parts(inside, outside))[0]


def joined_ends(totals: Sequence[Totals], metric: Metric, value: float, level: float) -> tuple[float, float]:
    """Return the ends of Zou and Donner of the mean of a metric over classes, from those of each class."""
    there = [own for own in totals if own.failures.size or own.missed.events]
    _, below, above = np.array([own.deviations(metric, level) for own in there]).T
    num = len(there)
    return max(value - math.hypot(*below) / num, 0.0), min(value + math.hypot(*above) / num, 1.0)


def average_interval(value: float, error: float, degrees: float, level: float) -> tuple[float, float]:
    """Return Wilson's interval of an average in [0, 1], at the size of the simple random sample with the same error."""
    if error <= 0:
        return value, value
    half = intervals.student_quantile(max(degrees, 1.0), level) * error
    nearest = min(error, 0.5)
    inside = min(max(value, nearest), 1 - nearest)
    return intervals.wilson(
        min(max(value, 0.0), 1.0), inside * (1 - inside) * (intervals.normal_quantile(level) / half) ** 2, level
    )


class Interim(NamedTuple):
    """A number, and how many events its interval rests on, which an interim analysis asks for."""

    estimate: intervals.Estimate
    met: Callable[[], float]


class ClassTotals:
    """The totals of every class in every slice of one partition of the pool."""

    def __init__(self, evidence: Evidence, sample: Sample | None) -> None:
        groups, none = evidence.groups, np.empty(0)
        self.evidence, self.failure = evidence, none if sample is None else sample.failure  # (n,) of the labels
        self.truth = none.astype(np.int64) if sample is None else sample.truth  # (n,); None: only outcomes are known
        self.num_classes, self.num_slices = groups.num_classes, groups.num_slices
        self.predicted = groups.predicted[evidence.index].astype(np.int64)  # (n,)
        self.slices, self.classes = np.divmod(np.arange(groups.num), groups.num_classes)  # (G,)
        self.sizes = evidence.sizes.reshape(self.num_slices, self.num_classes)  # (S, C)
        self.within = groups.code(evidence.index) // groups.num_classes  # (n,) slice

    def interim(self, metric: Metric, c: int, level: float) -> list[Interim]:
        """Return the metric of class ``c``, which averages and the accuracy do not use, in each slice."""
        if metric.name == ACCURACY:
            return self.accuracies(self.slices, self.num_slices, level)
        if metric.name in AVERAGES:
            return self._averages(metric, level)
        return [
            Interim(self.noted(own.estimate(metric, level), own), partial(_met_of, [own], metric, level))
            for own in self.of_class(c)
        ]

    def accuracies(self, domain: Codes, num: int, level: float) -> list[Interim]:
        """Return the accuracy in each of ``num`` domains; ``domain`` (G,) is that of each group, or -1."""
        found = []
        for total in self.failures(domain, num):
            low, high = total.interval(level)
            own = replace(
                estimate_of(1 - total.stated(), 1 - high, 1 - low, level, total.num), standard_error=total.error
            )
            found.append(Interim(self.noted(own, [total]), partial(_met, [total], np.ones(1), level)))
        return found

    def by_prediction(self, level: float) -> list[Interim]:
        """Return the accuracy among the examples predicted as each class."""
        return self.accuracies(self.classes, self.num_classes, level)

    def by_truth(self, level: float, classes: Sequence[int] | None = None) -> list[Interim]:
        """Return the recall of each class, or of some ``classes``; its ``n`` counts the labels of that class."""
        num = np.bincount(self._truth, minlength=self.num_classes).tolist()
        found = []
        for c in range(self.num_classes) if classes is None else classes:
            recall = self.interim(Metric("recall"), c, level)[0]
            found.append(recall._replace(estimate=replace(recall.estimate, n=num[c])))
        return found

    def confusion(self, classes: Sequence[int] | None = None) -> tuple[Array, Array]:
        """Return the shares of the pool by true and predicted class, (k, k), and their standard errors.

        Of some ``classes`` only, their predicted ones sum to their sizes, less what is predicted of other true classes.
        The errors of a predicted class are those that its stated accuracy leaves, in proportion to the estimates of the
        cells. So columns agree with the stated precisions. The recall of a class, which is combined with predictions
        for itself, may differ from what its row says, within its error.
        """
        wanted = np.arange(self.num_classes) if classes is None else np.array(classes, dtype=np.int64)
        domain = np.full(self.num_classes, -1)
        domain[wanted] = np.arange(len(wanted))
        size = self.sizes.sum(axis=0)[wanted] / self.evidence.sizes.sum()
        places = domain[self.classes]
        cells = [self._missed(k, places, len(wanted)) for k in wanted.tolist()]
        rest = Variable.event(
            ((self._truth != self.predicted) & ~np.isin(self._truth, wanted)).astype(np.float64),
            np.clip(1 - self._rivals(wanted).sum(axis=0), 0, 1)[self.classes],
        )
        cells.append(self.evidence.totals(rest, places, len(wanted)))
        failed = self.failures(places, len(wanted))
        found = np.clip([[own.stated() for own in row] for row in (*cells, failed)], 0, 1)
        share = found[:-1] * (size * found[-1] / np.maximum(found[:-1].sum(axis=0), 1e-300))
        error = np.array([[own.error for own in row] for row in cells[:-1]]) * size
        known = np.diag(np.maximum(size - share.sum(axis=0), 0)), np.diag([own.error for own in failed] * size)
        return share[:-1] + known[0], error + known[1]

    def mean_cost(self, cost: Array, level: float) -> intervals.Estimate:
        """Return the mean ``cost`` (C true, C predicted) of errors, 0 on its diagonal, in units of the largest."""
        cost = cost / cost.max()
        r = self._rivals(np.arange(self.num_classes))
        mean, square = (np.tile((r * own).sum(axis=0), self.num_slices) for own in (cost, cost**2))
        variable = Variable(cost[self._truth, self.predicted], mean, square)
        (share,) = self.evidence.totals(variable, np.zeros(self.evidence.groups.num, dtype=np.int64), 1)
        found = estimate_of(share.value, *share.interval(level), level, share.num)
        return self.noted(replace(found, standard_error=share.error), [share])

    def of_class(self, c: int) -> list[Totals]:
        """Return the totals of class ``c`` in every slice."""
        inside, outside = (np.where(own, self.slices, -1) for own in (self.classes == c, self.classes != c))
        pairs = zip(self.failures(inside, self.num_slices), self._missed(c, outside, self.num_slices), strict=True)
        return [Totals(*pair) for pair in pairs]

    def linear(self, number: Linear, c: int, level: float) -> Interim:
        """Return a number that is linear in failures, or in failures and misses of class ``c`` unless it is -1.

        The groups have its coefficients.
        """
        values, mean = self.failure, np.ones(self.evidence.groups.num)
        if c >= 0:
            inside = self.predicted == c
            values = np.where(inside, values, (self._truth == c) & ~inside)
            mean = np.where(self.classes == c, 1.0, self._rivals(np.array([c]))[0][self.classes])
        everything, variable = np.zeros(len(mean), dtype=np.int64), Variable.event(values, mean, c >= 0)
        (total,) = self.evidence.totals(variable, everything, 1)
        if number.lowest < 0:  # mean confidence less accuracy
            value, *ends = (number.base + own for own in (total.stated(), *total.interval(level)))
        elif number.coefficient.min() >= 0 and total.num < total.size:
            value, *ends = (number.base + own for own in (total.value, *total.law.ends(total, level)))
        else:
            value = number.base + total.value
            ends = [value, value]
            if total.num < total.size:
                error = math.sqrt(float(self.evidence.variance(variable, everything, 1)[0]))
                shifted, degrees = (value - total.below, value + total.above), min(total.num - 1, total.law.degrees)
                reach = total.law.reach(level) if isinstance(total.law, AdjustedWilson) else (0.0, 0.0)
                ends = [average_interval(own, error, degrees, level)[k] for k, own in enumerate(shifted)]
                ends = [min(ends[0], value - reach[0]), max(ends[1], value + reach[1])]
        found = self.noted(estimate_of(value, ends[0], ends[1], level, total.num, number.lowest), [total])
        return Interim(found, partial(_met, [total], np.ones(1), level))

    # -- totals ---------------------------------------------------------------------------------------------

    @property
    def _truth(self) -> Codes:
        assert self.truth is not None
        return self.truth

    def failures(self, domain: Codes, num: int) -> list[Total]:
        """Return the share of failures in each of ``num`` domains; ``domain`` (G,) is that of each group, or -1."""
        return self.evidence.totals(Variable.failure(self.failure, self.evidence.groups.num), domain, num)

    def _missed(self, c: int, domain: Codes, num: int) -> list[Total]:
        """Return the share of missed examples of class ``c`` in each of ``num`` domains."""
        values = ((self._truth == c) & (self.predicted != c)).astype(np.float64)
        mean = self._rivals(np.array([c]))[0][self.classes]
        return self.evidence.totals(Variable.event(values, mean, True), domain, num)

    def _averages(self, metric: Metric, level: float) -> list[Interim]:
        """Return the mean of a metric over all classes in each slice."""
        means, spread, variable = self._expected_averages(metric)
        moved, variance = self.evidence.corrections(variable, self.failure, self.slices, self._speak_for_themselves)
        whole = self.failures(self.slices, self.num_slices)
        known = np.array([own.labelled >= own.size for own in whole])
        values, errors = means - np.where(known, 0.0, moved), np.sqrt(np.where(known, 0.0, spread + variance))
        rows = zip(whole, np.clip(values, 0, 1).tolist(), errors.tolist(), strict=True)
        return [self._average(s, metric, level, *own) for s, own in enumerate(rows)]

    def _average(self, s: int, metric: Metric, level: float, whole: Total, value: float, error: float) -> Interim:
        """Return the mean of a metric over all classes in slice ``s``, whose total of failures is ``whole``."""
        num, met = whole.num, partial(self._met_of_average, s, metric, level)
        if whole.labelled >= whole.size:
            return Interim(self.noted(estimate_of(value, value, value, level, num)), met)
        totals = self._by_slice[s] if self._speak_for_themselves[s] else ()
        if totals and self.evidence.first.size:
            there = [own for own, may_be in zip(totals, self._there[s], strict=True) if may_be]
            error = math.hypot(error, value - plain_average(there, metric))
        ends = average_interval(value, error, num - 1, level) if num else (0.0, 1.0)
        if totals and not self.evidence.predicts:  # no event in a class: no variance
            ends = intervals.wider(ends, joined_ends(totals, metric, value, level))
        found = self.noted(estimate_of(value, *ends, level, num))
        return Interim(replace(found, reason=intervals.joined_reasons((found.reason, self._unlike_others(s)))), met)

    @cached_property
    def _speak_for_themselves(self) -> NDArray[np.bool_]:
        """Whether most classes that are predicted in a slice have labels enough, (S,)."""
        labels, there = self.evidence.labels_by_group().reshape(self.sizes.shape), self.sizes > 0
        enough = labels >= np.minimum(COMMON_LABELS, there.sum(axis=1))[:, None]
        return np.asarray(2 * (enough & there).sum(axis=1) >= there.sum(axis=1))

    @cached_property
    def _there(self) -> NDArray[np.bool_]:
        """Which classes there may be in each slice, (S, C): predicted or labelled there, or too rare to tell."""
        here, whole = self.sizes > 0, self.sizes.sum(axis=0)
        here[self.within, self._truth] = True
        predictable = np.outer(self.sizes.sum(axis=1) / max(float(whole.sum()), 1.0), whole)
        return here | (here.any(axis=0) & (predictable < ABSENT))

    @cached_property
    def _by_slice(self) -> Sequence[Sequence[Totals]]:
        """The totals of all classes in each slice."""
        return list(zip(*(self.of_class(c) for c in range(self.num_classes)), strict=True))

    def _met_of_average(self, s: int, metric: Metric, level: float) -> float:
        return _met_of(self._by_slice[s], metric, level)

    def _expected_averages(self, metric: Metric) -> tuple[Array, Array, Variable]:
        """Return the expected mean of a metric and its variance, (S,), and by what a misprediction lowers it: -W."""
        known, left = (own.reshape(self.sizes.shape) for own in self.evidence.failures_by_group(self.failure))
        met, first = np.zeros(self.sizes.shape), self.evidence.first
        np.add.at(met, (self.within[first], self._truth[first]), self.failure[first])
        right, there = np.maximum(self.sizes - known - left, 0), self._there
        beta, expected = self._likely_classes(np.where(there.any(axis=0), np.maximum(right.sum(axis=0), 0.5), 0))
        (means, spread), (mean, square) = np.empty((2, self.num_slices)), np.empty((2, *self.sizes.shape))
        values = np.empty(len(self._truth))
        for s, inside in enumerate(self.sizes):
            size, own = Parts(inside, inside.sum() - inside), self.within == s
            r = rivals(np.where(there[s], np.maximum(right[s], 0.5), 0), beta)
            fn, before = missed(met[s], r @ left[s], expected), missed(0 * inside, r @ (known[s] + left[s]), expected)
            means[s], spread[s] = expected_average(metric, size, right[s], fn)
            lowered = -misprediction_weights(*derivatives(metric, size, right[s], before))
            mean[s], square[s] = (r * lowered).sum(axis=0), (r * lowered**2).sum(axis=0)
            values[own] = lowered[self._truth[own], self.predicted[own]]
        return means, spread, Variable(values, mean.ravel(), square.ravel())

    def _likely_classes(self, size: Array) -> tuple[float, Array]:
        """Return β, and E (C,), from TP (C,)."""
        predicted, effect = self.evidence.predictions_of_labels(self.failure)
        first, second = (float(predicted @ effect**k) for k in (1, 2))
        scale, wrong = first / max(second, SMALLEST) * effect, self._truth != self.predicted
        met, by_class = (
            added(own, values, len(size))
            for own, values in ((self._truth[wrong], scale[wrong]), (self.predicted, scale * predicted))
        )
        beta = exponent(size, met, by_class)
        return beta, rivals(size, beta) @ by_class

    def _unlike_others(self, s: int) -> str | None:
        """Return that some classes have few labels in a slice: what others show is stated of them."""
        first = self.evidence.first
        if not first.size:
            return None
        labels = np.bincount(self._truth[first][self.within[first] == s], minlength=self.num_classes)
        there = (self.sizes[s] > 0) | (labels > 0)
        few, absent = int((labels[there] < FEWEST).sum()), int((~self._there[s]).sum())
        alike = (
            f"{few} of {there.sum()} classes have fewer than {FEWEST} labels; if unlike others, the mean may be far off"
        )
        out = f"{counted(absent, 'class', 'classes')} left out: neither predicted nor in the labels"
        return intervals.joined_reasons((alike if few else None, out if absent else None))

    def _rivals(self, classes: Codes) -> Array:
        """Return r (k, C predicted) of some true ``classes`` (k,)."""
        count, failed = np.zeros((len(classes), self.num_classes)), np.zeros(self.num_classes)
        if self.truth is not None:
            wrong = self.truth != self.predicted
            failed += np.bincount(self.predicted[wrong], minlength=self.num_classes)
            for row, c in zip(count, classes.tolist(), strict=True):
                row += np.bincount(self.predicted[wrong & (self.truth == c)], minlength=self.num_classes)
        prior = (classes[:, None] != np.arange(self.num_classes)) / max(self.num_classes - 1, 1)
        return np.asarray((PRIOR_FAILURES * prior + count) / (PRIOR_FAILURES + failed))

    # -- estimates ------------------------------------------------------------------------------------------

    def noted(self, found: intervals.Estimate, totals: Iterable[Mean] = ()) -> intervals.Estimate:
        """Return an estimate with the assumptions of the evidence, and of the totals that it comes from."""
        reason = self.evidence.reason
        assumed = (own.assumption(found.level) for own in totals if isinstance(own, Total))
        reasons = intervals.joined_reasons((found.reason, reason, *assumed))
        return replace(found, design_based=found.design_based and reason is None, reason=reasons)


def _met_of(totals: Sequence[Totals], metric: Metric, level: float) -> float:
    """Return m of the mean of a metric over some classes."""
    tp, fn = np.array([own.point() for own in totals]).T
    _, by_tp, by_fn = slopes(metric, tp, fn, Parts(*np.array([own.sizes for own in totals]).T))
    return _met([share for own in totals for share in own], np.column_stack([by_tp, by_fn]).ravel(), level)


def _met(totals: Sequence[Mean], slope: Array, level: float) -> float:
    """Return how many events the interval of a number rests on that moves by ``slope`` (k,) with some totals.

    That is m of :mod:`opacc_ray.estimation.sequential`. Totals T_k with half-widths h_k and m_k events (or other
    labels, if these are fewer) move the number by g_k·h_k each, so 1/(m + 1)² is the mean of 1/(m_k + 1)² with the
    weights (g_k·h_k)².
    """
    ends = np.array([own.interval(level) for own in totals])
    weight = (slope * np.array([own.size for own in totals]) * (ends[:, 1] - ends[:, 0])) ** 2
    met = np.array([max(min(own.events, own.num - own.events), 0.0) for own in totals])
    total = float(weight.sum())
    return float(np.sqrt(total / (weight / (met + 1) ** 2).sum())) - 1 if total > 0 else float(met.sum())


Costs = Mapping[Any, float | Mapping[Any, float]]
"""True class -> the cost of missing it, or -> predicted class -> the cost of that confusion; others cost 1."""


def cost_of_every_error(costs: Costs, classes: Collection[Any] | None) -> float | None:
    """Return the cost of every error if all cost the same, else None; unknown ``classes`` may have unnamed errors."""
    listed: set[float] = set() if classes else {1.0}
    for true in costs if classes is None else classes:
        cost = costs.get(true, 1.0)
        if not isinstance(cost, Mapping):
            listed.add(cost)
            continue
        named = [value for predicted, value in cost.items() if predicted != true]
        listed.update(named)
        if classes is None or len(named) < len(classes) - 1:
            listed.add(1.0)
    return listed.pop() if len(listed) == 1 else None


def cost_of_failures(accuracy: intervals.Estimate, cost: float) -> intervals.Estimate:
    """Return the mean cost, with its interval, of errors that all cost the same."""
    return scaled(replace(accuracy, value=1 - accuracy.value, low=1 - accuracy.high, high=1 - accuracy.low), cost)


def scaled(found: intervals.Estimate, factor: float) -> intervals.Estimate:
    """Return an estimate in other units."""
    ends = {name: factor * getattr(found, name) for name in ("value", "standard_error", "low", "high")}
    return replace(found, **ends)
