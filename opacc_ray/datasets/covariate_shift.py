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
sizes. (3) The divergence ignores other directions and has no test. So :mod:`opacc_ray.datasets.exchange` decides
whether a class has moved. (4) A class with few examples is reported, not measured. (5) Of more than 2 · MOST examples a
random subset is used, the same for the same seed.

Legend: C classes, m neurons, d directions.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.datasets.classes import Grouped, check_width, width_of
from opacc_ray.datasets.exchange import Move, exchange, judge
from opacc_ray.errors import SpecError
from opacc_ray.pool import Pool

Points = NDArray[np.float64]  # (k, d)

LEAST = 200
"""Least number of examples of a class for a mixture."""

MOST = 4000
"""Examples of a class used for the mixture of the data set; the reference and the test use twice as many."""

FLOORS = 3
"""Random splits averaged in the floor."""


@dataclass(frozen=True)
class Mixtures:
    """Settings of the Gaussian mixtures.

    Parameters
    ----------
    components : Gaussians per mixture; 10 in the paper
    directions : d, principal directions of the class in the reference
    points : drawn from each of the two mixtures
    seed : of the subset of examples, the fits and the points
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
    """The shift of one class; None if it has too few examples."""

    value: float | None  # JSD in [0, 1]
    error: float | None  # its standard error, from the points that were drawn
    floor: float | None  # the same between random parts of both samples
    move: Move | None


def measure_shift(reference: Grouped, data: Grouped, mixtures: Mixtures) -> list[Shift]:
    """Measure the shift of each class, (C,).

    The divergence is None if the reference has fewer than 2 · LEAST examples of a class, or the data set LEAST.

    Raises
    ------
    DataError
        The layers differ in width.
    SpecError
        scikit-learn is not installed.
    """
    try:
        import sklearn.mixture  # noqa: F401
    except ImportError:
        raise SpecError(
            "the covariate shift needs scikit-learn; pip install 'opacc_ray[characterize]', or omit the shift"
        ) from None
    check_width(width_of(data), width_of(reference))
    rng = np.random.default_rng(mixtures.seed)
    classes = [(one, one.classes()) for one in (reference, data)]
    shifts, exchanged = [], []
    for i in range(data.num_classes):
        before, after = (_sample(one, np.flatnonzero(own == i), rng) for one, own in classes)
        enough = len(before) >= 2 * LEAST and len(after) >= LEAST
        shifts.append(_divergence_of(before, after, mixtures, rng) if enough else Shift(None, None, None, None))
        exchanged.append(exchange(before, after, rng))
    return [shift._replace(move=move) for shift, move in zip(shifts, judge(exchanged), strict=True)]


def _divergence_of(before: Points, after: Points, mixtures: Mixtures, rng: np.random.Generator) -> Shift:
    """Return the divergence of a class, for examples of the reference (k, m) and of the data set (n, m)."""
    project = _directions(before, mixtures.directions)
    before, after = before @ project, after[:MOST] @ project
    value, error = _between(before, after, mixtures, rng)
    both, floors = np.concatenate([before, after]), []
    for _ in range(FLOORS):
        mixed = rng.permutation(both)
        floors.append(_between(mixed[: len(before)], mixed[len(before) :], mixtures, rng)[0])
    return Shift(value, error, float(np.mean(floors)), None)


def _between(before: Points, after: Points, mixtures: Mixtures, rng: np.random.Generator) -> tuple[float, float]:
    return divergence(_fit(before, mixtures), _fit(after, mixtures), mixtures.points, rng)


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


def _fit(points: Points, mixtures: Mixtures) -> Any:
    from sklearn.mixture import GaussianMixture

    found = GaussianMixture(
        mixtures.components, covariance_type="diag", reg_covar=1e-3, max_iter=200, random_state=mixtures.seed
    )
    return found.fit(points)


def _directions(points: Points, num: int) -> NDArray[np.float64]:
    """Return the first principal directions (m, d) of points (k, m), scaled to unit variance."""
    variances, directions = np.linalg.eigh(np.cov(points, rowvar=False).reshape(points.shape[1], -1))
    used = [j for j in np.argsort(-variances)[:num] if variances[j] > 1e-9 * variances.max()]
    return directions[:, used] / np.sqrt(variances[used])


def _sample(data: Grouped, own: NDArray[np.int64], rng: np.random.Generator) -> Points:
    taken = rng.permutation(own)[: 2 * MOST]
    return data.view.take(part_hidden, taken).astype(np.float64) if len(taken) else np.empty((0, 0))


def part_hidden(part: Pool, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    assert part.hidden is not None
    return part.hidden[rows]
