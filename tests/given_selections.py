"""Selections of any design and any examples, as if a method had drawn them."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from opacc_ray.designs import Design
from opacc_ray.selection import Selection


def selection_of(design: Any, index: ArrayLike | None = None, pool_size: int = 0, number: int = 1) -> Selection:
    """Default: the first examples of a pool of as many as were drawn from."""
    assert isinstance(design, Design)
    places = np.arange(len(design)) if index is None else np.asarray(index, dtype=np.int64)
    size = pool_size or design.population
    return Selection(design.name, {}, 0, size, places, tuple(map(str, places)), design, number)
