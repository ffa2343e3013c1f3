"""Counting how many of some wanted sections each example is in, compiled by Numba when this module is first imported.

Legend: n rows, m neurons.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from opacc_ray.parts.compiled import compiled, read


@compiled(types.void(read(types.uint8, 2), read(types.uint8, 1), read(types.uint8, 1), types.int32[::1]))
def move_target(
    codes: NDArray[np.uint8], before: NDArray[np.uint8], target: NDArray[np.uint8], agreement: NDArray[np.int32]
) -> None:
    """From the number of neurons with codes[:, row] = before to that with codes[:, row] = target.

    codes (m, n), before and target (m,), agreement (n,). Costs n steps for each neuron whose target differs.
    """
    for neuron in range(codes.shape[0]):
        old, new = before[neuron], target[neuron]
        if old != new:
            for row in range(codes.shape[1]):
                agreement[row] += np.int32(codes[neuron, row] == new) - np.int32(codes[neuron, row] == old)
