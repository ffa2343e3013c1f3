"""Test drawing among unlabelled examples, lengths on a line, and sharing a budget among strata."""

import numpy as np
import pytest

from opacc_ray.designs.inclusion_probability import line_lengths
from opacc_ray.designs.simple_random import unlabelled_index
from opacc_ray.errors import SpecError
from opacc_ray.samplers.auxiliary import allocate


def test_unlabelled_index_counts_the_free_examples() -> None:
    taken = np.array([0, 1, 4, 9])
    assert unlabelled_index(np.arange(6), taken).tolist() == [2, 3, 5, 6, 7, 8]
    assert unlabelled_index(np.arange(3), np.empty(0, dtype=np.int64)).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("budget", "shares", "sizes", "given"),
    [
        (10, [0.2, 0.4, 0.4], [80, 10, 10], [2, 4, 4]),
        (3, [0.98, 0.01, 0.01], [50, 50, 50], [1, 1, 1]),  # every stratum is seen
        (100, [0.2, 0.4, 0.4], [80, 10, 10], [80, 10, 10]),  # what a small stratum cannot take goes on
        (60, [0.2, 0.4, 0.4], [80, 10, 10], [40, 10, 10]),
        (20, [0.0, 1.0, 0.0], [40, 5, 20], [10, 5, 5]),  # only strata without a share have room
    ],
)
def test_allocation(budget: int, shares: list[float], sizes: list[int], given: list[int]) -> None:
    assert allocate(budget, np.array(shares), np.array(sizes)).tolist() == given


def test_refuses_a_budget_below_the_number_of_strata_in_one_short_sentence() -> None:
    sizes = np.arange(1, 5001)
    with pytest.raises(SpecError, match="budget=100 over 5000 strata of 1 to 5000 examples") as error:
        allocate(100, np.full(5000, 1 / 5000), sizes)
    assert len(str(error.value)) < 200


def test_lengths_are_proportional_and_never_zero() -> None:
    found = line_lengths(np.array([0.5, 0.25, 1e-30]), 2)
    assert found[0] == 2 * found[1]
    assert found[2] == 1
