"""What n labels would say of the groups of a pool, from predictions of failure alone: widths before there are labels.

With p the predicted failure and π the inclusion probability of n labels, every sum of
:mod:`opacc_ray.estimators.totals` over labels is replaced by its expectation, Σ_batch x -> Σ πx. So each interval is
the one that the labels are expected to give, with half an event and with the exact bound where fewer than one is met.

A simple random sample of n labels knows the size of each domain and nothing else: the variance of a mean over a domain
of N_D examples, n_D = n·N_D/N of them labelled, is (E v² - (E v)²)(1/n_D - 1/N_D).

Legend: G groups, p predicted failure, π inclusion probability, v variable, m and s its mean and mean square among the
failures of a group.
"""

from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.design_evidence import DesignShare
from opacc_ray.estimators.totals import Array, Codes, DomainShare, Groups, Variable, added

_LEAST = 1e-300


class ExpectedSums(NamedTuple):
    """Sums over the examples of each group, (G,), with a the coefficient of each example."""

    predicted: Array  # Σ ap
    odds: Array  # Σ a²p(1/π - 1)
    square: Array  # Σ a²p²(1/π - 1)
    labelled: Array  # Σ π
    expected: Array  # Σ πp
    effect: Array  # Σ ap√(1 - π)
    effect_square: Array  # Σ a²p(1 - π)/π
    unseen: Array  # Σ a(1 - π)p


class ForeseenEvidence:
    """Labels drawn with given probabilities, as predictions let one expect them."""

    reason: ClassVar[str | None] = None

    def __init__(self, groups: Groups, sums: ExpectedSums) -> None:
        self.groups, self.sums = groups, sums
        self.sizes = groups.sizes()
        self.index: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    @classmethod
    def of(cls, groups: Groups, p: Array, probability: Array) -> Self:
        """Return what labels drawn with ``probability`` π (N,) are expected to say, at predicted failures p (N,)."""
        everything: NDArray[np.int64] = np.arange(len(p))
        code, a = groups.code(everything), groups.factor(everything)
        left, odds = np.maximum(1 - probability, 0), np.maximum(1 / probability - 1, 0)
        terms = (
            *(a * p, a**2 * p * odds, a**2 * p**2 * odds, probability, probability * p),
            *(a * p * np.sqrt(left), a**2 * p * odds, a * left * p),
        )
        return cls(groups, ExpectedSums(*(added(code, term, groups.num) for term in terms)))

    def shares(self, variable: Variable, domain: Codes, num_domains: int) -> list[DomainShare]:
        """Return the mean of a variable over each domain; ``domain`` (G,) is that of each group, or -1."""

        def over(values: Array) -> Array:
            return added(domain, values, num_domains)

        sums, mean, size = self.sums, variable.mean, np.maximum(over(self.sizes), 1)
        expected, first = over(sums.expected * mean), over(sums.effect * mean) / size
        second = over(sums.effect_square * mean) / size**2
        half, ratio = 0.5 / np.maximum(expected, _LEAST), first / np.maximum(second, _LEAST)
        columns = (
            *(over(sums.predicted * mean) / size, self.variance(variable, domain, num_domains), over(self.sizes)),
            *(np.rint(over(sums.labelled)), np.where(expected < 1, 0.0, expected), half * first, expected),
            *(over(sums.unseen * mean), ratio * first, ratio * first, half * second * variable.differs),
        )
        return [DomainShare(*row) for row in np.column_stack(columns).tolist()]

    def variance(self, variable: Variable, domain: Codes, num_domains: int) -> Array:
        """Return the variance of the mean of any variable over each domain."""
        spread = self.sums.odds * variable.square - self.sums.square * variable.mean**2
        size = np.maximum(added(domain, self.sizes, num_domains), 1)
        return np.asarray(np.maximum(added(domain, spread, num_domains), 0) / size**2)


class RandomEvidence:
    """A simple random sample of ``num`` labels, as the expected failures (G,) of each group let one expect it."""

    reason: ClassVar[str | None] = None

    def __init__(
        self, groups: Groups, failures: Array, square: Array, num: int, index: NDArray[np.int64] | None = None
    ) -> None:
        self.groups, self.sizes, self.num = groups, groups.sizes(), num
        self.failures, self.square = failures, square  # (G,) Σ ap and Σ a²p
        self.index = np.empty(0, dtype=np.int64) if index is None else index

    @classmethod
    def of(cls, groups: Groups, p: Array, num: int, index: NDArray[np.int64] | None = None) -> Self:
        """Return what ``num`` labels are expected to say, at predicted failures p (N,)."""
        everything: NDArray[np.int64] = np.arange(len(p))
        code, a = groups.code(everything), groups.factor(everything)
        failures, square = (added(code, term, groups.num) for term in (a * p, a**2 * p))
        return cls(groups, failures, square, num, index)

    def shares(self, variable: Variable, domain: Codes, num_domains: int) -> list[DesignShare]:
        """Return the mean of a variable over each domain; ``domain`` (G,) is that of each group, or -1."""
        size = added(domain, self.sizes, num_domains)
        value = added(domain, self.failures * variable.mean, num_domains) / np.maximum(size, 1)
        variance = self.variance(variable, domain, num_domains)
        labelled = size * (self.num / self.sizes.sum())
        events, weight = np.floor(labelled * np.clip(value, 0, 1)), 1 / np.maximum(labelled, _LEAST)
        columns = np.column_stack([value, variance, size, labelled, events, np.minimum(weight, 1)])
        return [DesignShare(*row) for row in columns.tolist()]

    def variance(self, variable: Variable, domain: Codes, num_domains: int) -> Array:
        """Return the variance of the mean of any variable over each domain."""
        size = np.maximum(added(domain, self.sizes, num_domains), 1)
        mean = added(domain, self.failures * variable.mean, num_domains) / size
        spread = added(domain, self.square * variable.square, num_domains) / size - mean**2
        return np.asarray(np.maximum(spread, 0) * (self.sizes.sum() / self.num - 1) / size)
