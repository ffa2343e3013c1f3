"""Guided generation: feature vectors in requested shares near the centroids and near the boundaries of classes.

S. Mani et al. 2019, https://arxiv.org/abs/1911.07309, Algorithm 1 and section 4.1. Examples of a class near its
boundary are moved along lines to centroids, x' = x + t(c - x), such that x' is in the requested region:

    near the centroid    c the centroid of its own class;  |x' - c| ≤ r · reach
    near a boundary      c the centroid of the strongest other class, towards or away from it;  the judge's
                         confidence in x' is in [θ₁, θ₂]; from an example near a boundary at most half of the way

The judge is the model's own rest of the network, from the layer of the features to its outputs, or a stand-in for it:
:mod:`opacc_ray.datasets.head`.

The oracle consists of the paper's properties of a classifier. The class of x' is that of x, and the judge should give
it the largest probability. Towards its own centroid, the probability of its class must not fall, and that of a wrongly
predicted class must not rise. Towards the other centroid, the probability of its own class must not rise and that of
the other class must not fall; away from it the reverse. A move that breaks a property is a *violation*. A vector counts
as correct if it is predicted as its class and does not violate.

After a ReLU no feature is below 0, so a negative value of x' becomes 0. A layer counts as rectified if the data set has
no negative feature.

Deviations. (1) The paper does not specify "optimizing w.r.t. x distribution"; here t is drawn uniformly from the values
with x' in its region. (2) Every class gets equally many vectors (EP = 1). (3) A class with no example near a boundary
starts from the examples of least confidence, which are counted. (4) Near a boundary the true class of a vector is
uncertain, and the label of x may be wrong for it: accuracy there is a stress test, not an estimate.

Legend: N examples, m neurons, C classes, n vectors, r, θ₁, θ₂ as in :mod:`opacc_ray.datasets.class_coverage`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.datasets.class_coverage import Regions, is_near
from opacc_ray.datasets.classes import Clusters, Grouped, blocks
from opacc_ray.datasets.covariate_shift import part_hidden
from opacc_ray.datasets.head import Judge
from opacc_ray.errors import DataError, SpecError
from opacc_ray.pool import Pool

MOST, LEAST = 400, 20
"""Maximum number of start examples of a class; number of least confident ones if none is near a boundary."""

STEPS = np.concatenate([np.arange(-50, 0), np.arange(1, 101)]) / 100
"""Steps t towards the other centroid; negative steps lead away from it."""

HALF = 0.5
"""Share of the way to the other centroid beyond which a vector is unlikely to keep the class of its example."""

_ROUNDING = 1e-6
"""Rounding error of float32, relative to distances and features."""

_EQUAL = 1e-5
"""Largest difference of two probabilities of one vector: a network rounds to float32, by the number of rows too."""

AT_ONCE = 1 << 24
"""Numbers of the vectors that are judged at a time."""


class Sources(NamedTuple):
    """Examples near the boundaries of their classes, from which vectors start."""

    example: NDArray[np.int64]  # (k,) its place in the data set
    hidden: NDArray[np.float32]  # (k, m)
    label: NDArray[np.int64]  # (k,)
    far: NDArray[np.int64]  # classes without an example near a boundary, which use the least confident ones
    rectified: bool  # whether no feature of the data set is negative, as after a ReLU


class Vectors(NamedTuple):
    """Generated feature vectors and the predictions of the judge."""

    hidden: NDArray[np.float32]  # (n, m)
    label: NDArray[np.int64]  # (n,) the class of its source example
    near_centroid: NDArray[np.bool_]  # (n,) requested region; False: near a boundary
    source: NDArray[np.int64]  # (n,) that example, in the data set
    towards: NDArray[np.int64]  # (n,) class of the centroid of its line
    step: NDArray[np.float64]  # (n,) t
    predicted: NDArray[np.int64]  # (n,)
    confidence: NDArray[np.float64]  # (n,)
    violates: NDArray[np.bool_]  # (n,)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Return which vectors (n,) are predicted as their class without a violation."""
        return (self.predicted == self.label) & ~self.violates


