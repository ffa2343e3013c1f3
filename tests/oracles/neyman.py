"""Plain transcription of the neyman method, example by example and sample by sample: slow, and easy to check.

`samples` enumerates ordered pivotal sampling (Deville and Tillé 1998 in a fixed order), the duels of neighbours, where
the package draws from strata (Deville 1998): two descriptions of one design.
"""

import math
from typing import Any

import numpy as np
from scipy.optimize import minimize


def samples(probability: list[float]) -> dict[frozenset[int], float]:
    """Every sample of ordered pivotal sampling with its probability; the examples are in their order."""
    found: dict[frozenset[int], float] = {}

    def duel(a: int, b: int, weights: list[float], chance: float) -> None:
        if b == len(weights):
            sample = frozenset(i for i, weight in enumerate(weights) if weight > 0.5)
            found[sample] = found.get(sample, 0.0) + chance
            return
        total = weights[a] + weights[b]
        if weights[a] in (0.0, 1.0):
            return duel(b, b + 1, weights, chance)
        if total < 1 - 1e-12:  # one gives all it has to the other
            outcomes = [(total, 0.0, weights[a] / total, a), (0.0, total, weights[b] / total, b)]
        elif total < 1 + 1e-12:
            outcomes = [(1.0, 0.0, weights[a], b), (0.0, 1.0, weights[b], b)]
        else:
            room = 2 - total
            outcomes = [(1.0, total - 1, (1 - weights[b]) / room, b), (total - 1, 1.0, (1 - weights[a]) / room, a)]
        for first, second, share, survivor in outcomes:
            if share > 0:
                after = list(weights)
                after[a], after[b] = first, second
                duel(survivor, b + 1, after, chance * share)
        return None

    sure = [float(p >= 1 - 1e-9) for p in probability]
    unsure = [i for i, certain in enumerate(sure) if not certain]
    if not unsure:
        return {frozenset(range(len(probability))): 1.0}
    inner = [probability[i] for i in unsure]
    duel(0, 1, inner, 1.0)
    always = {i for i, certain in enumerate(sure) if certain}
    return {frozenset(always | {unsure[i] for i in sample}): chance for sample, chance in found.items()}


def inclusion(size: list[float], num: int) -> list[float]:
    """π proportional to size, at most 1: the largest are taken for sure until none exceeds 1."""
    sure: set[int] = set()
    while True:
        rest = sum(value for i, value in enumerate(size) if i not in sure)
        pi = [1.0 if i in sure else (num - len(sure)) * value / rest for i, value in enumerate(size)]
        over = {i for i, value in enumerate(pi) if value > 1}
        if not over:
            return pi
        sure |= over


def ranks(values: list[float]) -> list[float]:
    """Evenly spread over [-√3, √3]; equal values share the middle of their ranks."""
    n = len(values)
    spread = []
    for value in values:
        below, equal = sum(v < value for v in values), sum(v == value for v in values)
        spread.append(((below + equal / 2) / n * 2 - 1) * math.sqrt(3))
    return spread


