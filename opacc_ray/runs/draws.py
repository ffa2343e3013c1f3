"""Write and read the files of a round, as they were drawn.

    rounds/2/draws/DIGEST/…    selection, predictions and manifests of one draw; DIGEST is computed from all of them
    rounds/2/selection.json …  copies of the newest draw, for people and other tools

A draw happens when the log names it, with a digest of every file; before any label came another one may replace it. All
reads use the folder of the draw and compare digests. So files of two draws never mix, however many commands draw at
the same time. A :class:`Snapshot` lists and reads the files of all rounds only once.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from opacc_ray.errors import DataError, StorageError, shortened
from opacc_ray.lake import parquet_io
from opacc_ray.lake.parquet_io import numbers, texts
from opacc_ray.lake.store import Entries
from opacc_ray.lake.store_uris import Entry, Store
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
    return Draw(run=run, features=features, folder=_place(described), files=described)


def read_file(folder: Store, draw: Draw, name: str) -> bytes:
    """Read a file of a draw; raises DataError if it is lost, or was changed after the draw."""
    if name not in draw.files:
        raise DataError(f"{folder.uri} has a draw without {name}; restore it from a backup")
    remedy = f"restore it, from {folder.uri_of(name)} if that file is unchanged"
    return _checked(folder, f"{draw.folder}/{name}", draw.files[name], remedy)


# -- copies for people -------------------------------------------------------------------------------------------


def copy(folder: Store, files: Mapping[str, bytes]) -> None:
    """Copy the files of a draw into the folder of the round, the selection last."""
    for name in sorted(files, key=_last):
        folder.write(name, files[name])


def publish(folder: Store, draw: Draw) -> list[str]:
    """Restore the copies of a draw's files; returns the names of those that were lost or changed.

    A changed file is kept under ``replaced/``: it may be a manifest that somebody has filled in.
    """
    names = [name for name, _ in faults(folder, draw)]
    for name in names:
        there, drawn = folder.read_if_there(name), read_file(folder, draw, name)
        if there not in (None, drawn):
            folder.write(f"replaced/{digest_of(there)[:16]}/{name}", there)
        folder.write(name, drawn)
    return names


def check_copies(folder: Store, draw: Draw) -> None:
    """Raise DataError if a copy differs from what was drawn, such as a manifest that was edited."""
    for name, fault in faults(folder, draw):
        raise DataError(
            f"{fault}; copy it from {folder.uri_of(draw.folder)}/{name}, or run the spec again, which moves a changed "
            "file to replaced/: import a manifest that was filled in from there"
        )


def faults(folder: Store, draw: Draw) -> list[tuple[str, str]]:
    """Return the name and the problem of each copy that is lost or changed."""

    def fault(name: str) -> str | None:
        try:
            _checked(folder, name, draw.files[name], "")
        except DataError as error:
            return str(error).partition("; ")[0]
        return None

    names = sorted(draw.files, key=_last)
    return [(name, text) for name, text in zip(names, folder.each(fault, names, THREADS), strict=True) if text]


def _checked(folder: Store, key: str, expected: KeptFile, remedy: str) -> bytes:
    data = _read_while_written(folder, key)
    if data is None:
        raise DataError(f"{folder.uri_of(key)} is lost; {remedy}")
    if digest_of(data) != expected.sha256:
        raise DataError(f"{folder.uri_of(key)} was changed since it was drawn; {remedy}")
    return data


def _read_while_written(folder: Store, key: str) -> bytes | None:
    """Read an object, or return None if there is none. Some servers fail to serve it while it is replaced."""
    for _ in range(3):
        with contextlib.suppress(StorageError):
            return folder.read(key)
        if not folder.exists(key):
            return None
    return folder.read(key)


def _last(name: str) -> tuple[bool, str]:
    """Return a sort key by which the selection is last: once it is there, all files are."""
    return name == SELECTION, name


def _place(files: Mapping[str, KeptFile]) -> str:
    content = {name: file.sha256 for name, file in files.items()}
    return f"draws/{digest_of(json.dumps(content, sort_keys=True).encode())[:16]}"


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


class Snapshot(Store):
    """Read-only view of some folders of a store, each object read once; other places are read directly.

    Parameters
    ----------
    store : the store
    entries : listings by folder; folders end with '/'
    held : contents that were read, by URI
    """

    def __init__(self, store: Store, entries: Mapping[str, Entries], held: dict[str, bytes] | None = None) -> None:
        self._store, self._entries = store, entries
        self._held: dict[str, bytes] = {} if held is None else held

    @property
    def uri(self) -> str:
        return self._store.uri

    @property
    def patience(self) -> float:
        return self._store.patience

    def read(self, key: str) -> bytes:
        if self._listed(key) is None:
            return self._store.read(key)
        uri = self.uri_of(key)
        if uri not in self._held:
            self._held[uri] = self._store.read(key)
        return self._held[uri]

    def list(self, prefix: str = "") -> Entries:
        entries = self._listed(prefix)
        if entries is None:
            return self._store.list(prefix)
        return [entry for entry in entries if entry.key.startswith(prefix)]

    def entry(self, key: str) -> Entry | None:
        entries = self._listed(key)
        if entries is None:
            return self._store.entry(key)
        return next((entry for entry in entries if entry.key == key), None)

    def exists(self, key: str) -> bool:
        return self._store.exists(key) if self._listed(key) is None else self.entry(key) is not None

    def store(self, sub: str) -> Store:
        place, inside = self._store.store(sub), f"{sub.rstrip('/')}/"
        if self._listed(inside) is None:
            return place
        own = [entry._replace(key=entry.key.removeprefix(inside)) for entry in self.list(inside)]
        return Snapshot(place, {"": own}, self._held)

    def _listed(self, key: str) -> Entries | None:
        return next((entries for folder, entries in self._entries.items() if key.startswith(folder)), None)

    def write(self, key: str, data: bytes) -> None:
        raise StorageError(f"{self.uri_of(key)} cannot be written: this is a read-only snapshot")

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise StorageError(f"a snapshot of {self.uri} only lists and reads whole objects")

    _create = delete = size = written = read_range = read_entry = read_entry_range = _refuse
