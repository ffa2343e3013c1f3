"""The unequal-probability and stratified designs by enumeration: every sample of a tiny pool with its probability."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


class Sample(NamedTuple):
    chance: float
    index: tuple[int, ...]
    group: tuple[tuple[int, ...], ...] = ()  # for RHC-S: the members of each example's group
    stratum: tuple[int, ...] = ()  # for stratified designs


def independent_draws(probability: Sequence[float], n: int) -> Iterator[Sample]:
    """n draws with replacement."""
    for index in itertools.product(range(len(probability)), repeat=n):
        yield Sample(math.prod(probability[i] for i in index), index)


def random_groups(probability: Sequence[float], n: int) -> Iterator[Sample]:
    """Rao, Hartley and Cochran: a random order cut in n groups, the first ones larger, and one draw in each."""
    N = len(probability)
    sizes = [N // n + (g < N % n) for g in range(n)]
    ends = list(itertools.accumulate(sizes))
    for order in itertools.permutations(range(N)):
        groups = [order[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        for index in itertools.product(*groups):
            chance = math.prod(
                probability[i] / sum(probability[j] for j in group) for i, group in zip(index, groups, strict=True)
            )
            yield Sample(chance / math.factorial(N), index, tuple(groups))


def stratified_draws(strata: Sequence[Sequence[int]], sizes: Sequence[int]) -> Iterator[Sample]:
    """Without replacement within each stratum."""
    parts = [list(itertools.combinations(members, size)) for members, size in zip(strata, sizes, strict=True)]
    chance = 1 / math.prod(len(part) for part in parts)
    for choice in itertools.product(*parts):
        index = tuple(i for part in choice for i in part)
        stratum = tuple(h for h, part in enumerate(choice) for _ in part)
        yield Sample(chance, index, stratum=stratum)


def moments(values: Sequence[tuple[float, Any]]) -> tuple[float, float]:
    """Mean and variance of (chance, value) pairs."""
    mean = math.fsum(chance * value for chance, value in values)
    return mean, math.fsum(chance * (value - mean) ** 2 for chance, value in values)