def find_sources(
    data: Grouped, judge: Judge, clusters: Clusters, regions: Regions, rng: np.random.Generator
) -> Sources:
    """Find examples of each class near its boundary by the judge's confidence, at most MOST per class.

    A class without two different examples is left out.

    Raises
    ------
    DataError
        Fewer than two classes have examples, or none has two different ones.
    """
    if (clusters.num > 0).sum() < 2:
        raise DataError(
            f"all {data.view.size} examples belong to one class, but vectors are generated between classes; give a "
            "labelled --reference with examples of several classes"
        )
    confidence = np.concatenate(data.view.map(part_confidence, judge))
    classes = data.classes()
    near = is_near(confidence, regions)
    taken, far = [], []
    for i in np.flatnonzero(inner_radius(clusters, regions) > 0).tolist():
        own = np.flatnonzero(classes == i)
        found = rng.permutation(own[near[own]])[:MOST]
        if not len(found):
            found = own[np.argsort(confidence[own], kind="stable")[:LEAST]]
            far.append(i)
        taken.append(found)
    if not taken:
        raise DataError(
            "no class has two different examples, so no vectors can be generated; give a larger --reference"
        )
    index = np.concatenate(taken)
    rectified = min(data.view.map(part_least_feature)) >= 0
    return Sources(index, data.view.take(part_hidden, index), classes[index], np.array(far, dtype=np.int64), rectified)


def generate(
    sources: Sources,
    judge: Judge,
    clusters: Clusters,
    regions: Regions,
    share: float,
    num: int,
    rng: np.random.Generator,
) -> Vectors:
    """Generate ``num`` vectors, a ``share`` of them near centroids and the others near boundaries.

    Raises
    ------
    SpecError
        Fewer than 1 vector, or a share outside [0, 1].
    DataError
        No vector of a class can be in its region.
    """
    if num < 1 or not 0 <= share <= 1:
        raise SpecError(f"{num} vectors with a share of {share} near centroids: give at least 1, and a share in [0, 1]")
    near = np.arange(num) < round(share * num)
    present = np.unique(sources.label)
    label = np.empty(num, dtype=np.int64)
    for part in (near, ~near):  # equally many of each class in each region
        label[part] = rng.permutation(np.resize(rng.permutation(present), int(part.sum())))
    source, towards, step = np.empty(num, dtype=np.int64), np.empty(num, dtype=np.int64), np.empty(num)
    for i in present.tolist():
        wanted = np.flatnonzero((label == i) & near)
        if len(wanted):
            source[wanted] = rng.choice(np.flatnonzero(sources.label == i), len(wanted))
            towards[wanted] = i
            step[wanted] = _to_centroid(sources.hidden[source[wanted]], clusters, i, regions, rng)
        wanted = np.flatnonzero((label == i) & ~near)
        if len(wanted):
            drawn = _to_boundary(i, sources, judge, clusters, regions, len(wanted), rng)
            source[wanted], towards[wanted], step[wanted] = drawn
    hidden = _move(sources.hidden[source], clusters.centroid[towards], step, sources.rectified)
    before, after = judge.probabilities(sources.hidden[source]), judge.probabilities(hidden)
    violates = _violations(before, after, label, towards, near, step)
    example, predicted, confidence = sources.example[source], after.argmax(axis=1), after.max(axis=1)
    return Vectors(hidden, label, near, example, towards, step, predicted, confidence, violates)


def inner_radius(clusters: Clusters, regions: Regions) -> NDArray[np.float64]:
    """Return the radius of each class (C,), less the rounding of float32; 0 or less if all examples are equal."""
    largest = np.abs(np.nan_to_num(clusters.centroid)).max(axis=1)
    reach = np.nan_to_num(clusters.reach)
    return regions.radius * reach - _ROUNDING * (reach + largest)


