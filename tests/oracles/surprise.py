"""Surprise as Kim, Feldt and Yoo define it, example by example and trace by trace."""

import math

import numpy as np


def dsa(hidden, predicted, traces, classes):
    """dist_a / dist_b, by measuring every distance; infinity where dist_b is 0."""
    hidden, traces = np.asarray(hidden, dtype=np.float64), np.asarray(traces, dtype=np.float64)
    result = []
    for x, c in zip(hidden, predicted, strict=True):
        same = [i for i in range(len(traces)) if classes[i] == c]
        others = [i for i in range(len(traces)) if classes[i] != c]
        nearest = min(same, key=lambda i: (distance(x, traces[i]), i))
        dist_a = distance(x, traces[nearest])
        dist_b = min(distance(traces[nearest], traces[i]) for i in others)
        result.append(dist_a / dist_b if dist_b else math.inf)
    return result


def lsa(hidden, predicted, traces, classes, per_class=False):
    """-log density, by adding up every kernel's logarithm."""
    hidden, traces = np.asarray(hidden, dtype=np.float64), np.asarray(traces, dtype=np.float64)
    groups = {c: traces[[i for i in range(len(traces)) if classes[i] == c]] for c in set(classes)}
    lively = {c: [i for i in range(traces.shape[1]) if np.var(group[:, i]) >= 1e-5] for c, group in groups.items()}
    enough = [c for c in groups if len(groups[c]) > len(lively[c]) > 0]
    within = sum(len(group) * np.cov(group.T, bias=True) for group in groups.values()) / (len(traces) - len(groups))
    shared = [
        i for i in range(traces.shape[1]) if all(i in lively[c] for c in enough) and np.atleast_2d(within)[i, i] >= 1e-5
    ]
    result = []
    for x, c in zip(hidden, predicted, strict=True):
        if c in enough:
            neurons = lively[c] if per_class else shared
            covariance = np.atleast_2d(np.cov(groups[c][:, neurons].T))
        else:
            neurons = shared
            covariance = np.atleast_2d(within)[np.ix_(neurons, neurons)]
        result.append(-log_density(x[neurons], groups[c][:, neurons], covariance))
    return result


def log_density(x, points, covariance):
    n, d = points.shape
    kernel = covariance * (n ** (-1 / (d + 4))) ** 2
    _, log_det = np.linalg.slogdet(2 * math.pi * kernel)
    logs = [-(x - point) @ np.linalg.solve(kernel, x - point) / 2 for point in points]
    return max(logs) + math.log(sum(math.exp(log - max(logs)) for log in logs)) - math.log(n) - log_det / 2


def distance(a, b):
    return math.sqrt(math.fsum((a - b) ** 2))
