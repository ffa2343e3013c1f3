"""An object as a file: the bytes of any place, in few requests."""

import io
from collections.abc import Sequence

import pytest

from opacc_ray.lake.store import CLOSE, NEAR, READ_AHEAD, ObjectFile, merged

DATA = bytes(i * i % 251 for i in range(400_000))


class Asked:
    """Serves DATA and keeps the ranges that were asked for."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def __call__(self, start: int, stop: int) -> bytes:
        self.ranges.append((start, stop))
        return DATA[start:stop]


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def file(asked: Asked) -> ObjectFile:
    return ObjectFile(asked, len(DATA))


def test_reads_at_any_place_give_its_bytes(file: ObjectFile) -> None:
    for place, size in [(0, 10), (399_990, 10), (399_990, 50), (200_000, 100_000), (7, 0), (400_000, 5), (500_000, 5)]:
        assert file.seek(place) == file.tell() == place
        assert file.read(size) == DATA[place : place + size]
        assert file.tell() == max(place, min(place + size, len(DATA)))
    file.seek(0)
    assert file.read() == DATA
    assert file.read() == b""
    assert io.BufferedReader(ObjectFile(Asked(), len(DATA))).read() == DATA


def test_place_before_the_first_byte_is_refused(file: ObjectFile) -> None:
    with pytest.raises(ValueError, match="cannot seek to -1"):
        file.seek(-1)


def test_small_reads_in_a_row_cost_one_request(file: ObjectFile, asked: Asked) -> None:
    assert b"".join(file.read(100) for _ in range(600)) == DATA[:60_000]
    assert asked.ranges == [(0, READ_AHEAD)]


def test_announced_ranges_cost_nothing_more(file: ObjectFile, asked: Asked) -> None:
    file.load([(300_000, 300_100), (10, 20), (40, 50)])
    assert asked.ranges == [(10, 50), (300_000, 300_100)]
    for start, stop in [(10, 20), (40, 50), (12, 48), (300_000, 300_100)]:
        file.seek(start)
        assert file.read(stop - start) == DATA[start:stop]
    file.load([(15, 45), (300_050, 300_100)])
    assert len(asked.ranges) == 2
    file.seek(300_050)
    assert file.read(100) == DATA[300_050:300_150]  # half of it was not announced
    assert len(asked.ranges) == 3


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], []),
        ([(5, 5)], []),
        ([(0, 10), (10, 20)], [(0, 20)]),
        ([(20, 30), (0, 25)], [(0, 30)]),
        ([(0, 100), (20, 30)], [(0, 100)]),
        ([(0, 1), (1 + CLOSE, 2 + CLOSE)], [(0, 2 + CLOSE)]),
        ([(0, 1), (2 + CLOSE, 3 + CLOSE)], [(0, 1), (2 + CLOSE, 3 + CLOSE)]),
        ([(0, 4 * NEAR), (5 * NEAR, 6 * NEAR)], [(0, 6 * NEAR)]),
        ([(0, 8 * NEAR), (9 * NEAR + 1, 10 * NEAR)], [(0, 8 * NEAR), (9 * NEAR + 1, 10 * NEAR)]),
        ([(0, 2 * NEAR), (3 * NEAR, 4 * NEAR)], [(0, 2 * NEAR), (3 * NEAR, 4 * NEAR)]),
    ],
)
def test_near_ranges_become_one(ranges: Sequence[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    assert merged(ranges) == expected
