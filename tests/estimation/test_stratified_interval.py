"""The interval of strata: its equations, and coverage by enumeration of every sample of small designs."""

from collections.abc import Callable, Iterator
from functools import reduce

import numpy as np
import pytest
from given_selections import selection_of
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom
from unclipped import estimate_sample

from opacc_ray.designs import Design
from opacc_ray.designs.simple_random import SimpleRandom, Stratified
from opacc_ray.estimation import intervals
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.intervals import Strata, stratified_interval, stratified_score

Array = NDArray[np.float64]
Sizes = tuple[int, ...]

LEAST = 0.94
"""Coverage of every cell that intervals of 95 % must reach."""

QUICK = [
    ((80,), (20,)),
    ((900, 100), (12, 6)),
    ((90, 10), (10, 5)),
    ((500, 500), (10, 10)),
    ((60, 30, 10), (5, 3, 2)),
    ((700, 200, 100), (8, 2, 2)),
]
LARGE = [
    ((1000,), (40,)),
    ((900, 100), (30, 30)),
    ((980, 20), (40, 10)),
    ((8000, 2000), (20, 40)),
    ((800, 100, 100), (10, 15, 15)),
    ((300, 300, 400), (10, 10, 10)),
]
"""Sizes of strata, and labels of each."""

QUICK_ROUNDS = [((50, 10), (3, 1), (3, 1)), ((20, 20), (1, 1), (3, 2))]
LARGE_ROUNDS = [((900, 100), (8, 3), (8, 3)), ((700, 300), (3, 4), (8, 4))]
"""Sizes of strata, and labels of each in two rounds."""

RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7)


# -- equations ----------------------------------------------------------------------------------------------------


def strata(successes: list[float], num: list[float], sizes: list[float], shares: list[float]) -> Strata:
    return Strata(*(np.array(values, dtype=np.float64) for values in (successes, num, sizes, shares)))


def test_score_solves_its_equation() -> None:
    """At each end, the most likely shares of success with that mean are found by brute force."""
    part = strata([18, 3], [20, 10], [np.inf, 30], [0.7, 0.3])
    x, n, _, share = part
    first = np.linspace(1e-6, 1 - 1e-6, 400_001)
    for end in stratified_score(part, 0.95):
        second = (end - share[0] * first) / share[1]
        inside = (second > 0) & (second < 1)
        p = np.stack([first[inside], second[inside]])
        likelihood = (x[:, None] * np.log(p) + (n - x)[:, None] * np.log(1 - p)).sum(axis=0)
        best = p[:, likelihood.argmax()]
        error = np.sqrt(np.sum(share**2 * np.array([20 / 19, 2 / 3 * 10 / 9]) * best * (1 - best) / n))
        assert abs(end - share @ (x / n)) == pytest.approx(1.959964 * error, rel=1e-4)


def test_a_single_failure_has_the_mid_p_end() -> None:
    """One failure among 30 labels of nine tenths of the pool: by hand, f = .03 and s its size."""
    part, variance = (
        strata([29, 30], [30, 30], [900, 100], [0.9, 0.1]),
        0.9**2 * (1 - 30 / 900) * (1 / 30 * 29 / 30) / 29,
    )
    size = 0.03 * 0.97 / variance
    low, high = stratified_interval(part, variance, 0.95)
    assert high == pytest.approx(1 - intervals.mid_p_low(0.03 * size, size, 0.95))
    assert high > stratified_score(part, 0.95)[1] + 0.003
    assert low == stratified_score(part, 0.95)[0]


# -- coverage by enumeration --------------------------------------------------------------------------------------


def _failures(sizes: Sizes) -> Iterator[Sizes]:
    """Failures of each stratum: in the largest only, in the smallest only, in all alike, and more in the small ones."""
    largest, smallest = int(np.argmax(sizes)), len(sizes) - 1
    for rate in RATES:
        for chosen in (largest, smallest):
            yield tuple(round(rate * size) * (h == chosen) for h, size in enumerate(sizes))
        yield tuple(round(rate * size) for size in sizes)
        yield tuple(round(min(1, rate * (1 + 2 * h)) * size) for h, size in enumerate(sizes))


def _outcomes(num: Sizes, failing: Sizes) -> Array:
    """Outcomes of labels sorted by stratum, the first ones of each failing."""
    return np.concatenate([np.arange(n) >= x for n, x in zip(num, failing, strict=True)]).astype(np.float64)


def _ends(design: Design, num: Sizes, size: int) -> Array:
    """Ends of the 95 % interval for every possible count of failures: (n_1 + 1, ..., 2)."""

    def state(failing: Sizes) -> intervals.Interval:
        found = estimate_sample(design, _outcomes(num, failing), 0.95)
        return intervals.outward((found.low, found.high), size)

    return _tabulate(num, state)


