"""What samplers derive from all features of a pool, kept beside them: small, costly to make, safe to lose.

    derived/directions-6-DIGEST.parquet     the hidden layer of each example along six directions, in whole numbers

DIGEST names the files that it was made of, so features that are extracted again with other bits have another.
"""

import hashlib
import io
import logging

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import OpaccError
from opacc_ray.extract.index import Index
from opacc_ray.lake.parquet_io import read_bytes
from opacc_ray.lake.storage import Store

log = logging.getLogger(__name__)

FOLDER = "derived"


class Derived:
    """Whole numbers of each example, by name; a value that is lost or damaged is as if it was never kept."""

    def __init__(self, features: Store, index: Index) -> None:
        self._store = features.store(FOLDER)
        digests = [shard.sha256 for shard in index.shards]
        self._digest = None if None in digests else hashlib.sha256("\n".join(map(str, digests)).encode()).hexdigest()
        self._size = index.num_examples

    def recall(self, name: str) -> NDArray[np.float64] | None:
        """What is kept under a name, (N, d) whole numbers; None if there is nothing."""
        key = self._key(name)
        if key is None or not self._store.exists(key):
            return None
        try:
            table = read_bytes(self._store.read(key))
            values = np.column_stack([np.asarray(column) for column in table.columns]).astype(np.float64)
        except Exception as error:  # Arrow raises many kinds, storage its own; all of it can be made again
            log.warning("%s cannot be read (%s); it is made again", self._store.uri_of(key), type(error).__name__)
            return None
        return values if len(values) == self._size else None

    def keep(self, name: str, values: NDArray[np.float64]) -> None:
        """Keep whole numbers (N, d) below 2^53; a place that cannot be written to is no error."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        key = self._key(name)
        if key is None or not values.shape[1]:
            return
        sink = io.BytesIO()
        columns = {str(i): pa.array(column.astype(np.int64)) for i, column in enumerate(values.T)}
        options = {"use_dictionary": False, "column_encoding": dict.fromkeys(columns, "BYTE_STREAM_SPLIT")}
        pq.write_table(pa.table(columns), sink, compression="zstd", write_page_checksum=True, **options)
        try:
            self._store.write(key, sink.getvalue())
        except OpaccError as error:
            log.warning("%s", error)

    def _key(self, name: str) -> str | None:
        return f"{name}-{self._digest[:16]}.parquet" if self._digest else None
