"""Structured regression, as a peer."""

import numpy as np

from opacc_ray.extensions.study.peers.peer import Array, PeerEstimate, Question
from opacc_ray.slices import Slicing

FOLDS, SAMPLES = 5, 100
"""Of the cross-validation, and B."""

PENALTIES = np.geomspace(0.01, 3, 12)
"""λ, in units of √n/σ̂, n labels."""

_STEPS = 300


def structured(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Structured regression: C. Herlihy, K. Truong, A. Chouldechova, M. Dudík, "A Structured Regression Approach for
    Evaluating Model Performance Across Intersectional Subgroups", FAccT 2024, arXiv 2401.14893.

        μ_a = θ_0 + θ·φ^a        θ̂ = argmin ½ Σ_a n_a (ȳ_a - μ_a)²/σ̂² + λ |θ|₁        σ̂² pooled over the slices

    The labels are a simple random sample. φ^a indicates the value of each column and, where columns are crossed, the
    slice itself; so slices with few labels borrow from those that share a value. λ is that of the least error in
    5-fold cross-validation. The interval is by the bootstrap of Lasso and partial ridge (H. Liu, X. Xu, J. J. Li,
    Statistica Sinica 30, 2020), which the paper takes: for each of B = 100 samples ȳ* = μ̂ + σ̂ε/√n, the Lasso
    selects, and the fit penalises ½ θ_j² of what is not selected; its ends are quantiles of μ*.

    Deviations: the grid of λ, the number of folds and of samples are ours, and ε is normal instead of a residual,
    because some slices have one label or none.

    Legend: n_a labels in slice a, ȳ_a their mean outcome, μ_a its accuracy.
    """
    index = rng.choice(len(asked.outcome), budget, replace=False)
    slices = asked.slices[0]
    for other in asked.slices[1:]:
        slices = slices.cross(other)
    x, y, code = design(asked.slices, slices), asked.outcome[index], slices.codes[index]
    num, mean = means(code, y, len(x))
    spread = float(((y - mean[code]) ** 2).sum()) / max(len(y) - int((num > 0).sum()), 1)
    weight = num / max(spread, 1e-6)
    penalty = _best_penalty(x, code, y, max(spread, 1e-6), rng)
    centre = predict(x, lasso(x, weight, mean[:, None], np.array([penalty])))[:, 0]
    noise = rng.normal(size=(len(x), SAMPLES)) / np.sqrt(np.maximum(weight, 1e-12))[:, None]
    drawn = np.where(num[:, None] > 0, centre[:, None] + noise, 0.0)
    chosen = lasso(x, weight, drawn, np.full(SAMPLES, penalty))[1:] != 0
    fits = [_partial_ridge(x, weight, drawn[:, b], chosen[:, b]) for b in range(SAMPLES)]
    low, high = np.quantile(fits, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return PeerEstimate(centre, np.minimum(low, centre), np.maximum(high, centre), index)


def design(columns: tuple[Slicing, ...], slices: Slicing) -> Array:
    """Return φ, (S, features)."""
    first = np.unique(slices.codes, return_index=True)[1]  # an example of each slice
    parts = [np.eye(len(own.names))[own.codes[first]] for own in columns]
    return np.column_stack([*parts, *([np.eye(len(first))] if len(columns) > 1 else [])])


def means(code: np.ndarray, y: Array, num: int) -> tuple[Array, Array]:
    """Return the labels of each slice (S,), and their mean outcome (S,), 0 without labels."""
    count = np.bincount(code, minlength=num).astype(np.float64)
    return count, np.bincount(code, weights=y, minlength=num) / np.maximum(count, 1)


def lasso(x: Array, weight: Array, y: Array, penalty: Array) -> Array:
    """Return θ (1 + features, B) for each column of y (S, B) and its penalty (B,), by accelerated proximal steps."""
    share = weight / weight.sum()
    middle, level = share @ x, share @ y
    root = np.sqrt(weight)[:, None]
    a, b = root * (x - middle), root * (y - level)
    step = 1 / max(float(np.linalg.eigvalsh(a.T @ a)[-1]), 1e-12)
    theta = ahead = np.zeros((x.shape[1], y.shape[1]))
    momentum = 1.0
    for _ in range(_STEPS):
        moved = ahead - step * (a.T @ (a @ ahead - b))
        new = np.sign(moved) * np.maximum(np.abs(moved) - step * penalty, 0)
        after = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = new + (momentum - 1) / after * (new - theta)
        theta, momentum = new, after
    return np.vstack([level - middle @ theta, theta])


def predict(x: Array, theta: Array) -> Array:
    """Return μ of each slice, (S, B)."""
    return np.asarray(theta[0] + x @ theta[1:])


def _partial_ridge(x: Array, weight: Array, y: Array, chosen: np.ndarray) -> Array:
    """Return μ (S,) of the fit that penalises what was not selected, (features,)."""
    full = np.column_stack([np.ones(len(x)), x])
    ridge = np.concatenate([[0.0], np.where(chosen, 1e-8, 1.0)])
    curvature = full.T @ (weight[:, None] * full) + np.diag(ridge + 1e-9)
    theta = np.linalg.solve(curvature, full.T @ (weight * y))
    return np.asarray(full @ theta)


def _best_penalty(x: Array, code: np.ndarray, y: Array, spread: float, rng: np.random.Generator) -> float:
    """Return λ by cross-validation over the labels."""
    scale, error = (len(y) / spread) ** 0.5, np.zeros(len(PENALTIES))
    fold = rng.permutation(len(y)) % FOLDS
    for k in range(FOLDS):
        num, mean = means(code[fold != k], y[fold != k], len(x))
        theta = lasso(x, num / spread, np.repeat(mean[:, None], len(PENALTIES), axis=1), PENALTIES * scale)
        error += ((y[fold == k, None] - predict(x, theta)[code[fold == k]]) ** 2).sum(axis=0)
    return float(PENALTIES[int(error.argmin())] * scale)
