"""Pools of images: one example a file, its id the file's key."""

from collections.abc import Sequence

from opacc_ray.lake.ahead import ahead
from opacc_ray.lake.decode import ImageError, decode_image, decoded_bytes
from opacc_ray.lake.examples import BadItem, Cut, Example, Found, Items, Limits, Rules, Shard
from opacc_ray.lake.listing import find_files
from opacc_ray.lake.store import Entry, Store

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")

READERS = 16
"""Files that are read at a time."""

READ_BYTES = DECODED_BYTES = 64 << 20
"""Bytes of files, and of pixels, that one shard may hold ahead."""


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
    """Yield the images of one shard in their order, decoded by ``rules.readers`` threads.

    With one, each is decoded when its turn comes. Read ahead are READ_BYTES of files, and decoded DECODED_BYTES of
    pixels; one file or image alone may exceed that.
    """
    fitting = [entry for entry in shard.entries if entry.size <= rules.max_bytes]
    contents = ahead(store.read_entry, fitting, READERS, lambda entry: entry.size, READ_BYTES)
    pairs = ((entry, next(contents) if entry.size <= rules.max_bytes else None) for entry in shard.entries)

    def decode(pair: tuple[Entry, bytes | None]) -> Example | BadItem:
        return _decoded(store, *pair, rules)

    if rules.readers == 1:
        return map(decode, pairs)
    return ahead(decode, pairs, rules.readers, lambda pair: decoded_bytes(pair[1]), DECODED_BYTES)


def _decoded(store: Store, entry: Entry, content: bytes | None, rules: Rules) -> Example | BadItem:
    if content is None:
        return BadItem(entry.key, f"{entry.size} bytes, and pool.max_bytes is {rules.max_bytes}")
    try:
        array = decode_image(content, alpha=rules.alpha, max_pixels=rules.max_pixels)
    except ImageError as error:
        return BadItem(entry.key, str(error))
    return Example(entry.key, store.uri_of(entry.key), array)
