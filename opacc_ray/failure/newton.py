"""Newton's method to the mode of a Bayesian logistic regression, compiled; see :mod:`opacc_ray.failure.model`.

    g = Xᵀ(f - p)/ψ - Λ(β - m)        H = Xᵀ diag(p(1 - p)) X/ψ + Λ        p = 1/(1 + exp(-Xβ))

Each step solves H·δ = g by Cholesky's factor of H, is cut to a largest change of 4, and the last one is below 1e-4. The
factor gives log|H|, and with it Laplace's approximation of the evidence, at no further cost:

    log evidence = log p(f | β) - ½ (β - m)ᵀΛ(β - m) + ½ log|Λ| - ½ log|H|

The same factor gives the leverage of each label, by how much its own outcome moves its prediction:

    h_i = ∂p_i/∂f_i = p_i(1 - p_i) · xᵢᵀ H⁻¹ xᵢ / ψ

Legend: k labels, d coefficients β with prior means m and precisions Λ, f failures, ψ dispersion.
"""

import numpy as np
from numba import float64, types
from numpy.typing import NDArray

from opacc_ray.parts.compiled import compiled, read

Array = NDArray[np.float64]

_STEPS = 25
_LARGEST_STEP = 4.0
_CLOSE = 1e-4
_LEAST_WEIGHT = 1e-6

_REGRESSION = (read(float64, 2), read(float64, 1), read(float64, 1), read(float64, 2), float64, float64[::1])
"""Types of X, f, m, Λ, ψ and β."""


@compiled(types.void(read(float64, 2), float64[::1]))
def descend(factor: Array, vector: Array) -> None:
    """Overwrite ``vector`` (d,) by L⁻¹ times itself, L the lower half of ``factor`` (d, d)."""
    for i in range(len(vector)):
        for m in range(i):
            vector[i] -= factor[i, m] * vector[m]
        vector[i] /= factor[i, i]


@compiled(types.boolean(float64[:, ::1], float64[::1]))
def solve(matrix: Array, vector: Array) -> bool:
    """Overwrite ``matrix`` (d, d), of which the lower half counts, by its Cholesky factor, and ``vector`` (d,) by the
    solution; false, and both undefined, if the matrix is not positive definite.
    """
    d = len(vector)
    for i in range(d):
        for j in range(i + 1):
            total = matrix[i, j]
            for m in range(j):
                total -= matrix[i, m] * matrix[j, m]
            if i > j:
                matrix[i, j] = total / matrix[j, j]
            elif total > 0:
                matrix[i, i] = np.sqrt(total)
            else:
                return False
    descend(matrix, vector)
    for i in range(d - 1, -1, -1):
        for m in range(i + 1, d):
            vector[i] -= matrix[m, i] * vector[m]
        vector[i] /= matrix[i, i]
    return True


@compiled(types.void(*_REGRESSION, float64[:, ::1], float64[::1]))
def slopes(
    design: Array,
    failure: Array,
    mean: Array,
    precision: Array,
    dispersion: float,
    beta: Array,
    curvature: Array,
    gradient: Array,
) -> None:
    """H (d, d), its lower half, and g (d,) at ``beta`` (d,)."""
    k, d = design.shape
    for j in range(d):
        gradient[j] = 0.0
        for m in range(d):
            curvature[j, m] = precision[j, m]
            gradient[j] -= precision[j, m] * (beta[m] - mean[m])
    for i in range(k):
        logit = 0.0
        for j in range(d):
            logit += design[i, j] * beta[j]
        p = 1 / (1 + np.exp(-logit))
        weight, error = max(p * (1 - p), _LEAST_WEIGHT) / dispersion, (failure[i] - p) / dispersion
        for j in range(d):
            x = design[i, j]
            if x != 0:
                gradient[j] += x * error
                for m in range(j + 1):
                    curvature[j, m] += weight * x * design[i, m]


@compiled(float64(*_REGRESSION, float64[::1]))
def climb(
    design: Array,
    failure: Array,
    mean: Array,
    precision: Array,
    dispersion: float,
    beta: Array,
    leverage: Array,
) -> float:
    """Move ``beta`` (d,) to the mode, from where it is; returns the log evidence, but for ½ log|Λ|.

    design X (k, d), failure (k,), mean (d,) and precision (d, d) of the prior; ``leverage`` (k,) is overwritten by h.
    """
    d = len(beta)
    curvature, step = np.empty((d, d)), np.empty(d)
    for _ in range(_STEPS if len(failure) else 0):
        slopes(design, failure, mean, precision, dispersion, beta, curvature, step)
        if not solve(curvature, step):
            break
        largest = np.abs(step).max()
        beta += step * min(1.0, _LARGEST_STEP / max(largest, _LARGEST_STEP))
        if largest < _CLOSE:
            break
    slopes(design, failure, mean, precision, dispersion, beta, curvature, step)
    solve(curvature, step)
    evidence = 0.0
    for j in range(d):
        evidence -= np.log(curvature[j, j])
        for m in range(d):
            evidence -= 0.5 * (beta[j] - mean[j]) * precision[j, m] * (beta[m] - mean[m])
    for i in range(len(failure)):
        logit = 0.0
        for j in range(d):
            logit += design[i, j] * beta[j]
        evidence += (failure[i] * logit - max(logit, 0.0) - np.log1p(np.exp(-abs(logit)))) / dispersion
        step[:] = design[i]
        descend(curvature, step)
        p = 1 / (1 + np.exp(-logit))
        leverage[i] = max(p * (1 - p), _LEAST_WEIGHT) / dispersion * (step**2).sum()
    return evidence
