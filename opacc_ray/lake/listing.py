"""The files of a format below a prefix, and the files that are ignored."""

from pathlib import PurePosixPath

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Found, Ignored
from opacc_ray.lake.store import Listing, Store

_NAMED = 3  # ignored files of a kind whose names are shown


def find_files(store: Store, suffixes: tuple[str, ...], what: str, *, hidden: bool = True) -> Found:
    """Return the files whose keys end in one of ``suffixes``, in any case, and count the others by kind.

    Without ``hidden``, files with a part of the path that begins with '_' or '.' are left out. Errors call the pool
    ``what``. Raises DataError if there is no such file.
    """
    listing = store.survey()
    fitting = (entry for entry in listing.entries if entry.key.lower().endswith(suffixes))
    wanted = tuple(entry for entry in fitting if hidden or not _is_hidden(entry.key))
    ignored = _ignored(listing, {entry.key for entry in wanted})
    if not wanted:
        there = "; it holds " + ", ".join(map(str, ignored)) if ignored else ", and nothing else"
        raise DataError(
            f"the {what} {store.uri} holds no {' or '.join(suffixes)} file{there}; check {what}.uri and {what}.format"
        )
    return Found(wanted, ignored, data_as_of=listing.newest)


def _is_hidden(key: str) -> bool:
    """Return whether Spark and Hive ignore a path, such as ``_delta_log`` or ``.checkpoint``."""
    return any(part.startswith(("_", ".")) and "=" not in part for part in key.split("/"))


def _ignored(listing: Listing, wanted: set[str]) -> tuple[Ignored, ...]:
    """Count the files of other formats by kind, the most frequent first."""
    kinds: dict[str, list[str]] = {}
    for entry in listing.entries:
        if entry.key not in wanted:
            kinds.setdefault(PurePosixPath(entry.key).suffix.lower()[:20] or "no suffix", []).append(entry.key)
    for key, kind in listing.oddities:
        kinds.setdefault(kind, []).append(key)
    counted = (
        Ignored(readable_name(kind), len(keys), tuple(map(readable_name, keys[:_NAMED])))
        for kind, keys in kinds.items()
    )
    return tuple(sorted(counted, key=lambda item: (-item.num_files, item.kind)))


def readable_name(name: str) -> str:
    """Return a file's name with invalid Unicode escaped."""
    return name.encode("utf-8", "backslashreplace").decode()
