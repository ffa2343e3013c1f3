"""Set cover of a matrix in memory: phase 1 of `deepreduce` alone, which `bench.py` times and tests check."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.neurons.requirements import all_of, choose, rank_requirements
from opacc_ray.parts.view import view_of
from opacc_ray.pool import Pool


def cover(coverage: ArrayLike, lookahead: int | None = None) -> NDArray[np.int64]:
    """Choose rows that together cover every column that any row covers, in order of choice.

    Parameters
    ----------
    coverage : (N, requirements) bool, or packed bits (N, ceil(requirements / 8)) uint8
    lookahead : cardinalities that break ties, default all
    """
    view = view_of(Pool(coverage=coverage))
    requirements = rank_requirements(view)
    unmet, chosen = all_of(requirements), []
    while unmet.any():
        index, met = choose(view, requirements, unmet, lookahead)
        unmet = unmet & ~met
        chosen.append(index)
    return np.array(chosen, dtype=np.int64)
