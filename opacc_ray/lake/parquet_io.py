"""Read and write Parquet files and Arrow columns. The package reads all Parquet here, by the required bytes only.

A file is read in two requests: one for its footer, one for the required columns, if they are close together. A small
file, or one of which all columns are required, is read whole.

Arrow's threads may outlive the interpreter. A thread that then holds a buffer owned by Python aborts the process
("terminate called without an active exception"). So files are decoded in the calling thread, without pre-buffering, and
bytes are copied into Arrow's memory.

Columns come from NumPy arrays or texts, and become arrays, without Arrow's own conversions (``pyarrow.array``,
``to_numpy``): these import pandas where it is installed, which takes a third of a second in every process.
"""

import io
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, shortened
from opacc_ray.lake.store import Entry, ObjectFile, Range, Store
from opacc_ray.registry import Lazy

pa: Any = Lazy("pyarrow")  # most commands read no table
pc: Any = Lazy("pyarrow.compute")
pq: Any = Lazy("pyarrow.parquet")

TAIL = 64 << 10  # bytes read at the end of a file with a footer of unknown size: most footers are smaller
WHOLE = 64 << 10  # bytes of the largest file that is read whole: a second request would take longer
HELD_BYTES = 64 << 20  # most bytes of a row group in memory; a larger one is fetched in pieces
BATCH_BYTES = 8 << 20  # approximate bytes of the rows that are decoded at a time, and of a request for a piece
MOST_ROWS = 1 << 16  # that are decoded at a time
FEW_ROWS = 32  # the same if a dictionary may hold one image for many rows: each row copies its bytes

MOST_KEPT = 32  # footers that a process keeps; that of a wide table may have a megabyte, and some times as much parsed

_MOST_BYTES = 2**31 - 1  # most bytes of text in one Arrow array of the type ``string``

_ENDING = 8  # bytes after the footer: its length, and the magic number


class Footer(NamedTuple):
    """The metadata at the end of a file."""

    metadata: Any  # pyarrow.parquet.FileMetaData
    data: bytes  # its bytes in the file, with the ending


Check = Callable[[Footer, bytes | None], None]
"""Function of a file's footer and, if they were read, all bytes before it; raises if they are wrong."""


def read_columns(
    store: Store,
    key: str,
    names: Sequence[str] | None = None,
    *,
    size: int | None = None,
    footer_size: int | None = None,
    footer: bytes | None = None,
    check: Check | None = None,
) -> Any:
    """Return the named columns of a Parquet file as an Arrow table; missing names are left out.

    Parameters
    ----------
    names : columns at the top level; None for all
    size, footer_size, footer : bytes of the file, bytes from the footer to its end, and these bytes; if they are known,
        they save requests
    check : raises if the footer, or the bytes before it, are not as expected

    Raises StorageError if the bytes cannot be read; pyarrow.ArrowException or OSError if they are not Parquet, or a
    page does not match its checksum.
    """
    with store.open(key, size) as file:
        if footer:
            file.hold(file.size - len(footer), footer)
        if names is None:
            file.load([(0, file.size)])
        found = footer_at(file, len(footer) if footer else footer_size)
        if check:
            check(found, file.held(0, file.size - len(found.data)))
        groups = range(found.metadata.num_row_groups if names else 0)
        file.load(_range(chunk) for group in groups for chunk, _ in chunks_of(found.metadata, names or (), group))
        return _decode(pa.PythonFile(file, mode="r"), names, found.metadata)


def read_footer(store: Store, key: str, *, size: int | None = None) -> Footer:
    """Return the footer of a file; raises as :func:`read_columns`."""
    with store.open(key, size) as file:
        return footer_at(file)


_kept: OrderedDict[tuple[str, Entry], Any] = OrderedDict()
"""The metadata of the ``MOST_KEPT`` files whose footers this process read last."""


def metadata_of(store: Store, entry: Entry, file: ObjectFile) -> Any:
    """Return the metadata of an open file, from memory if this process has read it; raises as :func:`read_columns`."""
    found = _kept.get((store.uri, entry))
    if found is None:
        found = _kept[store.uri, entry] = footer_at(file).metadata
        if len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    return found


def footer_at(file: ObjectFile, footer_size: int | None = None) -> Footer:
    """Return the footer of an open file, which keeps the bytes read with it; raises as :func:`read_columns`."""
    size = file.size
    start = 0 if size <= WHOLE else size - min(footer_size or TAIL, size)
    file.load([(start, size)])
    file.seek(max(size - _ENDING, 0))
    ending = file.read()
    if len(ending) == _ENDING and ending[4:] == b"PAR1":
        begin = max(size - _ENDING - int.from_bytes(ending[:4], "little"), 0)
        if begin < start:  # a large footer
            file.load([(begin, size)])
        file.seek(begin)
        ending = file.read()
    # The footer after the magic number is a file without rows to Arrow.
    start_of_file = b"PAR1" if size else b""
    return Footer(pq.read_metadata(pa.BufferReader(arrow_owned(start_of_file + ending))), ending)


def schema_of(metadata: Any) -> Any:
    """Return the Arrow schema in which Arrow reads a file, with UUIDs; that of the metadata has them as plain bytes."""
    return pq.ParquetFile(pa.BufferReader(b""), metadata=metadata, pre_buffer=False).schema_arrow


