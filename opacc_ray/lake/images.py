"""Pools of images: one example a file, its id the file's key."""

import io
from collections.abc import Sequence

import numpy as np

from opacc_ray.lake.examples import BadItem, Examples
from opacc_ray.lake.store import Store

SUFFIXES = (".png", ".jpg", ".jpeg")


def cut(keys: Sequence[str], shard_size: int) -> list[tuple[str, ...]]:
    """Return the keys of each shard: ``shard_size`` images, and the rest in the last."""
    return [tuple(keys[start : start + shard_size]) for start in range(0, len(keys), shard_size)]


def read(store: Store, keys: Sequence[str]) -> Examples:
    """Read and decode the images of one shard; what does not decode is returned in ``bad`` with its reason."""
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
