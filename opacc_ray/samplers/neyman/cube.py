"""Cube method: balanced samples with given inclusion probabilities, for many examples.

J.-C. Deville, Y. Tillé, "Efficient balanced sampling: the cube method", Biometrika 91 (2004); G. Chauvet, Y. Tillé,
"A fast algorithm of balanced sampling", Computational Statistics 21 (2006).

A sample is balanced on variables h_1, …, h_q if it estimates their totals without error, Σ_sample h/π = Σ_pool h.

A random walk without drift starts from the point π of the unit cube, along directions u that keep those totals,

    Σ_i u_i h_i/π_i = 0        π ← π + λ₁u with probability λ₂/(λ₁ + λ₂),  else π - λ₂u

with λ₁ and λ₂ the longest steps inside the cube. Each step makes at least one π_i zero or one, and in the end all are.
The mean of every step is 0, so each example is drawn with exactly its π. A direction needs q + 1 undecided examples.
The fast algorithm takes the first ones in a given order, so the sample is also spread along it. When fewer are left,
the last variable is dropped. The first one is π itself, which makes the size exact, and it is dropped last.

Legend: M examples, n to draw, q variables, h (M, q), π inclusion probability.
"""

import numpy as np
from numba import float64, int64, types
from numpy.typing import NDArray

from opacc_ray.parts.loops import compiled, read

_ROUNDING = 1e-9
"""From here on, a probability is 0 or 1."""


def draw_balanced(
    rng: np.random.Generator,
    probability: NDArray[np.float64],
    before: NDArray[np.float64],
    variables: NDArray[np.float64],
) -> NDArray[np.int64]:
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
def find_direction(matrix: NDArray[np.float64], rows: int, columns: int, direction: NDArray[np.float64]) -> None:
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
def walk(
    probability: NDArray[np.float64], balanced: NDArray[np.float64], uniform: NDArray[np.float64]
) -> NDArray[np.bool_]:
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
