"""What a model makes of a batch."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Activations(NamedTuple):
    """What the model made of a batch of B examples."""

    hidden: NDArray[np.float32] | None  # (B, m); None if the model gives its output alone
    output: NDArray[np.float32]  # (B, C)
    layers: tuple[NDArray[np.float32], ...]  # (B, neurons) each; none unless coverage is asked for
