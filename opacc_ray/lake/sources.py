"""Operational pools in storage: listing them, planning shards, reading examples.

The plan of shards depends on the listing alone, never on the cluster, so that the same pool gives the same shards,
batches and features whoever computes them and however often it starts again.
"""

import hashlib
import io
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.lake.storage import Entry, Store

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
ARRAY_SUFFIXES = (".npy", ".npz")


class Shard(NamedTuple):
    """The unit of work, of failure and of resume."""

    number: int
    keys: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"part-{self.number:06d}"


class BadItem(NamedTuple):
    """An example that could not be used."""

    id: str
    reason: str


class Examples(NamedTuple):
    """The decoded examples of a shard."""

    ids: list[str]
    uris: list[str]  # where each lies; a row of an array file as a fragment, ``digits.npy#row=7``
    arrays: list[NDArray[Any]]  # each (H, W) or (H, W, channels) uint8, or what the array files hold
    bad: list[BadItem]


class Plan(NamedTuple):
    """A pool's shards and a digest of its listing (keys, sizes, change tokens)."""

    shards: tuple[Shard, ...]
    digest: str


def plan_shards(store: Store, kind: str, shard_size: int) -> Plan:
    """List the pool and cut it: ``shard_size`` images a shard, or one array file a shard.

    Raises
    ------
    DataError
        If the prefix holds no file of that format.
    """
    suffixes = IMAGE_SUFFIXES if kind == "images" else ARRAY_SUFFIXES
    listed = store.list()
    entries = [entry for entry in listed if entry.key.lower().endswith(suffixes)]
    if not entries:
        raise DataError(
            f"the pool {store.uri} holds no {' or '.join(suffixes)} file among its {len(listed)} objects; "
            "check pool.uri and pool.format"
        )
    step = shard_size if kind == "images" else 1
    keys = [entry.key for entry in entries]
    cuts = range(0, len(keys), step)
    shards = tuple(Shard(number, tuple(keys[start : start + step])) for number, start in enumerate(cuts))
    return Plan(shards, _digest(entries))


def read_examples(store: Store, kind: str, shard: Shard) -> Examples:
    """Read and decode one shard; what does not decode is returned in ``bad`` with its reason."""
    if kind == "images":
        return _decode_images(store, shard.keys)
    return _decode_arrays(store, shard.keys[0])


def _digest(entries: Sequence[Entry]) -> str:
    lines = [json.dumps([entry.key, entry.size, entry.tag]) for entry in entries]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _decode_images(store: Store, keys: Sequence[str]) -> Examples:
    from PIL import Image

    found = Examples([], [], [], [])
    for key, content in zip(keys, store.read_many(keys), strict=True):
        try:
            with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
                array = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
        except Exception as error:  # Pillow raises many kinds on damaged files
            found.bad.append(BadItem(key, f"{len(content)} bytes that do not decode as an image ({error})"))
        else:
            found.ids.append(key)
            found.uris.append(store.uri_of(key))
            found.arrays.append(array)
    return found


def _decode_arrays(store: Store, key: str) -> Examples:
    """Rows of one file. An .npz holds them under ``x`` (or its only name), and may hold ``ids``."""
    content = store.read(key)
    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            rows, ids = loaded, None
        else:
            rows, ids = _rows_of(key, loaded), loaded.get("ids")
    except DataError:
        raise
    except Exception as error:  # NumPy raises several kinds on damaged files
        raise DataError(f"{key} does not read as a NumPy file: {error}") from None
    if rows.ndim < 2:
        raise DataError(f"{key} has shape {rows.shape}; give one example per row")
    names = [f"{key}:{row}" for row in range(len(rows))] if ids is None else [str(name) for name in ids]
    if len(names) != len(rows):
        raise DataError(f"{key} has {len(rows)} rows and {len(names)} ids; give one id per row")
    uris = [f"{store.uri_of(key)}#row={row}" for row in range(len(rows))]
    return Examples(names, uris, list(rows), [])


def _rows_of(key: str, archive: Any) -> NDArray[Any]:
    names = [name for name in archive.files if name != "ids"]
    if "x" not in names and len(names) != 1:
        raise DataError(f"{key} holds the arrays {', '.join(names)}; name the examples 'x'")
    rows: NDArray[Any] = archive["x" if "x" in names else names[0]]
    return rows
