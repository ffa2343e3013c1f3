"""Small pictures of chosen examples, read again from the pool as the model saw them.

Objects are read by the pool's own reader, with its limits. An object that changed since the pool was listed, or is
gone, is not shown: its picture would be of another example. Pixels are encoded anew, so nothing else reaches the page.
"""

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from opacc_ray.audit.run import Run
from opacc_ray.errors import DataError, OpaccError
from opacc_ray.labelling.pictures import render_array
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
    width: int  # in pixels, of the whole example
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
    if array.size == 0 or array.dtype.kind not in "buif":
        return f"an array of shape {array.shape} and {array.dtype} is no picture"
    try:
        made = render_array(array, longest=LONGEST, lossless=LOSSLESS)
    except DataError:
        return f"an array of shape {array.shape} is no picture"
    data = base64.b64encode(made.data).decode()
    return Picture(f"data:{made.kind};base64,{data}", made.width, made.height)
