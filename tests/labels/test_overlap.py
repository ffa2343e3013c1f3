"""Who labels what: everything once, the doubled share by two different people, the same whoever asks."""

import pytest

from opacc_ray.labels.overlap import deal, doubled

IDS = [f"{i:04d}.png" for i in range(1000)]


def test_the_share_is_exact_nested_and_the_same_for_any_order() -> None:
    few, many = doubled(IDS, 0.2, "run"), doubled(IDS[::-1], 0.35, "run")
    assert (len(few), len(many)) == (200, 350)
    assert few < many
    assert doubled(IDS, 0, "run") == frozenset()
    assert doubled(IDS, 0.2, "another run") != few


def test_every_example_is_as_likely_to_be_doubled() -> None:
    num_runs = 300
    first_half = [len(doubled(IDS, 0.2, str(run)) & set(IDS[:500])) for run in range(num_runs)]
    # Hypergeometric: mean 100, variance 200 · ¼ · 800/999.
    assert abs(sum(first_half) / num_runs - 100) < 4 * (200 * 0.25 * 800 / 999 / num_runs) ** 0.5


@pytest.mark.parametrize("names", [["ann", "bob"], ["ann", "bob", "cy"], list("abcdefg")])
def test_examples_are_dealt_once_and_doubled_ones_to_two_people(names: list[str]) -> None:
    twice = doubled(IDS, 0.3, "run")
    dealt = deal(IDS, names, twice)
    for id in IDS:
        assert sum(id in own for own in dealt.values()) == 1 + (id in twice)
    assert all(len(set(own)) == len(own) and own == sorted(own) for own in dealt.values())
    assert max(map(len, dealt.values())) - min(map(len, dealt.values())) < 60


def test_everybody_shares_examples_with_everybody() -> None:
    dealt = deal(IDS, ["ann", "bob", "cy"], frozenset(IDS))
    for first, second in [("ann", "bob"), ("bob", "cy"), ("ann", "cy")]:
        assert len(set(dealt[first]) & set(dealt[second])) > 300
