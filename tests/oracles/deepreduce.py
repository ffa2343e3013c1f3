"""DeepReduce as Algorithm 1 writes it: every candidate is added to T and KL(P_S || P_T) is computed anew."""

import numpy as np

from oracles import hgs
from oracles.sections import Table, count, relative_entropy

TIE = 2.0**-40
"""KLs that are no further apart are the same."""


def equal_count(values: np.ndarray, num: int) -> Table:
    """Section, from 0, of every value (N, m): the distinct values of each neuron, sorted, in ``num`` equal parts."""
    columns = []
    for column in values.T.tolist():
        distinct = sorted(set(column))
        section = {}
        for k in range(1, num + 1):
            for rank in range(len(distinct) * (k - 1) // num, len(distinct) * k // num):
                section[distinct[rank]] = k - 1
        columns.append([section[value] for value in column])
    return [list(row) for row in zip(*columns, strict=True)]


def select(
    codes: Table,
    num: int,
    *,
    budget: int | None = None,
    alpha: float = 0.001,
    coverage: np.ndarray | None = None,
    lookahead: int | None = None,
) -> list[int]:
    """The chosen rows of codes (N, m), which are sections from 0 to below ``num``, in order."""
    limit = len(codes) if budget is None else budget
    pool = count(codes, num)
    T = [] if coverage is None else hgs.cover(coverage, lookahead)[:limit]
    while len(T) < limit and not (T and _kl(pool, codes, T, num) < alpha):
        wanted = [_lacking(*rows) for rows in zip(pool, _counts(codes, T, num), strict=True)]
        rest = [t for t in range(len(codes)) if t not in T]
        similar = {t: sum(a == b for a, b in zip(codes[t], wanted, strict=True)) for t in rest}
        candidates = [t for t in rest if similar[t] == max(similar.values())]
        kl = {t: _kl(pool, codes, [*T, t], num) for t in candidates}
        T.append(next(t for t in candidates if kl[t] <= min(kl.values()) + TIE))
    return T


def _lacking(pool: list[int], sample: list[int]) -> int:
    """The first section with the largest P_S / P_T; an empty one of T has the share 1e-15."""
    ratios = [a / max(b, 1e-15) for a, b in zip(pool, sample, strict=True)]
    return ratios.index(max(ratios))


def _kl(pool: Table, codes: Table, T: list[int], num: int) -> float:
    return relative_entropy(pool, _counts(codes, T, num))


def _counts(codes: Table, T: list[int], num: int) -> Table:
    return count([codes[t] for t in T], num) if T else [[0] * num for _ in codes[0]]
