"""A classifier whose failures follow its uncertainty, and selections of it by neyman."""

import numpy as np

import opacc_ray as opacc
from opacc_ray.samplers.base import Draw
from opacc_ray.selection import Selection


def make_pool(size: int, seed: int, *, useless: bool = False) -> tuple[opacc.Pool, np.ndarray]:
    """A classifier whose failures follow its doubt, mostly confident; or, ``useless``, do not."""
    rng = np.random.default_rng(seed)
    doubt = rng.beta(0.15, 2.0, size)
    outcome = (rng.random(size) >= doubt).astype(float)
    confidence = 1 - (rng.permutation(doubt) if useless else doubt)
    prediction = rng.integers(0, 10, size)
    dsa = rng.gamma(2, 1, size) + doubt
    return opacc.Pool(confidence=confidence, prediction=prediction, dsa=dsa), outcome


def make_selection(size: int, drawn: Draw, number: int = 1) -> Selection:
    ids = tuple(str(i) for i in drawn.chosen)
    return Selection("neyman", {}, 0, size, drawn.chosen, ids, drawn.design, number)
