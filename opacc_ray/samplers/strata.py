"""Simple random samples of the strata of a pool.

Legend: N examples, H strata, n to draw.
"""

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.stratification import draw_strata
from opacc_ray.designs.stratified import Stratified
from opacc_ray.samplers.base import Draw


def draw_from(
    rng: np.random.Generator, examples: NDArray[np.int64], sizes: NDArray[np.int64], allocation: NDArray[np.int64]
) -> Draw:
    """Draw ``allocation`` (H,) examples of strata of ``sizes`` (H,), in the order of `draw_strata`.

    examples : (N,) stratum after stratum
    """
    place, stratum = draw_strata(rng, sizes, allocation)
    starts = np.cumsum(sizes) - sizes
    return Draw(examples[starts[stratum] + place], Stratified(stratum, sizes), {})


def by_stratum(examples: NDArray[np.int64], stratum: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the examples (N,) stratum after stratum, those of one stratum in the order given; stratum (N,)."""
    return examples[np.argsort(stratum, kind="stable")]
