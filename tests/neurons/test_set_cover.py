"""HGS: hand-worked covers, equality with the plain transcription, and what a cover must be."""

import itertools

import numpy as np
import pytest
from covering import cover
from oracles import hgs as reference

from opacc_ray.errors import DataError
from opacc_ray.neurons.requirements import all_of, choose, num_met, rank_requirements
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


def test_hand_worked_cover() -> None:
    # Requirements a..e are met by {0}, {1, 2}, {1, 3}, {2, 3, 4}, {3, 4, 5}.
    # Cardinality 1: 0. Cardinality 2: example 1 meets both. Cardinality 3: 3 and 4 meet both; 3 is the lower.
    coverage = np.zeros((6, 5), dtype=bool)
    for requirement, rows in enumerate([[0], [1, 2], [1, 3], [2, 3, 4], [3, 4, 5]]):
        coverage[rows, requirement] = True
    assert cover(coverage).tolist() == [0, 1, 3]


@pytest.mark.parametrize("seed", range(8))
def test_equals_the_plain_transcription(seed: int) -> None:
    coverage = _matrix(seed)
    for lookahead in (None, 0, 1, 3):
        assert cover(coverage, lookahead).tolist() == reference.cover(coverage, lookahead)


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_equals_the_plain_transcription_on_adversarial_coverage(name: str) -> None:
    coverage = ADVERSARIAL[name]
    for lookahead in (None, 0, 2):
        assert cover(coverage, lookahead).tolist() == reference.cover(coverage, lookahead)


@pytest.mark.parametrize("seed", range(6))
def test_parts_do_not_change_the_cover(seed: int) -> None:
    coverage = _matrix(100 + seed)
    rng = np.random.default_rng(seed)
    cuts = [0, *np.sort(rng.integers(1, len(coverage), 3)).tolist(), len(coverage)]
    parts = [Pool(coverage=coverage[a:b]) for a, b in itertools.pairwise(cuts) if a < b]
    assert _cover_of(View(LocalParts(parts))) == cover(coverage).tolist()


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
