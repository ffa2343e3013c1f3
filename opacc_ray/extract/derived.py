"""A cache of values derived from all features of a pool, next to them: expensive to compute or read, safe to lose.

    derived/directions-6-DIGEST.parquet     the hidden layer of each example along six directions, in whole numbers
    derived/confidence-DIGEST.parquet       a column of many small files, in one
    derived/prediction-DIGEST-00000.parquet …     for a pool of more than `ROWS` examples

DIGEST is a digest of the files that the value was derived from, so other features have another one.

Numbers have 8 bytes; a float64 is read as an integer. Of each column the minimum is stored first, and then the
differences from it, split by byte: the lowest bytes of all examples, then the next ones. The highest bytes are few or 0
and compress well apart from the others, which are nearly random.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import OpaccError
from opacc_ray.extract.shards import digest_of
from opacc_ray.lake.parquet_io import encode, read_bytes
from opacc_ray.lake.store_uris import Store

log = logging.getLogger(__name__)

ROWS = 1 << 19  # examples per file, so that memory is bounded
HELD_BYTES = 1 << 20  # a file up to this size stays in memory

_LAYOUT = "bytes"  # part of the digest, so that another layout has other file names


class Derived:
    """A cache of one row of numbers, or one text, per example; a lost or damaged value is computed again.

    ``digests`` returns those of the files that a value is derived from, by its name; None for an unknown one.
    """

    def __init__(self, folder: Store, size: int, digests: Callable[[str], Sequence[str | None]]) -> None:
        self._store, self._size, self._digests = folder, size, digests
        self._held: dict[str, bytes] = {}

    def recall(self, name: str, starts: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        """Yield the (n, d) numbers under a name, for the examples from each of ``starts`` to the next.

        It ends early if a file is missing or damaged.
        """
        files = self._keys(name)
        held: NDArray[Any] = np.empty((0, 0))  # the rows of the last file
        begin = 0  # the first of them
        for start, stop in pairwise(starts.tolist()):
            rows = [held[start - begin : stop - begin]]
            while begin + len(held) < stop:
                begin += len(held)
                found = self._read(files[begin // ROWS], _decode) if files else None
                if found is None or len(found) != min(ROWS, self._size - begin):
                    return
                held = found
                rows.append(held[max(0, start - begin) : stop - begin])
            yield np.concatenate(rows[1:] if not len(rows[0]) and len(rows) > 1 else rows)

    def keep(self, name: str, size: int, blocks: Iterator[NDArray[Any]]) -> None:
        """Write numbers of 8 bytes of all examples; a failed write is no error."""
        rows: list[NDArray[Any]] = []
        for key in self._keys(name):
            while (num := sum(map(len, rows))) < min(ROWS, size):
                rows.append(next(blocks))
                if not rows[-1].shape[1] or rows[-1].dtype.itemsize != 8:
                    return
            whole = np.concatenate(rows)
            if not self._write(key, _encode(key, whole[:ROWS])):
                return
            rows, size = [whole[ROWS:]] if num > ROWS else [], size - ROWS

    def recall_texts(self, name: str) -> Any:
        """Return a column of texts, (N,) in Arrow; None if it is missing or damaged."""
        keys = self._keys(name)
        found = self._read(keys[0], _decode_texts) if len(keys) == 1 else None
        return None if found is None or len(found) != self._size else found

    def keep_texts(self, name: str, values: Any) -> None:
        """Write a column of texts, (N,) in Arrow, for a pool of up to `ROWS` examples."""
        import pyarrow as pa

        for key in self._keys(name):
            self._write(key, _packed(pa.table({"text": values}), {"sha256": digest_of([key, *values.to_pylist()])}))

    def _write(self, key: str, data: bytes) -> bool:
        self._held.pop(key, None)
        try:
            self._store.write(key, data)
        except OpaccError as error:
            log.warning("%s", error)
            return False
        return True

    def _read(self, key: str, decode: Callable[[str, bytes], Any]) -> Any:
        try:
            data = self._held.get(key) or self._store.read_if_there(key)
            found = None if data is None else decode(key, data)
            if data is not None and len(data) <= HELD_BYTES:
                self._held[key] = data
            return found
        except Exception as error:  # Arrow and storage raise many kinds, and the value can be computed again
            log.warning("%s cannot be read (%s); it is computed again", self._store.uri_of(key), type(error).__name__)
            return None

    def _keys(self, name: str) -> list[str]:
        """Return the files of a value: one for every `ROWS` examples; none if its digest is unknown."""
        digests = self._digests(name)
        if None in digests:
            return []
        digest = hashlib.sha256("\n".join([_LAYOUT, *map(str, digests)]).encode()).hexdigest()
        first = f"{name}-{digest[:16]}"
        num = -(-self._size // ROWS)
        return [f"{first}.parquet"] if num == 1 else [f"{first}-{number:05d}.parquet" for number in range(num)]


def _encode(key: str, values: NDArray[Any]) -> bytes:
    import pyarrow as pa

    whole = np.ascontiguousarray(values).view(np.int64)
    least = whole.min(axis=0)
    counted = np.vstack([least, whole - least])  # (1 + N, d), wrapping around where they differ by 2^63 or more
    num, width = counted.shape
    split = counted.astype("<i8").view(np.uint8).reshape(num, width, 8)
    used = max([1, *(place + 1 for place in range(8) if split[:, :, place].any())])
    kind = pa.binary(width)
    columns = {
        str(place): pa.FixedSizeBinaryArray.from_buffers(kind, num, [None, pa.py_buffer(split[:, :, place].tobytes())])
        for place in range(used)
    }
    return _packed(pa.table(columns), {"kind": values.dtype.str, "sha256": _digest(key, values)})


def _packed(table: Any, described: dict[str, str]) -> bytes:
    """Return a Parquet file; level 1 of zstd uses the frequencies of bytes as well as level 15."""
    options: dict[str, Any] = {"use_dictionary": False, "write_statistics": False, "row_group_size": len(table)}
    options |= {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}
    return encode(table.replace_schema_metadata(described), **options)


def _decode(key: str, data: bytes) -> NDArray[Any]:
    table = read_bytes(data)
    width = table.schema[0].type.byte_width
    split = np.zeros((len(table), width, 8), dtype=np.uint8)
    for place, column in enumerate(table.columns):
        held = column.combine_chunks()
        split[:, :, place] = np.frombuffer(held.buffers()[1], np.uint8).reshape(-1, width)[: len(held)]
    counted = split.view("<i8")[:, :, 0].astype(np.int64)
    found: NDArray[Any] = (counted[1:] + counted[0]).view(table.schema.metadata[b"kind"].decode())
    if table.schema.metadata[b"sha256"].decode() != _digest(key, found):
        raise ValueError("it does not match its digest")
    return found


def _digest(key: str, values: NDArray[Any]) -> str:
    return hashlib.sha256(f"{key} {values.dtype.str} {values.shape} ".encode() + values.tobytes()).hexdigest()


def _decode_texts(key: str, data: bytes) -> Any:
    table = read_bytes(data)
    if table.schema.metadata[b"sha256"].decode() != digest_of([key, *table["text"].to_pylist()]):
        raise ValueError("it does not match its digest")
    return table["text"].combine_chunks()
