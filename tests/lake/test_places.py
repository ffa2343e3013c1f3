"""What the URI of a pool may name: a folder, one file, or a pattern of files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from encoded_files import npy, tar
from tables import parquet

from opacc_ray.errors import DataError, SpecError, StorageError
from opacc_ray.lake.pools import pattern_of_keys
from opacc_ray.lake.store_uris import open_store
from opacc_ray.spec import open_pool, parse_spec, plan_pool

ROWS = parquet(pa.table({"id": ["a", "b"], "x": [[1.0], [2.0]], "p": [0, 1], "c": [0.5, 0.9]}))
ROW = npy(np.zeros((2, 3)))
FILES = ["day=1/a.{}", "day=1/b.{}", "day=2/a.{}", "other.{}"]


FORMATS: dict[str, tuple[str, Callable[[], bytes], dict[str, Any]]] = {
    "parquet": ("parquet", lambda: ROWS, {"id": "id", "array": "x"}),
    "features": ("parquet", lambda: ROWS, {"prediction": "p", "confidence": "c"}),
    "huggingface": ("parquet", lambda: ROWS, {"array": "x"}),
    "npy": ("npy", lambda: ROW, {}),
    "webdataset": ("tar", lambda: tar(("x.npy", ROW)), {}),
}


def keys_at(uri: str, kind: str) -> list[str]:
    """The files of the pool at a URI, below its store."""
    model = {"classes": ["a", "b"]} | ({} if kind == "features" else {"factory": "user:net"})
    columns = FORMATS[kind][2]
    content = {
        "name": "a", "pool": {"uri": uri, "format": kind, "columns": columns}, "model": model,
        "sample": {"method": "srs", "budget": 2}, "output": "x",
    }  # fmt: skip
    spec = parse_spec(content, "spec")
    store = open_pool(spec.pool)
    return [store.uri_of(entry.key) for entry in plan_pool(spec.pool, spec.extract).entries]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_or_a_pattern_is_a_pool(kind: str, tmp_path: Path) -> None:
    home = str(tmp_path / "lake")
    suffix, content, _ = FORMATS[kind]
    store = open_store(home)
    names = [name.format(suffix) for name in FILES]
    for name in names:
        store.write(name, content())
    every = [store.uri_of(name) for name in names]
    assert keys_at(home, kind) == every
    assert keys_at(every[1], kind) == [every[1]]
    assert keys_at(f"{home}/day=*/a.{suffix}", kind) == [every[0], every[2]]
    assert keys_at(f"{home}/*.{suffix}", kind) == [every[3]]
    assert keys_at(f"{home}/**/a.{suffix}", kind) == [every[0], every[2]]
    assert keys_at(f"{home}/**/day=[1]/*", kind) == every[:2]
    with pytest.raises((DataError, StorageError), match=r"has no file that matches|no such folder|has no file"):
        keys_at(f"{home}/day=3/*", kind)


def test_a_pattern_of_a_table_is_refused() -> None:
    content = {
        "name": "a", "pool": {"uri": "s3://lake/t/*", "format": "delta", "columns": {"prediction": "p"}},
        "model": {"classes": ["a", "b"]}, "sample": {"method": "srs", "budget": 2}, "output": "x",
    }  # fmt: skip
    with pytest.raises(
        SpecError, match=r"s3://lake/t/\* is a pattern, and format delta reads one table; give the table's"
    ):
        open_pool(parse_spec(content, "spec").pool)


@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        ("*.parquet", "a.parquet", True), ("*.parquet", "d/a.parquet", False), ("**/*.parquet", "a.parquet", True),
        ("**/*.parquet", "d/e/a.parquet", True), ("d/**", "d/e/f", True), ("a?.b", "ab.b", True),
        ("a?.b", "a/.b", False),
        ("[!a]*", "b1", True), ("[!a]*", "a1", False), ("a+b(1).*", "a+b(1).c", True), ("a[*]b*", "a*b", True),
    ],
)  # fmt: skip
def test_patterns_are_those_of_shells(pattern: str, key: str, matches: bool) -> None:
    assert (pattern_of_keys(pattern).fullmatch(key) is not None) == matches
