"""Totals over known parts of the pool: labels corrected predictions, or the sampling design alone.

A *variable* v is what an example contributes to a number, known once it is labelled: a failure, a missed example of a
class, a cost. A *domain* D is a part of the pool that is known without labels, a predicted class or a slice, so its
size N_D is known. *Groups*, the examples of one slice and one predicted class, make up the domains.

**With a fit** (:class:`FittedEvidence`) every example has a forecast v̂ of the variable. Round t with inclusion
probabilities π estimates the mean over D by

    z_t = (1/N_D) · [ Σ_before v + Σ_free v̂ + Σ_batch (v - v̂)/π ]                 all sums over the examples of D

    θ̂ = Σ_t w_t z_t        w_t ∝ 1/V_t,   V_t = N_D⁻² Σ_free Var(v)(1/π - 1)

with *before* labelled when the round was drawn, and *free* not: the estimator of :mod:`opacc_ray.estimation.failures`,
restricted to D. All variables here are 0 where the model is right. With a predicted probability p of failure, and the
mean m and the mean square s of v among the failures of a predicted class,

    v̂ = p·m        Var(v) = p·s - p²·m²

so the sums of p, p(1/π - 1) and p²(1/π - 1) over groups give every total (:class:`GroupSums`). The accuracy is the
total of failures over the whole pool. The variance that the predictions imply, and the measured one, are

    V = Σ w_t² V_t        M = Σ w_t² Σ_batch (v - v̂)²(1 - π)/π²/(1 - h)/N_D²

The law of these totals, :class:`opacc_ray.estimation.distribution.AdjustedWilson`, says how they are weighed. Scores
vary less than failures with the same mean: there Var(v) = φ·p(1 - p), as in quasi-likelihood (R. W. M. Wedderburn,
Biometrika 61, 1974). The labels show that of the pool: φ = Σe²/π / Σp(1 - p)/π over all, with e = (v - p)/√(1 - h),
shrunk towards 1 as by five labels, and at most 1. Where events differ in size by a coefficient of the example, as in
AUC, or by their cost, few large ones decide M. There the variance is also at least that with m' = 2(Σ v̂a²)²/Σ v̂a⁴
for m, with a the effect of a label, and it has m' + 19 degrees of freedom where m' < m.

**By the design alone** (:class:`DesignEvidence`) the mean over D is a ratio of two estimated means (C.-E. Särndal, B.
Swensson, J. Wretman, "Model Assisted Survey Sampling", 1992, 5.6), with d the membership,

    R = x̂ / d̂,  x = v·d        v(R) = variance of the mean of (x - R·d) / d̂

where the hats are those of the design. R has a bias of order 1/n. The law is the weighted Clopper-Pearson one, its one
more event at the largest weight of any label, times √(1 - π), relative to d̂, because it may come from a part with few
labels. For a simple random sample it is Clopper and Pearson's interval for the labels in D. The mean over the whole
pool is that of the design itself, which is better where examples were drawn in proportion to a predicted risk.

**Before there are labels** (:class:`ForeseenEvidence`), predictions of failure alone state the width that n labels
would give. With p the predicted failure and π the inclusion probability of n labels, every sum over labels is replaced
by its expectation, Σ_batch x -> Σ πx. So each interval is the one that the labels are expected to give, with half an
event and with the exact bound where fewer than one is met.

A simple random sample of n labels (:class:`RandomEvidence`) knows the size of each domain and nothing else: the
variance of a mean over a domain of N_D examples, n_D = n·N_D/N of them labelled, is (E v² - (E v)²)(1/n_D - 1/N_D).

Legend: N_D size, m labels in D, π inclusion probability, h leverage of a label, w weight of a round, G groups.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimation import constants
from opacc_ray.estimation.constants import SMALLEST
from opacc_ray.estimation.distribution import (
    AdjustedWilson,
    LabelEffects,
    Law,
    Remote,
    Total,
    Weighted,
    shrunk_variance,
)
from opacc_ray.estimation.failures import (
    Fit,
    FittedRound,
    PoolFailures,
    failures_by_design,
    pool_failures,
    recorded,
)
from opacc_ray.estimation.intervals import Moments
from opacc_ray.estimation.sample import Rounds, Sample
from opacc_ray.metrics.metric import is_of_class
from opacc_ray.parts.loops import blocks
from opacc_ray.samplers import parse_parameters
from opacc_ray.samplers.base import unlabelled
from opacc_ray.samplers.plausibility import agreement

Array = NDArray[np.float64]
Codes = NDArray[np.integer]
Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

_NO_LABELS: Places = np.empty(0, dtype=np.int64)


class GroupSums(NamedTuple):
    """What one round says of each of G groups."""

    predicted: Array  # (G,) Σ_free p
    odds: Array  # (G,) Σ_free p(1/π - 1)
    square: Array  # (G,) Σ_free p²(1/π - 1)

    def variance(self, variable: "Variable") -> Array:
        """Return Σ_free Var(v)(1/π - 1) of each group, (G,)."""
        return np.asarray(self.odds * variable.square - self.square * variable.mean**2)


class Groups(NamedTuple):
    """A partition of the pool in groups of one slice and one predicted class each; slice s and class c are s·C + c."""

    predicted: Codes  # (N,) 0 .. C - 1
    num_classes: int  # C
    slices: Codes | None = None  # (N,) 0 .. S - 1; None: one slice
    num_slices: int = 1  # S
    coefficient: Array | None = None  # (N,) by which the variables of each example are multiplied; None: 1

    @property
    def num(self) -> int:
        """Return G, the number of groups."""
        return self.num_slices * self.num_classes

    def code(self, index: Places | slice) -> Places:
        """Return the group of the examples ``index``, (k,)."""
        code = self.predicted[index].astype(np.int64)
        return code if self.slices is None else code + self.slices[index].astype(np.int64) * self.num_classes

    def factor(self, index: Places) -> Array:
        """Return the coefficients of the examples ``index`` (k,)."""
        return np.ones(len(index)) if self.coefficient is None else self.coefficient[index]

    def sizes(self) -> Array:
        """Return the number of examples in each group, (G,)."""
        counts = [np.bincount(self.code(rows), minlength=self.num) for rows in blocks(len(self.predicted))]
        return np.sum(counts, axis=0, dtype=np.float64)

    def sums(self, labelled: Places, p: Array, odds: Array) -> GroupSums:
        """Add up p (k,) and p with 1/π - 1 (k,) over the groups of the examples without ``labelled``, block by block.

        ``labelled`` is sorted; the k others keep their order.
        """
        if self.num == 1 and self.coefficient is None:
            weighted = p * odds
            return GroupSums(*(np.array([total]) for total in (p.sum(), weighted.sum(), weighted @ p)))
        sums = np.zeros((3, self.num))
        for rows in blocks(len(self.predicted)):
            first, last = np.searchsorted(labelled, (rows.start, rows.stop)).tolist()
            gone, block = labelled[first:last] - rows.start, slice(rows.start - first, rows.stop - last)
            code = unlabelled(self.code(rows), gone)
            predicted, spread = p[block], p[block] * odds[block]
            if self.coefficient is not None:
                factor = unlabelled(self.coefficient[rows], gone)
                predicted, spread = predicted * factor, spread * factor**2
            for row, values in zip(sums, (predicted, spread, spread * p[block]), strict=True):
                row += np.bincount(code, weights=values, minlength=self.num)
        return GroupSums(*sums)


class Variable(NamedTuple):
    """A variable that is 0 where the model is right."""

    values: Array  # (n,) of the labels
    mean: Array  # (G,) m, expected among the failures of each group
    square: Array  # (G,) s, of its square
    is_score: bool = False
    of_class: bool = False  # whether it is of one class

    @classmethod
    def event(cls, values: Array, mean: Array, of_class: bool = False) -> "Variable":
        """Return a variable that is 0 or 1."""
        return cls(values, mean, mean, of_class=of_class)

    @classmethod
    def failure(cls, failure: Array, num: int) -> "Variable":
        """Return the failures (n,) of the labels, 0/1 or 1 - score, over ``num`` groups."""
        is_score = not np.isin(failure, (0.0, 1.0)).all()
        return cls(failure, np.ones(num), np.ones(num), is_score)

    @property
    def differs(self) -> bool:
        """Whether its events differ in size, as costs and scores do."""
        between = (self.values > 0) & (self.values < 1)
        return bool(between.any()) or not np.array_equal(self.mean, self.square)


class Evidence(ABC):
    """What is known of the groups of a pool: G groups, their sizes (G,), and the labelled examples ``index`` (n,)."""

    reason: str | None = None
    """Why the estimates are not design-based; None if they are."""

    predicts: bool = False
    """Whether every example has a predicted failure."""

    def __init__(self, groups: Groups, index: Places, first: Places = _NO_LABELS) -> None:
        self.groups, self.sizes, self.index = groups, groups.sizes(), index
        self.first = first  # (m,) places of the first label of each example

    @abstractmethod
    def totals(self, variable: Variable, domain: Codes, num: int) -> list[Total]:
        """Return the mean of a variable over ``num`` domains; ``domain`` (G,) is that of each group, or -1."""

    @abstractmethod
    def variance(self, variable: Variable, domain: Codes, num: int) -> Array:
        """Return the variance of the mean of any variable over each domain."""

    @abstractmethod
    def failures_by_group(self, failure: Array) -> tuple[Array, Array]:
        """Return the failures of each group that labels show, and those predicted of its other examples, (G,)."""

    def labels_by_group(self) -> Array:
        """Return how many examples of each group are labelled, (G,)."""
        return added(self.groups.code(self.index[self.first]), np.ones(len(self.first)), self.groups.num)

    def predictions_of_labels(self, failure: Array) -> tuple[Array, Array]:
        """Return the predicted failure of each label, and how far a failure moves an estimate up to a factor, (n,)."""
        return np.zeros(len(self.index)), np.zeros(len(self.index))

    def corrections(self, variable: Variable, failure: Array, domain: Codes, known: Mask) -> tuple[Array, Array]:
        """Return how much the sum of a variable over each domain exceeds its prediction, and the variance of that.

        ``known`` says of each domain whether labels know its groups, not only what these share.
        """
        size = added(domain, self.sizes, len(known))
        return np.zeros(len(known)), size**2 * self.variance(variable, domain, len(known))


def measure(
    sample: Sample, fit: Fit | None, partitions: Sequence[Groups] = ()
) -> tuple[PoolFailures, Sequence[Evidence]]:
    """Return the failures of the pool, and what the labels say of each partition of it, in one pass over the rounds."""
    if fit is None:
        return failures_by_design(sample), [DesignEvidence(sample.rounds, groups) for groups in partitions]
    groups = list(partitions) or [Groups(np.zeros(fit.view.size, np.uint8), 1)]
    fitted, sums = list[FittedRound](), [list[GroupSums]() for _ in groups]
    for part, free in fit.rounds():
        fitted.append(part)
        for own, into in zip(groups, sums, strict=True):
            into.append(own.sums(*free))
    evidence = [FittedEvidence(fit, own, fitted, into) for own, into in zip(groups, sums, strict=True)]
    return evidence[0].failures_of_pool(), evidence[: len(partitions)]


class FittedEvidence(Evidence):
    """Labels with predicted failures for every example."""

    predicts = True

    def __init__(self, fit: Fit, groups: Groups, fitted: Sequence[FittedRound], sums: Sequence[GroupSums]) -> None:
        super().__init__(groups, fit.sample.rounds.index, fit.sample.rounds.first)
        self.fit, self.rounds, self.sums = fit, fit.sample.rounds, sums
        self.round = np.repeat(np.arange(len(fitted)), [len(own.labelled) for own in fitted])  # (n,)
        self.labelled = np.concatenate([own.labelled for own in fitted])  # (n,) p
        self.leverage = np.concatenate([own.leverage for own in fitted])  # (n,) h
        self.probability = np.concatenate([recorded(own).probability for own in self.rounds.selections])  # (n,) π
        self.error = (fit.sample.failure - self.labelled) / np.sqrt(1 - self.leverage)  # (n,) of failures
        spread = self.labelled * (1 - self.labelled)
        square, likely = (own / self.probability for own in (self.error**2, spread))
        prior = constants.PRIOR_FAILURES * likely.mean()
        self.dispersion = (
            1.0
            if fit.sample.is_binary
            else min(float(square.sum() + prior) / max(float(likely.sum() + prior), SMALLEST), 1.0)
        )
        served = [parse_parameters("neyman", own.parameters).serve for own in self.rounds.selections]
        self.serves_classes = all(is_of_class(name) for own in served for name in own)
        self.agreement = agreement(self.error.sum(), self.dispersion * spread.sum(), constants.FIT_LIMIT)

    def variance(self, variable: Variable, domain: Codes, num: int) -> Array:
        """Return the variance of the mean of any variable over each domain."""
        return np.array([total.variance for total in self.totals(variable, domain, num)])

    def failures_by_group(self, failure: Array) -> tuple[Array, Array]:
        """Return the failures of each group that labels show, and those predicted of its other examples, (G,)."""
        code, last, num = self.groups.code(self.index), self.round == len(self.sums) - 1, self.groups.num
        left = self.sums[-1].predicted - added(code[last], self.labelled[last], num)
        return added(code[self.first], failure[self.first], num), np.maximum(left, 0)

    def predictions_of_labels(self, failure: Array) -> tuple[Array, Array]:
        """Return the predicted failure of each label, and how far a failure moves an estimate up to a factor, (n,)."""
        return self.labelled, self.rounds.weight[self.round] * np.sqrt(1 - self.probability) / self.probability

    def corrections(self, variable: Variable, failure: Array, domain: Codes, known: Mask) -> tuple[Array, Array]:
        """Return how much the sum of a variable over each domain exceeds its prediction, and the variance of that."""
        found = self.totals(variable, domain, len(known))
        apart = [
            own.size * (own.value - own.law.by_predictions) for own in found if isinstance(own.law, AdjustedWilson)
        ]
        return np.array(apart), np.array([own.size**2 * own.variance for own in found])

    def weights(self, foreseen: Array) -> Array:
        """Return w from V_t of each domain, both (rounds, num)."""
        weight = 1 / np.maximum(foreseen, SMALLEST)
        weight /= weight.sum(axis=0)
        return np.asarray(self.fit.trust * weight + (1 - self.fit.trust) * self.rounds.weight[:, None])

    def totals(self, variable: Variable, domain: Codes, num: int) -> list[Total]:
        """Return the mean of a variable over each domain."""

        def over(values: Array) -> Array:  # sums over the groups of each domain
            return added(domain, values, num)

        size, dispersion = over(self.sizes), self.dispersion if variable.is_score else 1.0
        divisor, where = np.maximum(size, 1), domain[self.groups.code(self.index)]
        foreseen = (
            dispersion * np.stack([over(own.variance(variable)) for own in self.sums]) / divisor**2
        )  # (rounds, num)
        weight = self.weights(foreseen)
        known, free = np.zeros(num), np.zeros(num)
        factor = self.groups.factor(self.index)
        for w, part, own in zip(weight, self.rounds.parts, self.sums, strict=True):
            before = part.before[where[part.before] >= 0]
            values = factor[before] * variable.values[before]
            known += w / divisor * (added(where[before], values, num) + over(own.predicted * variable.mean))
            free += w * (1 - added(where[before], np.ones(len(before)), num) / divisor)
        labelled, events = _counted(self.rounds, where, variable.values, num)
        here = np.flatnonzero(where >= 0)
        group, at, p, pi = self.groups.code(self.index[here]), where[here], self.labelled[here], self.probability[here]
        values, forecast = variable.values[here], p * variable.mean[group]
        scale = factor[here] * (weight / divisor)[self.round[here], at] / pi
        effect = scale * np.sqrt(np.maximum(1 - pi, 0))
        error = (values - forecast) / np.sqrt(1 - self.leverage[here])

        def summed(own: Array) -> Array:  # sums over the labels of each domain
            return added(at, own, num)

        confirmed = self.agreement * agreement(
            summed(error), dispersion * summed(p * variable.square[group] - forecast**2), constants.AGREEMENT_LIMIT
        )
        measured, by_forecast = summed((effect * error) ** 2), (weight**2 * foreseen).sum(axis=0)
        variance, degrees = shrunk_variance(measured, by_forecast, labelled, confirmed), labelled
        few = 2 * summed(forecast * effect**2) ** 2 / np.maximum(summed(forecast * effect**4), SMALLEST)
        careful = np.maximum(variance, shrunk_variance(measured, by_forecast, few, confirmed))
        if np.ptp(factor) > 0 or (variable.differs and not variable.is_score):  # events differ in size
            variance, degrees = careful, np.minimum(labelled, few)
        correction, represented = summed(scale * (values - forecast)), summed(scale)
        others = over(self.sums[-1].predicted * variable.mean)
        last = self.round[here] == len(self.sums) - 1
        unseen = np.maximum(others - added(at[last], (factor[here] * forecast)[last], num), 0)
        beside = self.serves_classes and not variable.of_class
        laws = adjusted_laws(
            {
                "first": summed(forecast * effect),
                "second": summed(forecast * effect**2),
                "met": summed(values * effect),
                "expected": summed(forecast),
                "unseen": unseen,
                "agreement": confirmed,
                "degrees": degrees + constants.PRIOR_LABELS - 1,
                "share": summed(scale * values) / np.maximum(represented, SMALLEST),
                "labels": represented**2 / np.maximum(summed(scale**2), SMALLEST),
                "trust": np.full(num, self.fit.trust),
                "by_predictions": (events + unseen) / divisor,
                "failures": np.full(num, self.fit.sample.failure[self.rounds.first].sum()),
                "most_narrowed": np.full(num, constants.NARROWED_BESIDE if beside else constants.MOST_NARROWED),
                "by_labels": known + free * correction / np.maximum(represented, SMALLEST),
                "unmet": np.where((size == self.sizes.sum()) & (not variable.is_score), careful - variance, 0.0),
            },
            variable.differs,
            remote_labels(at, scale, forecast, values, num),
        )
        signs = (forecast * np.maximum(sign * effect, 0) for sign in (-1, 1))
        halves = [0.5 * summed(own * np.abs(effect)) / np.maximum(summed(own), SMALLEST) for own in signs]
        return totals_of((known + correction, variance, size, labelled, events), laws, *halves)

    def failures_of_pool(self) -> PoolFailures:
        """Return the share of failures over the pool."""
        sample, everything = self.fit.sample, np.zeros(self.groups.num, dtype=np.int64)
        failure = Variable.failure(sample.failure, self.groups.num)
        [total] = self.totals(failure, everything, 1)
        foreseen = np.array([[own.variance(failure).sum()] for own in self.sums])
        scale = (self.weights(foreseen)[:, 0] * self.rounds.left)[self.round]
        effects = np.concatenate([part.design.effects for part in self.rounds.parts])
        labels = LabelEffects(scale * effects, self.labelled, self.error, scale, assisted=True)
        return pool_failures(sample, total, labels, is_fitted=True)


def remote_labels(at: Codes, scale: Array, forecast: Array, values: Array, num: int) -> list[tuple[Remote, Remote]]:
    """Return what is remote of each of ``num`` domains, below and above; ``at`` (n,) is the domain of each label."""
    return list(zip(*(_remote(at, sign * scale, forecast, values, num) for sign in (-1, 1)), strict=True))


def _remote(at: Codes, scale: Array, forecast: Array, values: Array, num: int) -> list[Remote]:
    order = np.lexsort((-scale, at))
    order = order[scale[order] > 0]
    total = np.concatenate([[0.0], np.cumsum(forecast[order])])
    start = total[np.searchsorted(at[order], np.arange(num))]
    order = order[total[1:] - start[at[order]] < 1]
    weight, at = scale[order], at[order]
    share, square, events = (added(at, own, num) for own in (weight, weight**2, weight * values[order]))
    labels = share**2 / np.maximum(square, SMALLEST)
    rows = zip(share, labels, labels * events / np.maximum(share, SMALLEST), strict=True)
    return [Remote(*map(float, row)) for row in rows]


def adjusted_laws(
    columns: dict[str, Array], differs: bool, remote: Sequence[tuple[Remote, Remote]] | None = None
) -> list[AdjustedWilson]:
    """Return the law of each domain, from its fields and these, (num,) each.

    first, second : Σ v̂a and Σ v̂a² over its labels, a the effect of a label
    met : Σ va
    """
    first, second, met = (columns.pop(name) for name in ("first", "second", "met"))
    half, ratio = 0.5 / np.maximum(columns["expected"], SMALLEST), first / np.maximum(second, SMALLEST)
    columns |= {"half_event": half * first, "met_near": ratio * met, "expected_near": ratio * first}
    if differs:
        columns |= {"unlike": half * second}
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    laws = [AdjustedWilson(**dict(zip(columns, row, strict=True))) for row in rows]
    return laws if remote is None else [replace(law, remote=own) for law, own in zip(laws, remote, strict=True)]


def weighted_laws(largest: Array, value: Array, variance: Array) -> list[Weighted]:
    """Return the law of each domain from the largest weight of a label, and the mean and variance of its variable."""
    rows = zip(largest.tolist(), value.tolist(), variance.tolist(), strict=True)
    return [Weighted(most, Moments(1 - mean, spread)) for most, mean, spread in rows]


def totals_of(columns: Sequence[Array], laws: Sequence[Law], *halves: Array) -> list[Total]:
    """Return totals from value, variance, size, labelled and events, the law of each, and below and above."""
    rows = zip(*(column.tolist() for column in columns), laws, *(half.tolist() for half in halves), strict=True)
    return [Total(*row) for row in rows]


class Rates(NamedTuple):
    """Shares of failures of groups, of few labels shrunk towards that of all."""

    share: Array  # (G,)
    leverage: Array  # (n,) h


class DesignEvidence(Evidence):
    """Labels by the sampling design alone."""

    def __init__(self, rounds: Rounds, groups: Groups) -> None:
        super().__init__(groups, rounds.index, rounds.first)
        self.rounds, self.reason = rounds, rounds.reason
        self.group = groups.code(rounds.index)

    def totals(self, variable: Variable, domain: Codes, num: int) -> list[Total]:
        """Return the mean of a variable over each domain."""
        if num == 1 and (domain == 0).all():
            return [self._of_pool(variable)]
        where = domain[self.group]
        value, variance, share = self._ratios(variable, where, num)
        weight = self.rounds.largest_weight / np.maximum(share, SMALLEST)
        labelled, events = _counted(self.rounds, where, variable.values, num)
        sizes, laws = added(domain, self.sizes, num), weighted_laws(weight, value, variance)
        return totals_of((value, variance, sizes, labelled, events), laws)

    def variance(self, variable: Variable, domain: Codes, num: int) -> Array:
        """Return the variance of the mean of any variable over each domain.

        Half an event is added, of the size expected there, for the failures that a small sample missed.
        """
        where = domain[self.group]
        _, variance, share = self._ratios(variable, where, num)
        size = variable.square[self.group] * self.groups.factor(self.index) ** 2
        mean = added(where, size, num) / np.maximum(added(where, np.ones(len(size)), num), 1)
        weight = self.rounds.largest_weight / np.maximum(share, SMALLEST)
        return np.asarray(variance + np.where(share > 0, 0.5 * weight**2 * mean, 0.0))

    def failures_by_group(self, failure: Array) -> tuple[Array, Array]:
        """Return the failures of each group that labels show, and those predicted of its other examples, (G,)."""
        known = added(self.group[self.first], failure[self.first], self.groups.num)
        return known, (self.sizes - self.labels_by_group()) * self._rates(failure).share

    def predictions_of_labels(self, failure: Array) -> tuple[Array, Array]:
        """Return the predicted failure of each label, and how far a failure moves an estimate up to a factor, (n,)."""
        return self._rates(failure).share[self.group], np.maximum(self.rounds.weights, 0)

    def corrections(self, variable: Variable, failure: Array, domain: Codes, known: Mask) -> tuple[Array, Array]:
        """Return how much the sum of a variable over each domain exceeds its prediction, and the variance of that."""
        rates, group, where, num = self._rates(failure), self.group, domain[self.group], len(known)
        error = (variable.values - (rates.share * variable.mean)[group]) / (1 - rates.leverage)
        size, member = self.sizes.sum(), where[:, None] == np.arange(num)
        weights, labels = size * self.rounds.weights, added(where[self.first], np.ones(len(self.first)), num)
        stood = added(group, np.maximum(weights, 0), self.groups.num)  # examples that the labels of a group stand for
        bounds = np.where(known[where], np.minimum(self.sizes / np.maximum(stood, SMALLEST), 1)[group], 1.0)
        found = added(where, weights * bounds * error, num) - added(where[self.first], error[self.first], num)
        square = (size * self.rounds.largest_weight) ** 2 * variable.square[group]
        half = 0.5 * added(where, square**2, num) / np.maximum(added(where, square, num), SMALLEST)
        variance = size**2 * self.rounds.variance(member * error[:, None])
        return found * labels / (labels + constants.COMMON_LABELS), variance + np.where(known, 0.0, half)

    def _rates(self, failure: Array) -> "Rates":
        """Return the share of failures of each group."""
        weights = np.maximum(self.rounds.weights, 0)
        weights /= max(float(weights.mean()), SMALLEST)
        labels, failed = (added(self.group, own, self.groups.num) for own in (weights, weights * failure))
        common, labels = float(weights @ failure) / len(weights), labels + constants.COMMON_LABELS
        share = np.minimum((failed + constants.COMMON_LABELS * common) / labels, 1.0)
        return Rates(share, weights / labels[self.group])

    def _of_pool(self, variable: Variable) -> Total:
        """Return the mean over the whole pool by the design's own estimator."""
        rounds, values = self.rounds, self.groups.factor(self.index) * variable.values
        own, rest = (Moments(float(rounds.mean(x)), float(rounds.variance(x))) for x in (values, 1 - values))
        events = float(variable.values[rounds.first].sum())
        effect, likely = rounds.weights * self.groups.factor(self.index), variable.mean[self.group]
        signed = ([likely @ np.maximum(s * effect, 0) ** k for k in (1, 2)] for s in (-1, 1))
        half = (0.5 * float(two) / max(float(one), SMALLEST) for one, two in signed)
        law = Weighted(rounds.largest_weight, rest, degrees=rounds.degrees(values))
        return Total(*own, float(self.sizes.sum()), float(len(rounds.first)), events, law, *half)

    def _ratios(self, variable: Variable, where: Codes, num: int) -> tuple[Array, Array, Array]:
        """Return R, v(R) and d̂ of each domain; where no label is, R is the mean of all labels."""
        values = self.groups.factor(self.index) * variable.values
        value, variance, share = np.full(num, values.mean()), np.zeros(num), np.zeros(num)
        labelled = np.unique(where[where >= 0])
        member = (where[:, None] == labelled).astype(np.float64)  # (n, domains with labels)
        size = self.rounds.mean(member)
        some = size > 0
        member, size, labelled = member[:, some], size[some], labelled[some]
        value[labelled] = self.rounds.mean(member * values[:, None]) / size
        variance[labelled] = self.rounds.variance(member * (values[:, None] - value[labelled]) / size)
        share[labelled] = size
        return value, variance, share


