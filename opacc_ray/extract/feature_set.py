"""Feature sets: the features of a pool under a model, stored once per output and shared by all runs.

    features/DIGEST/set.json                     content of the digest: pool, model, transform, their code, batches
    features/DIGEST/part-000000.parquet          id, uri and the features of the forward pass of a shard's examples
    features/DIGEST/index.json                   written last: its presence means that they are complete
    features/DIGEST/dsa-DIGEST/part-000000.parquet, …/index.json    dsa or lsa, computed from the hidden layer
    features/DIGEST/slices-DIGEST/…              columns that make slices of the pool (table_columns.py)

DIGEST covers all that determines the content. Names, seeds, methods, budgets and scores do not change it. dsa and lsa
compare with training data, so each is in a separate folder, whose digest covers those; it has the same rows.

Without weights in the spec, the factory may return another model each time. Then features are in the run's own prefix.

Features that an earlier extraction of the pool has made are copied for the objects that are as they were. A shard's
file has, for each example, the digest of the part of the pool that it is from: a file, or some row groups of one, with
key, size and tag (:func:`opacc_ray.lake.examples.source_of`). A part with the same digest has the same examples. So a
grown pool needs the model only for its new and changed objects.

Parts with an example that could not be used are read again. Values are those that were made when the object was first
seen, in its batch of that time; another batch would change the last bits.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, Strict, model_validator

from opacc_ray.documents import Part, SealedDocument
from opacc_ray.errors import DataError
from opacc_ray.extract.feature_files import Features
from opacc_ray.extract.model_code import Code, json_digest
from opacc_ray.extract.shards import (
    FEATURES_FORMAT,
    REMEDY,
    FeatureFile,
    FeatureShard,
    Machine,
    ShardReport,
    digest_of,
    read_shard,
    read_table,
    stacked,
    widths,
)
from opacc_ray.lake.examples import Plan, Shard, source_of
from opacc_ray.lake.store_uris import Store, join, open_store
from opacc_ray.spec import PLACEMENT, SURPRISE, PoolSpec, Spec

INDEX = "index.json"
ALL = ("hidden", "output", "confidence", *SURPRISE, "coverage", "prediction")  # all features, in the order of columns
HOME, DESCRIPTION = "features", "set.json"  # the folder of all sets of an output, and the file that describes a set

_OF_MODEL = {"factory", "arguments", "sha256", "hidden_layer", "task"}
_NOT_OF_MODEL = {"name", "weights", "classes"}
_OF_EXTRACT = {"batch_size", "shard_size", "precision", "threads_per_actor"}
_NOT_OF_EXTRACT = {"features", "coverage", "on_bad_item", *PLACEMENT}

Folder = Annotated[str, Field(pattern="^[a-z]+-[0-9a-f]{16}$")]


class IndexedShard(Part):
    """One file of features."""

    file: str  # name of the file, next to the index
    examples: int = Field(ge=0, le=1 << 40)  # examples in it
    bytes: int = Field(ge=0)  # size of the file
    footer_bytes: int = Field(ge=0)  # bytes from its footer to its end
    sha256: str  # digest of the footer, which holds the SHA-256 of all bytes before it
    ids: str  # SHA-256 of the ids in their order, each after its length in 8 bytes
    machine: int | None = Field(default=None, ge=0)  # place of its maker's kind among `machines`

    @property
    def feature_file(self) -> FeatureFile:
        """The file, as it is read."""
        return FeatureFile(self.file, self.examples, self.bytes, self.footer_bytes, self.sha256)


class Excluded(Part):
    """An example that could not be used."""

    id: str  # id of the example
    reason: str  # why it could not be used
    source: int | None = None  # digest of the part of the pool that it is from


class Index(SealedDocument):
    """The index of a folder of features, written when they are complete."""

    remedy: ClassVar[str] = "delete it and run the spec again, finished shards are kept"

    format: Literal["opacc-index/2"] = "opacc-index/2"
    shards: tuple[IndexedShard, ...] = Field(strict=False)  # the files, in the order of the pool
    num_examples: int = Field(ge=0)  # examples in all files
    features: dict[str, Annotated[int, Field(ge=1, le=1 << 24)]]  # feature -> values per example
    bad: tuple[Excluded, ...] = Field(strict=False)  # examples that could not be used
    # predicted class -> examples; null for a regression, and where it is not known
    predicted: dict[Annotated[int, Strict(False)], int] | None = None
    turned: int = Field(default=0, ge=0)  # image files that state an EXIF orientation other than upright
    machines: tuple[Machine, ...] = Field(default=(), strict=False)  # kinds of machines that made the files
    others: dict[str, str] = Field(default={})  # other file next to the index -> its SHA-256

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        found = sum(shard.examples for shard in self.shards)
        elsewhere = [shard.file for shard in self.shards if {"", ".", ".."} & set(shard.file.split("/"))]
        if elsewhere:
            raise ValueError(f"the file {elsewhere[0]!r} is not next to the index")
        if len({shard.file for shard in self.shards}) < len(self.shards):
            raise ValueError("a file is there twice among the shards")
        if found != self.num_examples:
            raise ValueError(f"the shards hold {found} examples, and num_examples is {self.num_examples}")
        if self.predicted is not None and sum(self.predicted.values()) != self.num_examples:
            raise ValueError(f"predicted does not add up to num_examples, {self.num_examples}")
        return self

    @property
    def files(self) -> list[FeatureFile]:
        """The files that contain examples."""
        return [shard.feature_file for shard in self.shards if shard.examples]


def make_index(
    files: Sequence[str], reports: Sequence[ShardReport], others: Mapping[str, bytes] | None = None
) -> Index:
    """Return the index of files, in the order of the pool, from their reports; ``others`` are by content.

    Raises DataError if a feature has more values per example in some files than in others.
    """
    machines = sorted({report.machine for report in reports if report.machine}, key=str)
    features: dict[str, int] = {}
    predicted: Counter[int] = Counter()
    for file, report in zip(files, reports, strict=True):
        for name, width in report.widths.items():
            if features.setdefault(name, width) != width:
                raise DataError(
                    f"{file} holds {name} with {width} values per example, and files before it with {features[name]}; "
                    "correct the model or the pool, delete the wrong files and run the spec again"
                )
        predicted.update(report.predicted or {})
    counted = any(report.predicted is not None for report in reports)
    return Index(
        shards=tuple(
            IndexedShard(
                file=file,
                examples=report.num_examples,
                bytes=report.size,
                footer_bytes=report.footer_size,
                sha256=report.sha256,
                ids=report.ids,
                machine=machines.index(report.machine) if report.machine else None,
            )
            for file, report in zip(files, reports, strict=True)
        ),
        num_examples=sum(report.num_examples for report in reports),
        features=features,
        bad=tuple(Excluded(**item._asdict()) for report in reports for item in report.bad),
        predicted=dict(sorted(predicted.items())) if counted else None,
        turned=sum(sum(report.turned.values()) for report in reports),
        machines=tuple(machines),
        others={name: hashlib.sha256(data).hexdigest() for name, data in (others or {}).items()},
    )


def read_index(folder: Store) -> Index | None:
    """Return a folder's index, or None while its features are not complete."""
    data = folder.read_if_there(INDEX)
    return None if data is None else Index.from_bytes(data, folder.uri_of(INDEX))


