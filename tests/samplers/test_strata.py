"""Strata that stay with the parts: those of one array, to the last bit, however the pool is cut."""

from itertools import pairwise

import numpy as np
import pytest

from opacc_ray.designs.kmeans import kmeans_1d
from opacc_ray.parts.view import LocalParts, View
from opacc_ray.pool import Pool
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.strata import cut_strata

N = 3000
CUTS = [[], [1500], [1, 2, 700, 701, 2999], list(range(50, N, 50))]
RNG = np.random.default_rng(4)
CONFIDENCE = {
    "smooth": RNG.beta(6, 1, N),
    "in tenths": RNG.integers(0, 11, N) / 10,
    "one value": np.full(N, 0.7),
    "an outlier": np.concatenate([np.full(N - 1, 0.999), [0.1]]),
}


def view_of(values: np.ndarray, cuts: list[int]) -> View:
    return View(LocalParts([Pool(confidence=values[a:b]) for a, b in pairwise([0, *cuts, len(values)])]))


@pytest.mark.parametrize("cuts", CUTS, ids=map(len, CUTS))
@pytest.mark.parametrize("kind", CONFIDENCE)
@pytest.mark.parametrize("taken", [np.empty(0, dtype=np.int64), np.arange(3, 2900, 7)], ids=["none", "some"])
def test_strata_and_their_spread_are_those_of_one_array(kind: str, cuts: list[int], taken: np.ndarray) -> None:
    view, free = view_of(CONFIDENCE[kind], cuts), np.delete(np.arange(N), taken)
    belief = (1 - CONFIDENCE[kind])[free]
    expected = kmeans_1d(belief, 10)
    members = [free[expected == h] for h in range(expected.max() + 1)]
    strata = cut_strata(view, "confidence", 10, taken)
    assert strata.sizes.tolist() == [len(own) for own in members]
    everyone = np.repeat(np.arange(len(members)), strata.sizes)
    found = strata.find(everyone, np.concatenate([np.arange(size) for size in strata.sizes]))
    assert found.tolist() == np.concatenate(members).tolist()
    assert strata.of(free).tolist() == expected.tolist()
    spread = [np.std(1 - CONFIDENCE[kind][own]) if np.ptp(CONFIDENCE[kind][own]) else 0 for own in members]
    assert strata.deviations(auxiliary.find(view, "confidence")).tolist() == spread


@pytest.mark.parametrize("cuts", CUTS, ids=map(len, CUTS))
def test_examples_that_are_taken_out_of_strata_later(cuts: list[int]) -> None:
    view, taken = view_of(CONFIDENCE["smooth"], cuts), np.arange(0, N, 3)
    stratum = kmeans_1d(1 - CONFIDENCE["smooth"], 4)
    left = cut_strata(view, "confidence", 4, np.empty(0, dtype=np.int64)).without(taken).only(np.array([1, 3]))
    stratum[taken] = -1
    members = np.flatnonzero(stratum == 3)
    assert left.sizes.tolist() == [(stratum == 1).sum(), len(members)]
    assert left.find(np.array([1, 1, 1]), np.array([5, 0, 2])).tolist() == members[[5, 0, 2]].tolist()
