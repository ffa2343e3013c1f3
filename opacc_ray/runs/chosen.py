"""What is known of the chosen examples of a round beside the design: ``predictions.parquet``."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake import parquet_io
from opacc_ray.lake.arrow_columns import numbers, texts


class Chosen(NamedTuple):
    """What is known of the chosen examples of a round beside the design."""

    ids: list[str]
    uris: list[str]
    predictions: list[Any]
    objects: list[str | None]  # keys of the pool's objects that hold them; None where that is not known
    tags: list[str | None]  # of those objects, when the pool was listed
    labelled: Sequence[bool] = ()  # whether they had a label already when they were chosen

    @property
    def labelled_ids(self) -> set[str]:
        """Ids of the examples that had a label already when they were chosen."""
        return {name for name, known in zip(self.ids, self.labelled, strict=True) if known}


def encode(chosen: Chosen) -> bytes:
    """The bytes of ``predictions.parquet``."""
    import pyarrow as pa

    labelled = np.array(list(chosen.labelled) or [False] * len(chosen.ids), dtype=bool)
    columns = {
        "id": texts(chosen.ids),
        "uri": texts(chosen.uris),
        "object": texts(chosen.objects),
        "tag": texts(chosen.tags),
        "prediction": _predictions(chosen.predictions),
        "labelled": numbers(labelled),
    }
    return parquet_io.encode(pa.table(columns))


def _predictions(values: list[Any]) -> Any:
    """Classes or numbers as an Arrow array; nulls where there are none."""
    import pyarrow as pa

    return pa.nulls(len(values)) if set(values) <= {None} else numbers(np.array(values))


def decode(data: bytes, source: str) -> Chosen:
    """Read what :func:`encode` wrote; raises DataError, which names ``source``, if that is something else."""
    import pyarrow as pa

    try:
        table = parquet_io.read_bytes(data)
        known = [table[name].to_pylist() for name in ("id", "uri", "prediction")]
        absent = {"object": None, "tag": None, "labelled": False}  # in files of version 0.1.0
        own = [
            table[name].to_pylist() if name in table.column_names else [value] * len(table)
            for name, value in absent.items()
        ]
        return Chosen(*known, *own)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{source} is no table of predictions ({shortened(str(error))}); restore it") from None
