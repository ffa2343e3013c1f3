"""The index of a folder of features: its files with their digests, written when all of them are there."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, Strict, model_validator

from opacc_ray.documents import Part, SealedDocument, format_field
from opacc_ray.errors import DataError
from opacc_ray.extract.machine import Machine
from opacc_ray.extract.shards import REMEDY, ShardReport, digest_of, read_table, widths
from opacc_ray.lake.store_uris import Store

INDEX = "index.json"


class IndexedShard(Part):
    """One file of features."""

    file: str = Field(description="name of the file, next to the index")
    examples: int = Field(ge=0, le=1 << 40, description="examples in it")
    bytes: int | None = Field(default=None, ge=0, description="size of the file")
    footer_bytes: int | None = Field(default=None, ge=0, description="bytes from its footer to its end")
    sha256: str | None = Field(
        default=None, description="digest of the footer, which holds the SHA-256 of all bytes before it"
    )
    ids: str | None = Field(
        default=None, description="SHA-256 of the ids in their order, each after its length in 8 bytes"
    )
    machine: int | None = Field(default=None, ge=0, description="place of its maker's kind among `machines`")


class Excluded(Part):
    """An example that could not be used."""

    id: str = Field(description="id of the example")
    reason: str = Field(description="why it could not be used")


class Index(SealedDocument):
    """The index of a folder of features, written when they are complete."""

    remedy: ClassVar[str] = "delete it and run the spec again, finished shards are kept"

    format: Literal["opacc-index/2"] = format_field("opacc-index/2")
    shards: tuple[IndexedShard, ...] = Field(strict=False, description="the files, in the order of the pool")
    num_examples: int = Field(ge=0, description="examples in all files")
    features: dict[str, Annotated[int, Field(ge=1, le=1 << 24)]] = Field(description="feature -> values per example")
    bad: tuple[Excluded, ...] = Field(strict=False, description="examples that could not be used")
    predicted: dict[Annotated[int, Strict(False)], int] | None = Field(
        default=None, description="predicted class -> examples; null for a regression, and where it is not known"
    )
    machines: tuple[Machine, ...] = Field(default=(), strict=False, description="kinds of machines that made the files")
    others: dict[str, str] = Field(default={}, description="other file next to the index -> its SHA-256")

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


def check_shard(folder: Store, index: Index, shard: IndexedShard, size: int, *, whole: bool = True) -> None:
    """Raise DataError if a file differs from the index: in any byte, or else in its size or its end."""
    source = folder.uri_of(shard.file)
    if shard.bytes not in (None, size):
        raise DataError(f"{source} has {size} bytes, and {shard.bytes} in its index; {REMEDY}")
    names: list[str] | None = None if whole else []
    table = read_table(
        folder, shard.file, names, size, shard.footer_bytes, num_examples=shard.examples, sha256=shard.sha256
    )
    if whole and shard.ids not in (None, digest_of(table["id"].to_pylist())):
        raise DataError(f"the ids of {source} are not those of its index; {REMEDY}")
    if whole and shard.examples and widths(table.schema) != index.features:
        raise DataError(f"the features of {source} are not those of its index; {REMEDY}")


def read_other(folder: Store, name: str) -> bytes:
    """Return a file next to the shards; raises DataError if it is not the one of the index."""
    index, data = read_index(folder), folder.read(name)
    expected = index.others.get(name) if index else None
    if expected not in (None, hashlib.sha256(data).hexdigest()):
        raise DataError(f"{folder.uri_of(name)} was changed since it was indexed; {REMEDY}")
    return data