def predicted_failure(pool: dict[str, list[float]], labelled: dict[int, float]) -> tuple[list[float], float]:
    """p of every example of a pool with dsa and predicted classes, and confidence perhaps, from the failures of some.

    With it, the Bayes factor of the experts that look at something against the one that does not.
    """
    N = len(pool["dsa"])
    top = math.sqrt(3)
    surprise = [rank - top for rank in ranks(pool["dsa"])]
    classes = sorted(set(pool["prediction"]))
    logit: list[float] = []
    rank: list[float] = []
    share = 0.1
    if "confidence" in pool:
        doubt = [min(max(1 - c, 1e-5), 1 - 1e-3) for c in pool["confidence"]]
        logit = [math.log(e / (1 - e)) for e in doubt]
        rank = [r - top for r in ranks([-c for c in pool["confidence"]])]
        share = sum(doubt) / N
    middle = math.log(share / (1 - share))
    #        prior  confidence  rank        surprise    prediction; mean and scale of the coefficients
    experts = [
        (0.05, None, None, None, None),
        (0.05, None, (2.5, 1.0), None, None),
        (0.05, (0.8, 0.2), None, None, None),
        (0.1, (0.6, 0.2), (0.8, 1.0), (0.8, 1.0), None),
        (0.45, (0.6, 0.2), (0.8, 1.0), (0.8, 1.0), 1.0),
        (0.15, (0.8, 0.2), None, (0.8, 1.0), 3.0),
        (0.15, None, None, None, 3.0),
    ]
    log_evidence, predictions, priors = [], [], []
    for number, (prior, own, own_rank, other, by_class) in enumerate(experts):
        slopes = [(signal, *slope) for signal, slope in [(logit, own), (rank, own_rank)] if signal and slope]
        doubts = len(slopes) > 0
        if other is not None:
            slopes += [(surprise, *other)]
        if by_class is not None:
            slopes += [([float(c == k) for c in pool["prediction"]], 0.0, by_class) for k in classes]
        if number > 0 and not slopes:
            continue
        intercept = (0.0, 1.0) if doubts else (middle + (other[0] * top if other else 0.0), 1.5 if logit else 3.0)
        log, p = _regression([([1.0] * N, *intercept), *slopes], labelled)
        log_evidence.append(log)
        predictions.append(p)
        priors.append(prior)
    weights = [prior * math.exp(log - max(log_evidence)) for prior, log in zip(priors, log_evidence, strict=True)]
    p = [sum(w * p[i] for w, p in zip(weights, predictions, strict=True)) / sum(weights) for i in range(N)]
    met, num = sum(labelled.values()), len(labelled)
    constant = (met / num) ** met * (1 - met / num) ** (num - met) if num else 1.0
    return p, sum(weights[1:]) / sum(priors[1:]) * math.exp(max(log_evidence)) / constant


def _regression(
    columns: list[tuple[list[float], float, float]], labelled: dict[int, float]
) -> tuple[float, list[float]]:
    """Log evidence by Laplace, and p of every example, at the mode of the posterior. Binary outcomes."""
    X = np.array([column for column, _, _ in columns]).T
    mean, scale = (np.array([column[i] for column in columns]) for i in (1, 2))
    rows, failure = list(labelled), np.array(list(labelled.values()))

    def negative_log_joint(beta: Any) -> float:
        eta = X[rows] @ beta
        likelihood = float((failure * eta - np.log1p(np.exp(eta))).sum())
        density = -0.5 * ((beta - mean) / scale) ** 2 - np.log(scale) - 0.5 * math.log(2 * math.pi)
        return -likelihood - float(density.sum())

    mode = minimize(negative_log_joint, mean, method="BFGS", options={"gtol": 1e-8}).x if rows else mean
    p = 1 / (1 + np.exp(-X[rows] @ mode))
    hessian = (X[rows].T * p * (1 - p)) @ X[rows] + np.diag(1 / scale**2)
    log_volume = 0.5 * len(mode) * math.log(2 * math.pi) - 0.5 * math.log(np.linalg.det(hessian))
    return -negative_log_joint(mode) + log_volume, (1 / (1 + np.exp(-X @ mode))).tolist()


def combined(N: int, rounds: list[dict[int, tuple[float, float, float]]], totals: list[float]) -> tuple[float, float]:
    """Estimated share of failures and its variance.

    rounds : per round, index -> (failure, p, π); totals : Σ p over the examples not labelled before the round
    """
    sizes = [len(batch) for batch in rounds]
    left = [N - sum(sizes[:t]) for t in range(len(sizes))]
    as_srs = [(m / N) ** 2 * (1 / n - 1 / m) for n, m in zip(sizes, left, strict=True)]
    weights = [sum(sizes[: t + 1]) ** (1 / 3) / as_srs[t] for t in range(len(sizes))]
    value = variance = 0.0
    for t, (batch, total) in enumerate(zip(rounds, totals, strict=True)):
        w = weights[t] / sum(weights)
        known = sum(f for earlier in rounds[:t] for f, _, _ in earlier.values())
        value += w / N * (known + total + sum((f - p) / pi for f, p, pi in batch.values()))
        e = [(f - p) / pi for f, p, pi in batch.values()]
        q = [1 - pi for _, _, pi in batch.values()]
        middle = sum(a * b for a, b in zip(q, e, strict=True)) / sum(q)
        squares = sum(a * (b - middle) ** 2 for a, b in zip(q, e, strict=True))
        variance += (w / N) ** 2 * len(batch) / (len(batch) - 1) * squares
    return value, variance
