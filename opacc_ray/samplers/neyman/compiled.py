"""Compiled loops: the cube method of the draw, and Newton's method of the failure model.

**Cube method**: balanced samples with given inclusion probabilities, for many examples. J.-C. Deville, Y. Tillé,
"Efficient balanced sampling: the cube method", Biometrika 91 (2004); G. Chauvet, Y. Tillé, "A fast algorithm of
balanced sampling", Computational Statistics 21 (2006).

A sample is balanced on variables h_1, …, h_q if it estimates their totals without error, Σ_sample h/π = Σ_pool h.

A random walk without drift starts from the point π of the unit cube, along directions u that keep those totals,

    Σ_i u_i h_i/π_i = 0        π ← π + λ₁u with probability λ₂/(λ₁ + λ₂),  else π - λ₂u

with λ₁ and λ₂ the longest steps inside the cube. Each step makes at least one π_i zero or one, and in the end all are.
The mean of every step is 0, so each example is drawn with exactly its π. A direction needs q + 1 undecided examples.
The fast algorithm takes the first ones in a given order, so the sample is also spread along it. When fewer are left,
the last variable is dropped. The first one is π itself, which makes the size exact, and it is dropped last.

Legend: M examples, n to draw, q variables, h (M, q), π inclusion probability.

**Newton's method** to the mode of a Bayesian logistic regression of the failure model. Coefficients β are shared by all
examples, and the first r of them differ between groups, by γ:

    logit p_i = Σ_j (β_j + γ_cj) x_ij      β_j ~ N(m_j, 1/λ_j),  γ_cj ~ N(0, 1/κ_j)       c the group of i

Each step solves H·δ = g and is halved until the posterior does not fall; the last one is below 1e-4. H has no entries
for coefficients of two different groups. So they are eliminated group by group, and the work grows with their number,
not with its cube:

    H = ⎡ D_1         B_1 ⎤     D_c = Σ_c w x̂x̂ᵀ + diag(κ)         w = p(1 - p)/ψ
        ⎢      ⋱       ⋮  ⎥     B_c = Σ_c w x̂xᵀ                   x̂ the first r of x
        ⎣ B_1ᵀ  ⋯      A  ⎦     A  = Σ w xxᵀ + diag(λ)

The factors give log|H|, and with it Laplace's approximation of the evidence, at no further cost,

    log evidence = log p(f | β, γ) + log p(β, γ) - ½ log|H|

and the leverage of each label, how much its own outcome moves its prediction:

    h_i = ∂p_i/∂f_i = w_i · x̃ᵢᵀ H⁻¹ x̃ᵢ        x̃ the row of all coefficients

Legend: k labels, q shared coefficients, G groups, r coefficients of each, f failures, ψ dispersion.
"""

import numpy as np
from numba import float64, int64, types
from numpy.typing import NDArray

from opacc_ray.parts.loops import compiled, read

Array = NDArray[np.float64]
Places = NDArray[np.int64]

_ROUNDING = 1e-9
"""From here on, a probability is 0 or 1."""


def draw_balanced(
    rng: np.random.Generator,
    probability: Array,
    before: Array,
    variables: Array,
) -> Places:
    """Draw a sample with inclusion probabilities ``probability`` (M,), balanced on ``variables`` (M, q).

    Parameters
    ----------
    probability : π (M,), above 0, in the order along which the sample is spread; Σ π/π' is whole
    before : π' (M,), with which the examples were drawn from a larger pool; at least π
    variables : h (M, q); the most important first

    Returns
    -------
    (n,) int64
        Distinct places, rising.
    """
    start = np.minimum(probability / before, 1.0)
    expanded = variables / probability[:, None]
    expanded /= np.maximum(np.sqrt((expanded**2).mean(axis=0)), 1e-300)
    balanced = np.column_stack([np.ones(len(start)), expanded])
    return np.flatnonzero(walk(start, balanced, rng.random(len(start) + 1)))


@compiled(types.void(float64[:, ::1], int64, int64, float64[::1]))
def find_direction(matrix: Array, rows: int, columns: int, direction: Array) -> None:
    """Find u (columns,) with matrix·u = 0 by elimination, which overwrites the matrix; more columns than rows.

    Entries below 1e-9 count as 0.
    """
    for c in range(columns):  # columns before c have their 1 in the row of their number
        best = c
        for r in range(c, rows):
            if abs(matrix[r, c]) > abs(matrix[best, c]):
                best = r
        if c == rows or abs(matrix[best, c]) < _ROUNDING:
            direction[c] = 1.0
            for j in range(columns):
                if j != c:
                    direction[j] = -matrix[j, c] if j < c else 0.0
            return
        for j in range(c, columns):
            other = matrix[best, j]
            matrix[best, j] = matrix[c, j]
            matrix[c, j] = other
        scale = 1 / matrix[c, c]
        for j in range(c, columns):
            matrix[c, j] *= scale
        for r in range(rows):
            factor = matrix[r, c]
            if r != c and factor != 0:
                for j in range(c, columns):
                    matrix[r, j] -= factor * matrix[c, j]