def _counted(rounds: Rounds, where: Codes, values: Array, num: int) -> tuple[Array, Array]:
    """Return the distinct labels in each of ``num`` domains, and the sum of their values; ``where`` (n,) may be -1."""
    code = where[rounds.first]
    return added(code, np.ones(len(code)), num), added(code, values[rounds.first], num)


def added(code: Codes, values: Array, num: int) -> Array:
    """Add up values (k,) by their codes, (num,); those below 0 are left out."""
    if (out := code < 0).any():
        code, values = code[~out], values[~out]
    return np.bincount(code, weights=values, minlength=num).astype(np.float64)


class ForeseenEvidence(Evidence):
    """Labels drawn with ``probability`` π (N,), as predicted failures p (N,) let one expect them."""

    predicts = True

    def __init__(self, groups: Groups, p: Array, probability: Array) -> None:
        super().__init__(groups, _NO_LABELS)
        everything = np.arange(len(p))
        code, a = groups.code(everything), groups.factor(everything)
        left, odds = np.maximum(1 - probability, 0), np.maximum(1 / probability - 1, 0)

        def over(values: Array) -> Array:
            return added(code, values, groups.num)

        # (G,) each, with a the coefficient of each example
        self.predicted, self.odds, self.square = over(a * p), over(a**2 * p * odds), over(a**2 * p**2 * odds)
        self.labelled, self.expected = over(probability), over(probability * p)
        self.inverse = over(1 / probability)
        self.effect, self.unseen = over(a * p * np.sqrt(left)), over(a * left * p)

    def totals(self, variable: Variable, domain: Codes, num: int) -> list[Total]:
        """Return the mean of a variable over each domain."""

        def over(values: Array) -> Array:
            return added(domain, values, num)

        mean, sizes = variable.mean, over(self.sizes)
        size = np.maximum(sizes, 1)
        expected, first, second = over(self.expected * mean), over(self.effect * mean), over(self.odds * mean)
        first, second = first / size, second / size**2
        value, variance = over(self.predicted * mean) / size, self.variance(variable, domain, num)
        laws = adjusted_laws(
            {
                "first": first,
                "second": second,
                "met": first,
                "expected": expected,
                "unseen": over(self.unseen * mean),
                "share": value,
                "labels": size**2 / np.maximum(over(self.inverse), SMALLEST),
            },
            variable.differs,
        )
        labelled, events = np.rint(over(self.labelled)), np.where(expected < 1, 0.0, expected)
        return totals_of((value, variance, sizes, labelled, events), laws)

    def variance(self, variable: Variable, domain: Codes, num: int) -> Array:
        """Return the variance of the mean of any variable over each domain."""
        spread = self.odds * variable.square - self.square * variable.mean**2
        size = np.maximum(added(domain, self.sizes, num), 1)
        return np.asarray(np.maximum(added(domain, spread, num), 0) / size**2)

    def labels_by_group(self) -> Array:
        """Return how many examples of each group are expected to be labelled, (G,)."""
        return np.asarray(np.rint(self.labelled))

    def failures_by_group(self, failure: Array) -> tuple[Array, Array]:
        """Return no failures that labels show, and those predicted in each group, (G,)."""
        return np.zeros(self.groups.num), self.predicted


