"""Pools of images: one example a file, its id the file's key."""

from collections.abc import Sequence

from opacc_ray.lake.decode import ImageError, decode_image
from opacc_ray.lake.examples import BadItem, Cut, Example, Found, Items, Limits, Rules, Shard
from opacc_ray.lake.listing import find_files
from opacc_ray.lake.store import Entry, Store

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return all images below the prefix."""
    return find_files(store, SUFFIXES, what)


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return the files of each shard: as many as there may be, or fewer where they are large together."""
    return Cut(_cut(found.entries, limits), len(found.entries))


def _cut(entries: Sequence[Entry], limits: Limits) -> list[tuple[Entry, ...]]:
    shards: list[tuple[Entry, ...]] = []
    start, held = 0, 0
    for stop, entry in enumerate(entries):
        if stop > start and (stop - start == limits.examples or held + entry.size > limits.bytes):
            shards.append(tuple(entries[start:stop]))
            start, held = stop, 0
        held += entry.size
    return [*shards, tuple(entries[start:])]


def read(store: Store, shard: Shard, rules: Rules) -> Items:
    """Yield the images of one shard in their order, each decoded when its turn comes."""
    fitting = [entry for entry in shard.entries if entry.size <= rules.max_bytes]
    contents = store.read_entries(fitting)
    for entry in shard.entries:
        if entry.size > rules.max_bytes:
            yield BadItem(entry.key, f"{entry.size} bytes, and pool.max_bytes is {rules.max_bytes}")
            continue
        try:
            array = decode_image(next(contents), alpha=rules.alpha, max_pixels=rules.max_pixels)
        except ImageError as error:
            yield BadItem(entry.key, str(error))
        else:
            yield Example(entry.key, store.uri_of(entry.key), array)
