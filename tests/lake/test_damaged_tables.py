"""Files of pools with bytes changed, lost or cut off: examples, bad items or a sentence, never anything else."""

import io
import random
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from tables import parquet

from opacc_ray.errors import OpaccError
from opacc_ray.lake.examples import BadItem, Columns, Example, Rules
from opacc_ray.lake.pools import DEFAULTS, plan_shards, read_examples
from opacc_ray.lake.store_uris import open_store

MUTANTS = 60


def png(level: int) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(np.full((6, 5), level, np.uint8)).save(sink, format="PNG")
    return sink.getvalue()


ROWS = pa.table(
    {
        "id": [f"n{i}" for i in range(40)],
        "image": [png(i) for i in range(40)],
        "x": [[float(i)] * 3 for i in range(40)],
        "n": [*range(40)],
    }
)


def tar() -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as file:
        for i in range(10):
            info = tarfile.TarInfo(f"{i:03d}.png")
            info.size = len(png(i))
            file.addfile(info, io.BytesIO(png(i)))
    return sink.getvalue()


def arrow() -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, ROWS.schema) as writer:
        writer.write_table(ROWS, max_chunksize=10)
    return sink.getvalue()


def mutant(data: bytes, rng: random.Random) -> bytes:
    content = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        place, kind = rng.randrange(len(content)), rng.random()
        if kind < 0.5:
            content[place] = rng.randrange(256)
        elif kind < 0.7:
            del content[max(1, place) :]
        elif kind < 0.85:
            del content[max(1, place) : place + rng.randrange(1, 50)]
        else:  # the end, where Parquet says what is where
            content[max(0, len(content) - rng.randrange(1, 400))] = rng.randrange(256)
    return bytes(content)


@pytest.mark.parametrize("kind", ["parquet", "webdataset", "huggingface"])
def test_damage_never_ends_in_anything_else(kind: str, tmp_path: Path) -> None:
    name, data = {
        "parquet": ("a.parquet", parquet(ROWS, row_group_size=10)),
        "webdataset": ("a.tar", tar()),
        "huggingface": ("a.arrow", arrow()),
    }[kind]
    numbers = Rules(columns=Columns(id="id", array=("x",)), filter="n >= 3")
    rules = [DEFAULTS] if kind == "webdataset" else [numbers, Rules(columns=Columns(image="image"))]
    rng, refused = random.Random(5), 0
    said: list[str] = []
    for number in range(MUTANTS):
        store = open_store(str(tmp_path / str(number)))
        store.write(name, mutant(data, rng))
        rule = rng.choice(rules)
        try:
            for shard in plan_shards(store, kind, 100, rules=rule).shards:
                items = list(read_examples(store, kind, shard, rule))
                assert all(isinstance(item, Example | BadItem) for item in items)
                refused += any(isinstance(item, BadItem) for item in items)
        except OpaccError as error:
            said.append(str(error))
        except MemoryError:  # a length that no machine has
            refused += 1
    assert refused + len(said) > MUTANTS / 8
    assert not any("\n" in text for text in said)