class RandomEvidence(Evidence):
    """A simple random sample of ``num`` labels, as predicted failures p (N,) let one expect it."""

    def __init__(self, groups: Groups, p: Array, num: int, index: Places = _NO_LABELS) -> None:
        super().__init__(groups, index)
        everything = np.arange(len(p))
        code, a = groups.code(everything), groups.factor(everything)
        self.num = num
        self.failures, self.square = (added(code, term, groups.num) for term in (a * p, a**2 * p))  # (G,)

    def totals(self, variable: Variable, domain: Codes, num: int) -> list[Total]:
        """Return the mean of a variable over each domain."""
        size = added(domain, self.sizes, num)
        value = added(domain, self.failures * variable.mean, num) / np.maximum(size, 1)
        labelled = size * (self.num / self.sizes.sum())
        weight = np.minimum(1 / np.maximum(labelled, SMALLEST), 1)
        variance, events = self.variance(variable, domain, num), np.floor(labelled * np.clip(value, 0, 1))
        return totals_of((value, variance, size, labelled, events), weighted_laws(weight, value, variance))

    def variance(self, variable: Variable, domain: Codes, num: int) -> Array:
        """Return the variance of the mean of any variable over each domain."""
        size = np.maximum(added(domain, self.sizes, num), 1)
        mean = added(domain, self.failures * variable.mean, num) / size
        spread = added(domain, self.square * variable.square, num) / size - mean**2
        return np.asarray(np.maximum(spread, 0) * (self.sizes.sum() / self.num - 1) / size)

    def labels_by_group(self) -> Array:
        """Return how many examples of each group are expected to be labelled, (G,)."""
        return np.asarray(self.sizes * (self.num / self.sizes.sum()))

    def failures_by_group(self, failure: Array) -> tuple[Array, Array]:
        """Return no failures that labels show, and those predicted in each group, (G,)."""
        return np.zeros(self.groups.num), self.failures
