"""Conversions between NumPy arrays or texts and Arrow columns, without pandas; errors of files that Arrow reads.

Arrow's own conversions (``pyarrow.array``, ``to_numpy``) import pandas where it is installed, which takes a third of a
second in every process.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, shortened

_MOST_BYTES = 2**31 - 1  # most bytes of text in one Arrow array of the type ``string``


def numbers(values: NDArray[Any]) -> Any:
    """Return numbers or booleans (N,) as an Arrow array, or (N, width) as lists of fixed size; it shares memory."""
    import pyarrow as pa

    if values.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(numbers(values.ravel()), values.shape[1])
    held = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    if held.dtype.kind not in "biuf":
        return pa.array(held)
    data = np.packbits(held, bitorder="little") if held.dtype.kind == "b" else held
    return pa.Array.from_buffers(pa.from_numpy_dtype(held.dtype), len(held), [None, pa.py_buffer(data)])


def texts(values: Sequence[str | None]) -> Any:
    """Return texts as an Arrow array of the type ``string``; None is null."""
    import pyarrow as pa

    has_null = None in values
    present = np.packbits([value is not None for value in values], bitorder="little") if has_null else None
    there = [value or "" for value in values] if has_null else cast(Sequence[str], values)
    joined = "".join(there)
    data = joined.encode()
    counts = map(len, there) if len(data) == len(joined) else (len(value.encode()) for value in there)
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(counts, np.int64, len(values)), out=offsets[1:])
    if len(data) > _MOST_BYTES:
        return pa.array(values, pa.string())
    buffers = (present, offsets.astype(np.int32), data)
    return pa.Array.from_buffers(
        pa.string(), len(values), [None if own is None else pa.py_buffer(own) for own in buffers]
    )


def to_numpy(column: Any) -> NDArray[Any]:
    """Return a column of numbers or booleans as (N,), or of lists of fixed size as (N, width); nulls become NaN."""
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_fixed_size_list(whole.type):
        return to_numpy(whole.flatten()).reshape(len(whole), whole.type.list_size)
    types, rows = pa.types, slice(whole.offset, whole.offset + len(whole))
    if not whole.null_count and types.is_boolean(whole.type):
        bits = np.frombuffer(whole.buffers()[1] or b"", dtype=np.uint8)
        return np.unpackbits(bits, bitorder="little")[rows].view(bool)
    if not whole.null_count and (types.is_integer(whole.type) or types.is_floating(whole.type)):
        return np.frombuffer(whole.buffers()[1] or b"", dtype=whole.type.to_pandas_dtype())[rows]
    return np.asarray(whole.to_numpy(zero_copy_only=False))


def taken(table: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of a table, or the table itself if these are all."""
    return table if len(rows) == len(table) else table.take(numbers(rows))


@contextmanager
def unless_valid(fault: str, remedy: str = "", reason: Callable[[Exception], str] = str) -> Iterator[None]:
    """Raise any error of another library, of which there are many kinds, as DataError: ``fault (reason)remedy``."""
    try:
        yield
    except (OpaccError, MemoryError):
        raise
    except Exception as error:
        raise DataError(f"{fault} ({shortened(reason(error), 200)}){remedy}") from None


def numbers_of(column: Any, name: str) -> NDArray[Any] | None:
    """Return the numbers of a column without nulls: (k,), or (k, ...) for lists, nested to any depth.

    Returns None if the lists differ in length; raises DataError if they do not hold numbers.
    """
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return np.asarray(column.to_numpy_ndarray())
    if isinstance(kind, pa.BaseExtensionType):  # of an imported library; else Arrow sees the storage type
        return numbers_of(column.storage, name)
    if is_list(kind):
        inner = numbers_of(column.flatten(), name)
        lengths = to_numpy(column.value_lengths())
        if inner is None or (lengths != lengths[:1]).any():
            return None
        return inner.reshape(len(column), -1 if len(inner) else 0, *inner.shape[1:])
    types = pa.types
    if types.is_null(kind):  # no rows, since there are no nulls
        return np.empty(0)
    if types.is_decimal(kind):
        return to_numpy(column.cast(pa.float64()))
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise DataError(f"the column {name!r} is {kind}, not numbers or lists of numbers; choose another column")
    return to_numpy(column)


def is_list(kind: Any) -> bool:
    """Return whether a type is one of lists."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
