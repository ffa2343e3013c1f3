"""The index of a folder of features, which completes it: files with their sizes and digests, and totals over them."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from opacc_ray.errors import DataError
from opacc_ray.extract.machine import Machine
from opacc_ray.extract.shards import ShardReport
from opacc_ray.lake.storage import Store

INDEX = "index.json"
FORMAT: Literal["opacc-index/2"] = "opacc-index/2"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class IndexedShard(_Part):
    """One file. What may be None is not known of files that version 0.1.0 indexed."""

    file: str
    examples: int
    bytes: int | None = None
    footer_bytes: int | None = None  # from the footer to the end of the file
    sha256: str | None = None  # of the footer, which holds the SHA-256 of all bytes before it
    ids: str | None = None  # SHA-256 of the ids in their order, each after its length in 8 bytes
    machine: int | None = None  # place of its maker's kind among `machines`


class Excluded(_Part):
    """An example that could not be used."""

    id: str
    reason: str


class Index(_Part):
    """The content of ``index.json``."""

    format: Literal["opacc-index/2"] = FORMAT
    shards: tuple[IndexedShard, ...]  # in the order of the pool
    num_examples: int
    features: dict[str, int]  # values per example of each
    bad: tuple[Excluded, ...]
    predicted: dict[int, int] | None = None  # examples by predicted class; None for a regression, or if not known
    machines: tuple[Machine, ...] = ()  # kinds of the shards' makers


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
        shards=tuple(_indexed(file, report, machines) for file, report in zip(files, reports, strict=True)),
        num_examples=sum(report.num_examples for report in reports),
        features=features,
        bad=tuple(Excluded(**item._asdict()) for report in reports for item in report.bad),
        predicted=dict(sorted(predicted.items())) if counted else None,
        machines=tuple(machines),
    )


def read_index(folder: Store) -> Index | None:
    """Return a folder's index, or None while its features are not complete."""
    if not folder.exists(INDEX):
        return None
    source = folder.uri_of(INDEX)
    try:
        content = json.loads(folder.read(INDEX))
    except ValueError as error:
        raise DataError(f"{source} is not JSON ({error}); delete it and run again") from None
    return parse_index(content, source)


def parse_index(content: Any, source: str) -> Index:
    """Return the index that a JSON document holds; one without a format is of version 0.1.0.

    Raises
    ------
    DataError
        Another format, or not an index.
    """
    found = content.get("format", FORMAT) if isinstance(content, dict) else None
    if found not in (FORMAT, None):
        raise DataError(f"{source} has format {found!r}; this version reads {FORMAT!r}")
    try:
        return Index.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{source} is no index: {place}: {first['msg']}; delete it and run again") from None


def write_index(folder: Store, index: Index) -> None:
    """Say that a folder's features are complete."""
    folder.write(INDEX, json.dumps(index.model_dump(mode="json"), indent=2, ensure_ascii=False).encode() + b"\n")


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
