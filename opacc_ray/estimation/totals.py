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

so the sums of p, p(1/π - 1) and p²(1/π - 1) over groups give every total (:class:`GroupSums`). The variance is

    max( (m·M + k·V)/(m + k), V/2 ),   k = 20,   V = Σ w_t² V_t,   M = Σ w_t² Σ_batch (v - v̂)²(1 - π)/π²/(1 - h)/N_D²

Where events differ in size by a coefficient of the example, as in AUC, few large ones decide M. There the variance is
also at least that with m = 2(Σ v̂a²)²/Σ v̂a⁴, with a the effect of a label. The law of these totals is
:class:`opacc_ray.estimation.distribution.DomainWilson`.

**By the design alone** (:class:`DesignEvidence`) the mean over D is a ratio of two estimated means (C.-E. Särndal, B.
Swensson, J. Wretman, "Model Assisted Survey Sampling", 1992, 5.6), with d the membership,

    R = x̂ / d̂,  x = v·d        v(R) = variance of the mean of (x - R·d) / d̂

where the hats are those of the design. R has a bias of order 1/n. The law is the weighted Clopper-Pearson one, its one
more event at the largest weight of any label, relative to d̂, because it may come from a part with few labels. For a
simple random sample it is Clopper and Pearson's interval for the labels in D. The mean over the whole pool is that of
the design itself, which is better where examples were drawn in proportion to a predicted risk.

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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimation.constants import LEAST_SHARE, PRIOR_LABELS, SMALLEST
from opacc_ray.estimation.distribution import DomainWilson, Law, Total, Weighted
from opacc_ray.estimation.failures import Fit, FittedRound, PoolFailures, failures_by_design, failures_by_fit, recorded
from opacc_ray.estimation.intervals import Moments
from opacc_ray.estimation.sample import Rounds, Sample

Array = NDArray[np.float64]
Codes = NDArray[np.integer]
Places = NDArray[np.int64]

_BLOCK = 1 << 18


class GroupSums(NamedTuple):
    """What one round says of each of G groups."""

    predicted: Array  # (G,) Σ_free p
    odds: Array  # (G,) Σ_free p(1/π - 1)
    square: Array  # (G,) Σ_free p²(1/π - 1)


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
        blocks = (slice(at, at + _BLOCK) for at in range(0, len(self.predicted), _BLOCK))
        counts = [np.bincount(self.code(own), minlength=self.num) for own in blocks]
        return np.sum(counts, axis=0, dtype=np.float64)

    def sums(self, labelled: Places, p: Array, odds: Array) -> GroupSums:
        """Add up p (k,) and p with 1/π - 1 (k,) over the groups of the examples without ``labelled``, block by block.

        ``labelled`` is sorted; the k others keep their order.
        """
        sums = np.zeros((3, self.num))
        for start in range(0, len(self.predicted), _BLOCK):
            stop = min(start + _BLOCK, len(self.predicted))
            first, last = np.searchsorted(labelled, (start, stop)).tolist()
            gone, block = labelled[first:last] - start, slice(start - first, stop - last)
            code = np.delete(self.code(slice(start, stop)), gone)
            predicted, spread = p[block], p[block] * odds[block]
            if self.coefficient is not None:
                factor = np.delete(self.coefficient[start:stop], gone)
                predicted, spread = predicted * factor, spread * factor**2
            for row, values in zip(sums, (predicted, spread, spread * p[block]), strict=True):
                row += np.bincount(code, weights=values, minlength=self.num)
        return GroupSums(*sums)


class Variable(NamedTuple):
    """A variable that is 0 where the model is right."""

    values: Array  # (n,) of the labels
    mean: Array  # (G,) m, expected among the failures of each group
    square: Array  # (G,) s, of its square

    @classmethod
    def event(cls, values: Array, mean: Array) -> "Variable":
        """Return a variable that is 0 or 1."""
        return cls(values, mean, mean)

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

    def __init__(self, groups: Groups, index: Places) -> None:
        self.groups, self.sizes, self.index = groups, groups.sizes(), index

    @abstractmethod
    def totals(self, variable: Variable, domain: Codes, num: int) -> list[Total]:
        """Return the mean of a variable over ``num`` domains; ``domain`` (G,) is that of each group, or -1."""

    @abstractmethod
    def variance(self, variable: Variable, domain: Codes, num: int) -> Array:
        """Return the variance of the mean of any variable over each domain."""


