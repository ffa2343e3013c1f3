"""The files of a format below a prefix, and what else lies there."""

from pathlib import PurePosixPath

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Found, Ignored
from opacc_ray.lake.store import Listing, Store

_NAMED = 3  # ignored files of a kind that are named


def find_files(store: Store, suffixes: tuple[str, ...], what: str, *, hidden: bool = True) -> Found:
    """List the files whose keys end in one of ``suffixes``, in any case; others are counted by kind.

    Parameters
    ----------
    what : section of the spec that the store is of
    hidden : whether files count that other tools pass over, since a part of their path begins with '_' or '.'

    Raises
    ------
    DataError
        There is none.
    """
    listing = store.survey()
    wanted = [
        entry
        for entry in listing.entries
        if entry.key.lower().endswith(suffixes) and (hidden or not _is_hidden(entry.key))
    ]
    ignored = _ignored(listing, {entry.key for entry in wanted})
    if not wanted:
        there = "; it holds " + ", ".join(map(str, ignored)) if ignored else ", and nothing else"
        raise DataError(
            f"the {what} {store.uri} holds no {' or '.join(suffixes)} file{there}; check {what}.uri and {what}.format"
        )
    return Found(tuple(wanted), ignored)


def _is_hidden(key: str) -> bool:
    """Whether Spark, Hive and their kin take a path for none of the data: ``_delta_log``, ``.checkpoint``."""
    return any(part.startswith(("_", ".")) and "=" not in part for part in key.split("/"))


def _ignored(listing: Listing, wanted: set[str]) -> tuple[Ignored, ...]:
    """What is no file of the format, by kind, the most frequent first."""
    kinds: dict[str, list[str]] = {}
    for entry in listing.entries:
        if entry.key not in wanted:
            kinds.setdefault(PurePosixPath(entry.key).suffix.lower()[:20] or "no suffix", []).append(entry.key)
    for oddity in listing.oddities:
        kinds.setdefault(oddity.kind, []).append(oddity.key)
    counted = [Ignored(_safe(kind), len(keys), tuple(map(_safe, keys[:_NAMED]))) for kind, keys in kinds.items()]
    return tuple(sorted(counted, key=lambda item: (-item.num_files, item.kind)))


def _safe(name: str) -> str:
    """A name with what is no Unicode as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()
