"""CES as Algorithm 1 writes it: every group of every step is added to T and T's objective is computed anew."""

import numpy as np

from oracles.sections import Table, count, equal_width, relative_entropy


def select(
    values: np.ndarray,
    budget: int | None,
    rng: np.random.Generator,
    *,
    sections: int = 20,
    initial: int = 30,
    group: int = 5,
    candidates: int = 300,
    objective: str = "squared",
    smoothing: float = 0.01,
    stop_at_kl: float = 0.0,
    previous: tuple[int, ...] = (),
) -> list[int]:
    """The chosen rows of ``values`` (N, m) in order; T also holds ``previous``, which count among the initial ones."""
    N = len(values)
    codes = equal_width(values, sections)
    pool = count(codes, sections)
    T = list(previous)
    free = [i for i in range(N) if i not in T]
    T += [free[r] for r in rng.choice(len(free), size=max(0, initial - len(T)), replace=False)]
    while budget is None or len(T) < len(previous) + budget:
        if relative_entropy(pool, count([codes[i] for i in T], sections)) < stop_at_kl:
            break
        q = group if budget is None else min(group, len(previous) + budget - len(T))
        groups = draw_groups(rng, [i for i in range(N) if i not in T], candidates, q)
        scores = [score(pool, count([codes[i] for i in T + Q], sections), objective, smoothing) for Q in groups]
        T += groups[scores.index(min(scores))]
    return T[len(previous) :]


def draw_groups(rng: np.random.Generator, free: list[int], num: int, q: int) -> list[list[int]]:
    """``num`` groups of q distinct free examples; many free: groups with a repeat are drawn again, all at once."""
    if len(free) < 4 * q * q:
        return [[free[r] for r in rng.choice(len(free), size=q, replace=False)] for _ in range(num)]
    groups = [list(ranks) for ranks in rng.integers(len(free), size=(num, q))]
    while repeated := [k for k in range(num) if len(set(groups[k])) < q]:
        for k, ranks in zip(repeated, rng.integers(len(free), size=(len(repeated), q)), strict=True):
            groups[k] = list(ranks)
    return [[free[r] for r in ranks] for ranks in groups]


def score(pool: Table, sample: Table, objective: str, smoothing: float) -> int:
    """m times the objective of T, every section's term a whole number of 2^-40."""
    terms = []
    for in_pool, in_sample in zip(pool, sample, strict=True):
        K, N, n = len(in_pool), sum(in_pool), sum(in_sample)
        for c, k in zip(in_pool, in_sample, strict=True):
            if objective == "squared":
                terms.append((c / N - k / n) ** 2)
            elif objective == "cross_entropy":
                terms.append(-c / N * np.log((k + smoothing) / (n + smoothing * K)))
            elif objective == "kl" and k:
                terms.append(k / n * np.log((k / n) / (c / N)))
    return sum(round(float(term) * 2**40) for term in terms)