def measure(
    sample: Sample, fit: Fit | None, partitions: Sequence[Groups] = ()
) -> tuple[PoolFailures, Sequence[Evidence]]:
    """Return the failures of the pool, and what the labels say of each partition of it, in one pass over the rounds."""
    if fit is None:
        return failures_by_design(sample), [DesignEvidence(sample.rounds, groups) for groups in partitions]
    fitted, sums = list[FittedRound](), [list[GroupSums]() for _ in partitions]
    for part, free in fit.rounds():
        fitted.append(part)
        for groups, into in zip(partitions, sums, strict=True):
            into.append(groups.sums(*free))
    evidence = [FittedEvidence(fit, groups, fitted, into) for groups, into in zip(partitions, sums, strict=True)]
    return failures_by_fit(fit, fitted), evidence


class FittedEvidence(Evidence):
    """Labels with predicted failures for every example."""

    predicts = True

    def __init__(self, fit: Fit, groups: Groups, fitted: Sequence[FittedRound], sums: Sequence[GroupSums]) -> None:
        super().__init__(groups, fit.sample.rounds.index)
        self.rounds, self.fitted, self.sums, self.trust = fit.sample.rounds, fitted, sums, fit.trust

    def variance(self, variable: Variable, domain: Codes, num: int) -> Array:
        """Return the variance of the mean of any variable over each domain."""
        return np.array([total.variance for total in self.totals(variable, domain, num)])

    def totals(self, variable: Variable, domain: Codes, num: int) -> list[Total]:
        """Return the mean of a variable over each domain."""

        def over(values: Array) -> Array:  # sums over the groups of each domain
            return added(domain, values, num)

        sizes = over(self.sizes)
        divisor = np.maximum(sizes, 1)
        group, factor = self.groups.code(self.index), self.groups.factor(self.index)
        where, mean = domain[group], variable.mean[group]
        spread = [over(own.odds * variable.square - own.square * variable.mean**2) for own in self.sums]
        foreseen = np.maximum(np.stack(spread) / divisor**2, SMALLEST)
        weight = 1 / foreseen
        weight = self.trust * weight / weight.sum(axis=0) + (1 - self.trust) * self.rounds.weight[:, None]
        value, measured, first, second, met, expected = (np.zeros(num) for _ in range(6))
        signed = np.zeros((2, 3, num))  # Σ v̂|effect|^k of effects below and above 0, k = 1, 2, 4
        rows = zip(weight, self.rounds.selections, self.rounds.parts, self.fitted, self.sums, strict=True)
        for w, selection, part, prediction, sums in rows:
            before = part.before[where[part.before] >= 0]
            here = where[part.places] >= 0
            places = np.arange(part.places.start, part.places.stop)[here]
            at, p, h = where[places], prediction.labelled[here], prediction.leverage[here]
            pi = recorded(selection).probability[here]
            scale, left = factor[places] * (w / divisor)[at], np.maximum(1 - pi, 0)
            forecast = p * mean[places]
            known = added(where[before], factor[before] * variable.values[before], num)
            error = scale * (variable.values[places] - forecast) / pi
            value += w * (known + over(sums.predicted * variable.mean)) / divisor + added(at, error, num)
            measured += added(at, error**2 * left / (1 - h), num)
            effect = scale * np.sqrt(left) / pi
            first += added(at, forecast * effect, num)
            second += added(at, forecast * effect**2, num)
            signed += [[added(at, forecast * np.maximum(s * effect, 0) ** k, num) for k in (1, 2, 4)] for s in (-1, 1)]
            met += added(at, variable.values[places] * effect, num)
            expected += added(at, forecast, num)
        labelled, events = _counted(self.rounds, where, variable.values, num)
        by_forecast = (weight**2 * foreseen).sum(axis=0)
        shrunk = (labelled * measured + PRIOR_LABELS * by_forecast) / (labelled + PRIOR_LABELS)
        variance = np.maximum(shrunk, LEAST_SHARE * by_forecast)
        if np.ptp(factor) > 0:  # measured from few events, for they differ in size
            few = 2 * signed[:, 1].sum(axis=0) ** 2 / np.maximum(signed[:, 2].sum(axis=0), SMALLEST)
            variance = np.maximum(variance, (few * measured + PRIOR_LABELS * by_forecast) / (few + PRIOR_LABELS))
        last = np.arange(len(where))[part.places][where[part.places] >= 0]  # of the last round
        drawn = factor[last] * prediction.labelled[where[part.places] >= 0] * mean[last]
        left = over(self.sums[-1].predicted * variable.mean) - added(where[last], drawn, num)
        below, above = (0.5 * two / np.maximum(one, SMALLEST) for one, two, _ in signed)
        laws = domain_laws(first, second, met, expected, np.maximum(left, 0), variable.differs)
        return totals_of((value, variance, sizes, labelled, events), laws, below, above)


