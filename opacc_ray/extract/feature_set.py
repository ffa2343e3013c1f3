"""Feature sets: the features of a pool under a model, stored once per output and shared by all runs.

    features/DIGEST/set.json                     content of the digest: pool, model, transform, their code, batches
    features/DIGEST/part-000000.parquet          id, uri and the features of the forward pass of a shard's examples
    features/DIGEST/index.json                   written last: its presence means that they are complete
    features/DIGEST/dsa-DIGEST/part-000000.parquet, …/index.json    a feature that was added: dsa, lsa or coverage
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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from opacc_ray.documents import Part, SealedDocument
from opacc_ray.errors import DataError
from opacc_ray.extract import reference
from opacc_ray.extract.code import Code
from opacc_ray.extract.features import Features
from opacc_ray.extract.index import INDEX, Index, read_index
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.store_uris import Store, join, open_store
from opacc_ray.spec import SURPRISE, Spec

FORWARD = ("hidden", "output", "confidence", "prediction")
"""Features of the forward pass, in the order of their columns."""

ALL = (*FORWARD[:-1], *SURPRISE, "coverage", "prediction")
"""All features, in the order of their columns."""

HOME, DESCRIPTION = "features", "set.json"
"""The folder of all sets of an output, and the file that describes a set."""

Place = Annotated[str, Field(pattern=f"^[.][.]/{HOME}/[0-9a-f]{{16}}$")]
Folder = Annotated[str, Field(pattern="^[a-z]+-[0-9a-f]{16}$")]


class FeatureLink(Part):
    """Location of a run's features: a set next to the runs of its output, which they share."""

    folder: Place = Field(
        description="the set, relative to the run; its name is a digest of all that decides its content"
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

    format: Literal["opacc-features/1"] = Field(default="opacc-features/1", description="name and version of this form")
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

    @classmethod
    def of(cls, features: Features, index: Index, indices: list[Index]) -> "Complete":
        """Return the features of some folders, by their indices."""
        content = [[shard.sha256, shard.ids, shard.examples] for own in indices for shard in own.shards]
        return cls(features, index, hashlib.sha256(json.dumps(content).encode()).hexdigest())


class FeatureSet(NamedTuple):
    """The folders of a run's features."""

    folder: Store
    link: FeatureLink | None  # None: all are in the run's own folder

    @property
    def added(self) -> dict[str, Store]:
        """Folders of the added features."""
        return {name: self.folder.store(place) for name, place in self.link.added.items()} if self.link else {}

    @property
    def whole(self) -> Store | None:
        """The folder of all features, for the examples that have each of them; None in the run's own prefix."""
        return self.folder.store(self.link.whole) if self.link else None

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

        Raises
        ------
        DataError
            An index is damaged, or that of an added feature has other examples.
        """
        indices = self._indices()
        if indices is None:
            return None
        if self.whole and loses(indices):
            whole = read_index(self.whole)
            return Complete.of(Features.of(self.whole, whole), whole, [whole]) if whole else None
        index, *others = indices
        features, widths = Features.of(self.folder, index), dict(index.features)
        for (name, folder), own in zip(self.added.items(), others, strict=True):
            _check_same_examples(index, own, folder.uri)
            features = features.with_added(name, folder.uri.rpartition("/")[2], own)
            widths |= own.features
        ordered = {name: widths[name] for name in ALL if name in widths}
        return Complete.of(features, index.model_copy(update={"features": ordered}), indices)

    def tags(self) -> list[str | None]:
        """Return the tags of the indices, which change with their content; None for a missing one."""
        found = (folder.entry(INDEX) for folder in (*self.folders, *([self.whole] if self.whole else [])))
        return [entry.tag if entry else None for entry in found]

    def _indices(self) -> list[Index] | None:
        found = []
        for folder in self.folders:
            index = read_index(folder)
            if index is None:
                return None
            found.append(index)
        return found


class FeatureReader:
    """Reads features, and again only if they have changed.

    Parameters
    ----------
    read : such as :meth:`FeatureSet.read`
    tags : returns a value that changes with the features
    """

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


def _check_same_examples(index: Index, own: Index, uri: str) -> None:
    if [shard.ids for shard in index.shards] != [shard.ids for shard in own.shards]:
        raise DataError(f"{uri} has other examples than its set; delete it and run the spec again")


def plan_set(spec: Spec, planned: Plan, compared: Plan | None, code: Code | None = None) -> FeatureLink | None:
    """Return the set of a new run; None if its features are in its own prefix.

    A set with more features of the forward pass is used if it is complete and excludes no example.

    Parameters
    ----------
    spec : with the digest of its weights
    planned, compared : the shards of pool and reference
    code : that computes the features
    """
    if spec.model.weights is None:
        return None
    wanted = set(spec.features())
    default = {name for name in FORWARD if name != "confidence" or spec.model.task == "classification"}
    links = [
        _link(spec, planned, compared, code, [name for name in FORWARD if name in each])
        for each in (wanted | default, wanted)
    ]
    if links[0] != links[1]:
        index = read_index(_folder(spec, links[0]))
        if index is None or index.bad:
            return links[1]
    return links[0]


def _link(spec: Spec, planned: Plan, compared: Plan | None, code: Code | None, features: list[str]) -> FeatureLink:
    own = describe(spec, planned, features, code).model_dump(exclude={"format", "sha256"})
    added = {name: _added(spec, compared, code, name) for name in spec.features() if name not in FORWARD}
    return FeatureLink(
        folder=f"../{HOME}/{_short(own)}",
        features=features,
        added={name: f"{name}-{_short(content)}" for name, content in added.items()},
        whole=f"all-{_short({'features': sorted(spec.features()), 'added': added})}",
    )


def describe(spec: Spec, planned: Plan, features: list[str], code: Code | None = None) -> FeatureSetDescription:
    """Describe all that determines the forward features of a pool."""
    pool = spec.pool.uri.rstrip("/")
    content = reference.decided_by(spec, spec.pool, planned, code)
    return FeatureSetDescription(pool=pool, features=features, decided_by=content)


def _added(spec: Spec, compared: Plan | None, code: Code | None, name: str) -> dict[str, Any]:
    """Return what determines an added feature, in addition to its set."""
    coverage, source = spec.extract.coverage, spec.reference
    ranges = name == "coverage" and coverage.rule.needs_ranges
    compares = compared is not None and source is not None and (name in SURPRISE or ranges)
    return {
        "feature": name,
        "reference": reference.decided_by(spec, source, compared, code) if compares and source and compared else None,
        "coverage": coverage.model_dump() if name == "coverage" else None,
    }


def _folder(spec: Spec, link: FeatureLink) -> Store:
    return open_store(join(spec.output, HOME, link.digest))


def feature_set(run: Store, link: FeatureLink | None) -> FeatureSet:
    """Return the set of a run's link."""
    if link is None:
        return FeatureSet(run.store("features"), None)
    return FeatureSet(open_store(join(run.uri.rpartition("/")[0], HOME, link.digest)), link)


def read_description(folder: Store) -> FeatureSetDescription:
    """Return the description of a set; raises DataError if it is damaged or missing."""
    if not folder.exists(DESCRIPTION):
        raise DataError(f"{folder.uri_of(DESCRIPTION)} is lost; run the spec again, which writes it anew")
    return FeatureSetDescription.from_bytes(folder.read(DESCRIPTION), folder.uri_of(DESCRIPTION))


def write_description(folder: Store, description: FeatureSetDescription) -> None:
    """Write the description of a set, unless it is there."""
    data = description.to_bytes()
    if not folder.exists(DESCRIPTION) or folder.read(DESCRIPTION) != data:
        folder.write(DESCRIPTION, data)


def _short(content: dict[str, Any]) -> str:
    return reference.digest_of(content)[:16]
