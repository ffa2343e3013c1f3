"""EP, CP, BC and PBC worked by hand, in parts, and in the direction that a changed data set moves them."""

import itertools
import pickle
from typing import Any

import numpy as np
import pytest

from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.characterize.classes import (
    Grouped,
    Metrics,
    Regions,
    centroid_distances,
    find_clusters,
    measure,
)
from opacc_ray.parts.view import LocalParts, View, view_of
from opacc_ray.pool import Pool

HIDDEN = [[0, 0], [4, 0], [2, 2], [2, -2], [2, 0], [10, 1], [10, -1], [10, 3], [10, -3], [0, 9], [0, 11], [6, 10]]
CLASS = [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
OUTPUT = [
    [9, 1, 0],
    [5, 4, 3],  # near the boundary to 1
    [9, 0, 1],
    [5, 3, 4],  # to 2
    [9, 1, 0],
    [4, 5, 3],  # 1 to 0
    [0, 9, 1],
    [4, 5, 1],  # 1 to 0
    [0, 9, 1],
    [0, 1, 9],
    [3, 4, 5],  # 2 to 1
    [0, 0, 9],
]
CONFIDENCE = [0.99, 0.6, 0.99, 0.7, 0.99, 0.5, 0.99, 0.65, 0.98, 0.97, 0.55, 0.99]
"""Twelve examples: five of class 0 around (2, 0), four of class 1 around (10, 0), three of class 2 around (2, 10)."""


def twelve() -> Pool:
    return Pool(hidden=HIDDEN, output=OUTPUT, prediction=CLASS, confidence=CONFIDENCE)


def test_the_four_dimensions_are_those_worked_by_hand() -> None:
    """Distances: class 0 has 2, 2, 2, 2, 0; class 1 has 1, 1, 3, 3; class 2 has √5, √5, 4.

    Half of the largest is 1, 1.5, 2. With r = 0.6 the radii are 1.2, 1.8 and 2.4, so that
    the two of class 2 at √5 = 2.236 are inside.
    """
    found = measure(Grouped(view_of(twelve()), 3), Regions(radius=0.5))
    assert found.ep.tolist() == [5 * 3 / 12, 4 * 3 / 12, 3 * 3 / 12]
    assert found.cp.tolist() == [1 / 5, 2 / 4, 0]
    assert found.bc.tolist() == [2 / 5, 2 / 4, 1 / 3]  # 0.7 itself is near
    assert found.pbc.tolist() == [[0, 1 / 5, 1 / 5], [2 / 4, 0, 0], [0, 1 / 3, 0]]
    assert measure(Grouped(view_of(twelve()), 3), Regions(radius=0.6)).cp.tolist() == [1 / 5, 2 / 4, 2 / 3]
    assert measure(Grouped(view_of(twelve()), 3), Regions(radius=1 / 3)).cp[1] == 2 / 4  # two lie at the radius itself
    assert measure(Grouped(view_of(twelve()), 3), Regions(low=0.55, high=0.65)).bc.tolist() == [1 / 5, 1 / 4, 1 / 3]


def test_a_labelled_set_is_grouped_by_its_labels_and_a_misprediction_is_near_what_was_predicted() -> None:
    label = np.array(CLASS)
    label[1] = 1  # predicted 0 with confidence 0.6
    found = measure(Grouped(view_of(twelve()), 3, label), Regions())
    assert found.num.tolist() == [4, 5, 3]
    assert found.bc[1] == 3 / 5
    assert found.pbc[1].tolist() == [3 / 5, 0, 0]


def test_of_two_classes_the_other_one_is_the_strongest_other_also_where_one_output_serves_for_both() -> None:
    pool = Pool(output=[[-1.0], [0.1], [3.0], [-0.2]], prediction=[0, 1, 1, 0], confidence=[0.9, 0.6, 0.99, 0.55])
    found = measure(Grouped(view_of(pool), 2), Regions())
    assert found.pbc.tolist() == [[0, 1 / 2], [1 / 2, 0]]


def test_with_a_reference_centroids_and_reach_are_the_references() -> None:
    reference = find_clusters(Grouped(view_of(twelve()), 3))
    assert reference.centroid.tolist() == [[2, 0], [10, 0], [2, 10]]
    assert reference.reach.tolist() == [2, 3, 4]
    moved = Pool(hidden=np.add(HIDDEN, [1.2, 0]), prediction=CLASS, confidence=CONFIDENCE)
    found = measure(Grouped(view_of(moved), 3), Regions(), reference)
    # distances 0.8, 3.2, 2.3, 2.3, 1.2 against 1; 1.6, 1.6, 3.2, 3.2 against 1.5; 1.6, 1.6, 5.2 against 2
    assert found.cp.tolist() == [1 / 5, 0, 2 / 3]
    assert found.pbc is None


def pool_of(num: int, seed: int = 0, classes: int = 4, width: int = 7) -> Pool:
    rng = np.random.default_rng(seed)
    output = rng.normal(size=(num, classes)) * 3
    hidden = rng.normal(size=(num, width)) + output.argmax(1)[:, None]
    confidence = 1 / np.exp(output - output.max(1, keepdims=True)).sum(1)
    return Pool(hidden=hidden, output=output, prediction=output.argmax(1), confidence=confidence)


def plain(pool: Pool, classes: int, regions: Regions) -> Metrics:
    """The formulas as they are written."""
    group, n = pool.prediction, pool.size
    num = np.array([(group == i).sum() for i in range(classes)])
    near = (pool.confidence >= regions.low) & (pool.confidence <= regions.high)
    second = np.argsort(-pool.output, axis=1, kind="stable")[:, 1]
    cp, bc, pbc = np.empty(classes), np.empty(classes), np.empty((classes, classes))
    for i in range(classes):
        own = group == i
        x = pool.hidden[own].astype(np.float64)
        away = np.linalg.norm(x - x.mean(0), axis=1)
        cp[i] = (away / away.max() <= regions.radius).mean()
        bc[i] = near[own].mean()
        pbc[i] = [(near & (second == j))[own].mean() for j in range(classes)]
    return Metrics(num, num * classes / n, cp, bc, pbc)


class Travelling(LocalParts):
    """Parts whose calls and answers are pickled, as to actors and back."""

    def call(self, calls: Any) -> Any:
        return pickle.loads(pickle.dumps(super().call(pickle.loads(pickle.dumps(calls)))))


@pytest.mark.parametrize("bounds", [[0, 30_000], [0, 1, 8000, 8003, 22_000, 30_000]])
def test_parts_give_what_the_plain_formulas_give(bounds: list[int]) -> None:
    pool, regions = pool_of(30_000), Regions()
    names = ("hidden", "output", "prediction", "confidence")
    cut = [Pool(**{k: getattr(pool, k)[a:b] for k in names}) for a, b in itertools.pairwise(bounds)]
    found, expected = measure(Grouped(View(Travelling(cut)), 4), regions), plain(pool, 4, regions)
    for name in Metrics._fields:
        assert np.abs(getattr(found, name) - getattr(expected, name)).max() <= 1e-12, name


def test_a_few_sums_at_a_time_give_the_centroids_of_all_at_once() -> None:
    pools = [pool_of(20_000, seed) for seed in range(3)]

    def centroid(at_once: int) -> bytes:
        return find_clusters(Grouped(View(LocalParts(pools)), 4), at_once).centroid.tobytes()

    assert centroid(1) == centroid(3 * 4 * 2) == centroid(3 * 4 * 7)


def test_distances_of_one_view_are_those_of_the_labels_that_it_is_grouped_by() -> None:
    view, centroid = view_of(twelve()), np.array([[2.0, 0], [10, 0], [2, 10]])
    for label in (None, np.zeros(12, np.int64), np.full(12, 2)):
        own = centroid[CLASS if label is None else label]
        found = centroid_distances(Grouped(view, 3, label), centroid)
        assert found == pytest.approx(np.linalg.norm(HIDDEN - own, axis=1))


def test_a_class_of_one_has_no_centroid_positioning_and_one_never_predicted_nothing_but_ep() -> None:
    output = np.hstack([OUTPUT, np.zeros((12, 1))])
    few = Pool(hidden=HIDDEN, output=output, prediction=[0] * 11 + [2], confidence=CONFIDENCE)
    found = measure(Grouped(view_of(few), 4), Regions())
    assert found.num.tolist() == [11, 0, 1, 0]
    assert found.ep.tolist() == [11 * 4 / 12, 0, 4 / 12, 0]
    assert np.isnan(found.cp).tolist() == [False, True, True, True]
    assert np.isnan(found.bc).tolist() == [False, True, False, True]
    assert np.isnan(found.pbc[[1, 3]]).all()
    pair = Pool(hidden=[[0.0], [2.0], [9.0]], prediction=[0, 0, 1], confidence=[0.6, 0.9, 0.5])
    found, clusters = measure(Grouped(view_of(pair), 2), Regions(radius=1)), find_clusters(Grouped(view_of(pair), 2))
    assert found.cp == pytest.approx([1, np.nan], nan_ok=True)
    assert found.bc == pytest.approx([0.5, 1])
    assert (clusters.centroid.tolist(), clusters.reach.tolist()) == ([[1], [9]], [1, 0])


def test_one_clear_sentence_for_each_thing_that_cannot_be() -> None:
    with pytest.raises(SpecError, match=r"radius=0: give a share"):
        Regions(radius=0)
    with pytest.raises(SpecError, match=r"radius=1.01: give a share"):
        Regions(radius=1.01)
    assert Regions(radius=1, low=0.7, high=0.7).low == 0.7
    with pytest.raises(SpecError, match=r"boundary=0\.8-0\.7: give two confidences"):
        Regions(low=0.8)
    with pytest.raises(DataError, match=r"example '2' is 3, and the model has 3 classes"):
        Grouped(view_of(twelve()), 3, np.array([0, 0, 3, *CLASS[3:]]))
    with pytest.raises(DataError, match=r"there are 5 labels for 12 examples"):
        Grouped(view_of(twelve()), 3, np.zeros(5, dtype=np.int64))
    wide = find_clusters(Grouped(view_of(Pool(hidden=np.ones((3, 5)), prediction=[0, 1, 2])), 3))
    with pytest.raises(DataError, match=r"2 neurons here and 5 in the reference; give a reference with features"):
        measure(Grouped(view_of(twelve()), 3), Regions(), wide)
    with pytest.raises(DataError, match=r"predicts 0\.5, which is not one of the 3 classes, 0 to 2"):
        measure(Grouped(view_of(Pool(hidden=np.ones((3, 5)), prediction=[0.5, 1, 2])), 3), Regions())
    output = Pool(output=np.ones((4, 5)), prediction=[0, 1, 2, 2], confidence=[0.5] * 4)
    with pytest.raises(DataError, match=r"the output layer has 5 neurons, and there are 3 classes"):
        measure(Grouped(view_of(output), 3), Regions())
    with pytest.raises(DataError, match="class 1 is not finite"):
        find_clusters(Grouped(view_of(Pool(hidden=[[1.0], [np.nan], [2.0]], prediction=[0, 1, 2])), 3))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_confidence_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(DataError, match=f"confidence of example '1' is {value}"):
        measure(Grouped(view_of(Pool(prediction=[0, 1], confidence=[0.5, value])), 2), Regions())


def test_equal_examples_are_all_near_their_centroid_and_a_class_without_any_has_no_reach() -> None:
    data = Grouped(view_of(Pool(hidden=np.ones((4, 2)), prediction=[0, 0, 0, 0])), 2)
    assert np.array_equal(find_clusters(data).reach, [0, np.nan], equal_nan=True)
    found = measure(data, Regions()).cp
    assert found is not None
    assert found[0] == 1
