"""Store what a run knows before its first label; it is gathered once, for all rounds and the estimate.

    history/DIGEST/labelled-1.parquet  features and outcomes of labelled examples from one source
    history/DIGEST/prior.npy           the user's own column, one number per example of the pool
    history/history.json               sources, with a digest of each file; created once, after the files

Estimates stay valid if it is wrong. It stays the same for all rounds, even if other runs are labelled meanwhile, so
that the estimate uses exactly what the draws used.
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
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.lake.arrow_columns import to_numpy
from opacc_ray.lake.parquet_io import read_bytes
from opacc_ray.pool import Pool
from opacc_ray.runs.run import Run

FOLDER, RECORD = "history", "history/history.json"


class KeptFile(Part):
    """A stored file."""

    sha256: str = Field(description="SHA-256 of the content")
    size: int = Field(ge=0, description="bytes")


class KeptHistory(SealedDocument):
    """Record of what a run knew before its first label."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-kept-history/1"] = Field(
        default="opacc-kept-history/1", description="name and version of this form"
    )
    run: str | None = Field(description="digest of the run")
    folder: str = Field(pattern="^[0-9a-f]{16}$", description="folder of the files: a digest of all of them")
    files: dict[str, KeptFile] = Field(description="by name: labelled-1.parquet, prior.npy")
    sources: list[HistorySource] = Field(description="sources; labelled-1.parquet belongs to the first")


def read_history(run: Run, *, keep: bool = True) -> History:
    """Read the history that a run's spec defines; gather it before the first round, and write it if ``keep``.

    Raises DataError if it is damaged or lost after rounds were drawn, or one of its sources is not readable; LabelError
    if labels of the reference are no classes of the model, or in conflict.
    """
    if not run.spec.has_history:
        return NO_HISTORY
    kept = read_record(run)
    if kept is None:
        if any(track.rounds() for track in run.tracks()):
            raise DataError(f"{uri_of(run)} is lost, and rounds were drawn with it; restore it from a backup")
        sources, files = gather(run)
        if not keep:
            return _decode(files, run.uri)
        kept = _keep(run, sources, files)
    return _decode({name: read_file(run, kept, name) for name in kept.files}, run.store.uri_of(FOLDER))


def read_record(run: Run) -> KeptHistory | None:
    """Read the record, or None; raises DataError if it is damaged or belongs to another run."""
    kept = run.read_document(KeptHistory, RECORD)
    if kept is not None and kept.run != run.header.digest:
        raise DataError(f"{uri_of(run)} was gathered for another run than that of spec.json; restore both")
    return kept


def read_file(run: Run, kept: KeptHistory, name: str) -> bytes:
    """Read a stored file; raises DataError if it is lost or was changed."""
    folder = run.store.store(f"{FOLDER}/{kept.folder}")
    if not folder.exists(name):
        raise DataError(f"{folder.uri_of(name)} is lost; restore it from a backup")
    data = folder.read(name)
    if hashlib.sha256(data).hexdigest() != kept.files[name].sha256:
        raise DataError(f"{folder.uri_of(name)} was changed since it was gathered; restore it from a backup")
    return data


def uri_of(run: Run) -> str:
    """Return the URI of the record."""
    return run.store.uri_of(RECORD)


def _keep(run: Run, sources: Sequence[HistorySource], files: dict[str, bytes]) -> KeptHistory:
    """Write the files, then create the record; of two commands at the same time, one succeeds."""
    described = {
        name: KeptFile(sha256=hashlib.sha256(data).hexdigest(), size=len(data)) for name, data in files.items()
    }
    joined = "".join(f"{name} {item.sha256}\n" for name, item in sorted(described.items()))
    folder = hashlib.sha256(joined.encode()).hexdigest()[:16]
    run.store.store(f"{FOLDER}/{folder}").write_many(files.items(), 8)
    record = KeptHistory(run=run.header.digest, folder=folder, files=described, sources=list(sources))
    return KeptHistory.from_bytes(run.store.create(RECORD, record.to_bytes()), uri_of(run))


def _decode(files: dict[str, bytes], place: str) -> History:
    try:
        labelled = [_decode_labelled(files[name]) for name in sorted(files) if name != PRIOR]
        prior = np.load(io.BytesIO(files[PRIOR]), allow_pickle=False) if PRIOR in files else None
    except (ValueError, KeyError, OSError) as error:
        raise DataError(f"{place} has no valid history ({shortened(str(error))}); restore it") from None
    return History(labelled, prior)


def _decode_labelled(data: bytes) -> tuple[Pool, NDArray[np.float64]]:
    table = read_bytes(data)
    arrays: dict[str, Any] = {name: to_numpy(table[name]) for name in table.column_names}
    outcome = arrays.pop("outcome")
    return Pool(**arrays), outcome
