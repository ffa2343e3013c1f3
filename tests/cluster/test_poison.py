"""A shard that always fails is halved to the file or row that does, whatever it is made of."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ray.exceptions import ActorDiedError, GetTimeoutError, RayTaskError

from opacc_ray.cluster import actor_pool
from opacc_ray.lake.examples import Columns, Piece, Rules, Shard
from opacc_ray.lake.formats.parquet import batches
from opacc_ray.lake.logical_schema import place
from opacc_ray.lake.store import Entry
from opacc_ray.lake.store_uris import open_store

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
        assert timeout >= actor_pool.LEAST_SECONDS
        if answer is not None:
            raise answer

    monkeypatch.setattr(actor_pool.ray, "get", get)
    monkeypatch.setattr(actor_pool.ray, "kill", lambda worker: None)


OUT_OF_MEMORY = RayTaskError("try_shard", "Traceback", MemoryError("1 TiB"))


@pytest.mark.parametrize("error", [ActorDiedError(), GetTimeoutError("hangs"), OUT_OF_MEMORY])
@pytest.mark.parametrize("place", range(13))
def test_the_file_that_fails_is_found_in_few_steps(place: int, error: Exception) -> None:
    workers = Workers({f"{place:02d}.png"}, error)
    assert actor_pool.find_poison(Shard(3, FILES), workers, 60) == f"{place:02d}.png"
    assert workers.started <= 5


@pytest.mark.parametrize("unit", units(ROWS))
def test_the_row_that_fails_is_found(unit: tuple[str, int]) -> None:
    found = actor_pool.find_poison(ROWS, Workers({unit}, ActorDiedError()), 60)
    assert found == f"{unit[0]}, row or row group {unit[1]}"


def test_nothing_is_blamed_that_does_not_fail_alone() -> None:
    workers = Workers(set(), ActorDiedError())
    assert actor_pool.find_poison(Shard(3, FILES), workers, 60) is None
    assert actor_pool.find_poison(Shard(3, FILES[:1]), workers, 60) is None


def test_halves_have_the_rows_of_the_whole(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(50)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    store = open_store(str(tmp_path))
    [entry] = store.list()
    layout = tuple(place(name, [table.schema.field(name)], table.schema) for name in ["x"])
    whole = Shard(0, (entry,), (Piece(entry, 1, 8, layout=layout, deleted=np.array([9, 29, 45]).tobytes()),))

    def read(shard: Shard) -> list[tuple[int, int]]:
        found = [
            (batch.rows, batch.columns["x"]) for batch in batches(store, shard, Rules(columns=Columns(array=("x",))))
        ]
        return [(row, x) for rows, values in found for row, x in zip(rows.tolist(), values.to_pylist(), strict=True)]

    first, second = actor_pool._halves(whole)
    assert read(first) + read(second) == read(whole) == [(i, i) for i in range(7, 50) if i not in (9, 29, 45)]
