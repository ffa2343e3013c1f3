"""Small pictures of chosen examples, read again from the pool as the model saw them.

Objects are read by the pool's own reader, with its limits. An object that changed since the pool was listed, or is
gone, is not shown: its picture would be of another example. Pixels are encoded anew, so nothing else reaches the page.
"""

import base64
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.run import Run
from opacc_ray.errors import OpaccError
from opacc_ray.lake.examples import Example, Rules, Shard
from opacc_ray.lake.pools import read_examples
from opacc_ray.lake.storage import open_store
from opacc_ray.lake.store import Entry, Store, in_order
from opacc_ray.report.documents import Misprediction

LONGEST = 192
"""Pixels of a picture's longer side."""

LOSSLESS = 64
"""Pixels of the longer side up to which a picture is kept without loss."""

MOST_BYTES = 256 << 20
"""Size of an object that is still read for a picture."""


class Picture(NamedTuple):
    """A picture as a page holds it."""

    uri: str  # data:image/png;base64,…
    width: int  # in pixels
    height: int


Pictures = dict[str, Picture | str]
"""By id: the picture, or why there is none."""


class _Place(NamedTuple):
    """Where an example was when the pool was listed."""

    object: str | None
    tag: str | None


def pictures_of(run: Run, examples: Sequence[Misprediction]) -> Pictures:
    """Return a picture of each example, or why there is none; each object is read once."""
    places = _places(run, [item.id for item in examples])
    by_object: dict[_Place, list[str]] = {}
    for item in examples:
        by_object.setdefault(places[item.id], []).append(item.id)
    pool = run.spec.pool
    rules = Rules(pool.alpha, pool.max_pixels, min(pool.max_bytes, MOST_BYTES))
    found: Pictures = {}
    try:
        store = open_store(pool.uri, follow_links=pool.follow_links)
        work = in_order(lambda part: _read(store, pool.format, rules, *part), by_object.items(), threads=4)
        for made in work:
            found |= made
    except OpaccError as error:
        return {item.id: f"the pool cannot be read: {error}" for item in examples}
    return found


def _places(run: Run, ids: Sequence[str]) -> dict[str, _Place]:
    wanted, found = set(ids), {}
    for number in run.rounds():
        chosen = run.read_chosen(number)
        for id, key, tag in zip(chosen.ids, chosen.objects, chosen.tags, strict=True):
            if id in wanted:
                found[id] = _Place(key, tag)
    return found


def _read(store: Store, kind: str, rules: Rules, place: _Place, ids: Sequence[str]) -> Pictures:
    """Pictures of the examples of one object."""
    if place.object is None or place.tag is None:
        return dict.fromkeys(ids, "the run does not say where it lies")
    try:
        entry = store.entry(place.object)
        if entry is None:
            return dict.fromkeys(ids, "its object is gone")
        if entry.tag != place.tag:
            return dict.fromkeys(ids, "its object has changed since the model saw it")
        return _pictures(store, kind, rules, entry, ids)
    except OpaccError as error:
        return dict.fromkeys(ids, str(error))


def _pictures(store: Store, kind: str, rules: Rules, entry: Entry, ids: Sequence[str]) -> Pictures:
    wanted = set(ids)
    found: Pictures = dict.fromkeys(ids, "its object does not hold it any more")
    for item in read_examples(store, kind, Shard(0, (entry,)), rules):
        if item.id in wanted:
            found[item.id] = draw(item.array) if isinstance(item, Example) else item.reason
        elif not isinstance(item, Example):  # the whole object
            found |= dict.fromkeys(ids, item.reason)
    return found


def draw(array: NDArray[Any]) -> Picture | str:
    """Return a small picture of (H, W) or (H, W, channels), or with the channel first; or why there is none."""
    from PIL import Image

    pixels = np.asarray(array)
    if pixels.ndim == 3 and pixels.shape[-1] not in (1, 3, 4) and pixels.shape[0] in (1, 3):
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[-1] in (3, 4))) or 0 in pixels.shape:
        return f"an array of shape {array.shape} is no picture"
    if pixels.dtype.kind not in "buif":
        return f"an array of {array.dtype} is no picture"
    image = Image.fromarray(np.ascontiguousarray(pixels if pixels.dtype == np.uint8 else _spread(pixels)))
    image.thumbnail((LONGEST, LONGEST))
    return _encode(image.convert("RGB") if image.mode == "RGBA" else image)


def _encode(image: Any) -> Picture:
    is_small = max(image.size) <= LOSSLESS
    sink = io.BytesIO()
    image.save(sink, "PNG", optimize=True) if is_small else image.save(sink, "JPEG", quality=82, optimize=True)
    data = base64.b64encode(sink.getvalue()).decode()
    return Picture(f"data:image/{'png' if is_small else 'jpeg'};base64,{data}", *image.size)


def _spread(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Values of any kind over the grey levels, from the smallest to the largest."""
    finite = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = float(finite.min()), float(finite.max())
    return np.rint((finite - low) * (255 / (high - low) if high > low else 0)).astype(np.uint8)
