"""The files of a round, as they were drawn.

    rounds/2/draws/DIGEST/…    selection, predictions and manifests of one draw; DIGEST is that of all of them
    rounds/2/draw-1.json       which draw it is, with a digest of every file; created once, after the files
    rounds/2/draw-2.json       the draw that replaced it, if one did before any label came
    rounds/2/selection.json …  the newest draw again, where people and other tools look for it

What is read here comes from the folder of the draw and is checked by its digest, so files of two draws never mix,
however many commands draw at once. A round of version 0.1.0 has no draws: its files lie in the round's own folder.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence

from opacc_ray.errors import DataError, StorageError
from opacc_ray.lake.read_ahead import in_order
from opacc_ray.lake.store_uris import Store
from opacc_ray.runs.documents import Draw, DrawnFile
from opacc_ray.samplers import METHODS
from opacc_ray.selection import Selection

SELECTION, PREDICTIONS, MANIFEST = "selection.json", "predictions.parquet", "manifest."
"""Names of a draw's files; those of manifests begin with the last."""

THREADS = 8
"""Files that are read or written at a time."""

READS = 4
"""Times that a file is read which is there and cannot be read."""


def numbers(keys: Sequence[str], uri: str) -> list[int]:
    """Numbers of the draws of a round, 1 to the newest, from the keys in its folder; empty for a round of 0.1.0.

    Raises
    ------
    DataError
        One is lost.
    """
    found = sorted(int(match[1]) for key in keys if (match := re.fullmatch(r"draw-(\d+)\.json", key)))
    expected = list(range(1, max(found, default=0) + 1))
    if not found and SELECTION in keys and any(key.startswith("draws/") for key in keys):
        expected = [1]
    lost = [number for number in expected if number not in found]
    if lost:
        raise DataError(f"{uri}/{name_of(lost[0])} is lost; restore it from a backup")
    return found


def newest(folder: Store, run: str | None) -> Draw | None:
    """The draw that counts; None for a round of version 0.1.0, or one that does not exist.

    ``run`` is the run that it was drawn for, as :attr:`Run.drawn_for` names it.
    """
    found = numbers([entry.key for entry in folder.list()], folder.uri)
    return read(folder, found[-1], run) if found else None


def read(folder: Store, number: int, run: str | None) -> Draw:
    """One draw of a round; raises DataError if it is damaged, or of another run."""
    key = name_of(number)
    draw = Draw.from_bytes(folder.read(key), folder.uri_of(key))
    if draw.run != run:
        raise DataError(
            f"{folder.uri_of(key)} was drawn for another run than that of spec.json, or another track; restore both"
        )
    if draw.folder != _place(draw.files):
        raise DataError(f"{folder.uri_of(key)} names the folder {draw.folder!r}, not that of its files; restore it")
    return draw


def describe(files: Mapping[str, bytes], run: str | None, features: str | None = None) -> Draw:
    """The draw that files make, from the features with a digest."""
    described = {name: DrawnFile(sha256=_digest(data), size=len(data)) for name, data in sorted(files.items())}
    return Draw(run=run, features=features, folder=_place(described), files=described)


def write(folder: Store, number: int, draw: Draw, files: Mapping[str, bytes]) -> Draw:
    """Write the files of a draw, then create it; returns the draw of that number, which may be another's."""
    key = name_of(number)
    folder.store(draw.folder).write_many(files.items(), THREADS)
    return Draw.from_bytes(folder.create(key, draw.to_bytes()), folder.uri_of(key))


def files_of(folder: Store) -> dict[str, bytes]:
    """The files of a round of version 0.1.0, by name."""
    names = [entry.key for entry in folder.list() if entry.key.startswith((SELECTION, PREDICTIONS, MANIFEST))]
    return dict(zip(names, folder.read_many(names), strict=True))


def read_file(folder: Store, draw: Draw | None, name: str) -> bytes:
    """A file of a draw, or of a round of version 0.1.0.

    Raises
    ------
    DataError
        It is lost, or was changed since it was drawn.
    """
    if draw is None:
        return folder.read(name)
    key = f"{draw.folder}/{name}"
    if name not in draw.files:
        raise DataError(f"{folder.uri} has a draw without {name}; restore it from a backup")
    return _checked(folder, key, draw.files[name], f"restore it, from {folder.uri_of(name)} if that is as it was")


def copy(folder: Store, files: Mapping[str, bytes]) -> None:
    """Write the files of a draw where people look for them, the selection last."""
    for name in sorted(files, key=_last):
        folder.write(name, files[name])


def publish(folder: Store, draw: Draw) -> list[str]:
    """Copy the files of a draw to where people look for them; returns the names of those that were not there.

    One that was changed is kept under ``replaced/``: somebody may have filled in a manifest where it lies.
    """
    names = [name for name, _ in faults(folder, draw)]
    for name in names:
        there, drawn = folder.read_if_there(name), read_file(folder, draw, name)
        if there not in (None, drawn):
            folder.write(f"replaced/{_digest(there)[:16]}/{name}", there)
        folder.write(name, drawn)
    return names


def check_copies(folder: Store, draw: Draw) -> None:
    """Raise DataError if what people see of a round is not what was drawn, such as a manifest that was edited."""
    for name, fault in faults(folder, draw):
        raise DataError(
            f"{fault}; copy it from {folder.uri_of(draw.folder)}/{name}, or run the spec again, which keeps a changed "
            "file under replaced/: import a manifest that was filled in from there"
        )


def faults(folder: Store, draw: Draw) -> list[tuple[str, str]]:
    """(name, what is wrong) of the copies of a draw that are lost or changed."""

    def fault(name: str) -> str | None:
        try:
            _checked(folder, name, draw.files[name], "")
        except DataError as error:
            return str(error).partition("; ")[0]
        return None

    names = sorted(draw.files, key=_last)
    return [(name, text) for name, text in zip(names, in_order(fault, names, THREADS), strict=True) if text]


def _checked(folder: Store, key: str, expected: DrawnFile, remedy: str) -> bytes:
    data = _read_beside_writers(folder, key)
    if data is None:
        raise DataError(f"{folder.uri_of(key)} is lost; {remedy}")
    if _digest(data) != expected.sha256:
        raise DataError(f"{folder.uri_of(key)} was changed since it was drawn; {remedy}")
    return data


def _read_beside_writers(folder: Store, key: str) -> bytes | None:
    """The object, which others may be writing; None if there is none. Some servers lack it while it is replaced."""
    for _ in range(READS - 1):
        with contextlib.suppress(StorageError):
            return folder.read(key)
        if not folder.exists(key):
            return None
    return folder.read(key)


def _last(name: str) -> tuple[bool, str]:
    """An order in which the selection comes last: whoever sees it sees the rest."""
    return name == SELECTION, name


def _place(files: Mapping[str, DrawnFile]) -> str:
    content = {name: file.sha256 for name, file in files.items()}
    return f"draws/{_digest(json.dumps(content, sort_keys=True).encode())[:16]}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def name_of(number: int) -> str:
    return f"draw-{number}.json"


def decode_selection(data: bytes, source: str) -> Selection:
    """Read the selection of a draw; raises DataError if it is none."""
    try:
        selection = Selection.from_json(data, source)
    except (RecursionError, OverflowError, TypeError) as error:
        raise DataError(f"{source} is no selection ({type(error).__name__}: {error}); restore it") from None
    if selection.method not in METHODS:
        raise DataError(f"{source}: there is no method {selection.method!r}; restore it")
    return selection
