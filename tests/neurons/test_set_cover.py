"""HGS: hand-worked covers, equality with the plain transcription, and what a cover must be."""

import itertools

import numpy as np
import pytest
from covering import cover
from oracles import hgs as reference

from opacc_ray.errors import DataError
from opacc_ray.neurons.set_cover import all_of, choose, met_by, num_met, rank_requirements
from opacc_ray.parts.view import LocalParts, View
from opacc_ray.pool import Pool


def _matrix(seed: int) -> np.ndarray:
    """Coverage with many ties: few or many examples and requirements, dense or thin, with repeats of both."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(1, 90), rng.integers(1, 200)
    coverage = rng.random((rows, columns)) < rng.beta(0.4, 1.5, columns) * rng.uniform(0.1, 1)
    coverage = coverage[:, rng.integers(columns, size=columns)] if seed % 3 == 0 else coverage
    return coverage[rng.integers(rows, size=rows)] if seed % 2 == 0 else coverage


ADVERSARIAL = {
    "identity": np.eye(70, dtype=bool),
    "all": np.ones((20, 130), dtype=bool),
    "none": np.zeros((5, 9), dtype=bool),
    "one row": np.array([[True, False, True]]),
    "one column": np.ones((6, 1), dtype=bool),
    "triangle": np.tri(66, dtype=bool),
    "one of each of 3 groups": np.eye(24, dtype=bool)[np.arange(72) % 24].reshape(24, 72),
    "63, 64 and 65 requirements of one cardinality": np.kron(np.eye(3, dtype=bool), np.ones((2, 64), dtype=bool))[
        :, 1:
    ],
}


def test_requirements_that_any_part_meets_are_counted_once() -> None:
    coverage = _matrix(4)
    parts = [Pool(coverage=rows) for rows in np.array_split(coverage, 3)]
    assert num_met(View(LocalParts(parts))) == coverage.any(axis=0).sum()


def test_examples_meet_together_what_any_of_them_meets() -> None:
    coverage = np.random.default_rng(1).random((9, 200)) < 0.2
    view = View(LocalParts([Pool(coverage=rows) for rows in np.array_split(coverage, 2)]))
    requirements = rank_requirements(view)
    for index in ([], [3], [0, 5], [1, 4, 7, 8]):
        met = met_by(view, requirements, np.array(index, dtype=np.int64))
        assert met.shape == all_of(requirements).shape
        assert np.bitwise_count(met).sum() == coverage[index].any(axis=0).sum()
    everything = met_by(view, requirements, np.arange(9))
    assert np.array_equal(everything, all_of(requirements))


def test_hand_worked_cover() -> None:
    # Requirements a..e are met by {0}, {1, 2}, {1, 3}, {2, 3, 4}, {3, 4, 5}.
    # Cardinality 1: 0. Cardinality 2: example 1 meets both. Cardinality 3: 3 and 4 meet both; 3 is the lower.
    coverage = np.zeros((6, 5), dtype=bool)
    for requirement, rows in enumerate([[0], [1, 2], [1, 3], [2, 3, 4], [3, 4, 5]]):
        coverage[rows, requirement] = True
    assert cover(coverage).tolist() == [0, 1, 3]


def test_a_tie_is_looked_ahead_through_the_cardinalities_that_occur() -> None:
    # 0 and 1 tie for a, which only they meet; 1 and 2..4 meet b (cardinality 4), 0 meets nothing else.
    coverage = np.zeros((5, 2), dtype=bool)
    coverage[[0, 1], 0] = True
    coverage[[1, 2, 3, 4], 1] = True
    assert cover(coverage).tolist() == [1]
    assert cover(coverage, lookahead=1).tolist() == [1]  # the next that occurs, though 3 lies between
    assert cover(coverage, lookahead=0).tolist() == [0, 1]


@pytest.mark.parametrize("seed", range(30))
def test_equals_the_plain_transcription(seed: int) -> None:
    coverage = _matrix(seed)
    for lookahead in (None, 0, 1, 3):
        assert cover(coverage, lookahead).tolist() == reference.cover(coverage, lookahead)


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_equals_the_plain_transcription_on_adversarial_coverage(name: str) -> None:
    coverage = ADVERSARIAL[name]
    for lookahead in (None, 0, 2):
        assert cover(coverage, lookahead).tolist() == reference.cover(coverage, lookahead)


def test_covers_all_that_is_covered_and_chooses_nobody_twice() -> None:
    for coverage in map(_matrix, range(30)):
        chosen = cover(coverage)
        assert np.array_equal(coverage[chosen].any(axis=0), coverage.any(axis=0))
        assert len(set(chosen.tolist())) == len(chosen)


def test_is_no_larger_than_the_greedy_cover_on_twenty_random_matrices() -> None:
    # No theorem: where all requirements are about equally rare, greedy often wins. It does not where they vary.
    for seed in range(20):
        rng = np.random.default_rng(seed)
        coverage = rng.random((120, 300)) < rng.beta(0.4, 3, 300)
        assert len(cover(coverage)) <= len(reference.greedy(coverage))


@pytest.mark.parametrize("seed", range(6))
def test_packed_bits_are_the_same_coverage(seed: int) -> None:
    coverage = _matrix(seed)
    assert np.array_equal(cover(np.packbits(coverage, axis=1)), cover(coverage))


@pytest.mark.parametrize("seed", range(6))
def test_parts_do_not_change_the_cover(seed: int) -> None:
    coverage = _matrix(100 + seed)
    rng = np.random.default_rng(seed)
    cuts = [0, *np.sort(rng.integers(1, len(coverage), 3)).tolist(), len(coverage)]
    parts = [Pool(coverage=coverage[a:b]) for a, b in itertools.pairwise(cuts) if a < b]
    assert _cover_of(View(LocalParts(parts))) == cover(coverage).tolist()


def test_a_part_that_has_forgotten_gives_the_same_cover() -> None:
    class Forgetful(LocalParts):
        def call(self, calls):  # every call finds new actors
            self.pools = [Pool(coverage=pool.coverage) for pool in self.pools]
            return super().call(calls)

    coverage = _matrix(7)
    assert _cover_of(View(Forgetful([Pool(coverage=coverage[:20]), Pool(coverage=coverage[20:])]))) == list(
        cover(coverage)
    )


def _cover_of(view: View) -> list[int]:
    requirements = rank_requirements(view)
    unmet, chosen = all_of(requirements), []
    while unmet.any():
        index, met = choose(view, requirements, unmet)
        unmet = unmet & ~met
        chosen.append(index)
    return chosen


@pytest.mark.parametrize("coverage", [np.zeros(4, dtype=bool), np.zeros((4, 3)), np.zeros((4, 3), dtype=np.int64)])
def test_refuses_what_is_neither_bool_nor_bits(coverage: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"coverage has shape .* dtype .*give one row per example"):
        cover(coverage)
