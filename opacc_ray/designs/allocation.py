"""Sharing a budget among strata, and drawing each stratum's share at random."""

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import SpecError


def allocate(budget: int, shares: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Whole numbers (H,) near budget · shares, each between 1 and its stratum's size, with the budget as their sum.

    Raises
    ------
    SpecError
        If the budget does not give every stratum an example.
    """
    check_budget(budget, sizes)
    given = np.ones(len(sizes), dtype=np.int64)
    while (left := budget - given.sum()) > 0:
        want = np.maximum(budget * shares - given, 0) * (given < sizes)
        if want.sum() == 0:  # every share is met or full: the rest goes where there is room
            want = shares * (given < sizes)
        if want.sum() == 0:  # which is only in strata without a share
            want = (sizes - given).astype(np.float64)
        ideal = left * want / want.sum()
        add = np.minimum(np.floor(ideal).astype(np.int64), sizes - given)
        if add.sum() == 0:
            add[np.argmax(ideal)] = 1
        given += add
    return given


def check_budget(budget: int, sizes: NDArray[np.int64]) -> None:
    """Raise SpecError unless the budget gives each of the strata an example."""
    if budget < len(sizes) or min(sizes) < 1:
        few, many = min(sizes), max(sizes)
        of = f"{few} to {many}" if few < many else f"{few}"
        raise SpecError(
            f"budget={budget} over {len(sizes)} strata of {of} examples: every stratum needs "
            f"at least one; give a budget of at least {len(sizes)}, or use fewer strata"
        )


def draw_strata(
    rng: np.random.Generator, sizes: NDArray[np.int64], allocation: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Simple random samples of strata of some ``sizes`` (H,): places in the strata (n,), and these, one by one (n,).

    In random order, but that one example of each stratum comes first: should labelling stop early, no stratum is left
    without a label. Within a stratum the order is random, so that its first labels are a simple random sample too.
    """
    drawn = [rng.choice(size, size=num, replace=False) for size, num in zip(sizes, allocation, strict=True)]
    place, stratum = np.concatenate(drawn), np.repeat(np.arange(len(drawn)), allocation)
    is_later = np.ones(len(place), dtype=bool)
    is_later[np.cumsum(allocation) - allocation] = False
    order = np.lexsort((rng.random(len(place)), is_later))
    return place[order], stratum[order]
