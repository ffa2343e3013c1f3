"""The design of a pool that grew: unbiased, and intervals that hold."""

import numpy as np
import pytest

from opacc_ray.designs.inclusion_probability import Grown, inclusion_probabilities
from opacc_ray.errors import DataError, LabelError
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.selection import Selection, read_design

N, OLD_SIZE, GONE, NUM = 1500, 1200, 150, (90, 30)


@pytest.fixture(scope="module")
def pool() -> tuple[np.ndarray, np.ndarray]:
    """Predicted and true failures of all examples: those of the old pool, its last ones gone, then the new ones."""
    random = np.random.default_rng(0)
    p = random.beta(1, 5, OLD_SIZE + N - OLD_SIZE + GONE)
    return p, (random.random(len(p)) < np.clip(1.3 * p, 0, 1)).astype(float)


def sample(random: np.random.Generator, pi: np.ndarray) -> np.ndarray:
    """A systematic sample in random order, with the inclusion probabilities."""
    order = random.permutation(len(pi))
    ends = np.cumsum(pi[order])
    picks = np.searchsorted(ends, random.random() + np.arange(round(ends[-1])))
    return order[np.minimum(picks, len(pi) - 1)]


def grown(random: np.random.Generator, p: np.ndarray) -> tuple[np.ndarray, Grown]:
    """Places among all examples, and the design after growth."""
    old = inclusion_probabilities(np.sqrt(p[:OLD_SIZE] * (1 - p[:OLD_SIZE])) + 0.1, NUM[0])
    new = inclusion_probabilities(np.ones(len(p) - OLD_SIZE), NUM[1])
    kept = sample(random, old)
    kept = kept[kept < OLD_SIZE - GONE]
    drawn = sample(random, new)
    there = np.concatenate([p[: OLD_SIZE - GONE], p[OLD_SIZE:]])
    places = np.concatenate([kept, OLD_SIZE + drawn])
    part = np.repeat([0, 1], [len(kept), len(drawn)])
    return places, Grown(
        inclusion_probability=np.concatenate([old[kept], new[drawn]]),
        predicted_failure=p[places],
        predicted_failures=float(there.sum()),
        population=len(there),
        num_drawn=len(places),
        labelled_before=np.empty(0, dtype=np.int64),
        part=part,
        leverage=np.zeros(len(places)),
        drawn=np.bincount(part),
    )


@pytest.mark.slow
def test_estimates_are_unbiased_and_intervals_hold(pool: tuple[np.ndarray, np.ndarray]) -> None:
    p, failure = pool
    random = np.random.default_rng(1)
    truth = 1 - np.concatenate([failure[: OLD_SIZE - GONE], failure[OLD_SIZE:]]).mean()
    found = []
    for _ in range(1000):
        places, design = grown(random, p)
        selection = Selection(
            "neyman", {}, 0, design.population, np.arange(len(places)), tuple(map(str, places)), design
        )
        found.append(estimate_outcomes(selection, 1 - failure[places]))
    values = np.array([item.value for item in found])
    covers = np.mean([item.low <= truth <= item.high for item in found])
    stated = np.mean([item.standard_error**2 for item in found])
    assert abs(values.mean() - truth) < 4 * values.std() / np.sqrt(len(values))
    assert covers >= 0.931
    assert 0.9 < stated / values.var() < 1.3


def test_missing_labels_of_a_part_count_for_that_part(pool: tuple[np.ndarray, np.ndarray]) -> None:
    p, _ = pool
    places, design = grown(np.random.default_rng(2), p)
    keep = np.ones(len(places), dtype=bool)
    keep[np.flatnonzero(design.part == 1)[::2]] = False
    rest = design.restrict(keep)
    old = design.part == 0
    np.testing.assert_allclose(rest.weights[rest.part == 0], design.weights[old])
    np.testing.assert_allclose(rest.weights[rest.part == 1], 2 * design.weights[~old & keep])
    with pytest.raises(LabelError, match="none of the new or changed examples has a label"):
        _ = design.restrict(old).weights


def test_design_is_saved_without_loss_and_checked(pool: tuple[np.ndarray, np.ndarray]) -> None:
    _, design = grown(np.random.default_rng(3), pool[0])
    again = read_design(design.to_json(), "a file")
    assert again.to_json() == design.to_json()
    assert {"leverage", "inclusion_probability"} <= again.columns().keys()
    with pytest.raises(DataError, match="names a part that drawn"):
        read_design(design.to_json() | {"drawn": [120]}, "a file")
