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


def predicted_failure(pool: dict[str, list[float]], labelled: dict[int, float]) -> list[float]:
    """p of every example of a pool with confidence, dsa and predicted classes, from the failures of some."""
    N = len(pool["confidence"])
    doubt = [min(max(1 - c, 1e-5), 1 - 1e-3) for c in pool["confidence"]]
    logit = [math.log(e / (1 - e)) for e in doubt]
    surprise = ranks(pool["dsa"])
    classes = sorted(set(pool["prediction"]))
    share = sum(doubt) / N
    experts: list[tuple[float, dict[str, float]]] = [
        (0.06, {}),
        (0.188, {"confidence": 0.3}),
        (0.188, {"confidence": 0.3, "surprise": 0.5}),
        (0.188, {"confidence": 0.3, "surprise": 0.5, "prediction": 0.5}),
        (0.188, {"confidence": 0.3, "surprise": 0.5, "prediction": 3.0}),
        (0.188, {"prediction": 3.0}),
    ]
    evidence, predictions = [], []
    for prior, scale in experts:
        columns: list[tuple[list[float], float, float]] = []
        if "confidence" in scale:
            columns += [([1.0] * N, 0.0, 1.0), (logit, 0.8, scale["confidence"])]
        else:
            columns += [([1.0] * N, math.log(share / (1 - share)), 1.5)]
        if "surprise" in scale:
            columns += [(surprise, 0.0, scale["surprise"])]
        if "prediction" in scale:
            columns += [([float(c == k) for c in pool["prediction"]], 0.0, scale["prediction"]) for k in classes]
        log_evidence, p = _regression(columns, labelled)
        evidence.append(math.log(prior) + log_evidence)
        predictions.append(p)
    weights = [math.exp(value - max(evidence)) for value in evidence]
    return [sum(w * p[i] for w, p in zip(weights, predictions, strict=True)) / sum(weights) for i in range(N)]


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
    weights = [n * sum(sizes[: t + 1]) ** (1 / 3) for t, n in enumerate(sizes)]
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
