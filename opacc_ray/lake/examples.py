"""What a pool's listing is cut into, and what a piece of it holds once it is read."""

from typing import Any, NamedTuple

from numpy.typing import NDArray

from opacc_ray.lake.store import Entry


class Shard(NamedTuple):
    """The unit of work, of failure and of resume."""

    number: int
    keys: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"part-{self.number:06d}"

    @property
    def file(self) -> str:
        """The key of its features."""
        return f"{self.name}.parquet"


class Plan(NamedTuple):
    """A pool's shards and a digest of its listing (keys, sizes, change tokens)."""

    shards: tuple[Shard, ...]
    digest: str
    entries: tuple[Entry, ...] = ()  # the listing


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
    own_ids: bool = False  # whether the ids are the files' own; ids made of keys are unique without a check