def read_group(file: ObjectFile, metadata: Any, group: int, names: Sequence[str]) -> Iterator[Any]:
    """Yield columns of a row group as record batches of about ``BATCH_BYTES``; raises as :func:`read_columns`.

    A name is that of a column or ``struct.field``; a batch has the structs with these fields. Up to ``HELD_BYTES`` are
    fetched in few requests, without those that the file still holds; more are fetched during decoding.
    """
    chunks = list(chunks_of(metadata, names, group))
    ranges = [_range(chunk) for chunk, _ in chunks]
    whole = sum(stop - start for start, stop in ranges) <= HELD_BYTES
    if whole:
        file.load(ranges)
    else:
        file.forget()
    reader = pq.ParquetFile(
        pa.PythonFile(file, mode="r"),
        metadata=metadata,
        pre_buffer=False,
        buffer_size=0 if whole else BATCH_BYTES,
        page_checksum_verification=True,
    )
    num_bytes = sum(chunk.total_uncompressed_size for chunk, _ in chunks)
    most = FEW_ROWS if any(_may_repeat(*chunk) for chunk in chunks) else MOST_ROWS
    batch_size = max(1, min(most, metadata.row_group(group).num_rows * BATCH_BYTES // max(num_bytes, 1)))
    yield from reader.iter_batches(batch_size, row_groups=[group], columns=list(names), use_threads=False)


def footer_of(data: bytes) -> Footer:
    """Return the footer of a Parquet file in memory; raises as :func:`read_columns`."""
    return footer_at(ObjectFile(lambda start, stop: data[start:stop], len(data)))


def read_bytes(data: bytes) -> Any:
    """Return the columns of a Parquet file in memory as an Arrow table; raises as :func:`read_columns`."""
    return _decode(pa.BufferReader(arrow_owned(data)), None)


def encode(table: Any, **options: Any) -> bytes:
    """Return an Arrow table as the bytes of a Parquet file, written with pyarrow's ``options``."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def arrow_owned(data: bytes) -> Any:
    """Return a copy of ``data`` in memory that Arrow owns."""
    buffer = pa.allocate_buffer(len(data))
    with pa.FixedSizeBufferWriter(buffer) as writer:
        writer.write(data)
    return buffer


def _decode(source: Any, names: Sequence[str] | None, metadata: Any = None) -> Any:
    file = pq.ParquetFile(source, metadata=metadata, pre_buffer=False, page_checksum_verification=True)
    there = file.schema_arrow.names
    wanted = there if names is None else [name for name in names if name in there]
    return file.read(wanted, use_threads=False)


def chunks_of(metadata: Any, names: Sequence[str], group: int) -> Iterator[tuple[Any, Any]]:
    """Yield the chunks of columns in a row group, each with its column of the schema.

    A name is that of a column or ``struct.field``.
    """
    row_group = metadata.row_group(group)
    for place in leaves_of(metadata, names):
        yield row_group.column(place), metadata.schema.column(place)


def leaves_of(metadata: Any, names: Sequence[str]) -> list[int]:
    """Return the numbers of the columns without fields that are, or belong to, the named ones."""
    paths = (metadata.schema.column(place).path for place in range(metadata.num_columns))
    beginnings = tuple(f"{name}." for name in names)
    return [place for place, path in enumerate(paths) if f"{path}.".startswith(beginnings)]


def _range(chunk: Any) -> Range:
    first = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None:
        first = min(first, chunk.dictionary_page_offset)
    return first, first + chunk.total_compressed_size


def _may_repeat(chunk: Any, own: Any) -> bool:
    """Return whether a column of bytes has a dictionary, so that its unpacked size is unknown. Texts are short."""
    return chunk.has_dictionary_page and own.physical_type == "BYTE_ARRAY" and own.logical_type.type == "NONE"


# -- columns ---------------------------------------------------------------------------------------------------


def numbers(values: NDArray[Any]) -> Any:
    """Return numbers or booleans (N,) as an Arrow array, or (N, width) as lists of fixed size; it shares memory."""
    if values.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(numbers(values.ravel()), values.shape[1])
    held = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    if held.dtype.kind not in "biuf":
        return pa.array(held)
    data = np.packbits(held, bitorder="little") if held.dtype.kind == "b" else held
    return pa.Array.from_buffers(pa.from_numpy_dtype(held.dtype), len(held), [None, pa.py_buffer(data)])


def texts(values: Sequence[str | None]) -> Any:
    """Return texts as an Arrow array of the type ``string``; None is null."""
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

    The fields of a struct are numbers side by side, in their order, as its last axis.

    Returns None if the lists differ in length; raises DataError if they do not hold numbers.
    """
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
    if types.is_struct(kind):
        fields = [own for inner in column.flatten() if (own := numbers_of(inner, name)) is not None]
        same = len(fields) == kind.num_fields and len({own.shape for own in fields}) == 1
        return np.stack(fields, axis=-1) if same else None
    if types.is_null(kind):  # no rows, since there are no nulls
        return np.empty(0)
    if types.is_decimal(kind):
        return to_numpy(column.cast(pa.float64()))
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise DataError(f"the column {name!r} is {kind}, not numbers or lists of numbers; choose another column")
    return to_numpy(column)


def is_list(kind: Any) -> bool:
    """Return whether a type is one of lists."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
