"""The search for the least uniform share that is cheap."""

import pytest

from opacc_ray.samplers.neyman.sampling import least_share


@pytest.mark.parametrize("least", [0.0, 0.1, 0.1001, 0.2, 1 / 3, 0.55, 0.7, 0.99, 1.0])
def test_the_least_share_is_found_to_1e_4_in_few_evaluations(least: float) -> None:
    asked: list[float] = []

    def is_cheap(share: float) -> bool:
        asked.append(share)
        return share >= least

    found = least_share(is_cheap, 0.1)
    assert found == 0.1 if least <= 0.1 else least <= found < least + 1e-4
    assert all(0.1 <= share <= 1 for share in asked)
    assert len(asked) <= 15  # the floor, and 0.9 / 2**14 < 1e-4
