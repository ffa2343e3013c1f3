"""Read small pictures of chosen examples from the pool, as the model saw them.

Examples are read by the pool's own reader, with its limits: an image by itself, a row of a file with its shard. An
object that changed since the pool was listed, or is gone, is not shown: its picture would be of another example. Pixels
are encoded anew, so nothing else reaches the page.
"""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, SpecError
from opacc_ray.labels import shown_examples
from opacc_ray.labels.shown_examples import ExampleFiles, may_have_pictures, render_array
from opacc_ray.lake.examples import Example, Shard
from opacc_ray.lake.pools import read_chosen
from opacc_ray.lake.store import Entry, Store, in_order
from opacc_ray.report.report_documents import Misprediction
from opacc_ray.runs.feature_store import read_listing
from opacc_ray.runs.run import Run
from opacc_ray.spec import open_pool, plan_pool, rules_of

LONGEST = 192
"""Pixels of a picture's longer side."""

LOSSLESS = 64
"""Pixels of the longer side up to which a picture is kept without loss."""

MOST_BYTES = 1 << 30
"""Most bytes that are read for all pictures of a page."""

CHANGED, GONE = "its object changed since extraction", "its object is gone"


class Picture(NamedTuple):
    """A picture in a page."""

    uri: str  # data:image/png;base64,…
    width: int  # in pixels, of the whole example
    height: int


Pictures = dict[str, Picture | str]
"""The picture of each id, or why there is none."""


class _Work(NamedTuple):
    """A shard to read, and the examples wanted from it."""

    shard: Shard
    ids: list[str]


def pictures_of(run: Run, examples: Sequence[Misprediction]) -> Pictures:
    """Return a picture of each example, or the reason why there is none; each shard is read once."""
    ids = [item.id for item in examples]
    pool = run.spec.pool
    if pool.holds_features:
        named = may_have_pictures(run)
        return _named(run, ids) if named else dict.fromkeys(ids, "the pool holds features, no pictures")
    found: Pictures = {}
    try:
        store = open_pool(pool)
        listing = read_listing(run)
        if pool.format == "images":  # an image is an object whose key is its id
            entries = {id: store.entry(id) or listing.get(id) or Entry(id, 0, "") for id in ids}
            todo = [_Work(Shard(0, (entry,)), [id]) for id, entry in entries.items()]
        else:
            todo = list(_shards(run, ids))
        for made in in_order(lambda work: _read(run, store, work, listing), _affordable(todo, found), threads=4):
            found |= made
    except OpaccError as error:
        return dict.fromkeys(ids, f"the pool cannot be read: {error}")
    return found


def _named(run: Run, ids: Sequence[str]) -> Pictures:
    """Return the pictures of image files that a table of stored features names, as the labelling page shows them."""
    files, found = ExampleFiles(run, run.rounds()), Pictures()
    for id in ids:
        try:
            found[id] = _inline(files.picture(id, LONGEST))
        except SpecError as error:
            found[id] = str(error)
        except OpaccError:
            found[id] = "its file cannot be read as a picture"
    return found


def _shards(run: Run, ids: Sequence[str]) -> Iterator[_Work]:
    """Yield the shards of extraction that hold the examples."""
    plan, index = plan_pool(run.spec.pool, run.spec.extract), run.read_index()
    sizes = [shard.examples for shard in index.shards] if index else []
    if len(sizes) != len(plan.shards):
        raise DataError(f"{run.spec.pool.uri} holds other files than when it was listed")
    selections = [run.read_selection(number) for number in run.rounds()]
    row = {id: place for part in selections for id, place in zip(part.ids, part.index.tolist(), strict=True)}
    number_of = np.searchsorted(np.cumsum(sizes), [row[id] for id in ids], side="right").tolist()
    for number in dict.fromkeys(number_of):
        own = [id for id, found in zip(ids, number_of, strict=True) if found == number]
        yield _Work(plan.shards[number], own)


def _affordable(todo: Sequence[_Work], found: Pictures) -> Iterator[_Work]:
    """Yield the first shards that take `MOST_BYTES` together; note the reason for the others."""
    held = 0
    for work in todo:
        held += sum(entry.size for entry in work.shard.entries)
        if held <= MOST_BYTES:
            yield work
        else:
            found |= dict.fromkeys(work.ids, f"pictures would take more than {MOST_BYTES >> 20} MiB of the pool")


def _read(run: Run, store: Store, work: _Work, listing: dict[str, Entry]) -> Pictures:
    """Return the pictures of one shard."""
    try:
        for entry in work.shard.entries:
            listed, now = listing.get(entry.key), store.entry(entry.key)
            if listed is None:
                return dict.fromkeys(work.ids, "the run has no record of its object")
            if now is None or now.tag != listed.tag:
                return dict.fromkeys(work.ids, GONE if now is None else CHANGED)
        found: Pictures = dict.fromkeys(work.ids, "its object no longer holds it")
        pool = run.spec.pool
        for item in read_chosen(store, pool.format, work.shard, set(work.ids), rules_of(pool)):
            found[item.id] = draw(item.array) if isinstance(item, Example) else item.reason
        return found
    except OpaccError as error:
        return dict.fromkeys(work.ids, str(error))


def draw(array: NDArray[Any]) -> Picture | str:
    """Return a small picture of (H, W) or (H, W, channels), or with channels first; or why there is none."""
    if array.size == 0 or array.dtype.kind not in "buif":
        return f"an array of shape {array.shape} and {array.dtype} is no picture"
    try:
        made = render_array(array, longest=LONGEST, lossless=LOSSLESS)
    except DataError:
        return f"an array of shape {array.shape} is no picture"
    return _inline(made)


def _inline(made: shown_examples.Picture) -> Picture:
    data = base64.b64encode(made.data).decode()
    return Picture(f"data:{made.kind};base64,{data}", made.width, made.height)
