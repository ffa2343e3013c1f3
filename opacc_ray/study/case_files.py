"""Read the columns of a .npz, Parquet or CSV file of labelled examples."""

import io
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake.parquet_io import arrow_owned, is_list, read_bytes


def _read_npz(data: bytes) -> Mapping[str, Any]:
    try:
        return np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"it is not a .npz file: {error}") from None


def _read_table(data: bytes, kind: str) -> Mapping[str, Any]:
    import pyarrow as pa
    from pyarrow import csv

    try:
        return _columns_of(read_bytes(data) if kind == "Parquet" else csv.read_csv(pa.BufferReader(arrow_owned(data))))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"it is not a {kind} file: {shortened(str(error))}") from None


def _columns_of(table: Any) -> dict[str, NDArray[Any]]:
    """Return Arrow columns as arrays: numbers (N,), lists of numbers (N, length)."""
    arrays = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        listed = is_list(column.type)
        rows = column.to_numpy(zero_copy_only=False)
        if listed and len({None if row is None else len(row) for row in rows}) > 1:
            raise DataError(f"the lists of column {name} differ in length")
        arrays[name] = np.stack(rows) if listed else rows
    return arrays


READERS: dict[str, Callable[[bytes], Mapping[str, Any]]] = {
    "npz": _read_npz,
    "csv": partial(_read_table, kind="CSV"),
    "parquet": partial(_read_table, kind="Parquet"),
}
"""By the end of the name: reads the bytes of a file as columns."""


def suffix_of(uri: str) -> str:
    """Return the end of a file's name, which says how it is read."""
    return uri.rpartition(".")[2].lower()
