"""What samplers derive from all features of a pool, kept beside them: small, costly to make, safe to lose.

    derived/directions-6-DIGEST.parquet     the hidden layer of each example along six directions, in whole numbers
    derived/directions-6-DIGEST-00000.parquet …     of a pool of more than `ROWS` examples

DIGEST names the files that it was made of, so features that are extracted again with other bits have another.
"""

import hashlib
import io
import logging
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import OpaccError
from opacc_ray.extract.index import Index
from opacc_ray.lake.parquet_io import read_bytes
from opacc_ray.lake.storage import Store

log = logging.getLogger(__name__)

FOLDER = "derived"

ROWS = 1 << 19
"""Examples in a file, so that none has to be held whole."""


class Derived:
    """Whole numbers of each example, by name; a value that is lost or damaged is as if it was never kept."""

    def __init__(self, features: Store, index: Index) -> None:
        self._store = features.store(FOLDER)
        digests = [shard.sha256 for shard in index.shards]
        self._digest = None if None in digests else hashlib.sha256("\n".join(map(str, digests)).encode()).hexdigest()
        self._size = index.num_examples

    def recall(self, name: str, starts: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
        """Yield what is kept under a name, (n, d) whole numbers, for the examples from each of ``starts`` to the next.

        It ends before its time where a file is not there or damaged.
        """
        files = self._keys(name)
        held, begin = np.empty((0, 0)), 0  # the rows of the last file, the first of which is ``begin``
        for start, stop in pairwise(starts.tolist()):
            rows = [held[start - begin : stop - begin]]
            while begin + len(held) < stop:
                begin += len(held)
                found = self._read(files[begin // ROWS]) if files else None
                if found is None or len(found) != min(ROWS, self._size - begin):
                    return
                held = found
                rows.append(held[max(0, start - begin) : stop - begin])
            yield np.concatenate(rows[1:] if not len(rows[0]) and len(rows) > 1 else rows)

    def keep(self, name: str, size: int, blocks: Iterator[NDArray[np.float64]]) -> None:
        """Keep whole numbers below 2^53 of all examples; a place that cannot be written to is no error."""
        rows: list[NDArray[np.float64]] = []
        for key in self._keys(name):
            while (num := sum(map(len, rows))) < min(ROWS, size):
                rows.append(next(blocks))
                if not rows[-1].shape[1]:
                    return
            whole = np.concatenate(rows)
            try:
                self._store.write(key, _encode(whole[:ROWS]))
            except OpaccError as error:
                log.warning("%s", error)
                return
            rows, size = [whole[ROWS:]] if num > ROWS else [], size - ROWS

    def _read(self, key: str) -> NDArray[np.float64] | None:
        if not self._store.exists(key):
            return None
        try:
            table = read_bytes(self._store.read(key))
            return np.column_stack([np.asarray(column) for column in table.columns]).astype(np.float64)
        except Exception as error:  # Arrow raises many kinds, storage its own; all of it can be made again
            log.warning("%s cannot be read (%s); it is made again", self._store.uri_of(key), type(error).__name__)
            return None

    def _keys(self, name: str) -> list[str]:
        """The files of a value: one, or one for every `ROWS` examples of a larger pool."""
        if not self._digest:
            return []
        first = f"{name}-{self._digest[:16]}"
        num = -(-self._size // ROWS)
        return [f"{first}.parquet"] if num == 1 else [f"{first}-{number:05d}.parquet" for number in range(num)]


def _encode(values: NDArray[np.float64]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    columns = {str(i): pa.array(column.astype(np.int64)) for i, column in enumerate(values.T)}
    options = {"use_dictionary": False, "column_encoding": dict.fromkeys(columns, "BYTE_STREAM_SPLIT")}
    pq.write_table(pa.table(columns), sink, compression="zstd", write_page_checksum=True, **options)
    return sink.getvalue()
