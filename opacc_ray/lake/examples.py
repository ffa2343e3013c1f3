"""What a pool's listing is cut into, and what a piece of it holds once it is read."""

from typing import Any, NamedTuple

from numpy.typing import NDArray

from opacc_ray.lake.decode import Alpha
from opacc_ray.lake.store import Entry


class Shard(NamedTuple):
    """The unit of work, of failure and of resume: consecutive files of a listing."""

    number: int
    entries: tuple[Entry, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(entry.key for entry in self.entries)

    @property
    def name(self) -> str:
        return f"part-{self.number:06d}"

    @property
    def file(self) -> str:
        """The key of its features."""
        return f"{self.name}.parquet"


class Ignored(NamedTuple):
    """What a pool's prefix holds beside the files of its format."""

    kind: str  # a suffix such as ".txt", "no suffix", or what is no regular file: "symbolic link", "FIFO"
    num_files: int
    first: tuple[str, ...]  # some of their names

    def __str__(self) -> str:
        more = ", ..." if self.num_files > len(self.first) else ""
        return f"{self.num_files} x {self.kind} ({', '.join(self.first)}{more})"


class Plan(NamedTuple):
    """A pool's shards, a digest of its listing (keys, sizes, change tokens), and what else its prefix holds."""

    shards: tuple[Shard, ...]
    digest: str
    ignored: tuple[Ignored, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The listing of the pool's files."""
        return tuple(entry for shard in self.shards for entry in shard.entries)


class BadItem(NamedTuple):
    """An example, or a file of them, that could not be used."""

    id: str
    reason: str


class Example(NamedTuple):
    """One decoded example."""

    id: str
    uri: str  # where it lies; a row of an array file as a fragment, ``digits.npy#row=7``
    array: NDArray[Any]  # (H, W) or (H, W, channels) of an image, or what the array file holds
    own_id: bool = False  # whether the id is the file's own; ids made of keys are unique without a check


class Rules(NamedTuple):
    """How the files of a pool are read, and which are too large to be: see ``PoolSpec``."""

    alpha: Alpha = "refuse"
    max_pixels: int = 1 << 26
    max_bytes: int = 8 << 30