@compiled(types.boolean[::1](read(float64, 1), read(float64, 2), read(float64, 1)))
def walk(probability: Array, balanced: Array, uniform: Array) -> NDArray[np.bool_]:
    """Walk to a corner of the cube, and return which examples it contains: (M,).

    probability (M,) where it starts; balanced (M, q + 1) h/π, the variables that are dropped last first; uniform
    (M + 1,) a random number for each step.
    """
    size, num_variables = balanced.shape
    p = probability.copy()
    window = np.empty(num_variables + 1, np.int64)  # examples that are undecided
    matrix, direction = np.empty((num_variables, num_variables + 1)), np.empty(num_variables + 1)
    filled = following = step = 0
    while True:
        while filled <= num_variables and following < size:
            if _ROUNDING < p[following] < 1 - _ROUNDING:
                window[filled] = following
                filled += 1
            following += 1
        if filled == 0:
            break
        rows = min(num_variables, filled - 1)
        for c in range(filled):
            for r in range(rows):
                matrix[r, c] = balanced[window[c], r]
        find_direction(matrix, rows, filled, direction)
        forth = back = np.inf
        for c in range(filled):
            up, down = 1 - p[window[c]], p[window[c]]
            if direction[c] > 0:
                forth, back = min(forth, up / direction[c]), min(back, down / direction[c])
            elif direction[c] < 0:
                forth, back = min(forth, -down / direction[c]), min(back, -up / direction[c])
        length = forth if uniform[step] * (forth + back) < back else -back
        step += 1
        undecided = 0
        for c in range(filled):
            i = window[c]
            p[i] += length * direction[c]
            if _ROUNDING < p[i] < 1 - _ROUNDING:
                window[undecided] = i
                undecided += 1
        filled = undecided
    return p > 0.5


# -- Newton's method --------------------------------------------------------------------------------------------

_STEPS = 50
_LEAST_STEP = 1e-6  # share of one
_CLOSE = 1e-4
_LEAST_WEIGHT = 1e-6

_DATA = types.Tuple((read(float64, 2), read(int64, 1), read(float64, 1), float64))
_PRIOR = types.Tuple((read(float64, 1), read(float64, 1), read(float64, 1)))
_SYSTEM = types.Tuple((float64[:, ::1], float64[:, :, ::1], float64[:, :, ::1], float64[::1], float64[:, ::1]))

Data = tuple[Array, Places, Array, float]
"""x (k, q), the group c (k,) of each in 0 .. G - 1, f (k,) and ψ."""

Prior = tuple[Array, Array, Array]
"""m (q,) and λ (q,) of β, κ (r,) of γ."""

System = tuple[Array, Array, Array, Array, Array]
"""A (q, q), B (G, r, q), D (G, r, r), and the gradient of β (q,) and of γ (G, r)."""


@compiled(types.void(float64[:, ::1]))
def factorise(matrix: Array) -> None:
    """Overwrite the lower half of a positive definite ``matrix`` (d, d) by its Cholesky factor L."""
    for i in range(len(matrix)):
        for j in range(i + 1):
            total = matrix[i, j]
            for m in range(j):
                total -= matrix[i, m] * matrix[j, m]
            matrix[i, j] = total / matrix[j, j] if i > j else np.sqrt(total)


@compiled(types.void(read(float64, 2), float64[::1]))
def descend(factor: Array, vector: Array) -> None:
    """Overwrite ``vector`` (d,) by L⁻¹ times itself."""
    for i in range(len(vector)):
        for m in range(i):
            vector[i] -= factor[i, m] * vector[m]
        vector[i] /= factor[i, i]


@compiled(types.void(read(float64, 2), float64[::1]))
def ascend(factor: Array, vector: Array) -> None:
    """Overwrite ``vector`` (d,) by L⁻ᵀ times itself."""
    for i in range(len(vector) - 1, -1, -1):
        for m in range(i + 1, len(vector)):
            vector[i] -= factor[m, i] * vector[m]
        vector[i] /= factor[i, i]


@compiled(float64(_DATA, _PRIOR, read(float64, 1), read(float64, 2), float64[::1]))
def log_posterior(data: Data, prior: Prior, beta: Array, gamma: Array, logit: Array) -> float:
    """Return log p(f | β, γ) + log p(β, γ) up to a constant; ``logit`` (k,) is overwritten."""
    (design, group, failure, dispersion), (mean, precision, spread) = data, prior
    found = 0.0
    for j in range(len(beta)):
        found -= 0.5 * precision[j] * (beta[j] - mean[j]) ** 2
    for own in gamma:
        for j in range(len(own)):
            found -= 0.5 * spread[j] * own[j] ** 2
    for i in range(len(failure)):
        total = 0.0
        for j in range(len(beta)):
            total += design[i, j] * beta[j]
        for j in range(len(spread)):
            total += design[i, j] * gamma[group[i], j]
        logit[i] = total
        found += (failure[i] * total - max(total, 0.0) - np.log1p(np.exp(-abs(total)))) / dispersion
    return found


