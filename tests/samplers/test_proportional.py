"""Draws in proportion to a failure score: worked by hand, and the same however the pool is cut."""

from itertools import pairwise

import numpy as np
import pytest

from opacc_ray.parts.view import LocalParts, View
from opacc_ray.pool import Pool
from opacc_ray.samplers.base import NO_PREVIOUS, Draw, Task
from opacc_ray.samplers.select import select
from opacc_ray.samplers.sups import draw_independent, draw_probabilities

N = 1000
RNG = np.random.default_rng(8)
CONFIDENCE, DSA = RNG.beta(6, 1, N), RNG.gamma(2, 1, N)
CUTS = [[], [500], [1, 2, 3, 999], list(range(40, N, 40))]


def cut_view(cuts: list[int]) -> View:
    edges = pairwise([0, *cuts, N])
    return View(
        LocalParts(
            [Pool(confidence=CONFIDENCE[a:b], dsa=DSA[a:b], ids=[str(i) for i in range(a, b)]) for a, b in edges]
        )
    )


def probabilities(scores: list[float], floor: float, labelled: list[int]) -> np.ndarray:
    return draw_probabilities(np.array(scores), floor, np.array(labelled, dtype=np.int64))


class TestProbabilities:
    def test_are_equal_where_all_scores_are_zero(self) -> None:
        assert probabilities([0.0] * 4, 0.1, [2]).tolist() == [1 / 3, 1 / 3, 0, 1 / 3]


def drawn(rng: np.random.Generator, probability: np.ndarray, num: int) -> Draw:
    return draw_independent(rng, probability, Task(num, None, NO_PREVIOUS))


class AlmostOne:
    """A generator whose draws are as near to 1 as they can be."""

    def random(self, num: int) -> np.ndarray:
        return np.full(num, np.nextafter(1.0, 0.0))


def test_rounding_never_leads_to_an_example_of_probability_zero() -> None:
    probability = draw_probabilities(DSA, 0.1, np.arange(950, N))
    assert drawn(AlmostOne(), probability, 3).chosen.tolist() == [949] * 3  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["sups", "two_ups", "ssrs", "gbs"])
def test_samples_of_two_rounds_are_the_same_however_the_pool_is_cut(method: str) -> None:
    found = []
    for cuts in CUTS:
        first = select(cut_view(cuts), method, 30, seed=3, auxiliary="combined")
        outcome = (np.arange(30) % 4 > 0).astype(float)
        second = select(cut_view(cuts), method, 20, seed=3, auxiliary="combined", previous=[(first, outcome)])
        found.append((first.to_json(), second.to_json()))
    assert found == found[:1] * len(CUTS)
