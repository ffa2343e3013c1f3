"""Pools of every format on a Ray cluster that somebody else has started, as with RAY_ADDRESS, `submit` and `fleet`."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import deltalake
import lance
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyiceberg.catalog.sql import SqlCatalog
from tables import parquet

from opacc_ray.audit import verbs
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs import feature_store
from opacc_ray.spec import PoolSpec, parse_spec

N = 12
VALUES = np.random.default_rng(1).integers(0, 256, (N, 2)).astype(np.uint8)  # an example is two numbers
EXPECTED = VALUES.argmax(1).tolist()


def table() -> pa.Table:
    columns = {"id": [*range(N)], "a": VALUES[:, 0].astype(np.float64), "b": VALUES[:, 1].astype(np.float64)}
    return pa.table(columns | {"scores": VALUES.astype(np.float64).tolist()})


def png(i: int) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(VALUES[i : i + 1]).save(sink, "png")
    return sink.getvalue()


def images(store: Store) -> None:
    store.write_many((f"{i:02d}.png", png(i)) for i in range(N))


def npy(store: Store) -> None:
    sink = io.BytesIO()
    np.save(sink, VALUES.astype(np.float32))
    store.write("a.npy", sink.getvalue())


def webdataset(store: Store) -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for i in range(N):
            info = tarfile.TarInfo(f"{i:02d}.png")
            info.size = len(png(i))
            tar.addfile(info, io.BytesIO(png(i)))
    store.write("a.tar", sink.getvalue())


def huggingface(store: Store) -> None:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table().schema) as writer:
        writer.write_table(table())
    store.write("data-00000-of-00001.arrow", sink.getvalue())


def iceberg(store: Store) -> None:
    catalog = SqlCatalog("test", uri="sqlite:///:memory:")
    catalog.create_namespace("db")
    catalog.create_table("db.pool", schema=table().schema, location=store.uri).append(table())


WRITE: dict[str, Callable[[Store], Any]] = {
    "images": images,
    "npy": npy,
    "parquet": lambda store: store.write("a.parquet", parquet(table())),
    "webdataset": webdataset,
    "huggingface": huggingface,
    "delta": lambda store: deltalake.write_deltalake(store.uri, table()),
    "iceberg": iceberg,
    "lance": lambda store: lance.write_dataset(table(), store.uri),
    "features": lambda store: store.write("a.parquet", parquet(table())),
}
"""What writes a pool, by its format: all of them."""

SEVERAL = {"columns": {"id": "id", "array": ["a", "b"]}}
COLUMNS: dict[str, dict[str, Any]] = dict.fromkeys(("parquet", "huggingface", "delta", "iceberg", "lance"), SEVERAL)
COLUMNS["features"] = {"columns": {"id": "id", "output": ["a", "b"]}}


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("kind", get_args(PoolSpec.model_fields["format"].annotation))
def test_a_pool_is_audited_on_a_cluster_that_is_joined(kind: str, tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    WRITE[kind](open_store(str(tmp_path / "pool")))
    content = {
        "name": "joined",
        "pool": {"uri": str(tmp_path / "pool"), "format": kind} | COLUMNS.get(kind, {}),
        "extract": {"actors": 1},
        "sample": {"method": "srs", "budget": 4},
        "output": str(tmp_path / "audits"),
    }
    if kind != "features":
        content["model"] = {"function": "numpy_model:first_two"}
    run = verbs.run(parse_spec(content, "spec"), trial=True)
    assert feature_store.read_column(run, "prediction").tolist() == EXPECTED
    assert len(run.read_selection(1)) == 4
