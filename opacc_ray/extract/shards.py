"""The features of one shard as a Parquet file, and what the file says of itself.

A file has one row group, so that the values of a column lie together and are read together, a checksum on every page,
and a report at its end: how many examples there are, digests, predicted classes, who made it. So an index of all files
needs no second look at them: an actor sends the report of what it has written, and the end of a file that was there
before tells the same.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, shortened
from opacc_ray.extract.columns import Columns
from opacc_ray.extract.ids import Hashes, digest_of, hashes_of
from opacc_ray.extract.machine import Machine
from opacc_ray.lake.arrow import numbers, texts
from opacc_ray.lake.examples import BadItem
from opacc_ray.lake.parquet_io import Footer, footer_of, read_columns, read_footer
from opacc_ray.lake.storage import Store

FEATURES_FORMAT = 2
"""Raised when the same spec would give other features, so that runs of different versions do not mix."""

REMEDY = "run the spec again, which extracts a damaged shard anew"

MOST_FOOTERS = 1 << 12
"""Footers that are held for the next read of their file; each takes about 2 kB."""

_KEY = "opacc"  # of the report in the file's metadata

_SEAL = '"end_sha256": "{}"'  # in the report: the digest of the footer, in which zeros take the digest's place
_UNSEALED = _SEAL.format("0" * 64).encode()


class FeatureShard(NamedTuple):
    """The features of one shard's examples."""

    ids: list[str]
    uris: list[str] | None  # None: they are in the file that holds the other features of the examples
    columns: Columns
    bad: list[BadItem]
    own_ids: bool = True  # whether the ids are the pool's own; ids made of keys are unique without a check


class ShardReport(NamedTuple):
    """What the driver learns of a finished shard."""

    num_examples: int
    bad: list[BadItem]
    widths: dict[str, int]  # values per example of each feature
    predicted: dict[int, int] | None  # examples by predicted class; None for a regression
    ids: str  # digest of the ids in their order
    own_ids: bool
    machine: Machine | None  # that made it; None if unknown
    size: int  # of the file in bytes
    footer_size: int  # bytes from the file's footer to its end
    sha256: str  # of the footer, which contains the SHA-256 of all bytes before it
    hashes: Hashes | None = None  # (num_examples,) of the ids, if they are the pool's own and were at hand


