"""Pools of image files: one example per file. An id is the file's key; a shard is some files."""

from opacc_ray.lake.examples import BadItem, Cut, Example, Found, Items, Limits, Rules, Shard, decoded, item_of
from opacc_ray.lake.formats import Traits
from opacc_ray.lake.store import Entry, Store, in_order

TRAITS = Traits(keys_are_ids=True)

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")

READ_BYTES = 64 << 20  # of files, which one shard may read ahead


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return the files of each shard, up to the limits of examples and of bytes."""
    shards: list[tuple[Entry, ...]] = []
    start, held = 0, 0
    for stop, entry in enumerate(found.entries):
        if stop > start and (stop - start == limits.examples or held + entry.size > limits.bytes):
            shards.append(found.entries[start:stop])
            start, held = stop, 0
        held += entry.size
    return Cut([*shards, found.entries[start:]], len(found.entries))


def read(store: Store, shard: Shard, rules: Rules) -> Items:
    """Yield the images of a shard in their order; up to READ_BYTES of files are read ahead, or one file."""
    fitting = [entry for entry in shard.entries if entry.size <= rules.max_bytes]
    contents = in_order(store.read_entry, fitting, cost=lambda entry: entry.size, budget=READ_BYTES)
    for entry in shard.entries:
        yield _decoded(store, rules, entry, next(contents) if entry.size <= rules.max_bytes else None)


def _decoded(store: Store, rules: Rules, entry: Entry, content: bytes | None) -> Example | BadItem:
    if content is None:
        return BadItem(entry.key, f"{entry.size} bytes, and at most {rules.max_bytes} are read")
    return item_of(entry.key, store.uri_of(entry.key), decoded(content, rules))
