"""Covariate shift: how far the features of a class have moved from the reference, as a divergence in [0, 1].

S. Mani et al. 2019, sections 4.2.1 and 5.2, after B. Turhan, "On the dataset shift problem in software engineering
prediction models", Empirical Software Engineering 17 (2012): for each class a Gaussian mixture P of the reference and
one Q of the data set, and the Jensen-Shannon divergence between them, in bits:

    JSD(P, Q) = ½ E_P[log₂ 2p/(p + q)] + ½ E_Q[log₂ 2q/(p + q)]                           0: the same, 1: nothing shared

Both means are taken over points drawn from the mixtures (J. R. Hershey, P. A. Olsen, "Approximating the Kullback
Leibler divergence between Gaussian mixture models", ICASSP 2007), which gives a standard error as well.

Deviations. (1) A mixture of 10 components in a hidden layer of 84 neurons has more parameters than a class has
examples: two halves of one set then seem to share nothing. So mixtures are fitted along the class's first principal
directions in the reference, each scaled to unit variance there, with diagonal covariances. (2) Even so two samples of
one distribution differ. The *floor* is the divergence between two disjoint random parts of the reference, the second
as large as the data set's class or half of the reference at most: a shift counts by how far it is above. (3) A class
with few examples is named and not measured. (4) Of many examples some are taken at random, the same for the same seed.

Legend: C classes, m neurons, d directions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.characterize.classes import Grouped, other_width
from opacc_ray.errors import SpecError
from opacc_ray.pool import Pool

Points = NDArray[np.float64]  # (k, d)

LEAST = 200
"""Examples of a class below which its mixture is a guess."""

MOST = 4000
"""Examples of a class that a mixture is fitted to."""


@dataclass(frozen=True)
class Mixtures:
    """How mixtures are fitted and compared.

    Parameters
    ----------
    components : Gaussians of a mixture; the paper takes 10
    directions : d, principal directions of the class in the reference
    points : drawn from each of two mixtures
    seed : of the examples that are taken, the fits and the points
    """

    components: int = 10
    directions: int = 5
    points: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("components", "directions", "points"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name}={getattr(self, name)}: give at least 1")


class Shift(NamedTuple):
    """The shift of one class."""

    value: float  # JSD in [0, 1]
    error: float  # its standard error, from the points that were drawn
    floor: float  # the same between two parts of the reference


def measure_shift(reference: Grouped, data: Grouped, mixtures: Mixtures) -> list[Shift | None]:
    """The shift of each class, (C,); None where the reference has fewer than 2 · LEAST examples, or the data LEAST.

    Raises
    ------
    DataError
        The layers differ in width.
    SpecError
        scikit-learn is not installed.
    """
    _require_scikit_learn()
    rng = np.random.default_rng(mixtures.seed)
    before, after = _samples(reference, rng), _samples(data, rng)
    widths = {rows.shape[1] for rows in (*before, *after) if len(rows)}
    if len(widths) > 1:
        here, there = (next(rows.shape[1] for rows in side if len(rows)) for side in (after, before))
        raise other_width(here, there)
    enough = [len(b) >= 2 * LEAST and len(a) >= LEAST for b, a in zip(before, after, strict=True)]
    pairs = zip(before, after, enough, strict=True)
    return [_shift_of(b, a, mixtures, rng) if ok else None for b, a, ok in pairs]


def _shift_of(before: Points, after: Points, mixtures: Mixtures, rng: np.random.Generator) -> Shift:
    """The shift of a class, from examples of the reference (k, m) and of the data set (n, m), both in random order."""
    centre, project = _directions(before, mixtures.directions)
    before, after = (before - centre) @ project, (after - centre) @ project
    half = min(len(after), len(before) // 2)
    value, error = divergence(_fit(before, mixtures), _fit(after[:MOST], mixtures), mixtures.points, rng)
    floor, _ = divergence(_fit(before[half:], mixtures), _fit(before[:half], mixtures), mixtures.points, rng)
    return Shift(value, error, floor)


def divergence(p: Any, q: Any, num: int, rng: np.random.Generator) -> tuple[float, float]:
    """JSD of two fitted mixtures in [0, 1], and its standard error, from ``num`` points of each."""
    halves = []
    for own, other in ((p, q), (q, p)):
        own.random_state = int(rng.integers(2**31))
        points, _ = own.sample(num)
        here, there = own.score_samples(points), other.score_samples(points)  # (num,) log densities
        halves.append(1 - np.logaddexp(0, there - here) / np.log(2))  # log₂ 2p/(p + q)
    value = float(np.mean([half.mean() for half in halves]))
    error = 0.5 * float(np.sqrt(sum(half.var() / num for half in halves)))
    return min(max(value, 0.0), 1.0), error


def _fit(points: Points, mixtures: Mixtures) -> Any:
    from sklearn.mixture import GaussianMixture

    found = GaussianMixture(
        mixtures.components, covariance_type="diag", reg_covar=1e-3, max_iter=200, tol=1e-3, random_state=mixtures.seed
    )
    return found.fit(points)


def _directions(points: Points, num: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean (m,) of points (k, m), and their first principal directions (m, d), scaled to unit variance."""
    centre = points.mean(axis=0)
    variances, directions = np.linalg.eigh(np.cov(points, rowvar=False).reshape(points.shape[1], -1))
    used = [j for j in np.argsort(-variances)[:num] if variances[j] > 1e-9 * variances.max()]
    return centre, directions[:, used] / np.sqrt(variances[used])


def _samples(data: Grouped, rng: np.random.Generator) -> Sequence[Points]:
    """Features of some examples of each class, in random order."""
    classes = data.classes()
    found = []
    for i in range(data.num_classes):
        own = np.flatnonzero(classes == i)
        taken = rng.permutation(own)[: 2 * MOST]
        rows = data.view.take(part_hidden, taken).astype(np.float64) if len(taken) else np.empty((0, 0))
        found.append(rows)
    return found


def part_hidden(part: Pool, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    assert part.hidden is not None
    return part.hidden[rows]


def _require_scikit_learn() -> None:
    try:
        import sklearn.mixture  # noqa: F401
    except ImportError:
        raise SpecError(
            "the covariate shift needs scikit-learn; pip install 'opacc_ray[characterize]', or leave the shift out"
        ) from None