def _tabulate(num: Sizes, state: Callable[[Sizes], intervals.Interval]) -> Array:
    """Return the ends of ``state`` at all counts of failures; those of as many successes are their mirror image."""
    ends = np.full((*(n + 1 for n in num), 2), np.nan)
    for failing in np.ndindex(*ends.shape[:-1]):
        if np.isnan(ends[failing]).any():
            low, high = state(failing)
            ends[tuple(n - x for n, x in zip(num, failing, strict=True))] = 1 - high, 1 - low
            ends[failing] = low, high
    return ends


def _chances(sizes: Sizes, num: Sizes, failures: Sizes) -> Array:
    """Probability of every possible count of failures, (n_1 + 1, ...): a product of hypergeometric ones."""
    each = [hypergeom.pmf(np.arange(n + 1), N, K, n) for N, n, K in zip(sizes, num, failures, strict=True)]
    return reduce(np.multiply.outer, each)


def _check(sizes: Sizes, num: Sizes, least: float) -> None:
    stratum = np.repeat(np.arange(len(sizes)), num)
    simple = len(sizes) == 1
    design = SimpleRandom(*num, *sizes, replacement=False) if simple else Stratified(stratum, np.array(sizes))
    ends, total = _ends(design, num, sum(sizes)), sum(sizes)
    for failures in _failures(sizes):
        truth = 1 - sum(failures) / total
        held = (ends[..., 0] <= truth + 1e-12) & (truth - 1e-12 <= ends[..., 1])
        assert (_chances(sizes, num, failures) * held).sum() >= least, failures


@pytest.mark.parametrize(("sizes", "num"), QUICK, ids=str)
def test_every_cell_of_a_small_design_is_covered(sizes: Sizes, num: Sizes) -> None:
    _check(sizes, num, 0.95 if len(sizes) == 1 else LEAST)


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "num"), LARGE, ids=str)
def test_every_cell_of_a_design_is_covered(sizes: Sizes, num: Sizes) -> None:
    _check(sizes, num, 0.95 if len(sizes) == 1 else LEAST)


@pytest.mark.parametrize("num", [1, 10, 60])
def test_draws_with_replacement_are_covered_at_every_rate(num: int) -> None:
    design = SimpleRandom(num, 1000, replacement=True)
    low, high = np.moveaxis(_ends(design, (num,), 1000), -1, 0)
    for failures in range(1, 1000):
        truth = 1 - failures / 1000
        held = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
        assert binom.pmf(np.arange(num + 1), num, failures / 1000) @ held >= 0.95, failures


def _check_rounds(sizes: Sizes, first: Sizes, second: Sizes) -> None:
    """Two rounds from the same strata, whose second draws from what the first left."""
    total = sum(sizes)
    left = tuple(N - n for N, n in zip(sizes, first, strict=True))
    rounds = []
    for number, (num, own) in enumerate(((first, sizes), (second, left)), 1):
        index = np.arange(sum(num)) + (number - 1) * sum(first)
        design = Stratified(np.repeat(np.arange(len(num)), num), np.array(own))
        rounds.append(selection_of(design, index, total, number))

    def state(failing: Sizes) -> intervals.Interval:
        counts = failing[: len(first)], failing[len(first) :]
        outcomes = [_outcomes(*own) for own in zip((first, second), counts, strict=True)]
        found = estimate_outcomes(rounds, outcomes)
        return found.low, found.high

    ends = _tabulate((*first, *second), state)
    for failures in _failures(sizes):
        truth, chances = 1 - sum(failures) / total, np.zeros(ends.shape[:-1])
        before = _chances(sizes, first, failures)
        for met in np.argwhere(before > 0):
            rest = tuple((np.array(failures) - met).tolist())
            chances[tuple(met)] = before[tuple(met)] * _chances(left, second, rest)
        held = (ends[..., 0] <= truth + 1e-12) & (truth - 1e-12 <= ends[..., 1])
        assert chances.sum() == pytest.approx(1)
        assert (chances * held).sum() >= LEAST, failures


@pytest.mark.parametrize(("sizes", "first", "second"), QUICK_ROUNDS, ids=str)
def test_every_cell_of_two_small_rounds_is_covered(sizes: Sizes, first: Sizes, second: Sizes) -> None:
    _check_rounds(sizes, first, second)


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "first", "second"), LARGE_ROUNDS, ids=str)
def test_every_cell_of_two_rounds_is_covered(sizes: Sizes, first: Sizes, second: Sizes) -> None:
    _check_rounds(sizes, first, second)
