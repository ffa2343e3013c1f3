"""Reading and writing Parquet files, with requests for the required bytes only. The package reads all Parquet here.

A file is read in two requests: one for its footer, one for the required columns, if they are close together. A small
file, or one of which all columns are required, is read whole.

Arrow's threads may outlive the interpreter. A thread that then holds a buffer owned by Python aborts the process
("terminate called without an active exception"). So files are decoded in the calling thread, without pre-buffering, and
bytes are copied into Arrow's memory.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from opacc_ray.lake.store import ObjectFile, Range, Store

TAIL = 64 << 10  # bytes read at the end of a file with a footer of unknown size: most footers are smaller
WHOLE = 64 << 10  # bytes of the largest file that is read whole: a second request would take longer
HELD_BYTES = 64 << 20  # most bytes of a row group in memory; a larger one is fetched in pieces
BATCH_BYTES = 8 << 20  # approximate bytes of the rows that are decoded at a time, and of a request for a piece
MOST_ROWS = 1 << 16  # that are decoded at a time
FEW_ROWS = 32  # the same if a dictionary may hold one image for many rows: each row copies its bytes

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
    import pyarrow as pa

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


def footer_at(file: ObjectFile, footer_size: int | None = None) -> Footer:
    """Return the footer of an open file, which keeps the bytes read with it; raises as :func:`read_columns`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

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
    return Footer(pq.read_metadata(pa.BufferReader(arrow_owned(b"PAR1" + ending))), ending)


def read_group(file: ObjectFile, metadata: Any, group: int, names: Sequence[str]) -> Iterator[Any]:
    """Yield columns of a row group as record batches of about ``BATCH_BYTES``; raises as :func:`read_columns`.

    Up to ``HELD_BYTES`` are fetched in few requests; more are fetched during decoding.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    ranges = [_range(chunk) for chunk, _ in chunks_of(metadata, names, group)]
    whole = sum(stop - start for start, stop in ranges) <= HELD_BYTES
    file.forget()
    if whole:
        file.load(ranges)
    reader = pq.ParquetFile(
        pa.PythonFile(file, mode="r"),
        metadata=metadata,
        pre_buffer=False,
        buffer_size=0 if whole else BATCH_BYTES,
        page_checksum_verification=True,
    )
    num_bytes = sum(chunk.total_uncompressed_size for chunk, _ in chunks_of(metadata, names, group))
    most = FEW_ROWS if any(_may_repeat(*chunk) for chunk in chunks_of(metadata, names, group)) else MOST_ROWS
    batch_size = max(1, min(most, metadata.row_group(group).num_rows * BATCH_BYTES // max(num_bytes, 1)))
    yield from reader.iter_batches(batch_size, row_groups=[group], columns=list(names), use_threads=False)


def footer_of(data: bytes) -> Footer:
    """Return the footer of a Parquet file in memory; raises as :func:`read_columns`."""
    return footer_at(ObjectFile(lambda start, stop: data[start:stop], len(data)))


def read_bytes(data: bytes) -> Any:
    """Return the columns of a Parquet file in memory as an Arrow table; raises as :func:`read_columns`."""
    import pyarrow as pa

    return _decode(pa.BufferReader(arrow_owned(data)), None)


def encode(table: Any, **options: Any) -> bytes:
    """Return an Arrow table as the bytes of a Parquet file, written with pyarrow's ``options``."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def arrow_owned(data: bytes) -> Any:
    """Return a copy of ``data`` in memory that Arrow owns."""
    import pyarrow as pa

    buffer = pa.allocate_buffer(len(data))
    with pa.FixedSizeBufferWriter(buffer) as writer:
        writer.write(data)
    return buffer


def _decode(source: Any, names: Sequence[str] | None, metadata: Any = None) -> Any:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(source, metadata=metadata, pre_buffer=False, page_checksum_verification=True)
    there = file.schema_arrow.names
    wanted = there if names is None else [name for name in names if name in there]
    return file.read(wanted, use_threads=False)


def chunks_of(metadata: Any, names: Sequence[str], group: int) -> Iterator[tuple[Any, Any]]:
    """Yield the chunks of the named columns in a row group, each with its column of the schema."""
    row_group = metadata.row_group(group)
    for place in range(metadata.num_columns):
        chunk = row_group.column(place)
        if chunk.path_in_schema.partition(".")[0] in names:
            yield chunk, metadata.schema.column(place)


def _range(chunk: Any) -> Range:
    first = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None:
        first = min(first, chunk.dictionary_page_offset)
    return first, first + chunk.total_compressed_size


def _may_repeat(chunk: Any, own: Any) -> bool:
    """Return whether a column of bytes has a dictionary, so that its unpacked size is unknown. Texts are short."""
    return chunk.has_dictionary_page and own.physical_type == "BYTE_ARRAY" and own.logical_type.type == "NONE"