def encode_shard(shard: FeatureShard, machine: Machine | None = None) -> bytes:
    """Return one Parquet file: id, uri, and a column per feature; layers and coverage are lists of fixed size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {"id": texts(shard.ids)}
    if shard.uris is not None:
        columns["uri"] = texts(shard.uris)
    for name, values in shard.columns.items():
        columns[name] = numbers(values)
    table = pa.table(columns)
    sink = io.BytesIO()
    options = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=max(len(table), 1))
        report = _describe(shard.ids, shard.columns.get("prediction"), shard.bad) | {
            "own_ids": shard.own_ids,
            "machine": machine.model_dump() if machine else None,
            "data_sha256": hashlib.sha256(sink.getvalue()).hexdigest(),
            "end_sha256": "0" * 64,
        }
        writer.add_key_value_metadata({_KEY: json.dumps(report)})
    return _sealed(sink.getvalue())


def _sealed(data: bytes) -> bytes:
    """The file with the digest of its footer in it."""
    end = footer_of(data).data
    seal = _SEAL.format(hashlib.sha256(end).hexdigest()).encode()
    return data[: -len(end)] + end.replace(_UNSEALED, seal)


def _check_seal(footer: Footer) -> None:
    said = _header(footer)["end_sha256"]
    unsealed = footer.data.replace(_SEAL.format(said).encode(), _UNSEALED)
    if hashlib.sha256(unsealed).hexdigest() != said:
        raise ValueError("its end does not fit the digest in it")


def report_on(shard: FeatureShard, data: bytes, source: str) -> ShardReport:
    """Return the report of a file that has just been made, with the hashes of ids that must be checked."""
    with _readable(source):
        report = _parse(footer_of(data), len(data))
    return report._replace(hashes=hashes_of(shard.ids)) if shard.own_ids else report


def read_report(store: Store, file: str, size: int, *, whole: bool = False) -> ShardReport:
    """Return the report at the end of a file.

    Parameters
    ----------
    whole : compare all bytes with their digest, too, and not the end alone

    Raises
    ------
    DataError
        The file is not a shard of features, or it is damaged.
    """
    with _readable(store.uri_of(file)):
        footer = read_footer(store, file, size=size)
        _check_seal(footer)
        if whole:
            before = store.read(file)[: -len(footer.data)]
            _check(hashlib.sha256(footer.data).hexdigest(), footer, before)
        return _parse(footer, size)


def read_table(
    store: Store,
    file: str,
    names: Sequence[str] | None,
    size: int | None,
    footer_size: int | None,
    *,
    num_examples: int | None = None,
    sha256: str | None = None,
    footers: dict[str, bytes] | None = None,
) -> Any:
    """Return some columns of a file as an Arrow table, or all.

    With ``sha256`` the footer is checked, which tells the file from every other; the pages that are read are checked by
    their own checksums; and all bytes by their digest, if all were read.

    Parameters
    ----------
    size, footer_size, num_examples, sha256 : what the index says of the file, as far as it does
    footers : those that were read before, by file; that of this one is added to them

    Raises
    ------
    DataError
        The file is damaged, or not the one of the index.
    """

    def check(footer: Footer, before: bytes | None) -> None:
        if sha256 is not None:
            _check(sha256, footer, before)
        if footers is not None and len(footers) < MOST_FOOTERS:
            footers[file] = footer.data

    known = footers.get(file) if footers else None
    with _readable(store.uri_of(file)):
        table = read_columns(store, file, names, size=size, footer_size=footer_size, footer=known, check=check)
        for name in names or ():
            table.column(name)
        if num_examples not in (None, len(table)):
            raise ValueError(f"it holds {len(table)} examples, and its index says {num_examples}")
        return table


def _check(sha256: str, footer: Footer, before: bytes | None) -> None:
    if hashlib.sha256(footer.data).hexdigest() != sha256:
        raise ValueError("it is not the one of its index")
    if before is not None and hashlib.sha256(before).hexdigest() != _header(footer)["data_sha256"]:
        raise ValueError("it does not fit its digest")


def finished_shards(folder: Store) -> set[str]:
    """Names of the shards whose features are in a folder, those in folders below it aside."""
    keys = [entry.key for entry in folder.list() if "/" not in entry.key]
    return {key.removesuffix(".parquet") for key in keys if key.endswith(".parquet")}


def _describe(ids: Sequence[str], prediction: NDArray[Any] | None, bad: Sequence[BadItem]) -> dict[str, Any]:
    """The part of a report that is made of values."""
    predicted = None
    if prediction is not None and prediction.dtype.kind in "iu":
        classes, counts = np.unique(prediction, return_counts=True)
        predicted = dict(zip(classes.tolist(), counts.tolist(), strict=True))
    return {"ids": digest_of(ids), "predicted": predicted, "bad": [item._asdict() for item in bad]}


def _header(footer: Footer) -> dict[str, Any]:
    return dict(json.loads(footer.described(_KEY.encode()) or b"null"))


def _parse(footer: Footer, size: int) -> ShardReport:
    """Return the report in a footer."""
    said = _header(footer)
    machine, predicted = said.get("machine"), said["predicted"]
    return ShardReport(
        num_examples=footer.metadata.num_rows,
        bad=[BadItem(**item) for item in said["bad"]],
        widths=widths(footer.metadata.schema.to_arrow_schema()),
        predicted=None if predicted is None else {int(c): num for c, num in predicted.items()},
        ids=said["ids"],
        own_ids=said["own_ids"],
        machine=None if machine is None else Machine(**machine),
        size=size,
        footer_size=len(footer.data),
        sha256=hashlib.sha256(footer.data).hexdigest(),
    )


def widths(schema: Any) -> dict[str, int]:
    """Values per example of each feature of an Arrow schema."""
    import pyarrow as pa

    held = [item for item in schema if item.name not in ("id", "uri")]
    return {item.name: item.type.list_size if pa.types.is_fixed_size_list(item.type) else 1 for item in held}


@contextmanager
def _readable(source: str) -> Iterator[None]:
    """Name the file in the error if what is read is not a shard of features."""
    try:
        yield
    except OpaccError:
        raise
    except Exception as error:  # Arrow, JSON and a report of another form raise many kinds
        reason = shortened(str(error)) or type(error).__name__  # some of Arrow's have lines
        raise DataError(f"{source} is not a shard of features ({reason}); {REMEDY}") from None
