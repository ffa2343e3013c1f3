"""What a run knows before its first label: gathered once, and kept for all its rounds and its estimate.

    history/DIGEST/labelled-1.parquet  features and outcomes of labelled examples, of one source
    history/DIGEST/prior.npy           the user's own column, one number for each example of the pool
    history/history.json               where they come from, with a digest of each file; created once, after them

Nothing of it is trusted (:mod:`opacc_ray.failure.history`). It is the same for all rounds, whatever is labelled
elsewhere meanwhile, so that the estimate knows what the draws knew.
"""

import hashlib
import io
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.audit.prior_labels import PRIOR, HistorySource, gather
from opacc_ray.documents import Part, SealedDocument
from opacc_ray.errors import DataError, shortened
from opacc_ray.failure.history import NO_HISTORY, History
from opacc_ray.lake.arrow import to_numpy
from opacc_ray.lake.parquet_io import read_bytes
from opacc_ray.lake.storage import Store
from opacc_ray.pool import Pool
from opacc_ray.runs.run import Run

FOLDER, RECORD = "history", "history.json"


class KeptFile(Part):
    """A file of the history."""

    sha256: str = Field(description="SHA-256 of its content")
    size: int = Field(ge=0, description="bytes")


class KeptHistory(SealedDocument):
    """What a run knew before its first label; it is gathered once."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-kept-history/1"] = Field(
        default="opacc-kept-history/1", description="name and version of this form"
    )
    run: str | None = Field(description="digest of the run that it was gathered for")
    folder: str = Field(pattern="^[0-9a-f]{16}$", description="where the files lie: a digest of all of them")
    files: dict[str, KeptFile] = Field(description="by name: labelled-1.parquet, prior.npy")
    sources: list[HistorySource] = Field(description="where they come from; labelled-1.parquet is of the first")


def read_history(run: Run, *, keep: bool = True) -> History:
    """The history that a run's spec asks for, gathered if no round is drawn yet; without ``keep`` nothing is written.

    Raises
    ------
    DataError
        It is damaged or lost, though rounds were drawn by it; or what it is to be made of cannot be read.
    LabelError
        Labels of the reference are none of the model's classes, or in conflict.
    """
    if not run.spec.has_history:
        return NO_HISTORY
    kept = read_record(run)
    if kept is None:
        if any(track.rounds() for track in run.tracks()):
            raise DataError(
                f"{_home(run).uri_of(RECORD)} is lost, and rounds were drawn by it; restore it from a backup"
            )
        sources, files = gather(run)
        if not keep:
            return _decode(files, run.uri)
        kept = _keep(run, sources, files)
    return _decode({name: read_file(run, kept, name) for name in kept.files}, _home(run).uri)


def read_record(run: Run) -> KeptHistory | None:
    """What is kept, or None; raises DataError if it is damaged, or of another run."""
    home = _home(run)
    if not home.exists(RECORD):
        return None
    kept = KeptHistory.from_bytes(home.read(RECORD), home.uri_of(RECORD))
    if kept.run != run.header.digest:
        raise DataError(f"{home.uri_of(RECORD)} was gathered for another run than that of spec.json; restore both")
    return kept


def read_file(run: Run, kept: KeptHistory, name: str) -> bytes:
    """A file of the history; raises DataError if it is lost, or was changed."""
    folder = _home(run).store(kept.folder)
    if not folder.exists(name):
        raise DataError(f"{folder.uri_of(name)} is lost; restore it from a backup")
    data = folder.read(name)
    if hashlib.sha256(data).hexdigest() != kept.files[name].sha256:
        raise DataError(f"{folder.uri_of(name)} was changed since it was gathered; restore it from a backup")
    return data


def uri_of(run: Run, name: str = RECORD) -> str:
    """Where a file of the history lies, or its record."""
    return _home(run).uri_of(name)


def _home(run: Run) -> Store:
    return run.store.store(FOLDER)


def _keep(run: Run, sources: Sequence[HistorySource], files: dict[str, bytes]) -> KeptHistory:
    """Write the files, then create the record; of two that gather at once, one is kept."""
    described = {
        name: KeptFile(sha256=hashlib.sha256(data).hexdigest(), size=len(data)) for name, data in files.items()
    }
    joined = "".join(f"{name} {item.sha256}\n" for name, item in sorted(described.items()))
    folder = hashlib.sha256(joined.encode()).hexdigest()[:16]
    home = _home(run)
    home.store(folder).write_many(files.items(), 8)
    record = KeptHistory(run=run.header.digest, folder=folder, files=described, sources=list(sources))
    return KeptHistory.from_bytes(home.create(RECORD, record.to_bytes()), home.uri_of(RECORD))


def _decode(files: dict[str, bytes], place: str) -> History:
    try:
        labelled = [_labelled(files[name]) for name in sorted(files) if name != PRIOR]
        prior = np.load(io.BytesIO(files[PRIOR]), allow_pickle=False) if PRIOR in files else None
    except (ValueError, KeyError, OSError) as error:
        raise DataError(f"{place} holds what is no history ({shortened(str(error))}); restore it") from None
    return History(labelled, prior)


def _labelled(data: bytes) -> tuple[Pool, NDArray[np.float64]]:
    table = read_bytes(data)
    arrays: dict[str, Any] = {name: to_numpy(table[name]) for name in table.column_names}
    outcome = arrays.pop("outcome")
    return Pool(**arrays), outcome
