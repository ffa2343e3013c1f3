"""Independent replicates: a method chooses in several random parts of the pool, in each as if it were the whole pool.

Their spread gives a variance to methods that have none; see :mod:`opacc_ray.designs.replicates`.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.replicates import Replicates
from opacc_ray.errors import SpecError
from opacc_ray.parts.subset import subset
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import Draw

Choose = Callable[[View, int | None, int], Draw]
"""Called with part r of the pool, its share of the budget and r; returns the examples chosen there."""


def replicate(
    view: View, num: int, budget: int | None, taken: NDArray[np.int64], rng: np.random.Generator, choose: Choose
) -> Draw:
    """Join the samples that ``choose`` draws from each of ``num`` random parts of the pool.

    Parameters
    ----------
    budget : labels of all replicates together; None for a method that stops by itself
    taken : examples labelled before, which are left out
    choose : must draw from a generator that depends on r

    Returns
    -------
    Draw
        Examples of all replicates in turn. Its facts are those of each replicate.

    Raises
    ------
    SpecError
        If there are fewer than two replicates, or more than examples or labels.
    """
    free = np.delete(np.arange(view.size), taken)
    whole = isinstance(num, int | np.integer) and not isinstance(num, bool)
    if not whole or not 2 <= num <= len(free):
        raise SpecError(
            f"replicates={num!r}: give a whole number from 2 to {len(free)}, the number of unlabelled examples"
        )
    parts = [np.sort(part) for part in np.array_split(rng.permutation(free), num)]
    shares = _shares(budget, num)
    draws = [choose(subset(view, part), share, r) for r, (part, share) in enumerate(zip(parts, shares, strict=True))]
    return _join(draws, parts)


def _shares(budget: int | None, num: int) -> list[int | None]:
    """Divide the budget in shares that differ by at most one."""
    if budget is None:
        return [None] * num
    if budget < num:
        raise SpecError(f"budget={budget} over replicates={num}: every replicate needs a label; give at least {num}")
    return [budget // num + (r < budget % num) for r in range(num)]


def _join(draws: list[Draw], parts: list[NDArray[np.int64]]) -> Draw:
    number = np.repeat(np.arange(len(draws)), [len(drawn.chosen) for drawn in draws])
    place = np.concatenate([np.arange(len(drawn.chosen)) for drawn in draws])
    order = np.lexsort((number, place))  # if labelling stops early, all replicates have labels
    index = np.concatenate([part[drawn.chosen] for part, drawn in zip(parts, draws, strict=True)])
    sizes = np.array([len(part) for part in parts])
    design = Replicates(number[order], sizes, tuple(drawn.design for drawn in draws))
    facts = [drawn.facts for drawn in draws]
    return Draw(index[order], design, {"replicates": facts} if any(facts) else {})
