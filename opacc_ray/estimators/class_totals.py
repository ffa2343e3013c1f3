"""Estimate any metric of any class in any slice, from what labels say of the groups of a pool.

The failure model predicts that an example fails, with p. Of which class it is then, the labels predict: with the share
r(k | ŷ) of true classes among the failures of predicted class ŷ that they have shown, shrunk towards equal shares as by
five labels, an example is of class k ≠ ŷ with probability p·r(k | ŷ). So every variable of the totals
(:mod:`opacc_ray.estimators.totals`) has a forecast.

A score in [0, 1], of a regression, is known by its mean p of 1 - score; its square is s·p on average, with s from the
labels, shrunk towards 1, that of failures, as by five labels.

The mean cost of errors is the total of another variable, the cost of each misprediction. If every error costs the same,
it is the share of failures times that cost.

Legend: ŷ predicted class, C classes, S slices, G groups, n labels.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.accuracy_estimate import Estimate, joined_reasons
from opacc_ray.estimators.design_evidence import DesignEvidence, DesignShare
from opacc_ray.estimators.intervals import TIE, wider
from opacc_ray.estimators.metrics import (
    ACCURACY,
    AVERAGES,
    FEWEST,
    Metric,
    Parts,
    Totals,
    average,
    average_interval,
    estimate_of,
    joined_ends,
    slopes,
)
from opacc_ray.estimators.scores import Linear
from opacc_ray.estimators.totals import DomainShare, Evidence, Share, Variable, stated

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

PRIOR = 5.0
"""Labels of failures that equal shares count for."""


class Labels(NamedTuple):
    """What the labels are, over all rounds."""

    failure: Array  # (n,) 1 - outcome
    truth: Codes | None = None  # (n,) 0 .. C - 1; None: only outcomes are known

    def rivals(self, predicted: Codes, num_classes: int, classes: Codes) -> Array:
        """Return r (k, C predicted) of some true ``classes`` (k,), from the predicted class of each label (n,)."""
        count, failed = np.zeros((len(classes), num_classes)), np.zeros(num_classes)
        if self.truth is not None:
            wrong = self.truth != predicted
            failed += np.bincount(predicted[wrong], minlength=num_classes)
            for row, c in zip(count, classes.tolist(), strict=True):
                row += np.bincount(predicted[wrong & (self.truth == c)], minlength=num_classes)
        prior = (classes[:, None] != np.arange(num_classes)) / max(num_classes - 1, 1)
        return (PRIOR * prior + count) / (PRIOR + failed)


class ClassTotals:
    """The totals of every class in every slice of one partition of the pool."""

    def __init__(self, evidence: Evidence, labels: Labels) -> None:
        groups = evidence.groups
        self.evidence, self.labels = evidence, labels
        self.num_classes, self.num_slices = groups.num_classes, groups.num_slices
        self.predicted = groups.predicted[evidence.index].astype(np.int64)  # (n,)
        self.slices, self.classes = np.divmod(np.arange(groups.num), groups.num_classes)  # (G,)

    def estimate(self, metric: Metric, c: int, level: float) -> list[Estimate]:
        """Return the metric of class ``c``, which averages and the accuracy do not use, in each slice."""
        if metric.name == ACCURACY:
            return [self._of_share(share, level) for share in self.failures(self.slices, self.num_slices)]
        if metric.name in AVERAGES:
            return self._averages(metric, level)
        return [self.noted(own.estimate(metric, level)) for own in self.of_class(c)]

    def met(self, metric: Metric, c: int, level: float) -> list[float]:
        """Return how many events the interval of a metric rests on, in each slice.

        That is m of :mod:`opacc_ray.estimators.interim_analyses`. Totals T_k with half-widths h_k and m_k events (or
        other labels, if these are fewer) move the metric by g_k·h_k each, so 1/(m + 1)² is the mean of 1/(m_k + 1)²
        with the weights (g_k·h_k)².
        """
        if metric.name == ACCURACY:
            return [_met([share], np.ones(1), level) for share in self.failures(self.slices, self.num_slices)]
        wanted = range(self.num_classes) if metric.name in AVERAGES else [c]
        by_class = [self.of_class(own) for own in wanted]
        return [_met_of([own[s] for own in by_class], metric, level) for s in range(self.num_slices)]

    def met_by_prediction(self, classes: Sequence[int], level: float) -> list[float]:
        """Return what :meth:`met` returns of the accuracy among the examples predicted as some classes."""
        shares = self.failures(self.classes, self.num_classes)
        return [_met([shares[c]], np.ones(1), level) for c in classes]

    def by_prediction(self, level: float) -> list[Estimate]:
        """Return the accuracy among the examples predicted as each class."""
        return [self._of_share(share, level) for share in self.failures(self.classes, self.num_classes)]

    def by_truth(self, level: float, classes: Sequence[int] | None = None) -> list[Estimate]:
        """Return the recall of each class, or of some ``classes``; its ``n`` counts the labels of that class."""
        own = np.bincount(self._truth, minlength=self.num_classes).tolist()
        wanted = range(self.num_classes) if classes is None else classes
        return [replace(self.estimate(Metric("recall"), c, level)[0], n=own[c]) for c in wanted]

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
        size = self.evidence.sizes.reshape(-1, self.num_classes).sum(axis=0)[wanted] / self.evidence.sizes.sum()
        places = domain[self.classes]
        cells = [self._missed(k, places, len(wanted)) for k in wanted.tolist()]
        rest = Variable.event(
            ((self._truth != self.predicted) & ~np.isin(self._truth, wanted)).astype(np.float64),
            np.clip(1 - self._rivals(wanted).sum(axis=0), 0, 1)[self.classes],
        )
        cells.append(self.evidence.shares(rest, places, len(wanted)))
        failed = self.failures(places, len(wanted))
        found = np.clip([[stated(own) for own in row] for row in (*cells, failed)], 0, 1)
        share = found[:-1] * (size * found[-1] / np.maximum(found[:-1].sum(axis=0), 1e-300))
        error = np.array([[own.error for own in row] for row in cells[:-1]]) * size
        known = np.diag(np.maximum(size - share.sum(axis=0), 0)), np.diag([own.error for own in failed] * size)
        return share[:-1] + known[0], error + known[1]

    def mean_cost(self, cost: Array, level: float) -> Estimate:
        """Return the mean ``cost`` (C true, C predicted) of errors, 0 on its diagonal, in units of the largest."""
        cost = cost / cost.max()
        mean, square = (self._expected(np.broadcast_to(own, (self.num_slices, *own.shape))) for own in (cost, cost**2))
        variable = Variable(cost[self._truth, self.predicted], mean, square)
        (share,) = self.evidence.shares(variable, np.zeros(self.evidence.groups.num, dtype=np.int64), 1)
        found = estimate_of(share.value, *share.interval(level), level, share.num)
        return self.noted(replace(found, standard_error=share.error))

    def of_class(self, c: int) -> list[Totals]:
        """Return the totals of class ``c`` in every slice."""
        inside, outside = (np.where(own, self.slices, -1) for own in (self.classes == c, self.classes != c))
        pairs = zip(self.failures(inside, self.num_slices), self._missed(c, outside, self.num_slices), strict=True)
        return [Totals(*pair) for pair in pairs]

    def linear(self, number: Linear, c: int, level: float) -> tuple[Estimate, float]:
        """Return a number that is linear in failures, or in failures and misses of class ``c`` unless it is -1.

        The groups have its coefficients. The second value is as of :meth:`met`.
        """
        values, mean = self.labels.failure, np.ones(self.evidence.groups.num)
        if c >= 0:
            inside = self.predicted == c
            values = np.where(inside, values, (self._truth == c) & ~inside)
            mean = np.where(self.classes == c, 1.0, self._rivals(np.array([c]))[0][self.classes])
        everything, variable = np.zeros(len(mean), dtype=np.int64), Variable.event(values, mean)
        (share,) = self.evidence.shares(variable, everything, 1)
        if number.lowest < 0:  # mean confidence less accuracy
            value, *ends = (number.base + own for own in (stated(share), *share.interval(level)))
        else:
            value = number.base + share.value
            ends = [value, value]
            if share.num < share.size:
                assert isinstance(share, DomainShare | DesignShare)
                error = math.sqrt(float(self.evidence.variance(variable, everything, 1)[0]))
                shifted = value - share.below, value + share.above
                ends = [average_interval(own, error, share.num - 1, level)[k] for k, own in enumerate(shifted)]
        found = self.noted(estimate_of(value, ends[0], ends[1], level, share.num, number.lowest))
        return found, _met([share], np.ones(1), level)

    # -- totals ---------------------------------------------------------------------------------------------

    @property
    def _truth(self) -> Codes:
        assert self.labels.truth is not None
        return self.labels.truth

    def failures(self, domain: Codes, num: int) -> Sequence[Share]:
        """Return the share of failures in each of ``num`` domains; ``domain`` (G,) is that of each group, or -1."""
        ones, failure = np.ones(self.evidence.groups.num), self.labels.failure
        square = ones
        if not np.isin(failure, (0.0, 1.0)).all():
            mean = max(float(failure.mean()), 1e-9)
            square = ones * (float(failure @ failure) + PRIOR * mean) / (float(failure.sum()) + PRIOR * mean)
        return self.evidence.shares(Variable(failure, ones, square), domain, num)

    def _missed(self, c: int, domain: Codes, num: int) -> Sequence[Share]:
        """Return the share of missed examples of class ``c`` in each of ``num`` domains."""
        values = ((self._truth == c) & (self.predicted != c)).astype(np.float64)
        mean = self._rivals(np.array([c]))[0][self.classes]
        return self.evidence.shares(Variable.event(values, mean), domain, num)

    def _averages(self, metric: Metric, level: float) -> list[Estimate]:
        """Return the mean of a metric over all classes in each slice."""
        by_class = [self.of_class(c) for c in range(self.num_classes)]
        found = [average([own[s] for own in by_class], metric) for s in range(self.num_slices)]
        weight = np.stack([own for _, own in found])  # (S, C true, C predicted)
        mean, square = (self._expected(own) for own in (weight, weight**2))
        here = self.evidence.groups.code(self.evidence.index) // self.num_classes
        values = weight[here, self._truth, self.predicted]
        size = np.bincount(self.slices, weights=self.evidence.sizes, minlength=self.num_slices)
        error = size * np.sqrt(self.evidence.variance(Variable(values, mean, square), self.slices, self.num_slices))
        num = [share.num for share in self.failures(self.slices, self.num_slices)]
        error[np.array(num) >= size] = 0.0  # all labelled
        ends = [average_interval(own, err, n - 1, level) for (own, _), err, n in zip(found, error, num, strict=True)]
        for s, totals in enumerate(zip(*by_class, strict=True)):
            if num[s] < size[s] and isinstance(totals[0].failures, DesignShare):  # no event in a class: no variance
                ends[s] = wider(ends[s], joined_ends(totals, metric, found[s][0], level))
        rows = [estimate_of(own, *both, level, n) for (own, _), both, n in zip(found, ends, num, strict=True)]
        reasons = [self._few_labels(totals) for totals in zip(*by_class, strict=True)]
        return [
            replace(own, design_based=own.design_based and why is None, reason=joined_reasons((own.reason, why)))
            for own, why in zip(map(self.noted, rows), reasons, strict=True)
        ]

    def _few_labels(self, totals: Sequence[Totals]) -> str | None:
        """Return that a mean over classes may be biased: many have few labels, which stand for unlike numbers."""
        if not isinstance(self.evidence, DesignEvidence) or np.ptp(self.evidence.design.weights) <= TIE:
            return None
        few = sum(own.failures.num < min(FEWEST, own.failures.size) for own in totals)
        if few < FEWEST:
            return None
        return (
            f"{few} classes have fewer than {FEWEST} labels of their predictions, with unequal weights; the mean over "
            "classes is biased then, and its interval may be far off: use neyman or srs"
        )

    def _expected(self, weight: Array) -> Array:
        """Return Σ_k r(k | ŷ)·W(k, ŷ) of each group, (G,), from ``weight`` (S, C, C)."""
        return np.einsum("kc,skc->sc", self._rivals(np.arange(self.num_classes)), weight).ravel()

    def _rivals(self, classes: Codes) -> Array:
        """Return r (k, C) of some true classes."""
        return self.labels.rivals(self.predicted, self.num_classes, classes)

    # -- estimates ------------------------------------------------------------------------------------------

    def _of_share(self, share: Share, level: float) -> Estimate:
        low, high = share.interval(level)
        found = estimate_of(1 - stated(share), 1 - high, 1 - low, level, share.num)
        return self.noted(replace(found, standard_error=share.error))

    def noted(self, found: Estimate) -> Estimate:
        """Return an estimate with the assumptions of the evidence."""
        reason = self.evidence.reason
        return found if reason is None else replace(found, design_based=False, reason=reason)


def _met_of(totals: Sequence[Totals], metric: Metric, level: float) -> float:
    """Return m of the mean of a metric over some classes."""
    tp, fn = np.array([own.point() for own in totals]).T
    size = Parts(*(np.array([own[k].size for own in totals]) for k in (0, 1)))
    _, by_tp, by_fn = slopes(metric, tp, fn, size)
    return _met([share for own in totals for share in own], np.column_stack([by_tp, by_fn]).ravel(), level)


def _met(shares: Sequence[Share], slope: Array, level: float) -> float:
    """Return m of a number that moves by ``slope`` (k,) with the totals of ``shares``."""
    ends = np.array([share.interval(level) for share in shares])
    weight = (slope * np.array([share.size for share in shares]) * (ends[:, 1] - ends[:, 0])) ** 2
    met = np.array([max(min(share.events, share.num - share.events), 0.0) for share in shares])
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


def cost_of_failures(accuracy: Estimate, cost: float) -> Estimate:
    """Return the mean cost, with its interval, of errors that all cost the same."""
    return scaled(replace(accuracy, value=1 - accuracy.value, low=1 - accuracy.high, high=1 - accuracy.low), cost)


def scaled(found: Estimate, factor: float) -> Estimate:
    """Return an estimate in other units."""
    ends = {name: factor * getattr(found, name) for name in ("value", "standard_error", "low", "high")}
    return replace(found, **ends)
