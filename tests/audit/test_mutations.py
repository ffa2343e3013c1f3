"""No damage is silent: see `mutations.py`; `benchmarks/integrity.py` tries more of it."""

from pathlib import Path

import pytest
from mutations import KINDS, Damage


@pytest.fixture
def damage(tmp_path: Path) -> Damage:
    return Damage(tmp_path, seed=1)


@pytest.mark.slow
def test_no_bit_that_flips_is_silent(damage: Damage) -> None:
    found = damage.flips(24)
    assert found["silent"] == 0
    assert found["named"] + found["refused"] > 12


@pytest.mark.slow
def test_no_file_that_is_cut_lost_mixed_up_or_edited_is_silent(damage: Damage) -> None:
    found = damage.mutations(4 * len(KINDS))
    assert found["silent"] == 0
    assert found["named"] + found["refused"] > 20