def write_index(folder: Store, index: Index) -> None:
    """Write the index, which marks the features of a folder as complete."""
    folder.write(INDEX, index.to_bytes())


def check_shard(folder: Store, index: Index, shard: IndexedShard, size: int, *, whole: bool = True) -> Any:
    """Return the table of a file, without columns unless ``whole``.

    Raises DataError if it differs from the index: in any byte, or else in its size or its end.
    """
    source = folder.uri_of(shard.file)
    if shard.bytes != size:
        raise DataError(f"{source} has {size} bytes, and {shard.bytes} in its index; {REMEDY}")
    table = read_table(folder, shard.feature_file, None if whole else [])
    if whole and shard.ids != digest_of(table["id"].to_pylist()):
        raise DataError(f"the ids of {source} are not those of its index; {REMEDY}")
    if whole and shard.examples and widths(table.schema) != index.features:
        raise DataError(f"the features of {source} are not those of its index; {REMEDY}")
    return table


def read_other(folder: Store, name: str) -> bytes:
    """Return a file next to the shards; raises DataError if it is not the one of the index."""
    index, data = read_index(folder), folder.read(name)
    expected = index.others.get(name) if index else None
    if expected not in (None, hashlib.sha256(data).hexdigest()):
        raise DataError(f"{folder.uri_of(name)} was changed since it was indexed; {REMEDY}")
    return data


# -- sets ------------------------------------------------------------------------------------------------------


class FeatureLink(Part):
    """Location of a run's features: a set next to the runs of its output, which they share."""

    # the set, relative to the run; its name is a digest of all that decides its content
    folder: str = Field(pattern=f"^[.][.]/{HOME}/[0-9a-f]{{16}}$")
    features: list[str] = Field(min_length=1)  # those of the model, in the set's own files
    added: dict[str, Folder]  # dsa or lsa -> folder of the set that holds it

    @property
    def digest(self) -> str:
        """Name of the set."""
        return self.folder.rpartition("/")[2]