def domain_laws(
    first: Array, second: Array, met: Array, expected: Array, unseen: Array, differs: bool
) -> list[DomainWilson]:
    """Return the law of each domain.

    Parameters
    ----------
    first, second : Σ v̂a and Σ v̂a² over its labels, a the effect of a label
    met : Σ va
    expected : Σ v̂ of the labels
    unseen : S, Σ v̂ of the other examples
    differs : whether events differ in size
    """
    half, ratio = 0.5 / np.maximum(expected, SMALLEST), first / np.maximum(second, SMALLEST)
    columns = half * first, expected, unseen, ratio * met, ratio * first, half * second * differs
    return [DomainWilson(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def weighted_laws(largest: Array, value: Array, variance: Array) -> list[Weighted]:
    """Return the law of each domain from the largest weight of a label, and the mean and variance of its variable."""
    rows = zip(largest.tolist(), value.tolist(), variance.tolist(), strict=True)
    return [Weighted(most, Moments(1 - mean, spread)) for most, mean, spread in rows]


def totals_of(columns: Sequence[Array], laws: Sequence[Law], *halves: Array) -> list[Total]:
    """Return totals from value, variance, size, labelled and events, the law of each, and below and above."""
    rows = zip(*(column.tolist() for column in columns), laws, *(half.tolist() for half in halves), strict=True)
    return [Total(*row) for row in rows]


class DesignEvidence(Evidence):
    """Labels by the sampling design alone."""

    def __init__(self, rounds: Rounds, groups: Groups) -> None:
        super().__init__(groups, rounds.index)
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

    def _of_pool(self, variable: Variable) -> Total:
        """Return the mean over the whole pool by the design's own estimator."""
        rounds, values = self.rounds, self.groups.factor(self.index) * variable.values
        own, rest = (Moments(float(rounds.mean(x)), float(rounds.variance(x))) for x in (values, 1 - values))
        events = float(variable.values[rounds.first].sum())
        effect, likely = rounds.weights * self.groups.factor(self.index), variable.mean[self.group]
        signed = ([likely @ np.maximum(s * effect, 0) ** k for k in (1, 2)] for s in (-1, 1))
        half = (0.5 * float(two) / max(float(one), SMALLEST) for one, two in signed)
        law = Weighted(rounds.largest_weight, rest)
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


_NO_LABELS: Places = np.empty(0, dtype=np.int64)


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
        self.effect, self.unseen = over(a * p * np.sqrt(left)), over(a * left * p)

    def totals(self, variable: Variable, domain: Codes, num: int) -> list[Total]:
        """Return the mean of a variable over each domain."""

        def over(values: Array) -> Array:
            return added(domain, values, num)

        mean, sizes = variable.mean, over(self.sizes)
        size = np.maximum(sizes, 1)
        expected, first, second = over(self.expected * mean), over(self.effect * mean), over(self.odds * mean)
        first, second = first / size, second / size**2
        laws = domain_laws(first, second, first, expected, over(self.unseen * mean), variable.differs)
        value, variance = over(self.predicted * mean) / size, self.variance(variable, domain, num)
        labelled, events = np.rint(over(self.labelled)), np.where(expected < 1, 0.0, expected)
        return totals_of((value, variance, sizes, labelled, events), laws)

    def variance(self, variable: Variable, domain: Codes, num: int) -> Array:
        """Return the variance of the mean of any variable over each domain."""
        spread = self.odds * variable.square - self.square * variable.mean**2
        size = np.maximum(added(domain, self.sizes, num), 1)
        return np.asarray(np.maximum(added(domain, spread, num), 0) / size**2)


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
