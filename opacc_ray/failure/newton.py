"""Newton's method to the mode of a Bayesian logistic regression, compiled; see :mod:`opacc_ray.failure.model`.

    g = Xᵀ(f - p)/ψ - (β - m)/s²        H = Xᵀ diag(p(1 - p)) X/ψ + diag(1/s²)        p = 1/(1 + exp(-Xβ))

Each step solves H·δ = g by Cholesky's factors L of H, is cut to a largest change of 4, and the last one is below 1e-4.
With log|H| = 2 Σ log L_ii Laplace's approximation of the evidence comes at no further cost.

Legend: k labels, d coefficients β with prior means m and standard deviations s, f failures, ψ dispersion.
"""

import numpy as np
from numba import float64, types
from numpy.typing import NDArray

from opacc_ray.parts.compiled import compiled, read

Vector = NDArray[np.float64]

_STEPS = 25
_LARGEST_STEP = 4.0
_CLOSE = 1e-4
_LEAST_WEIGHT = 1e-6


@compiled(types.boolean(float64[:, ::1], float64[::1]))
def solve(matrix: Vector, vector: Vector) -> bool:
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
    for i in range(d):
        for m in range(i):
            vector[i] -= matrix[i, m] * vector[m]
        vector[i] /= matrix[i, i]
    for i in range(d - 1, -1, -1):
        for m in range(i + 1, d):
            vector[i] -= matrix[m, i] * vector[m]
        vector[i] /= matrix[i, i]
    return True


@compiled(
    types.void(
        read(float64, 2),
        read(float64, 1),
        read(float64, 1),
        read(float64, 1),
        float64,
        float64[::1],
        float64[:, ::1],
        float64[::1],
    )
)
def slopes(
    design: Vector,
    failure: Vector,
    mean: Vector,
    scale: Vector,
    dispersion: float,
    beta: Vector,
    curvature: Vector,
    gradient: Vector,
) -> None:
    """H (d, d), its lower half, and g (d,) at ``beta`` (d,)."""
    k, d = design.shape
    curvature[:] = 0
    gradient[:] = 0
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
    for j in range(d):
        gradient[j] -= (beta[j] - mean[j]) / scale[j] ** 2
        curvature[j, j] += 1 / scale[j] ** 2


@compiled(float64(read(float64, 2), read(float64, 1), read(float64, 1), read(float64, 1), float64, float64[::1]))
def climb(design: Vector, failure: Vector, mean: Vector, scale: Vector, dispersion: float, beta: Vector) -> float:
    """Move ``beta`` (d,) to the mode, from where it is; returns the log evidence, but for a constant.

    design (k, d), failure (k,), mean and scale (d,) of the prior.
    """
    d = len(beta)
    curvature, step = np.empty((d, d)), np.empty(d)
    for _ in range(_STEPS if len(failure) else 0):
        slopes(design, failure, mean, scale, dispersion, beta, curvature, step)
        if not solve(curvature, step):
            break
        largest = np.abs(step).max()
        beta += step * min(1.0, _LARGEST_STEP / max(largest, _LARGEST_STEP))
        if largest < _CLOSE:
            break
    slopes(design, failure, mean, scale, dispersion, beta, curvature, step)
    solve(curvature, step)
    evidence = 0.0
    for j in range(d):
        evidence -= 0.5 * ((beta[j] - mean[j]) / scale[j]) ** 2 + np.log(scale[j]) + np.log(curvature[j, j])
    for i in range(len(failure)):
        logit = 0.0
        for j in range(d):
            logit += design[i, j] * beta[j]
        evidence += (failure[i] * logit - max(logit, 0.0) - np.log1p(np.exp(-abs(logit)))) / dispersion
    return evidence
