"""A pool of each format, as its contract reads it: see `lake/test_format_contract.py`."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from encoded_files import grey, npy, tar
from tables import parquet

SIZE = 24


class Written(NamedTuple):
    """A pool of ``SIZE`` examples."""

    uri: str
    columns: dict[str, str]  # as a spec has them
    suffix: str  # of the files that hold examples
    damage: Callable[[bytes], bytes] = lambda content: content[: len(content) // 2 - 5]  # as no reader may overlook


def written_folder(place: Path, files: dict[str, bytes]) -> str:
    """Write files into a folder, and return its path."""
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    return str(place)


def small_table(start: int, stop: int) -> pa.Table:
    """Rows with an id, an array and a prediction."""
    rows = range(start, stop)
    schema = pa.schema([("id", pa.string()), ("x", pa.list_(pa.float64())), ("pred", pa.int64())])
    return pa.table([[f"e{row}" for row in rows], [[float(row), 1.0] for row in rows], list(rows)], schema=schema)


def write_images(place: Path) -> Written:
    return Written(written_folder(place, {f"{row:02}.png": grey(row) for row in range(SIZE)}), {}, ".png")


def write_npy(place: Path) -> Written:
    halves = np.arange(SIZE * 2.0).reshape(2, -1, 2)
    return Written(written_folder(place, {f"{half}.npy": npy(rows) for half, rows in enumerate(halves)}), {}, ".npy")


def write_parquet(place: Path) -> Written:
    files = {f"{start}.parquet": parquet(small_table(start, start + 12), row_group_size=4) for start in (0, 12)}
    return Written(written_folder(place, files), {"id": "id", "array": "x"}, ".parquet")


def write_webdataset(place: Path) -> Written:
    def half(start: int) -> bytes:
        return tar(*((f"{row:02}.png", grey(row)) for row in range(start, start + 12)))

    return Written(
        written_folder(place, {f"{start:02}.tar": half(start) for start in (0, 12)}), {"image": "png"}, ".tar"
    )


def write_huggingface(place: Path) -> Written:
    def arrow(start: int) -> bytes:
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, small_table(0, 0).schema) as writer:
            writer.write_table(small_table(start, start + 12), max_chunksize=4)
        return sink.getvalue()

    files = {f"data-{part:05}-of-00002.arrow": arrow(12 * part) for part in range(2)}
    return Written(written_folder(place, files), {"id": "id", "array": "x"}, ".arrow")


def write_delta(place: Path) -> Written:
    deltalake = pytest.importorskip("deltalake")
    for start in (0, 12):
        deltalake.write_deltalake(str(place), small_table(start, start + 12), mode="append")
    return Written(str(place), {"id": "id", "array": "x"}, ".parquet")


def write_iceberg(place: Path) -> Written:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    place.mkdir(exist_ok=True)
    catalog = SqlCatalog("test", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.pool", small_table(0, 0).schema)
    for start in (0, 12):
        table.append(small_table(start, start + 12))
    return Written(table.location().removeprefix("file://"), {"id": "id", "array": "x"}, ".parquet")


def write_lance(place: Path) -> Written:
    lance = pytest.importorskip("lance")
    for start in (0, 12):
        lance.write_dataset(small_table(start, start + 12), str(place), mode="append" if start else "create")
    return Written(str(place), {"id": "id", "array": "x"}, ".lance")


def write_features(place: Path) -> Written:
    rows = "".join(f"e{row},{row}\n" for row in range(SIZE))
    return Written(
        f"{written_folder(place, {'answers.csv': f'id,pred{chr(10)}{rows}'.encode()})}/answers.csv",
        {"id": "id", "prediction": "pred"},
        ".csv",
        lambda content: content[:-1] + b",1,2",  # half a CSV is one with fewer rows
    )


WRITERS: dict[str, Callable[[Path], Written]] = {
    "images": write_images,
    "npy": write_npy,
    "parquet": write_parquet,
    "webdataset": write_webdataset,
    "huggingface": write_huggingface,
    "delta": write_delta,
    "iceberg": write_iceberg,
    "lance": write_lance,
    "features": write_features,
}
"""Function that writes a pool of ``SIZE`` examples, in two files or more if the format allows that, by format."""
