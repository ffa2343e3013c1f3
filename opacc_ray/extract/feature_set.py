"""Feature sets: the features of a pool under a model, stored once per output and shared by all runs.

    features/DIGEST/set.json                     content of the digest: pool, model, transform, their code, batches
    features/DIGEST/part-000000.parquet          id, uri and the features of the forward pass of a shard's examples
    features/DIGEST/index.json                   written last: its presence means that they are complete
    features/DIGEST/dsa-DIGEST/part-000000.parquet, …/index.json    a feature that was added: dsa, lsa or coverage
    features/DIGEST/slices-DIGEST/…              columns that make slices of the pool (slice_columns.py)
    features/DIGEST/all-DIGEST/…                 all features of a run, for the examples that have each of them

DIGEST covers all that determines the content. Names, seeds, methods, budgets and scores do not change it. A feature
that compares with training data, or has its own settings, is in a separate folder, whose digest covers those. It has
the rows of the forward pass. If it is undefined for some of them, and the run excludes these, all features of that run
are extracted again for the others, under ``all-DIGEST``.

Without weights in the spec, the factory may return another model each time. Then features are in the run's own prefix,
all in one folder.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from opacc_ray.documents import Part, SealedDocument, format_field
from opacc_ray.errors import DataError
from opacc_ray.extract.features import Features
from opacc_ray.extract.index import INDEX, Index, read_index
from opacc_ray.lake.store_uris import Store, join, open_store
from opacc_ray.spec import SURPRISE

FORWARD = ("hidden", "output", "confidence", "prediction")  # features of the forward pass, in the order of columns
ALL = (*FORWARD[:-1], *SURPRISE, "coverage", "prediction")  # all features, in the order of columns
HOME, DESCRIPTION = "features", "set.json"  # the folder of all sets of an output, and the file that describes a set

Folder = Annotated[str, Field(pattern="^[a-z]+-[0-9a-f]{16}$")]


class FeatureLink(Part):
    """Location of a run's features: a set next to the runs of its output, which they share."""

    folder: str = Field(
        pattern=f"^[.][.]/{HOME}/[0-9a-f]{{16}}$",
        description="the set, relative to the run; its name is a digest of all that decides its content",
    )
    features: list[str] = Field(min_length=1, description="those of the forward pass, in the set's own files")
    added: dict[str, Folder] = Field(description="feature -> folder of the set that holds it")
    whole: Folder = Field(description="folder that holds all, if an added one cannot be had of some examples")

    @property
    def digest(self) -> str:
        """Name of the set."""
        return self.folder.rpartition("/")[2]


class FeatureSetDescription(SealedDocument):
    """Description of a set: its pool, its features and its digest's content."""

    remedy: ClassVar[str] = "delete it and run the spec again, which writes it anew"

    format: Literal["opacc-features/1"] = format_field("opacc-features/1")
    pool: str = Field(description="URI of the pool")
    features: list[str] = Field(description="features of the forward pass")
    decided_by: dict[str, Any] = Field(
        description="all that decides the content: the listing, the model, its code, the batches"
    )


@dataclass(frozen=True)
class Complete:
    """The complete features of a run."""

    features: Features
    index: Index
    digest: str  # of all files, which differs for other features of the same examples


class FeatureSet(NamedTuple):
    """The folders of a run's features."""

    folder: Store  # of the forward pass
    added: Mapping[str, Store]  # of each added feature
    whole: Store | None  # of all features, for the examples that have each of them; None in the run's own prefix

    @property
    def folders(self) -> list[Store]:
        """The folder of the forward pass, and those of the added features."""
        return [self.folder, *self.added.values()]

    def in_use(self) -> list[Store]:
        """Return the folders that are read: that of all features, if an added one lacks some examples."""
        indices = self._indices()
        return [self.whole] if indices and self.whole and loses(indices) else self.folders

    def read(self) -> Complete | None:
        """Return the features, or None while they are not complete.

        Raises DataError if an index is damaged, or that of an added feature has other examples.
        """
        indices = self._indices()
        if indices is None:
            return None
        if self.whole and loses(indices):
            whole = read_index(self.whole)
            return _complete(Features.of(self.whole, whole), whole, [whole]) if whole else None
        index, *others = indices
        features, widths = Features.of(self.folder, index), dict(index.features)
        for (name, folder), own in zip(self.added.items(), others, strict=True):
            if [shard.ids for shard in index.shards] != [shard.ids for shard in own.shards]:
                raise DataError(f"{folder.uri} has other examples than its set; delete it and run the spec again")
            features = features.with_added(name, folder.uri.rpartition("/")[2], own)
            widths |= own.features
        ordered = {name: widths[name] for name in ALL if name in widths}
        return _complete(features, index.model_copy(update={"features": ordered}), indices)

    def tags(self) -> list[str | None]:
        """Return the tags of the indices, which change with their content; None for a missing one."""
        found = (folder.entry(INDEX) for folder in (*self.folders, *([self.whole] if self.whole else [])))
        return [entry.tag if entry else None for entry in found]

    def _indices(self) -> list[Index] | None:
        found = []
        for folder in self.folders:
            if (index := read_index(folder)) is None:  # the others need not be read
                return None
            found.append(index)
        return found


def _complete(features: Features, index: Index, indices: Sequence[Index]) -> Complete:
    content = [[shard.sha256, shard.ids, shard.examples] for own in indices for shard in own.shards]
    return Complete(features, index, hashlib.sha256(json.dumps(content).encode()).hexdigest())


def feature_set(run: Store, link: FeatureLink | None) -> FeatureSet:
    """Return the set of a run's link; without one, all features are in the run's own folder."""
    if link is None:
        return FeatureSet(run.store("features"), {}, None)
    folder = open_store(join(run.uri.rpartition("/")[0], HOME, link.digest))
    added = {name: folder.store(place) for name, place in link.added.items()}
    return FeatureSet(folder, added, folder.store(link.whole))


class FeatureReader:
    """Reads features by ``read``, and again only if ``tags`` returns another value, which changes with them."""

    def __init__(self, read: Callable[[], Complete | None], tags: Callable[[], object]) -> None:
        self._read, self._tags = read, tags
        self._last: tuple[object, Complete | None] | None = None

    def read(self) -> Complete | None:
        """Return the current features."""
        tags = self._tags()
        if self._last is None or self._last[0] != tags:
            self._last = tags, self._read()
        return self._last[1]

    def once(self) -> "FeatureReader":
        """Return a reader that reads once."""
        return FeatureReader(self.read, lambda: None)


def read_sound(features: FeatureSet) -> Complete | None:
    """Return the features, or None if they are incomplete or an index is damaged."""
    try:
        return features.read()
    except DataError:
        return None


def loses(indices: list[Index]) -> bool:
    """Return whether an added feature lacks some examples; the first index is that of the forward pass."""
    return any(own.num_examples < indices[0].num_examples for own in indices[1:])


def read_description(folder: Store) -> FeatureSetDescription:
    """Return the description of a set; raises DataError if it is damaged or missing."""
    if not folder.exists(DESCRIPTION):
        raise DataError(f"{folder.uri_of(DESCRIPTION)} is lost; run the spec again, which writes it anew")
    return FeatureSetDescription.from_bytes(folder.read(DESCRIPTION), folder.uri_of(DESCRIPTION))


def write_description(folder: Store, description: FeatureSetDescription) -> None:
    """Write the description of a set, unless it is there."""
    if folder.read_if_there(DESCRIPTION) != (data := description.to_bytes()):
        folder.write(DESCRIPTION, data)