class FeatureSetDescription(SealedDocument):
    """Description of a set: its pool, its features and its digest's content."""

    remedy: ClassVar[str] = "delete it and run the spec again, which writes it anew"

    format: Literal["opacc-features/1"] = "opacc-features/1"
    pool: str  # URI of the pool
    features: list[str]  # features of the model
    decided_by: dict[str, Any]  # all that decides the content: the listing, the model, its code, the batches


@dataclass(frozen=True)
class Complete:
    """The complete features of a run."""

    features: Features
    index: Index
    digest: str  # of all files, which differs for other features of the same examples


class FeatureSet(NamedTuple):
    """The folders of a run's features."""

    folder: Store  # of the model's features
    added: Mapping[str, Store]  # of dsa and lsa

    @property
    def folders(self) -> list[Store]:
        """All folders."""
        return [self.folder, *self.added.values()]

    def read(self) -> Complete | None:
        """Return the features, or None while they are not complete.

        Raises DataError if an index is damaged, or that of an added feature has other examples.
        """
        indices = list[Index]()
        for folder in self.folders:
            if (found := read_index(folder)) is None:  # the others need not be read
                return None
            indices.append(found)
        index = indices[0]
        features, widths = Features.of(self.folder, index.files), dict(index.features)
        for (name, folder), own in zip(self.added.items(), indices[1:], strict=True):
            if [shard.ids for shard in index.shards] != [shard.ids for shard in own.shards]:
                raise DataError(f"{folder.uri} has other examples than its set; delete it and run the spec again")
            features = features.with_added(name, folder.uri.rpartition("/")[2], own.files)
            widths |= own.features
        content = [[shard.sha256, shard.ids, shard.examples] for own in indices for shard in own.shards]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        ordered = {name: widths[name] for name in ALL if name in widths}
        return Complete(features, index.model_copy(update={"features": ordered}), digest)

    def tags(self) -> list[str | None]:
        """Return the tags of the indices, which change with their content; None for a missing one."""
        return [entry.tag if entry else None for entry in (folder.entry(INDEX) for folder in self.folders)]


def feature_set(run: Store, link: FeatureLink | None, surprise: Iterable[str] = ()) -> FeatureSet:
    """Return the set of a run's link; without one, all features, with ``surprise``, are in the run's own folder."""
    if link is None:
        folder = run.store("features")
        return FeatureSet(folder, {name: folder.store(name) for name in surprise})
    folder = open_store(join(run.uri.rpartition("/")[0], HOME, link.digest))
    return FeatureSet(folder, {name: folder.store(place) for name, place in link.added.items()})


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


def read_description(folder: Store) -> FeatureSetDescription:
    """Return the description of a set; raises DataError if it is damaged or missing."""
    if not folder.exists(DESCRIPTION):
        raise DataError(f"{folder.uri_of(DESCRIPTION)} is lost; run the spec again, which writes it anew")
    return FeatureSetDescription.from_bytes(folder.read(DESCRIPTION), folder.uri_of(DESCRIPTION))


def write_description(folder: Store, description: FeatureSetDescription) -> None:
    """Write the description of a set, unless it is there."""
    if folder.read_if_there(DESCRIPTION) != (data := description.to_bytes()):
        folder.write(DESCRIPTION, data)


# -- features of an earlier listing ----------------------------------------------------------------------------


