"""A shard that always fails is halved to the file or row that does, whatever it is made of."""

from typing import Any

import pytest
from ray.exceptions import ActorDiedError, GetTimeoutError

from opacc_ray.cluster import poison
from opacc_ray.lake.examples import Piece, Shard
from opacc_ray.lake.store import Entry

FILES = tuple(Entry(f"{i:02d}.png", 1, "") for i in range(13))
TABLES = tuple(Entry(f"{name}.parquet", 1, "") for name in "ab")
ROWS = Shard(0, TABLES, (Piece(TABLES[0], 5, 12), Piece(TABLES[1], 0, 4)))


class Workers:
    """Workers that fail at some units, in a way."""

    def __init__(self, bad: set[Any], error: Exception) -> None:
        self.bad, self.error, self.started = bad, error, 0
        self.machine = self.try_shard = self

    def __call__(self) -> "Workers":
        self.started += 1
        return self

    def remote(self, part: Shard | None = None) -> Exception | None:
        return self.error if part is not None and self.bad & set(units(part)) else None


def units(part: Shard) -> list[Any]:
    rows = [(piece.entry.key, row) for piece in part.pieces for row in range(piece.start, piece.stop)]
    return rows or list(part.keys)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(answer: Exception | None, timeout: float) -> None:
        assert timeout >= poison.LEAST_SECONDS
        if answer is not None:
            raise answer

    monkeypatch.setattr(poison.ray, "get", get)
    monkeypatch.setattr(poison.ray, "kill", lambda worker: None)


@pytest.mark.parametrize("error", [ActorDiedError(), GetTimeoutError("hangs")])
@pytest.mark.parametrize("place", range(13))
def test_the_file_that_fails_is_found_in_few_steps(place: int, error: Exception) -> None:
    workers = Workers({f"{place:02d}.png"}, error)
    assert poison.find_poison(Shard(3, FILES), workers, 60) == f"{place:02d}.png"
    assert workers.started <= 5


@pytest.mark.parametrize("unit", units(ROWS))
def test_the_row_that_fails_is_found(unit: tuple[str, int]) -> None:
    found = poison.find_poison(ROWS, Workers({unit}, ActorDiedError()), 60)
    assert found == f"{unit[0]}, row or row group {unit[1]}"


def test_nothing_is_blamed_that_does_not_fail_alone() -> None:
    workers = Workers(set(), ActorDiedError())
    assert poison.find_poison(Shard(3, FILES), workers, 60) is None
    assert poison.find_poison(Shard(3, FILES[:1]), workers, 60) is None
