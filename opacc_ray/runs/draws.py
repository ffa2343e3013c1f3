"""Write and read the files of a round, as they were drawn.

    rounds/2/DIGEST/    selection, predictions and manifests of one draw; DIGEST is computed from the first two

A draw happens when the log names it, with the digests of selection and predictions. All reads use the folder of the
draw and compare digests. So files of two draws never mix, however many commands draw at the same time. Manifests are
for people, who may fill them in: no command reads one of a round.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake import parquet_io
from opacc_ray.lake.parquet_io import numbers, texts
from opacc_ray.lake.store_uris import Store
from opacc_ray.runs.commit_log import digest_of
from opacc_ray.runs.run_documents import Draw, KeptFile
from opacc_ray.samplers import METHODS
from opacc_ray.selection import Selection

SELECTION, PREDICTIONS, MANIFEST = "selection.json", "predictions.parquet", "manifest."
"""Names of a draw's files; the names of manifests begin with the last."""

THREADS = 8
"""Files that are read or written at the same time."""


# -- draws -------------------------------------------------------------------------------------------------------


def describe(files: Mapping[str, bytes], run: str, features: str) -> Draw:
    """Return the draw that consists of some files; ``features`` is the digest of the features it was drawn from."""
    described = {name: KeptFile(sha256=digest_of(data), size=len(data)) for name, data in sorted(files.items())}
    content = {name: file.sha256 for name, file in described.items()}
    folder = digest_of(json.dumps(content, sort_keys=True).encode())[:16]
    return Draw(run=run, features=features, folder=folder, files=described)


def read_file(folder: Store, draw: Draw, name: str) -> bytes:
    """Read a file from the folder of a draw; raises DataError if it is lost, or was changed after the draw."""
    if name not in draw.files:
        raise DataError(f"{folder.uri} has a draw without {name}; restore it from a backup")
    data = folder.read_if_there(name)
    if data is None:
        raise DataError(f"{folder.uri_of(name)} is lost; restore it from a backup")
    if digest_of(data) != draw.files[name].sha256:
        raise DataError(f"{folder.uri_of(name)} was changed since it was drawn; restore it from a backup")
    return data


# -- the files of a draw -----------------------------------------------------------------------------------------


class Chosen(NamedTuple):
    """The chosen examples of a round, apart from the design."""

    ids: list[str]
    uris: list[str]
    predictions: list[Any]
    objects: list[str | None]  # keys of the pool's objects that hold them; None if unknown
    tags: list[str | None]  # of those objects, when the pool was listed
    labelled: list[bool]  # whether each had a label before it was chosen

    @property
    def labelled_ids(self) -> set[str]:
        """Return the ids of the examples that had a label before they were chosen."""
        return {name for name, known in zip(self.ids, self.labelled, strict=True) if known}


def encode_chosen(chosen: Chosen) -> bytes:
    """Return the bytes of ``predictions.parquet``."""
    import pyarrow as pa

    values = chosen.predictions
    columns = {
        "id": texts(chosen.ids),
        "uri": texts(chosen.uris),
        "object": texts(chosen.objects),
        "tag": texts(chosen.tags),
        "prediction": pa.nulls(len(values)) if set(values) <= {None} else numbers(np.array(values)),
        "labelled": numbers(np.array(chosen.labelled, dtype=bool)),
    }
    return parquet_io.encode(pa.table(columns))


def decode_chosen(data: bytes, source: str) -> Chosen:
    """Read ``predictions.parquet``; raises DataError, which names ``source``, if it is something else."""
    import pyarrow as pa

    try:
        table = parquet_io.read_bytes(data)
        return Chosen(*(table[name].to_pylist() for name in ("id", "uri", "prediction", "object", "tag", "labelled")))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{source} is no table of predictions ({shortened(str(error))}); restore it") from None


def decode_selection(data: bytes, source: str) -> Selection:
    """Read the selection of a draw; raises DataError if the bytes are no selection."""
    try:
        selection = Selection.from_json(data, source)
    except (RecursionError, OverflowError, TypeError) as error:
        raise DataError(f"{source} is no selection ({type(error).__name__}: {error}); restore it") from None
    if selection.method not in METHODS:
        raise DataError(f"{source}: there is no method {selection.method!r}; restore it")
    return selection
