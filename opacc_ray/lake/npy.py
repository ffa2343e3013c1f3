"""Pools of NumPy files: one example a row.

An ``.npz`` holds the rows under ``x`` (or its only name), and may hold their ``ids``; else an id is the file's key and
the row's number, ``digits.npy:7``.
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Examples
from opacc_ray.lake.store import Store

SUFFIXES = (".npy", ".npz")


def cut(keys: Sequence[str], shard_size: int) -> list[tuple[str, ...]]:
    """Return the keys of each shard: one file."""
    return [(key,) for key in keys]


def read(store: Store, keys: Sequence[str]) -> Examples:
    """Read the rows of one file; raises DataError if it is not one of examples."""
    (key,) = keys
    rows, ids = _load(key, store.read(key))
    if rows.ndim < 2:
        raise DataError(f"{key} has shape {rows.shape}; give one example per row")
    names = [f"{key}:{row}" for row in range(len(rows))] if ids is None else [str(name) for name in ids]
    if len(names) != len(rows):
        raise DataError(f"{key} has {len(rows)} rows and {len(names)} ids; give one id per row")
    uris = [f"{store.uri_of(key)}#row={row}" for row in range(len(rows))]
    return Examples(names, uris, list(rows), [], own_ids=ids is not None)


def _load(key: str, content: bytes) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Rows, and their ids if the file has some."""
    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded, None
        return _rows_of(key, loaded), loaded.get("ids")
    except DataError:
        raise
    except Exception as error:  # NumPy raises several kinds on damaged files
        raise DataError(f"{key} does not read as a NumPy file: {error}") from None


def _rows_of(key: str, archive: Any) -> NDArray[Any]:
    names = [name for name in archive.files if name != "ids"]
    if "x" not in names and len(names) != 1:
        raise DataError(f"{key} holds the arrays {', '.join(names)}; name the examples 'x'")
    rows: NDArray[Any] = archive["x" if "x" in names else names[0]]
    return rows
