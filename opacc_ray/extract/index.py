"""The index of a folder of features, which completes it: files with their sizes and digests, and totals over them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part
from opacc_ray.extract.machine import Machine
from opacc_ray.extract.shards import ShardReport
from opacc_ray.lake.storage import Store

INDEX = "index.json"


class IndexedShard(Part):
    """One file. What may be null is not known of files that version 0.1.0 indexed."""

    file: str = Field(description="name of the Parquet file, in the folder of the index")
    examples: int = Field(description="number of its examples")
    bytes: int | None = Field(default=None, description="size of the file")
    footer_bytes: int | None = Field(default=None, description="bytes from the file's footer to its end")
    sha256: str | None = Field(default=None, description="of these bytes, which hold the SHA-256 of all before them")
    ids: str | None = Field(default=None, description="SHA-256 of its ids in order, each after its length in 8 bytes")
    machine: int | None = Field(default=None, description="place of its maker's kind among machines")


class Excluded(Part):
    """An example that could not be used."""

    id: str = Field(description="its id")
    reason: str = Field(description="why it could not be used")


def _from_0_1_0(content: dict[str, Any]) -> dict[str, Any]:
    return {"machines": [], "predicted": None} | content | {"format": "opacc-index/2"}


class Index(Document):
    """The features of a pool: written last, its presence says that extraction is complete."""

    upgrades: ClassVar = {None: _from_0_1_0}
    remedy: ClassVar[str] = "delete it and run again"

    format: Literal["opacc-index/2"] = Field(default="opacc-index/2", description="name and version of this form")
    shards: list[IndexedShard] = Field(description="the files, in the order of the pool")
    num_examples: int = Field(description="examples in all files")
    features: dict[str, int] = Field(description="feature -> values per example")
    bad: list[Excluded] = Field(description="examples that are left out")
    predicted: dict[str, int] | None = Field(
        description="predicted class -> examples; null for regressions, and where it is not known"
    )
    machines: list[Machine] = Field(description="kinds of the machines that made the files")


def make_index(files: Sequence[str], reports: Sequence[ShardReport]) -> Index:
    """Return the index of files, in the order of the pool, from the report of each."""
    machines = sorted({report.machine for report in reports if report.machine}, key=str)
    features: dict[str, int] = {}
    predicted: Counter[int] = Counter()
    for report in reports:
        features |= report.widths
        predicted.update(report.predicted or {})
    counted = any(report.predicted is not None for report in reports)
    return Index(
        shards=[_indexed(file, report, machines) for file, report in zip(files, reports, strict=True)],
        num_examples=sum(report.num_examples for report in reports),
        features=features,
        bad=[Excluded(**item._asdict()) for report in reports for item in report.bad],
        predicted={str(c): num for c, num in sorted(predicted.items())} if counted else None,
        machines=machines,
    )


def read_index(folder: Store) -> Index | None:
    """Return a folder's index, or None while its features are not complete."""
    return Index.from_bytes(folder.read(INDEX), folder.uri_of(INDEX)) if folder.exists(INDEX) else None


def write_index(folder: Store, index: Index) -> None:
    """Say that a folder's features are complete."""
    folder.write(INDEX, index.to_bytes())


def _indexed(file: str, report: ShardReport, machines: Sequence[Machine]) -> IndexedShard:
    return IndexedShard(
        file=file,
        examples=report.num_examples,
        bytes=report.size,
        footer_bytes=report.footer_size,
        sha256=report.sha256,
        ids=report.ids,
        machine=machines.index(report.machine) if report.machine else None,
    )
