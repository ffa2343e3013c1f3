"""Rounds that methods draw one after the other, how often intervals hold, and a pool for every method."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers.select import select
from opacc_ray.selection import Selection

Labelled = tuple[list[Selection], list[NDArray[np.float64]]]
"""Rounds, and the outcomes of each."""


def draw_rounds(
    pool: Pool | View,
    outcome: NDArray[np.float64],
    sizes: Sequence[int],
    seed: int = 1,
    method: str | Sequence[str] = "neyman",
    **given: Any,
) -> Labelled:
    """Rounds of a method, or of a method for each, labelled by the outcomes (N,) of the pool."""
    rounds: list[tuple[Selection, NDArray[np.float64]]] = []
    methods = [method] * len(sizes) if isinstance(method, str) else method
    for own, size in zip(methods, sizes, strict=True):
        chosen = select(pool, own, size, seed, previous=rounds, **given)
        rounds.append((chosen, outcome[chosen.index]))
    return [chosen for chosen, _ in rounds], [values for _, values in rounds]


def hold(found: Iterable[Any], truth: float, chance: float = 1e-4) -> bool:
    """Whether intervals of 95 % include the truth as often as they do with a probability of 1 - ``chance``."""
    held = [own.low <= truth <= own.high for own in found]
    return bool(sum(held) >= binom.ppf(chance, len(held), 0.95))


def featured_pool(confidence: Callable[[np.random.Generator], NDArray[np.float64]]) -> Pool:
    """Random features of 600 examples."""
    rng = np.random.default_rng(0)
    output = rng.normal(size=(600, 4))
    return Pool(
        hidden=np.maximum(rng.normal(size=(600, 8)), 0),
        output=output,
        prediction=output.argmax(axis=1),
        confidence=confidence(rng),
        coverage=rng.random((600, 30)) < 0.2,
    )