def _to_centroid(
    hidden: NDArray[np.float32], clusters: Clusters, i: int, regions: Regions, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw steps (n,) that move examples (n, m) of class i within its radius."""
    away = np.linalg.norm(hidden - clusters.centroid[i], axis=1)
    least = np.clip(1 - inner_radius(clusters, regions)[i] / np.maximum(away, 1e-300), 0, 1)
    return least + (1 - least) * rng.random(len(hidden))


def _move(
    hidden: NDArray[np.float32], centroid: NDArray[np.float64], step: NDArray[np.float64], rectified: bool
) -> NDArray[np.float32]:
    """Return x + t(c - x), not below 0 in a rectified layer."""
    found = (hidden + step[:, None] * (centroid - hidden)).astype(np.float32)
    return np.maximum(found, 0) if rectified else found


def _to_boundary(
    i: int, sources: Sources, judge: Judge, clusters: Clusters, regions: Regions, num: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Draw sources of class i, each with its strongest other class and a step towards it into the region, (num,)."""
    own = rng.permutation(np.flatnonzero(sources.label == i))
    fits, towards = np.empty((0, len(STEPS)), dtype=bool), np.empty(0, dtype=np.int64)
    while len(fits) < len(own) and (len(fits) < num or not fits.any()):  # a network is slow: no more lines than needed
        more = own[len(fits) : len(fits) + num]
        found, others = _fitting_steps(i, sources.hidden[more], sources.rectified, judge, clusters, regions)
        fits, towards = np.concatenate([fits, found]), np.concatenate([towards, others])
    possible = np.flatnonzero(fits.any(axis=1))
    if not len(possible):
        raise DataError(
            f"no example of class {i} can be moved to a confidence in the range of the boundary; widen --boundary"
        )
    line = rng.choice(possible, num)
    order = rng.random((num, len(STEPS))) * fits[line]
    return own[line], towards[line], STEPS[order.argmax(axis=1)]


def _fitting_steps(
    i: int, hidden: NDArray[np.float32], rectified: bool, judge: Judge, clusters: Clusters, regions: Regions
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which steps lead examples (k, m) of class i into the region, (k, STEPS), and the classes towards which."""
    output = judge.probabilities(hidden)
    begins_near = is_near(output.max(axis=1), regions)
    output[:, i] = -1
    output[:, np.isnan(clusters.centroid).any(axis=1)] = -1
    towards = output.argmax(axis=1)
    row, step = np.divmod(np.arange(len(hidden) * len(STEPS)), len(STEPS))
    near = np.empty(len(row), dtype=bool)
    rows_at_once = max(AT_ONCE // hidden.shape[1], 1)
    for start in range(0, len(row), rows_at_once):
        some = slice(start, start + rows_at_once)
        moved = _move(hidden[row[some]], clusters.centroid[towards[row[some]]], STEPS[step[some]], rectified)
        near[some] = is_near(judge.probabilities(moved).max(axis=1), regions)
    return near.reshape(len(hidden), -1) & (~begins_near[:, None] | (STEPS <= HALF)), towards


def _violations(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    label: NDArray[np.int64],
    towards: NDArray[np.int64],
    near_centroid: NDArray[np.bool_],
    step: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Return which moves (n,) break a property, from the judge's probabilities (n, C) before and after."""
    rows, rise, wrong = np.arange(len(before)), after - before, before.argmax(axis=1)
    own, other, ahead = rise[rows, label], rise[rows, towards], np.sign(step)
    other_falls = (wrong == label) | (rise[rows, wrong] <= _EQUAL)
    return ~np.where(
        near_centroid, (own >= -_EQUAL) & other_falls, (ahead * own <= _EQUAL) & (ahead * other >= -_EQUAL)
    )


def in_region(vectors: Vectors, clusters: Clusters, regions: Regions) -> NDArray[np.bool_]:
    """Return which vectors (n,) are in the requested region."""
    away = np.linalg.norm(vectors.hidden - clusters.centroid[vectors.label], axis=1)
    near_boundary = (vectors.confidence >= regions.low - _EQUAL) & (vectors.confidence <= regions.high + _EQUAL)
    return np.where(vectors.near_centroid, away <= regions.radius * clusters.reach[vectors.label], near_boundary)


def part_least_feature(part: Pool) -> float:
    assert part.hidden is not None
    return float(part.hidden.min())


def part_confidence(part: Pool, judge: Judge) -> NDArray[np.float64]:
    """Return the judge's confidence in each example of a part, (n,)."""
    assert part.hidden is not None
    found = [judge.probabilities(part.hidden[rows]).max(axis=1) for rows in blocks(part.size)]
    return np.concatenate(found)
