"""Drawing examples with unequal probabilities: independently, or a fixed number of distinct ones (π-ps designs).

The latter:
J.-C. Deville, "Une nouvelle (encore une!) méthode de tirage à probabilités inégales", INSEE 9804 (1998), known as
Deville's systematic sampling; G. Chauvet, "On a characterization of ordered pivotal sampling", Bernoulli 18 (2012),
shows that it is the same design as Deville and Tillé's pivotal method in a fixed order.

The inclusion probabilities are laid end to end, in a given order, on a line of length n, which is cut in n strata of
length 1. One example is drawn from each. An example that lies across a cut belongs to two strata; the second draw
depends on whether the first took it, such that it is included with exactly π and never twice. So the sample has exactly
n examples, and along the given order it is spread as evenly as a stratified sample.

Legend: N examples, n to draw, π inclusion probability, σ size.
"""

import numpy as np
from numpy.typing import NDArray

_SURE = 1 - 1e-9
"""From here on, rounding decides whether π is 1."""


def inclusion_probabilities(size: NDArray[np.float64], num: int) -> NDArray[np.float64]:
    """π (N,) proportional to ``size`` (N,) > 0, capped at 1, with sum ``num`` <= N.

    Sizes too large for their share are included for sure, and the rest shares what is left.
    """
    sure = np.zeros(len(size), dtype=bool)
    while True:
        left = num - int(sure.sum())
        scale = left / size[~sure].sum() if left else 0.0
        more = ~sure & (scale * size >= _SURE)
        if not more.any():
            return np.where(sure, 1.0, scale * size)
        sure |= more


def draw_proportional(rng: np.random.Generator, weight: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """``num`` independent draws from the range of ``weight``, each proportional to it."""
    cumulative = np.cumsum(weight)
    last = int(np.flatnonzero(weight)[-1])  # should rounding lead past the end
    place = np.searchsorted(cumulative, rng.random(num) * cumulative[-1], side="right")
    return np.minimum(place, last).astype(np.int64)


def draw_ordered(
    rng: np.random.Generator, probability: NDArray[np.float64], order: NDArray[np.int64]
) -> NDArray[np.int64]:
    """A sample, spread along ``order``, with inclusion probabilities ``probability`` (N,); their sum n is whole.

    Returns (n,) distinct examples: those that are sure, then one per stratum.
    """
    inside = probability[order]
    sure = inside >= _SURE
    unsure = order[~sure]
    return np.concatenate([order[sure], unsure[_one_per_stratum(rng, inside[~sure])]])


def _one_per_stratum(rng: np.random.Generator, probability: NDArray[np.float64]) -> NDArray[np.int64]:
    """Deville's method for probabilities below 1: (n,) places.

    The example across the cut below stratum k has there the chance after / (1 - before) if that stratum has not taken
    it, else none; the others share the remaining chance by their lengths. Both cases are worked out for all strata at
    once, and then followed from the first stratum on.
    """
    num = round(float(probability.sum()))
    if num == 0:
        return np.empty(0, dtype=np.int64)
    end = np.cumsum(probability)
    end *= num / end[-1]  # the sum is whole but for rounding
    cut = np.arange(num)
    across = np.minimum(np.searchsorted(end, cut, side="right"), len(end) - 1)  # (n,) example that lies on each cut
    before = cut - np.where(across > 0, end[across - 1], 0.0)  # (n,) its length in the stratum below
    after = end[across] - cut  # and above
    uniform, chance = rng.random(num), np.minimum(after / (1 - before), 1.0)
    left = (uniform - chance) / np.maximum(1 - chance, 1e-300)  # uniform again, given that it is none of ``chance``
    if_free = np.where(uniform < chance, across, _other(left, cut, across, after, end))
    if_taken = _other(uniform, cut, across, after, end)
    chosen = if_free
    for k in range(1, num):
        if chosen[k - 1] == across[k]:
            chosen[k] = if_taken[k]
    return chosen


def _other(
    uniform: NDArray[np.float64],
    cut: NDArray[np.int64],
    across: NDArray[np.int64],
    after: NDArray[np.float64],
    end: NDArray[np.float64],
) -> NDArray[np.int64]:
    """(n,) examples at ``uniform`` of the way from the end of the one across the cut to the next cut."""
    place = np.searchsorted(end, cut + after + uniform * (1 - after), side="right")
    return np.clip(place, across + 1, len(end) - 1)
