"""Deville's systematic sampling along an order, with the examples that are sure to be included."""

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import SURE, draw_along


def draw_ordered(
    rng: np.random.Generator, probability: NDArray[np.float64], order: NDArray[np.int64]
) -> NDArray[np.int64]:
    """A sample, spread along ``order``, with inclusion probabilities ``probability`` (N,); their sum n is whole.

    Returns (n,) distinct examples: those that are sure, then one per stratum.
    """
    inside = probability[order]
    sure = inside >= SURE
    unsure, num = order[~sure], round(float(inside[~sure].sum()))
    return np.concatenate([order[sure], unsure[draw_along(rng, inside[~sure], num)]])
