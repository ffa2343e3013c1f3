"""Test whether the features of a class have moved by more than chance explains: a permutation test of two samples.

Without a move, an example of the reference could as well be one of the data set: every split of both together into two
samples of these sizes is equally likely (R. A. Fisher, "The Design of Experiments", 1935; E. J. G. Pitman 1937). The
test compares the means of the two samples in these variables, each scaled to mean 0 and standard deviation 1 over both:

    position along every principal direction of both samples together, DIRECTIONS at most
    length of the position along the first MAIN directions, each scaled to unit variance
    distance from the space of these MAIN directions

The first detects a move in any direction, the other two a change of spread or shape. The statistic is the largest
difference in standard errors. Directions and scales are those of the pooled samples, so they do not depend on the
split, and the null distribution is exact at any size. A p value compares the statistic of a class with the largest one
over all classes in each of EXCHANGES random splits. So the probability of any false alarm, over all variables and
classes, is at most the level (P. H. Westfall, S. S. Young, "Resampling-Based Multiple Testing", Wiley 1993).

The test assumes independent examples: successive frames of a video are not.

Legend: k examples of the reference, n of the data set, m neurons, v variables, C classes.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST = 20
"""Least number of examples of a class in each sample for a test."""

MAIN, DIRECTIONS = 5, 256
"""Number of main directions, and of directions along which means are compared."""

EXCHANGES = 999
"""Random splits."""

LEVEL = 0.05
"""Probability of a false alarm over all classes."""

_NORMAL_80 = 0.8416
"""80 % quantile of the standard normal distribution."""

_AT_ONCE = 100


class Move(NamedTuple):
    """The move of a class between two samples, and its p value."""

    sd: float  # the largest difference of means, in standard deviations of the class
    p: float  # probability of such a statistic in any class by chance
    detects: float  # move along one direction that is detected with a probability of 80 % at LEVEL, in the same unit


class Exchanged(NamedTuple):
    """The statistic of a class, and those of random splits."""

    statistic: float
    null: Array  # (EXCHANGES,)
    num_before: int
    num_after: int


def exchange(before: Array, after: Array, rng: np.random.Generator) -> Exchanged | None:
    """Compare two samples (k, m), (n, m) with random splits of both together.

    Returns None if a sample has fewer than LEAST examples, or all examples are equal.
    """
    if min(len(before), len(after)) < LEAST:
        return None
    values = variables(np.concatenate([before, after]))  # (k + n, v)
    if not values.shape[1]:
        return None
    mark = np.arange(len(values)) < min(len(before), len(after))
    scale = np.sqrt(1 / len(before) + 1 / len(after))
    null = np.empty(EXCHANGES)
    for start in range(0, EXCHANGES, _AT_ONCE):
        rows = min(_AT_ONCE, EXCHANGES - start)
        chosen = rng.permuted(np.broadcast_to(mark.astype(np.float64), (rows, len(mark))), axis=1)
        null[start : start + rows] = np.abs(chosen @ values).max(axis=1)
    statistic = float(np.abs(values[: len(before)].sum(axis=0)).max())  # all sum to 0, so either sample does
    return Exchanged(statistic * scale, null * scale, len(before), len(after))


def judge(found: Iterable[Exchanged | None]) -> list[Move | None]:
    """Return the move of each class (C,), with p values and power corrected over the tested classes."""
    found = list(found)
    tested = [one for one in found if one]
    if not tested:
        return [None] * len(found)
    null = np.max([one.null for one in tested], axis=0)
    critical = float(np.quantile(null, 1 - LEVEL))

    def move(one: Exchanged) -> Move:
        p = (1 + int((null >= one.statistic).sum())) / (1 + len(null))
        return Move(_within(one.statistic, one), p, _within(critical + _NORMAL_80, one))

    return [one and move(one) for one in found]


def _within(statistic: float, one: Exchanged) -> float:
    """Convert a difference of means from standard errors to standard deviations within a sample."""
    k, n = one.num_before, one.num_after
    over_both = statistic * np.sqrt(1 / k + 1 / n)
    return float(over_both / np.sqrt(max(1 - k * n / (k + n) ** 2 * over_both**2, 1e-6)))


def variables(points: Array) -> Array:
    """Return the compared variables (k + n, v) of points (k + n, m), without constant ones."""
    centred = points - points.mean(axis=0)
    along, spread = _positions(centred)
    main = along[:, :MAIN]
    length = np.sqrt((main**2 / spread[:MAIN]).sum(axis=1))
    distance = np.sqrt(np.maximum((centred**2).sum(axis=1) - (main**2).sum(axis=1), 0))
    found = np.column_stack([along, length, distance])
    found -= found.mean(axis=0)
    scale = found.std(axis=0)
    varies = scale > 1e-6 * scale.max()
    return found[:, varies] / scale[varies]


def _positions(centred: Array) -> tuple[Array, Array]:
    """Return positions (k + n, directions) along the first principal directions, and their variances, largest first."""
    size, width = centred.shape
    product = centred.T @ centred if width <= size else centred @ centred.T  # the smaller one
    spread, vectors = np.linalg.eigh(product / size)
    order = np.argsort(-spread)[:DIRECTIONS]
    order = order[spread[order] > 1e-9 * spread.max()]
    if width <= size:
        return centred @ vectors[:, order], spread[order]
    return vectors[:, order] * np.sqrt(size * spread[order]), spread[order]
