"""Draws in proportion to belief: those of one array, to the last bit, however the pool is cut."""

from itertools import pairwise

import numpy as np
import pytest
from oracles.proportional import draw_probabilities, draw_proportional

from opacc_ray.parts.view import LocalParts, View
from opacc_ray.pool import Pool
from opacc_ray.samplers.proportional import draw_in_parts, find_lifted, part_probability
from opacc_ray.samplers.select import select

N = 1000
RNG = np.random.default_rng(8)
CONFIDENCE, DSA = RNG.beta(6, 1, N), RNG.gamma(2, 1, N)
CUTS = [[], [500], [1, 2, 3, 999], list(range(40, N, 40))]


def view_of(cuts: list[int]) -> View:
    edges = pairwise([0, *cuts, N])
    return View(
        LocalParts(
            [Pool(confidence=CONFIDENCE[a:b], dsa=DSA[a:b], ids=[str(i) for i in range(a, b)]) for a, b in edges]
        )
    )


class TestProbabilities:
    def test_are_proportional_to_belief_above_the_floor(self) -> None:
        p = probabilities([0.0, 0.01, 1.0, 2.0, 2.0], 0.1, [])  # mean 1.002
        assert p.sum() == pytest.approx(1)
        assert p[3] / p[2] == pytest.approx(2)
        assert p[0] == p[1] == pytest.approx(0.1002 * p[2])

    def test_leave_out_the_labelled(self) -> None:
        p = probabilities([9.0, 1.0, 0.0, 3.0], 0.3, [0])
        np.testing.assert_allclose(p, np.array([0, 1, 0.4, 3]) / 4.4)  # floor 0.3 · mean 4/3

    def test_are_equal_where_nothing_is_believed(self) -> None:
        assert probabilities([0.0] * 4, 0.1, [2]).tolist() == [1 / 3, 1 / 3, 0, 1 / 3]


def probabilities(beliefs: list[float], floor: float, taken: list[int]) -> np.ndarray:
    """Those of a pool with these beliefs: an LSA that is never negative is taken as it is."""
    view, rows = View(LocalParts([Pool(lsa=beliefs)])), np.array(taken, dtype=np.int64)
    lifted = find_lifted(view, "lsa", floor, rows)
    return np.concatenate(view.map(part_probability, lifted, rows))


def test_draws_in_proportion_and_never_what_has_no_weight() -> None:
    view = View(LocalParts([Pool(lsa=[0.0, 3.0, 0.0]), Pool(lsa=[1.0, 0.0])]))
    drawn = draw_in_parts(np.random.default_rng(1), view, part_weight, [(), ()], 20_000).chosen
    assert set(drawn.tolist()) == {1, 3}
    assert np.mean(drawn == 1) == pytest.approx(0.75, abs=0.015)


def part_weight(part: Pool) -> np.ndarray:
    assert part.lsa is not None
    return part.lsa


@pytest.mark.parametrize("cuts", CUTS, ids=map(len, CUTS))
def test_draws_and_probabilities_are_those_of_one_array(cuts: list[int]) -> None:
    view, taken = view_of(cuts), np.concatenate([np.arange(40, 80), [999]])  # a whole part, and the last example
    expected = draw_probabilities(1 - CONFIDENCE, 0.3, taken)
    lifted = find_lifted(view, "confidence", 0.3, taken)
    arguments = [(lifted, own) for own in view.rows_of(taken)]
    assert np.concatenate(view.map_each(part_probability, arguments)).tolist() == expected.tolist()
    drawn = draw_in_parts(np.random.default_rng(2), view, part_probability, arguments, 5000)
    assert drawn.chosen.tolist() == draw_proportional(np.random.default_rng(2), expected, 5000).tolist()
    assert drawn.probability.tolist() == expected[drawn.chosen].tolist()
    assert drawn.least == expected[expected > 0].min()


class AlmostOne:
    """A generator whose draws lie as far right as they can."""

    def random(self, num: int) -> np.ndarray:
        return np.full(num, np.nextafter(1.0, 0.0))


@pytest.mark.parametrize("cuts", CUTS, ids=map(len, CUTS))
def test_rounding_never_leads_to_an_example_without_a_probability(cuts: list[int]) -> None:
    view, taken = view_of(cuts), np.arange(950, N)
    lifted = find_lifted(view, "dsa", 0.1, taken)
    arguments = [(lifted, own) for own in view.rows_of(taken)]
    drawn = draw_in_parts(AlmostOne(), view, part_probability, arguments, 3)  # type: ignore[arg-type]
    assert drawn.chosen.tolist() == [949] * 3


@pytest.mark.parametrize("method", ["sups", "two_ups", "ssrs", "gbs"])
def test_samples_of_two_rounds_are_the_same_however_the_pool_is_cut(method: str) -> None:
    found = []
    for cuts in CUTS:
        first = select(view_of(cuts), method, 30, seed=3, auxiliary="combined")
        outcome = (np.arange(30) % 4 > 0).astype(float)
        second = select(view_of(cuts), method, 20, seed=3, auxiliary="combined", previous=[(first, outcome)])
        found.append((first.to_json(), second.to_json()))
    assert found == found[:1] * len(CUTS)
