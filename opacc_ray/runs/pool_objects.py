"""Store the listing of the pool, and find objects of chosen examples that have changed since.

The model processed the objects of the listing; annotators see those of today. If the tag of an object (its ETag, or its
time and size) has changed, the label belongs to another picture than the prediction.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from opacc_ray.errors import DataError, OpaccError, shortened
from opacc_ray.lake.arrow_columns import numbers, texts
from opacc_ray.lake.parquet_io import encode, read_bytes
from opacc_ray.lake.pools import digest_of, newest_version
from opacc_ray.lake.read_ahead import in_order
from opacc_ray.lake.store import Entry
from opacc_ray.runs.draws import Chosen
from opacc_ray.runs.estimate_documents import ChangedObjects
from opacc_ray.runs.run import Run
from opacc_ray.spec import open_pool, rules_of

log = logging.getLogger(__name__)

LISTING = "listing.parquet"

LISTED_AT_ONCE = 40
"""Objects listed in the time of one request: a page of 1,000 takes as long as 25 parallel requests."""

NAMED = 5
"""Number of objects that are named; the others are counted."""


def write_listing(run: Run, entries: Sequence[Entry]) -> None:
    """Write the listing of the run's digest, unless it is stored and undamaged."""
    import pyarrow as pa

    if not entries or digest_of(entries) != run.header.pool.digest:
        return
    try:
        if run.store.exists(LISTING):
            read_listing(run)
            return
    except DataError as error:
        log.warning("%s; it is written again", str(error).partition("; ")[0])
    keys, sizes, tags = zip(*entries, strict=True)
    columns = {"key": texts(keys), "size": numbers(np.array(sizes)), "tag": texts(tags)}
    run.store.write(LISTING, encode(pa.table(columns), compression="zstd", write_page_checksum=True))


def read_listing(run: Run) -> dict[str, Entry]:
    """Read the listing by key, empty if none is stored; raises DataError unless it fits the run's digest."""
    import pyarrow as pa

    if not run.store.exists(LISTING):
        return {}
    source = run.store.uri_of(LISTING)
    try:
        table = read_bytes(run.store.read(LISTING))
        entries = [Entry(*row) for row in zip(*(table[name].to_pylist() for name in Entry._fields), strict=True)]
    except (pa.ArrowException, OSError, KeyError) as error:
        reason = shortened(str(error))
        raise DataError(f"{source} is no listing ({reason}); run the spec again, which writes it anew") from None
    if digest_of(entries) != run.header.pool.digest:
        raise DataError(
            f"{source} is not the listing that the run was made of; run the spec again, which writes it anew"
        )
    return {entry.key: entry for entry in entries}


def find_objects(run: Run, uris: Sequence[str]) -> tuple[list[str | None], list[str | None]]:
    """Return key and tag of the object with each example, as listed; None if unknown."""
    listing = read_listing(run)
    root = f"{open_pool(run.spec.pool).uri}/"
    found = [_entry_of(uri.removeprefix(root), listing) for uri in uris]
    return [entry.key if entry else None for entry in found], [entry.tag if entry else None for entry in found]


def _entry_of(place: str, listing: dict[str, Entry]) -> Entry | None:
    """Return the listed object at a place, which for a row of an array file is ``KEY#row=7``."""
    return listing.get(place) or listing.get(place.rpartition("#")[0])


class Comparison(NamedTuple):
    """Objects of chosen examples now, compared with the listing of the pool."""

    changed: list[str]  # keys of objects with another tag
    lost: list[str]  # keys of objects that no longer exist
    unknown: int  # number of examples that could not be compared
    reason: str | None = None  # why nothing was compared
    version: str | None = None  # current version of the table, if it differs from the run's


def compare_objects(run: Run, rounds: Sequence[Chosen]) -> Comparison:
    """Find objects of chosen examples that changed or vanished after the pool was listed.

    Uses one listing of the pool, or one request per object, whichever is faster. An unreachable pool raises no error:
    the result then has the reason why nothing was compared.
    """
    before = {
        key: tag for chosen in rounds for key, tag in zip(chosen.objects, chosen.tags, strict=True) if key and tag
    }
    unknown = len({name for chosen in rounds for name, tag in zip(chosen.ids, chosen.tags, strict=True) if not tag})
    try:
        now = _tags(run, list(before)) if before else {}
        version = _newer_version(run)
    except OpaccError as error:
        return Comparison([], [], len(before) + unknown, str(error))
    lost = [key for key in before if key not in now]
    changed = [key for key in before if key in now and now[key] != before[key]]
    return Comparison(changed, lost, unknown, version=version)


def _newer_version(run: Run) -> str | None:
    """Return the current version of the pool's table if it differs from the run's and the spec pins none."""
    pool = run.spec.pool
    if run.header.pool.version is None or pool.version is not None or pool.timestamp is not None:
        return None
    found = newest_version(open_pool(pool), pool.format, rules_of(pool))
    return None if found == run.header.pool.version else found


def find_changed(tracks: Sequence[Run], numbers: Sequence[int] | None = None) -> ChangedObjects:
    """Count the objects of chosen examples that changed or vanished, as :func:`compare_objects`.

    Parameters
    ----------
    tracks : tracks of one run
    numbers : rounds of each track; None: all
    """
    rounds = [run.read_chosen(number) for run in tracks for number in (run.rounds() if numbers is None else numbers)]
    found = compare_objects(tracks[0], rounds)
    return ChangedObjects(
        changed=len(found.changed),
        lost=len(found.lost),
        unknown=found.unknown,
        first=sorted(found.changed + found.lost)[:NAMED],
        reason=found.reason,
        version=found.version,
    )


def _tags(run: Run, keys: Sequence[str]) -> dict[str, str]:
    """Return the tag of each object that exists."""
    store = open_pool(run.spec.pool)
    num_files = run.header.pool.num_files
    if num_files is not None and num_files <= LISTED_AT_ONCE * len(keys):
        wanted = set(keys)
        return {entry.key: entry.tag for entry in store.list() if entry.key in wanted}
    return {entry.key: entry.tag for entry in in_order(store.entry, keys, threads=16) if entry}
