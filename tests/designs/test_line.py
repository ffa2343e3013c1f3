"""The line on which systematic sampling lays examples end to end."""

import numpy as np

from opacc_ray.designs.drawing import Line, line_lengths

LINE = Line(np.array([7, 2, 9]), np.array([3, 1, 4]))  # 7 from 0 to 2, 2 at 3, 9 from 4 to 7


def test_the_total_is_the_sum_of_the_lengths() -> None:
    assert LINE.total == 8
    assert Line(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)).total == 0


def test_a_place_is_found_by_the_lengths_before_it() -> None:
    found = LINE.find(np.array([0, 2, 3, 4, 7, 0]))
    assert found.index.tolist() == [7, 7, 2, 9, 9, 7]
    assert found.begin.tolist() == [0, 0, 3, 4, 4, 0]
    assert found.end.tolist() == [3, 3, 4, 8, 8, 3]


def test_lengths_are_proportional_and_never_zero() -> None:
    found = line_lengths(np.array([0.5, 0.25, 1e-30]), 2)
    assert found[0] == 2 * found[1]
    assert found[2] == 1
