"""Covariate shift: how far the features of a class have moved from the reference, as a divergence in [0, 1].

S. Mani et al. 2019, sections 4.2.1 and 5.2, after B. Turhan, "On the dataset shift problem in software engineering
prediction models", Empirical Software Engineering 17 (2012): for each class a Gaussian mixture P of the reference and
one Q of the data set, and the Jensen-Shannon divergence between them, in bits:

    JSD(P, Q) = ½ E_P[log₂ 2p/(p + q)] + ½ E_Q[log₂ 2q/(p + q)]                           0: the same, 1: nothing shared

Both means are taken over points drawn from the mixtures (J. R. Hershey, P. A. Olsen, "Approximating the Kullback
Leibler divergence between Gaussian mixture models", ICASSP 2007), which gives a standard error as well.

Deviations. (1) A mixture of 10 components in a hidden layer of 84 neurons has more parameters than a class has
examples: two halves of one set then seem to share nothing. So mixtures with diagonal covariances are fitted along the
first principal directions of the class in the reference, each scaled to unit variance there. (2) Even then two samples
of one distribution differ. The *floor* is the mean divergence between random splits of the pooled samples, of the same
sizes. (3) The divergence ignores other directions and has no test. So the test below decides whether a class
has moved. (4) A class with few examples is reported, not measured. (5) Of more than 2 · MOST examples a
random subset is used, the same for the same seed.

A permutation test of two samples decides whether the features of a class have moved by more than chance explains.

Without a move, an example of the reference could as well be one of the data set: every split of both together into two
samples of these sizes is equally likely (R. A. Fisher, "The Design of Experiments", 1935; E. J. G. Pitman 1937). The
test compares the means of the two samples in these variables, each scaled to mean 0 and standard deviation 1 over both:

    position along every principal direction of both samples together, DIRECTIONS_TESTED at most
    length of the position along the first MAIN directions, each scaled to unit variance
    distance from the space of these MAIN directions

The first detects a move in any direction, the other two a change of spread or shape. The statistic is the largest
difference in standard errors. Directions and scales are those of the pooled samples, so they do not depend on the
split, and the null distribution is exact at any size. A p value compares the statistic of a class with the largest one
over all classes in each of EXCHANGES random splits. So the probability of any false alarm, over all variables and
classes, is at most the level (P. H. Westfall, S. S. Young, "Resampling-Based Multiple Testing", Wiley 1993).

The test assumes independent examples: successive frames of a video are not.

Legend: k examples of the reference, n of the data set, m neurons, v variables, d directions, C classes.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.documents import Part
from opacc_ray.extensions.characterize.classes import Grouped, check_width, part_rows, width_of
from opacc_ray.registry import require

Array = NDArray[np.float64]

LEAST_TESTED = 20
"""Least number of examples of a class in each sample for a test."""

MAIN, DIRECTIONS_TESTED = 5, 256
"""Number of main directions, and of directions along which means are compared."""

EXCHANGES = 999
"""Random splits."""

LEVEL = 0.05
"""Probability of a false alarm over all classes."""

_NORMAL_80 = 0.8416
"""80 % quantile of the standard normal distribution."""

_AT_ONCE = 100


class Moved(Part):
    """Whether the features of a class have moved from the reference, by a permutation test."""

    sd: float = Field(ge=0)  # largest difference of means, in standard deviations of the class
    p: float = Field(ge=0, le=1)  # probability of one as large in any class by chance, by random exchange
    # move along one direction, in the same unit, that is found with probability 0.8 at level 0.05
    detects: float = Field(ge=0)


class Exchanged(NamedTuple):
    """The statistic of a class, and those of random splits."""

    statistic: float
    null: Array  # (EXCHANGES,)
    num_before: int
    num_after: int


def exchange(before: Array, after: Array, rng: np.random.Generator) -> Exchanged | None:
    """Compare two samples (k, m), (n, m) with random splits of both together.

    Returns None if a sample has fewer than LEAST_TESTED examples, or all examples are equal.
    """
    if min(len(before), len(after)) < LEAST_TESTED:
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


def judge(found: Iterable[Exchanged | None]) -> list[Moved | None]:
    """Return the move of each class (C,), with p values and power corrected over the tested classes."""
    found = list(found)
    tested = [one for one in found if one]
    if not tested:
        return [None] * len(found)
    null = np.max([one.null for one in tested], axis=0)
    critical = float(np.quantile(null, 1 - LEVEL))

    def move(one: Exchanged) -> Moved:
        p = (1 + int((null >= one.statistic).sum())) / (1 + len(null))
        return Moved(sd=_within(one.statistic, one), p=p, detects=_within(critical + _NORMAL_80, one))

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
    order = np.argsort(-spread)[:DIRECTIONS_TESTED]
    order = order[spread[order] > 1e-9 * spread.max()]
    if width <= size:
        return centred @ vectors[:, order], spread[order]
    return vectors[:, order] * np.sqrt(size * spread[order]), spread[order]


Points = NDArray[np.float64]  # (k, d)

LEAST = 200
"""Least number of examples of a class for a mixture."""

MOST = 4000
"""Examples of a class used for the mixture of the data set; the reference and the test use twice as many."""

FLOORS = 3
"""Random splits averaged in the floor."""


COMPONENTS, DIRECTIONS, POINTS = 10, 5, 10_000
"""Gaussians of a mixture, as in the paper; d; and points drawn from each of two mixtures."""


class Shift(NamedTuple):
    """The shift of one class; None if it has too few examples."""

    value: float | None = None  # JSD in [0, 1]
    error: float | None = None  # its standard error, from the points that were drawn
    floor: float | None = None  # the same between random parts of both samples
    move: Moved | None = None


def measure_shift(reference: Grouped, data: Grouped, seed: int) -> list[Shift]:
    """Measure the shift of each class, (C,).

    ``seed`` is that of the examples, the fits, the points and the test. The divergence is None if the reference has
    fewer than 2 · LEAST examples of a class, or the data set LEAST.

    Raises
    ------
    DataError
        The layers differ in width.
    SpecError
        scikit-learn is not installed.
    """
    require("the covariate shift", "sklearn")
    check_width(width_of(data), width_of(reference))
    rng = np.random.default_rng(seed)
    classes = [(one, one.classes()) for one in (reference, data)]
    shifts, exchanged = [], []
    for i in range(data.num_classes):
        before, after = (_sample(one, np.flatnonzero(own == i), rng) for one, own in classes)
        enough = len(before) >= 2 * LEAST and len(after) >= LEAST
        shifts.append(_divergence_of(before, after, seed, rng) if enough else Shift())
        exchanged.append(exchange(before, after, rng))
    return [shift._replace(move=move) for shift, move in zip(shifts, judge(exchanged), strict=True)]


def _divergence_of(before: Points, after: Points, seed: int, rng: np.random.Generator) -> Shift:
    """Return the divergence of a class, for examples of the reference (k, m) and of the data set (n, m)."""
    project = _directions(before, DIRECTIONS)
    before, after = before @ project, after[:MOST] @ project
    value, error = divergence(_fit(before, seed), _fit(after, seed), POINTS, rng)
    both, floors = np.concatenate([before, after]), []
    for _ in range(FLOORS):
        mixed = rng.permutation(both)
        halves = _fit(mixed[: len(before)], seed), _fit(mixed[len(before) :], seed)
        floors.append(divergence(*halves, POINTS, rng)[0])
    return Shift(value, error, float(np.mean(floors)))


def divergence(p: Any, q: Any, num: int, rng: np.random.Generator) -> tuple[float, float]:
    """Return the JSD of two fitted mixtures in [0, 1] and its standard error, from ``num`` points of each."""
    halves = []
    for own, other in ((p, q), (q, p)):
        own.random_state = int(rng.integers(2**31))
        points, _ = own.sample(num)
        here, there = own.score_samples(points), other.score_samples(points)  # (num,) log densities
        halves.append(1 - np.logaddexp(0, there - here) / np.log(2))  # log₂ 2p/(p + q)
    value = float(np.mean([half.mean() for half in halves]))
    error = 0.5 * float(np.sqrt(sum(half.var() / num for half in halves)))
    return min(max(value, 0.0), 1.0), error


def _fit(points: Points, seed: int) -> Any:
    from sklearn.mixture import GaussianMixture

    found = GaussianMixture(COMPONENTS, covariance_type="diag", reg_covar=1e-3, max_iter=200, random_state=seed)
    return found.fit(points)


def _directions(points: Points, num: int) -> NDArray[np.float64]:
    """Return the first principal directions (m, d) of points (k, m), scaled to unit variance."""
    variances, directions = np.linalg.eigh(np.cov(points, rowvar=False).reshape(points.shape[1], -1))
    used = [j for j in np.argsort(-variances)[:num] if variances[j] > 1e-9 * variances.max()]
    return directions[:, used] / np.sqrt(variances[used])


def _sample(data: Grouped, own: NDArray[np.int64], rng: np.random.Generator) -> Points:
    taken = rng.permutation(own)[: 2 * MOST]
    return data.view.take(part_rows, taken, "hidden").astype(np.float64) if len(taken) else np.empty((0, 0))