@compiled(types.void(_DATA, _PRIOR, read(float64, 1), read(float64, 2), read(float64, 1), _SYSTEM))
def slopes(data: Data, prior: Prior, beta: Array, gamma: Array, logit: Array, system: System) -> None:
    """Overwrite the system: of H its lower half."""
    (design, group, failure, dispersion), (mean, precision, spread) = data, prior
    a, b, d, shared, own = system
    q, r = len(beta), len(spread)
    a[:], b[:], d[:] = 0.0, 0.0, 0.0
    for j in range(q):
        a[j, j], shared[j] = precision[j], precision[j] * (mean[j] - beta[j])
    for c in range(len(gamma)):
        for j in range(r):
            d[c, j, j], own[c, j] = spread[j], -spread[j] * gamma[c, j]
    for i in range(len(failure)):
        p = 1 / (1 + np.exp(-logit[i]))
        weight, error = max(p * (1 - p), _LEAST_WEIGHT) / dispersion, (failure[i] - p) / dispersion
        for j in range(q):
            x = design[i, j]
            shared[j] += x * error
            for m in range(j + 1):
                a[j, m] += weight * x * design[i, m]
        for j in range(r):
            x, c = design[i, j], group[i]
            own[c, j] += x * error
            for m in range(j + 1):
                d[c, j, m] += weight * x * design[i, m]
            for m in range(q):
                b[c, j, m] += weight * x * design[i, m]


@compiled(float64(_SYSTEM))
def solve(system: System) -> float:
    """Overwrite the gradient by the step H⁻¹g, and return log|H|.

    D becomes its groups' factors L_c, B the products L_c⁻¹B_c, and A the factor of what is left of it, A - Σ BᵀD⁻¹B.
    """
    a, b, d, shared, own = system
    q, r, found = len(shared), own.shape[1], 0.0
    for c in range(len(own)):
        factorise(d[c])
        descend(d[c], own[c])
        for i in range(r):
            found += 2 * np.log(d[c, i, i])
            for m in range(q):
                for j in range(i):
                    b[c, i, m] -= d[c, i, j] * b[c, j, m]
                b[c, i, m] /= d[c, i, i]
        for i in range(r):
            for m in range(q):
                shared[m] -= b[c, i, m] * own[c, i]
                for j in range(m + 1):
                    a[m, j] -= b[c, i, m] * b[c, i, j]
    factorise(a)
    descend(a, shared)
    ascend(a, shared)
    for c in range(len(own)):
        for i in range(r):
            for m in range(q):
                own[c, i] -= b[c, i, m] * shared[m]
        ascend(d[c], own[c])
    for m in range(q):
        found += 2 * np.log(a[m, m])
    return found


@compiled(float64(_DATA, _PRIOR, float64[::1], float64[:, ::1], float64[::1]))
def climb(data: Data, prior: Prior, beta: Array, gamma: Array, leverage: Array) -> float:
    """Move ``beta`` (q,) and ``gamma`` (G, r) to the mode, and return the log evidence.

    ``leverage`` (k,) is overwritten by h.
    """
    (design, group, failure, dispersion), (_, precision, spread) = data, prior
    q, groups, r = len(beta), len(gamma), len(spread)
    a, b, d = np.empty((q, q)), np.empty((groups, r, q)), np.empty((groups, r, r))
    shared, own, logit = np.empty(q), np.empty((groups, r)), np.empty(len(failure))
    now, volume = log_posterior(data, prior, beta, gamma, logit), 0.0
    for _ in range(_STEPS):
        slopes(data, prior, beta, gamma, logit, (a, b, d, shared, own))
        volume = solve((a, b, d, shared, own))
        largest = np.abs(shared).max()
        if own.size:
            largest = max(largest, np.abs(own).max())
        share = 1.0
        while True:
            there, theirs = beta + share * shared, gamma + share * own
            then = log_posterior(data, prior, there, theirs, logit)
            if then >= now or share < _LEAST_STEP:
                break
            share /= 2
        now = then
        for j in range(q):
            beta[j] = there[j]
        for c in range(groups):
            for j in range(r):
                gamma[c, j] = theirs[c, j]
        if largest < _CLOSE:
            break
    row, other = np.empty(q), np.empty(r)
    for i in range(len(failure)):
        p = 1 / (1 + np.exp(-logit[i]))
        c = group[i]
        for m in range(q):
            row[m] = design[i, m]
        for j in range(r):
            other[j] = design[i, j]
        if r:
            descend(d[c], other)
            for j in range(r):
                for m in range(q):
                    row[m] -= b[c, j, m] * other[j]
        descend(a, row)
        leverage[i] = max(p * (1 - p), _LEAST_WEIGHT) / dispersion * ((row**2).sum() + (other**2).sum())
    return now - 0.5 * volume + 0.5 * (np.log(precision).sum() + groups * np.log(spread).sum())
