"""The shares that coverage asks for, its probabilities worked by hand, and its estimate over all samples there are."""

import numpy as np
import pytest
from oracles import neyman as reference
from scipy.stats import binom

import opacc_ray as opacc
from opacc_ray.errors import DataError
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.extensions.characterize import coverage
from opacc_ray.parts.view import view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers.base import NO_PREVIOUS, Previous, Task

PARAMETERS = coverage.Parameters(shares=(0.25, 0.75), between=0.2)


def ten() -> Pool:
    """Class 0 has 1 far, 3 near its centroid, 2 near a boundary; class 1 has 1 far, 2 and 1."""
    return Pool(
        hidden=[[10.0], [0], [0], [1], [0], [1], [-9], [-20], [-20], [-20]],
        output=[[2, 1, 0]] * 6 + [[1, 2, 0]] * 4,
        prediction=[0] * 6 + [1] * 4,
        confidence=[0.9, 0.9, 0.8, 0.9, 0.5, 0.6, 0.9, 0.8, 0.9, 0.55],
    )


def test_regions_and_probabilities_are_those_worked_by_hand() -> None:
    """Of class 0 the centroid is 2 and the reach 8; of class 1 -17.25 and 8.25: examples 0 and 6 lie beyond half."""
    ready = coverage.plan(view_of(ten()), Task(4, PARAMETERS, NO_PREVIOUS))
    assert (ready.cell // 2).tolist() == [2, 1, 1, 1, 0, 0, 2, 1, 1, 0]
    # of 4 labels 2.4 near boundaries, 1.2 for each class: 0.6 of two examples, and the one of class 1 for sure
    # what is left, 3 labels, goes by 0.3 to class 0's boundary, 0.2 to centroids, 0.2 between: 3 / 0.7 of each
    share = 3 / 0.7
    expected = [0.1, 0.1 / 3, 0.1 / 3, 0.1 / 3, 0.15, 0.15, 0.1, 0.05, 0.05]
    assert ready.probability[ready.cell] == pytest.approx([*(share * own for own in expected), 1.0], abs=1e-12)
    sure, others = ready.split()
    assert (sure.tolist(), others.tolist()) == ([9], [4, 5, 2, 1, 3, 7, 8, 0, 6])
    drawn = [
        coverage.draw(view_of(ten()), Task(4, PARAMETERS, NO_PREVIOUS), np.random.default_rng(i)) for i in range(5)
    ]
    assert [(len(one.chosen), 9 in one.chosen) for one in drawn] == [(4, True)] * 5


def test_cells_without_examples_have_none_also_the_last_ones() -> None:
    pool = ten()
    pool.hidden[6] = -20  # class 1 has none in between
    ready = coverage.plan(view_of(pool), Task(4, PARAMETERS, NO_PREVIOUS))
    assert ready.size.tolist() == [2, 1, 3, 3, 1, 0]
    assert coverage.Parameters(shares=[0.25, 0.75], between=0.2) == PARAMETERS
    assert sum(coverage.Parameters(shares=[0.3, 0.7 + 9e-10]).shares) > 1  # rounding


def test_over_all_samples_the_estimate_is_the_truth_exactly() -> None:
    failure = np.array([1, 0, 0, 1, 1, 0, 0, 1, 0, 1.0])
    for budget in (2, 3, 4, 6):
        ready = coverage.plan(view_of(ten()), Task(budget, PARAMETERS, NO_PREVIOUS))
        always, order = ready.split()
        probability = ready.probability[ready.cell]
        inclusion, mean = np.zeros(10), 0.0
        for sample, chance in reference.samples(probability[order].tolist()).items():
            drawn = ready.draw(np.concatenate([always, order[sorted(sample)]]))
            assert len(sample) == budget - len(always)
            assert len(drawn.chosen) == budget
            inclusion[drawn.chosen] += chance
            mean += chance * drawn.design.failure_share(failure[drawn.chosen])
        assert inclusion == pytest.approx(probability, abs=1e-12)
        assert mean == pytest.approx(failure.mean(), abs=1e-12)


def pool_of(num: int, seed: int = 0) -> tuple[Pool, np.ndarray]:
    """Four classes with confidences that are right about as often as they say, and outcomes."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, num)
    hidden = np.eye(4, 8)[truth] * 4 + rng.normal(size=(num, 8))
    output = hidden[:, :4] * 1.2
    confidence = 1 / np.exp(output - output.max(1, keepdims=True)).sum(1)
    pool = Pool(hidden=hidden, output=output, prediction=output.argmax(1), confidence=confidence)
    return pool, (output.argmax(1) == truth).astype(float)


def test_a_later_round_counts_what_is_not_labelled_in_the_same_cells() -> None:
    pool, _ = pool_of(600)
    first = coverage.plan(view_of(pool), Task(60, coverage.Parameters(), NO_PREVIOUS))
    labelled = np.flatnonzero(first.cell < 4)[:50]
    later = coverage.plan(view_of(pool), Task(60, coverage.Parameters(), Previous(labelled, np.ones(50))))
    free = np.delete(np.arange(600), labelled)
    assert later.cell[free].tolist() == first.cell[free].tolist()
    assert later.size.tolist() == np.bincount(first.cell[free], minlength=12).tolist()
    assert later.probability[later.cell[free]].sum() == pytest.approx(60, rel=1e-12)
    design = later.draw(free[:60]).design
    assert design.predicted_failures == pytest.approx((1 - pool.confidence[free]).sum(), rel=1e-12)


@pytest.mark.parametrize("shares", [(0.3, 0.7), (0.5, 0.5), (0.7, 0.3)])
def test_labels_go_by_the_shares_evenly_over_classes_and_spread_over_pairs(shares: tuple[float, float]) -> None:
    pool, _ = pool_of(6000)
    ready = coverage.plan(view_of(pool), Task(200, coverage.Parameters(shares=shares), NO_PREVIOUS))
    chosen = opacc.select(pool, "coverage", 200, seed=1, shares=list(shares))
    counts = chosen.facts
    assert counts["between"] == pytest.approx(20, abs=1)
    assert counts["near_centroid"] == pytest.approx(180 * shares[0], abs=1)
    assert counts["near_boundary"] == pytest.approx(180 * shares[1], abs=1)
    near = chosen.index[ready.cell[chosen.index] // 4 == coverage.BOUNDARY]
    per_class = np.bincount(pool.prediction[near], minlength=4)
    assert np.abs(per_class - len(near) / 4).max() <= 1
    pairs = set(zip(pool.prediction[near].tolist(), np.argsort(-pool.output[near], axis=1)[:, 1].tolist(), strict=True))
    assert len(pairs) == 12  # each class beside each other one


@pytest.mark.slow
def test_intervals_hold_the_truth() -> None:
    pool, outcome = pool_of(3000, seed=3)
    drawn = [opacc.select(pool, "coverage", 100, seed=seed) for seed in range(200)]
    found = [estimate_outcomes(chosen, outcome[chosen.index]) for chosen in drawn]
    held = sum(item.low <= outcome.mean() <= item.high for item in found)
    assert held >= binom.ppf(1e-4, len(found), 0.95)
    assert all(item.design_based for item in found)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"shares": [0.3, 0.6]}, r"shares=\[0\.3, 0\.6\]: give two positive shares that sum to 1, centroid first"),
        ({"shares": [1.0, 0.0]}, "share 0 could not be drawn, and no estimate be made"),
        ({"shares": [0.3]}, r"shares=\[0\.3\]: give two numbers"),
        ({"shares": [0.3, 0.7 + 1.1e-9]}, r"shares=\[0\.3, 0\.70000000\d+\]: give two positive shares"),
        ({"between": 0.0}, r"between=0\.0: give a share above 0"),
        ({"between": 1.0}, r"between=1\.0: give a share above 0, .* below 1"),
        ({"boundary": [0.9, 0.2]}, r"boundary=0\.9-0\.2: give two confidences"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict, message: str) -> None:
    with pytest.raises(opacc.OpaccError, match=message):
        coverage.Parameters(**parameters)


@pytest.mark.parametrize("confidence", [7.0, -1.0])
def test_a_confidence_that_cannot_be_is_refused(confidence: float) -> None:
    pool = ten()
    pool.confidence = np.array([confidence, *[0.5] * 9])
    with pytest.raises(DataError, match=rf"confidence of example '0' is {confidence}; it must be in \[0, 1\]"):
        opacc.select(pool, "coverage", 4)


def test_a_class_without_examples_in_a_region_leaves_its_share_to_the_others_there() -> None:
    size = np.array([[100, 0, 200], [100, 100, 100], [0, 0, 300]])  # near a boundary, near the centroid, in between
    found = coverage.probabilities(size.ravel(), coverage.Parameters(), 40).reshape(3, 3) * size
    assert found == pytest.approx(np.array([[12.6, 0, 12.6], [3.6, 3.6, 3.6], [0, 0, 4]]))
