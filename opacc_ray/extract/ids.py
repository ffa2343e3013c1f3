"""Ids of examples without holding them: a digest of those of a shard, and a check that none appears twice in a pool."""

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


def digest_of(ids: Iterable[str]) -> str:
    """Return the SHA-256 of ids in their order, each after its length in bytes (8 bytes, little-endian)."""
    encoded = [name.encode() for name in ids]
    lengths = {size: size.to_bytes(8, "little") for size in set(map(len, encoded))}
    return hashlib.sha256(b"".join([lengths[len(name)] + name for name in encoded])).hexdigest()


def hashes_of(ids: Sequence[str]) -> Hashes:
    """Return 8 bytes for each id, (N,): equal for equal ids, and hardly ever equal for others."""
    hashed = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in ids)
    return np.frombuffer(hashed, dtype=np.uint64)


def find_repeated(hashes: Sequence[Hashes], ids_of: Callable[[int], Sequence[str]]) -> str | None:
    """Return the first id that appears a second time in a pool; None if there is none.

    Two ids whose hashes are equal are compared themselves, so the answer is exact. Memory: 16 bytes per example.

    Parameters
    ----------
    hashes : of the ids of each shard, in the order of the pool
    ids_of : gives the ids of a shard by its place; asked for shards that share a hash only
    """
    ordered = np.concatenate(hashes)
    ordered.sort()
    shared = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    del ordered
    seen: set[str] = set()
    for place, own in enumerate(hashes if len(shared) else []):
        rows = np.flatnonzero(np.isin(own, shared, kind="sort")).tolist()
        ids = ids_of(place) if rows else []
        for row in rows:
            if ids[row] in seen:
                return ids[row]
            seen.add(ids[row])
    return None