def locate(known: Store, shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards with the files of a folder that have features of their parts, as ``carried``."""
    index = read_index(known)
    if index is None or any(item.source is None for item in index.bad):
        return list(shards)
    faulty = [item.source for item in index.bad if item.source is not None]
    features = Features.of(known, index.files)
    held = [np.unique(own) for own in features.sources()]
    if not held:
        return list(shards)
    sources = np.concatenate(held)  # (k,) digests of the known parts
    sources, first = np.unique(sources, return_index=True)
    file = np.repeat(np.arange(len(held)), [len(own) for own in held])[first]  # (k,)
    sound = ~np.isin(sources, np.array(faulty, dtype=np.uint64))
    return [_with_known(shard, sources[sound], file[sound], features) for shard in shards]


def _with_known(shard: Shard, sources: NDArray[np.uint64], file: NDArray[np.int64], features: Features) -> Shard:
    """Return a shard with the parts that are among the sorted ``sources`` (k,), each in the ``file`` (k,)."""
    own = np.array([source_of(part) for part in shard.parts], dtype=np.uint64)
    place = np.minimum(np.searchsorted(sources, own), max(len(sources) - 1, 0))
    there = np.flatnonzero(sources[place] == own) if len(sources) else np.empty(0, dtype=np.int64)
    files = [features.files[number].name for number in file[place[there]].tolist()] if len(there) else []
    return shard._replace(carried=tuple(zip(there.tolist(), files, strict=True)))


def left_of(shard: Shard) -> list[int]:
    """Return the numbers of the parts of a shard that have no known features."""
    there = {number for number, _ in shard.carried}
    return [number for number in range(len(shard.parts)) if number not in there]


def read_carried(known: Store, names: Sequence[str], shard: Shard) -> FeatureShard:
    """Return the known features of a shard's parts; raises DataError if their files are damaged."""
    by_file: dict[str, list[int]] = {}
    for number, file in shard.carried:
        by_file.setdefault(file, []).append(source_of(shard.parts[number]))
    return stacked([read_shard(known, file, names, sources) for file, sources in by_file.items()])


def merged(shard: Shard, parts: Sequence[FeatureShard]) -> FeatureShard:
    """Return the features of several groups of a shard's parts, in the order of the shard."""
    whole = stacked(parts)
    place = {source_of(part): number for number, part in enumerate(shard.parts)}
    order = np.argsort([place[source] for source in whole.sources or ()], kind="stable")
    return whole.take(order.tolist())


# -- what decides the content ----------------------------------------------------------------------------------


def decided_by(spec: Spec, source: PoolSpec | None, planned: Plan, code: Code | None) -> dict[str, Any]:
    """Return all that determines a forward pass over data: listing, reading rules, model, code and batches."""
    return {
        "version": FEATURES_FORMAT,
        "listing": planned.digest,
        "source": source.reading() if source else None,
        **model_of(spec),
        "extract": _deciding(spec.extract, _OF_EXTRACT, _NOT_OF_EXTRACT),
        **({"code": code.model_dump()} if code else {}),
    }


def model_of(spec: Spec) -> dict[str, Any]:
    """Return the parts of a spec that determine the model's output for an example."""
    return {"model": _deciding(spec.model, _OF_MODEL, _NOT_OF_MODEL), "transform": spec.transform}


def _deciding(section: BaseModel, always: set[str], never: set[str]) -> dict[str, Any]:
    """Return the keys of a section that determine the content; unlisted ones do if they have no default value."""
    fields = type(section).model_fields
    content = section.model_dump(mode="json", exclude=never)
    return {
        key: value for key, value in content.items() if key in always or getattr(section, key) != fields[key].default
    }


def plan_set(spec: Spec, planned: Plan, compared: Plan | None, code: Code | None = None) -> FeatureLink | None:
    """Return the set of a new run; None if its features are in its own prefix.

    A set with more features of the model is used if it is complete and excludes no example.

    The spec has the digest of its weights; ``planned`` and ``compared`` are the shards of pool and reference.
    """
    if spec.model.weights is None:
        return None
    wanted = set(spec.extracted())
    default = {"hidden", "output", "prediction"} | ({"confidence"} if spec.model.task == "classification" else set())
    links = [
        _link(spec, planned, compared, code, [name for name in ALL if name in each])
        for each in (wanted | default, wanted)
    ]
    if links[0] != links[1]:
        index = read_index(open_store(join(spec.output, HOME, links[0].digest)))
        if index is None or index.bad:
            return links[1]
    return links[0]


def _link(spec: Spec, planned: Plan, compared: Plan | None, code: Code | None, features: list[str]) -> FeatureLink:
    own = describe(spec, planned, compared, features, code).model_dump(exclude={"format", "sha256"})
    content = {"reference": _reference_of(spec, compared, code)}
    return FeatureLink(
        folder=f"../{HOME}/{json_digest(own)[:16]}",
        features=features,
        added={name: f"{name}-{json_digest({'feature': name} | content)[:16]}" for name in spec.surprise()},
    )


def describe(
    spec: Spec, planned: Plan, compared: Plan | None, features: list[str], code: Code | None = None
) -> FeatureSetDescription:
    """Describe all that determines the features of a model for a pool."""
    content = decided_by(spec, spec.pool, planned, code)
    if "coverage" in features:
        coverage = spec.extract.coverage
        ranges = _reference_of(spec, compared, code) if coverage.rule.needs_ranges else None
        content |= {"coverage": coverage.model_dump(), "reference": ranges}
    return FeatureSetDescription(pool=spec.pool.uri.rstrip("/"), features=features, decided_by=content)


def _reference_of(spec: Spec, compared: Plan | None, code: Code | None) -> dict[str, Any] | None:
    return None if compared is None else decided_by(spec, spec.reference, compared, code)
