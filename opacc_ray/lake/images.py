"""Pools of images: one example a file, its id the file's key."""

from collections.abc import Iterator, Sequence

from opacc_ray.lake.decode import ImageError, decode_image
from opacc_ray.lake.examples import BadItem, Example, Rules
from opacc_ray.lake.store import Entry, Store

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")


def cut(entries: Sequence[Entry], shard_size: int, shard_bytes: int) -> list[tuple[Entry, ...]]:
    """Return the files of each shard: ``shard_size`` images, or fewer where they take ``shard_bytes`` together."""
    shards: list[tuple[Entry, ...]] = []
    start, held = 0, 0
    for stop, entry in enumerate(entries):
        if stop > start and (stop - start == shard_size or held + entry.size > shard_bytes):
            shards.append(tuple(entries[start:stop]))
            start, held = stop, 0
        held += entry.size
    return [*shards, tuple(entries[start:])]


def read(store: Store, entries: Sequence[Entry], rules: Rules) -> Iterator[Example | BadItem]:
    """Yield the images of one shard in their order, each decoded when its turn comes."""
    fitting = [entry for entry in entries if entry.size <= rules.max_bytes]
    contents = store.read_entries(fitting)
    for entry in entries:
        if entry.size > rules.max_bytes:
            yield BadItem(entry.key, f"{entry.size} bytes, and pool.max_bytes is {rules.max_bytes}")
            continue
        try:
            array = decode_image(next(contents), alpha=rules.alpha, max_pixels=rules.max_pixels)
        except ImageError as error:
            yield BadItem(entry.key, str(error))
        else:
            yield Example(entry.key, store.uri_of(entry.key), array)
