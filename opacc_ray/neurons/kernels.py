"""Loops over sections, compiled by Numba, that would need large temporaries in NumPy.

All results are integers, so they depend neither on the order of summation nor on threads. The first import compiles the
loops and caches them on disk; modules import this one where they need a loop.

Legend: n rows, m neurons, K sections, ℓ groups of q examples.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from opacc_ray.parts.compiled import compiled, read


@compiled(
    types.void(read(types.float32, 2), read(types.float64, 1), read(types.float64, 1), types.int64, types.uint8[:, ::1])
)
def encode(
    values: NDArray[np.float32],
    low: NDArray[np.float64],
    width: NDArray[np.float64],
    num: int,
    codes: NDArray[np.uint8],
) -> None:
    """Encode values (n, m) in sections of equal width; low and width (m,) -> codes (n, m).

    np.divide is four times faster than /, which checks every value for zero.
    """
    for row in range(values.shape[0]):
        for i in range(values.shape[1]):
            part = np.int32(np.ceil(np.divide(np.float64(values[row, i]) - low[i], width[i]) * num))
            codes[row, i] = part - (part > 0)


@compiled(types.void(read(types.uint8, 2), types.int64[:, ::1]))
def tally(codes: NDArray[np.uint8], counts: NDArray[np.int64]) -> None:
    """Add codes (n, m) to the counts (m, K)."""
    for row in range(codes.shape[0]):
        for i in range(codes.shape[1]):
            counts[i, codes[row, i]] += 1


@compiled(types.int64[::1](read(types.uint8, 3), read(types.int64, 3)))
def score(codes: NDArray[np.uint8], gains: NDArray[np.int64]) -> NDArray[np.int64]:
    """Score each group: codes (ℓ, q, m), gains (m, K, q) -> (ℓ,).

    A member adds gains[i, section, r] for neuron i, if r earlier members of its group are in the same section.
    """
    num_groups, q, m = codes.shape
    scores = np.zeros(num_groups, dtype=np.int64)
    repeats = np.empty(m, dtype=np.uint8)
    for group in range(num_groups):
        for member in range(q):
            repeats[:] = 0
            for earlier in range(member):
                for i in range(m):
                    repeats[i] += codes[group, earlier, i] == codes[group, member, i]
            for i in range(m):
                scores[group] += gains[i, codes[group, member, i], repeats[i]]
    return scores


@compiled(types.void(read(types.uint8, 2), read(types.uint8, 1), read(types.uint8, 1), types.int32[::1]))
def move_target(
    codes: NDArray[np.uint8], before: NDArray[np.uint8], target: NDArray[np.uint8], agreement: NDArray[np.int32]
) -> None:
    """Change ``agreement`` from the number of neurons with codes[:, row] = before to that with codes[:, row] = target.

    codes (m, n), before and target (m,), agreement (n,). Costs n steps for each neuron whose target differs.
    """
    for neuron in range(codes.shape[0]):
        old, new = before[neuron], target[neuron]
        if old != new:
            for row in range(codes.shape[1]):
                agreement[row] += np.int32(codes[neuron, row] == new) - np.int32(codes[neuron, row] == old)
