"""Drawing a fixed number of distinct examples with unequal probabilities (π-ps designs).

J.-C. Deville, "Une nouvelle (encore une!) méthode de tirage à probabilités inégales", INSEE 9804 (1998), known as
Deville's systematic sampling; G. Chauvet, "On a characterization of ordered pivotal sampling", Bernoulli 18 (2012),
shows that it is the same design as Deville and Tillé's pivotal method in a fixed order.

The inclusion probabilities are laid end to end, in a given order, on a line of length n, which is cut in n strata of
length 1. One example is drawn from each. An example that lies across a cut belongs to two strata; the second draw
depends on whether the first took it, such that it is included with exactly π and never twice. So the sample has exactly
n examples, and along the given order it is spread as evenly as a stratified sample.

Legend: N examples, n to draw, π inclusion probability, σ size.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SURE = 1 - 1e-9
"""From here on, rounding decides whether π is 1."""


def inclusion_probabilities(
    size: NDArray[np.float64], num: int, count: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """π (N,) proportional to ``size`` (N,) > 0, capped at 1, with sum ``num`` <= N.

    Sizes too large for their share are included for sure, and the rest shares what is left. With ``count`` (N,) each
    size is that of so many examples, which may be none.
    """
    sure = np.zeros(len(size), dtype=bool)
    total = size if count is None else size * count
    while True:
        left = num - int(sure.sum() if count is None else count[sure].sum())
        scale = left / total[~sure].sum() if left else 0.0
        more = ~sure & (scale * size >= SURE)
        if not more.any():
            return np.where(sure, 1.0, scale * size)
        sure |= more


@dataclass(frozen=True)
class Found:
    """The examples at some places of a line, (t,) each."""

    index: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]


class Line:
    """Examples end to end, each as long as its probability, in whole units.

    Parameters
    ----------
    index : (N,) the examples in the order of the line
    length : (N,) of each, above 0
    """

    def __init__(self, index: NDArray[np.int64], length: NDArray[np.int64]) -> None:
        self._index, self._end = index, np.cumsum(length)
        self.total = int(self._end[-1]) if len(index) else 0

    def find(self, places: NDArray[np.int64]) -> Found:
        """Return the example that each of ``places`` (t,), from 0 to below the total, is in."""
        at = np.searchsorted(self._end, places, side="right")
        begin = np.where(at > 0, self._end[at - 1], 0)
        return Found(self._index[at], begin, self._end[at])


def lengths(probability: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """Lengths (N,) on a line of ``num`` strata in units so small that all of them fit in 2^61."""
    length = probability * 2.0 ** (61 - int(num).bit_length())
    np.rint(length, out=length)
    return np.maximum(length, 1, out=length).astype(np.int64)


def draw_along(rng: np.random.Generator, line: Line, num: int) -> NDArray[np.int64]:
    """``num`` distinct examples, one per stratum, with the probabilities that their lengths are of a stratum's.

    The example across the cut below stratum k has there the chance after / (1 - before) if that stratum has not taken
    it, else none; the others share the remaining chance by their lengths. The first case, which is nearly all, is
    worked out for all strata at once; then the others are followed from the first stratum on.
    """
    if num == 0:
        return np.empty(0, dtype=np.int64)
    unit = line.total / num  # the lengths sum to a whole number of strata, but for rounding
    cut = np.arange(num)
    across = line.find(np.minimum(np.floor(cut * unit).astype(np.int64), line.total - 1))  # the example on each cut
    before = np.maximum(cut - across.begin / unit, 0.0)  # (n,) its length in the stratum below
    after = np.maximum(across.end / unit - cut, 0.0)  # and above
    uniform, chance = rng.random(num), np.minimum(after / (1 - before), 1.0)
    left = (uniform - chance) / np.maximum(1 - chance, 1e-300)  # uniform again, given that it is none of ``chance``

    def other(strata: NDArray[np.int64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """(s,) examples at ``uniform`` of the way from the end of the one across the cut to the next cut."""
        way = after[strata] + np.maximum(uniform[strata], 0.0) * (1 - after[strata])
        place = np.floor((strata + way) * unit).astype(np.int64)
        return line.find(np.clip(place, across.end[strata], line.total - 1)).index

    chosen = across.index.copy()
    rest = np.flatnonzero(uniform >= chance)
    chosen[rest] = other(rest, left)
    if_taken = other(cut, uniform)  # where the stratum before has taken the one across
    for k in range(1, num):
        if chosen[k - 1] == across.index[k]:
            chosen[k] = if_taken[k]
    return chosen
