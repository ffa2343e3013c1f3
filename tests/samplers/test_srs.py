"""Simple random samples over rounds, by enumeration of all samples of a pool of six."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from unclipped import estimate_sample, unclipped_estimate

import opacc_ray as opacc
from opacc_ray.estimation.sample import Rounds
from opacc_ray.samplers.select import select

OUTCOME = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.25])
POOL = opacc.Pool(prediction=np.zeros(6, dtype=np.int64))


@pytest.mark.parametrize("num_before", [0, 1, 2, 3])
def test_variance_of_a_round_is_unbiased_whatever_was_labelled_before(num_before: int) -> None:
    """A round draws from what is left, so its variance is that of samples of what is left."""
    before = opacc.select(POOL, "srs", num_before, 0) if num_before else None
    previous = [(before, OUTCOME[before.index])] if before else []
    drawn = select(POOL, "srs", 2, 0, previous=previous)
    left = np.setdiff1d(np.arange(6), before.index if before else [])
    samples = [OUTCOME[list(sample)] for sample in combinations(left, 2)]
    stated = [estimate_sample(drawn.design, sample, 0.95).standard_error ** 2 for sample in samples]
    assert np.mean(stated) == pytest.approx(np.var([sample.mean() for sample in samples]), rel=1e-12)


def test_draws_with_replacement_are_from_the_whole_pool() -> None:
    first = opacc.select(POOL, "srs", 3, 0)
    drawn = select(POOL, "srs", 2, 0, previous=[(first, OUTCOME[first.index])], replacement=True)
    assert drawn.design.population == 6


def test_a_round_with_replacement_is_unbiased_after_a_round_that_looked_for_failures() -> None:
    """Over all 36 draws of two it says the truth, and so the two rounds say (w_1 of the first) + (w_2 of the truth),
    before what is stated is cut at what the labels leave possible.
    """
    first = opacc.select(POOL, "srs", 3, 0)
    first = replace(first, index=np.array([1, 4, 5]), ids=("1", "4", "5"))  # the worst
    drawn = select(POOL, "srs", 2, 0, previous=[(first, OUTCOME[first.index])], replacement=True)
    values = []
    for pair in product(range(6), repeat=2):
        second = replace(drawn, index=np.array(pair), ids=tuple(map(str, pair)))
        values.append(unclipped_estimate([first, second], [OUTCOME[first.index], OUTCOME[second.index]], 0.95).value)
    weight = Rounds([first, drawn]).weight
    expected = weight @ [OUTCOME[first.index].mean(), OUTCOME.mean()]
    assert np.mean(values) == pytest.approx(expected, abs=1e-12)
