"""Features of examples: from a batch of activations to columns, and from columns to a shard's file and back."""

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.lake.sources import BadItem
from opacc_ray.lake.storage import Store
from opacc_ray.pool import Pool

INDEX = "index.json"
FEATURES_FORMAT = 1
"""Raised when the same spec would give other features, so that runs of different versions do not mix."""

Columns = dict[str, NDArray[Any]]


class FeatureShard(NamedTuple):
    """The features of one shard's examples."""

    ids: list[str]
    uris: list[str]
    columns: Columns
    bad: list[BadItem]


def not_finite(columns: Columns) -> dict[int, str]:
    """Rows that hold NaN or infinity, in their order, each with the first feature that does."""
    found: dict[int, str] = {}
    for name, values in columns.items():
        if values.dtype.kind == "f":
            bad = np.flatnonzero(~np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
            found = dict.fromkeys(bad.tolist(), name) | found
    return dict(sorted(found.items()))


def encode_shard(shard: FeatureShard) -> bytes:
    """One Parquet file: id, uri, and a column per feature; layers and coverage are lists of fixed size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table: dict[str, Any] = {"id": pa.array(shard.ids, pa.string()), "uri": pa.array(shard.uris, pa.string())}
    for name, values in shard.columns.items():
        table[name] = pa.array(values) if values.ndim == 1 else _list_array(values)
    header = {"bad": [item._asdict() for item in shard.bad]}
    sink = io.BytesIO()
    described = pa.table(table).replace_schema_metadata({"opacc": json.dumps(header)})
    pq.write_table(described, sink, compression="zstd", use_dictionary=False)
    return sink.getvalue()


def decode_shard(data: bytes, names: Sequence[str], source: str) -> FeatureShard:
    """Read the named features back; raises DataError if the file is not a shard of features."""
    import pyarrow as pa

    try:
        file = _open(data)
        table = file.read(columns=["id", "uri", *names])
        header = json.loads(file.schema_arrow.metadata[b"opacc"])
    except (pa.ArrowException, KeyError, TypeError) as error:
        raise DataError(f"{source} is not a shard of features ({error}); delete it and run again") from None
    columns = {name: _to_numpy(table[name]) for name in names if name in table.column_names}
    bad = [BadItem(**item) for item in header["bad"]]
    return FeatureShard(table["id"].to_pylist(), table["uri"].to_pylist(), columns, bad)


def widths(data: bytes) -> dict[str, int]:
    """Values per example of each feature that a shard holds, by its schema alone: no value is decoded."""
    import pyarrow as pa

    schema = _open(data).schema_arrow
    lists = pa.types.is_fixed_size_list
    held = [item for item in schema if item.name not in ("id", "uri")]
    return {item.name: item.type.list_size if lists(item.type) else 1 for item in held}


def finished_shards(folder: Store) -> set[str]:
    """Names of the shards whose features are in a folder."""
    return {entry.key.removesuffix(".parquet") for entry in folder.list() if entry.key.endswith(".parquet")}


def read_index(folder: Store) -> dict[str, Any] | None:
    """A folder's index, or None while its features are not complete."""
    if not folder.exists(INDEX):
        return None
    try:
        return dict(json.loads(folder.read(INDEX)))
    except ValueError as error:
        raise DataError(f"{folder.uri_of(INDEX)} is not JSON ({error}); delete it and run again") from None


def write_index(folder: Store, index: dict[str, Any]) -> None:
    """Say that a folder's features are complete."""
    folder.write(INDEX, json.dumps(index, indent=2, ensure_ascii=False).encode() + b"\n")


def read_pools(store: Store, files: Sequence[str], names: Sequence[str]) -> list[Pool]:
    """The parts of the pool that some shards hold, with the named features only."""
    return [Pool(ids=shard.ids, **shard.columns) for shard in read_shards(store, files, names)]


def read_shards(store: Store, files: Sequence[str], names: Sequence[str]) -> Iterator[FeatureShard]:
    """Some shards, in the order of ``files``, with the named features only."""
    for file, data in zip(files, store.read_many(files), strict=True):
        yield decode_shard(data, names, store.uri_of(file))


def _open(data: bytes) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetFile(pa.BufferReader(data))


def _list_array(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def _to_numpy(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    if not pa.types.is_fixed_size_list(column.type):
        return np.asarray(column.to_numpy())
    whole = column.combine_chunks()
    return np.asarray(whole.flatten().to_numpy()).reshape(len(whole), whole.type.list_size)
