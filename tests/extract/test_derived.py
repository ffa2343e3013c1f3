"""The cache of derived values returns the same bits, or nothing."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from opacc_ray.extract import feature_files
from opacc_ray.extract.feature_files import Derived
from opacc_ray.lake.store_uris import open_store

RNG = np.random.default_rng(0)
WIDE = np.iinfo(np.int64)
NUMBERS = {
    "directions": RNG.normal(1e9, 3e9, (50, 3)).astype(np.int64),
    "confidence": RNG.beta(6, 1, (50, 1)),
    "classes": RNG.integers(0, 7, (50, 1)),
    "one class": np.full((50, 1), 3),
    "nothing": np.zeros((50, 2)),
    "whole range": np.array([[WIDE.min], [WIDE.max], [0], [-1]] * 12 + [[5], [6]]),
    "floats of all kinds": np.array([[np.nan], [-np.inf], [np.inf], [-0.0], [5e-324]] * 10),
}


def kept_in(folder: Path, digests: Sequence[str | None] = ("a", "b")) -> Derived:
    return Derived(open_store(str(folder)), 50, lambda name: digests)


@pytest.mark.parametrize("rows", [50, 49, 20, 7])
@pytest.mark.parametrize("values", NUMBERS.values(), ids=NUMBERS)
def test_numbers_come_back_bit_for_bit_however_they_are_cut(
    values: np.ndarray, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_files, "ROWS", rows)
    kept_in(tmp_path).keep("it", 50, iter(np.split(values, [13, 30])))
    assert len(list(tmp_path.iterdir())) == -(-50 // rows)
    found = list(kept_in(tmp_path).recall("it", np.array([0, 1, 25, 50])))
    assert [len(own) for own in found] == [1, 24, 25]
    whole = np.concatenate(found)
    assert whole.dtype == values.dtype
    assert np.array_equal(whole.view(np.int64), values.view(np.int64))


def test_nothing_is_taken_of_files_that_are_not_the_same_or_not_known(tmp_path: Path) -> None:
    kept_in(tmp_path).keep("it", 50, iter([NUMBERS["classes"]]))
    for digests in (["a", "c"], ["a", None]):
        assert not list(kept_in(tmp_path, digests).recall("it", np.array([0, 50])))


def test_flipped_bit_never_changes_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = NUMBERS["directions"]
    kept_in(tmp_path).keep("it", 50, iter([values]))
    [path] = tmp_path.iterdir()
    sound, lost = path.read_bytes(), 0
    for place in range(0, len(sound), 3):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1 << place % 8]) + sound[place + 1 :])
        found = list(kept_in(tmp_path).recall("it", np.array([0, 50])))
        lost += not found
        assert all(np.array_equal(own, values) for own in found), place
    assert lost > len(sound) / 6
    assert "it is computed again" in caplog.text


def test_files_that_are_mixed_up_are_not_taken(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    kept.keep("a", 50, iter([NUMBERS["confidence"]]))
    kept.keep("b", 50, iter([NUMBERS["confidence"][::-1]]))
    paths = {path.name.partition("-")[0]: path for path in tmp_path.iterdir()}
    paths["b"].replace(paths["a"])
    assert not list(kept_in(tmp_path).recall("a", np.array([0, 50])))
