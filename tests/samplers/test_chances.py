"""The search for the least share that is cheap, and sizes that are sure to be drawn."""

from collections.abc import Sequence

import numpy as np
import pytest

from opacc_ray.samplers.neyman.inclusion import SURE, Capped, least_share


@pytest.mark.parametrize("least", [0.0, 0.1, 0.1001, 0.2, 1 / 3, 0.55, 0.7, 0.99, 1.0])
def test_the_least_share_is_found_to_1e_4_in_few_looks_at_the_pool(least: float) -> None:
    looks = []

    def are_cheap(shares: Sequence[float]) -> list[bool]:
        looks.append(shares)
        assert all(0.1 <= share <= 1 for share in shares)
        assert list(shares) == sorted(shares)
        return [share >= least for share in shares]

    found = least_share(are_cheap, 0.1)
    assert found == 0.1 if least <= 0.1 else least <= found < least + 1e-4
    assert len(looks) <= 8  # the floor, and two halvings at a time: 0.9 / 4**7 < 1e-4


def test_a_size_is_sure_from_the_bound_on() -> None:
    assert Capped(scale=0.5, sure_scale=1.0).of(np.array([2.0, SURE, 0.4])).tolist() == [1.0, 1.0, 0.2]
