"""The objects of the pool as they were when it was listed, and whether those of chosen examples have changed since.

The model saw the pool of the listing; annotators see that of today. A chosen example's object with another tag now (its
ETag, or time and size) is another picture than the model's, and its label says nothing of the model.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from opacc_ray.errors import DataError, OpaccError, shortened
from opacc_ray.extract.source import open_pool, rules_of
from opacc_ray.lake.arrow_columns import numbers, texts
from opacc_ray.lake.parquet_io import encode, read_bytes
from opacc_ray.lake.pools import digest_of, newest_version
from opacc_ray.lake.read_ahead import in_order
from opacc_ray.lake.store import Entry
from opacc_ray.runs.chosen import Chosen
from opacc_ray.runs.documents import ChangedObjects
from opacc_ray.runs.run import Run

log = logging.getLogger(__name__)

LISTING = "listing.parquet"

LISTED_AT_ONCE = 40
"""Objects that are listed in the time that one is asked for: a page of 1,000 takes as long as 25 requests at once."""

NAMED = 5
"""Objects that are named; the others are counted."""


def write_listing(run: Run, entries: Sequence[Entry]) -> None:
    """Keep the listing that the run's digest was made of, unless it is there and sound."""
    import pyarrow as pa

    if not entries or digest_of(entries) != run.header.pool.digest:
        return
    try:
        if read_listing(run) is not None:
            return
    except DataError as error:
        log.warning("%s; it is written again", str(error).partition("; ")[0])
    keys, sizes, tags = zip(*entries, strict=True)
    columns = {"key": texts(keys), "size": numbers(np.array(sizes)), "tag": texts(tags)}
    run.store.write(LISTING, encode(pa.table(columns), compression="zstd", write_page_checksum=True))


def read_listing(run: Run) -> dict[str, Entry] | None:
    """The listing by key; None in a run of version 0.1.0. Raises DataError if it is not that of the run's digest."""
    import pyarrow as pa

    if not run.store.exists(LISTING):
        return None
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
    """Key and tag of the object that holds each example, as listed; None where that is not known."""
    listing = read_listing(run) or {}
    root = f"{open_pool(run.spec.pool).uri}/"
    found = [_entry_of(uri.removeprefix(root), listing) for uri in uris]
    return [entry.key if entry else None for entry in found], [entry.tag if entry else None for entry in found]


def _entry_of(place: str, listing: dict[str, Entry]) -> Entry | None:
    """A row of an array file lies at ``KEY#row=7``."""
    return listing.get(place) or listing.get(place.rpartition("#")[0])


class Comparison(NamedTuple):
    """Objects of chosen examples as they are now, beside the listing of the pool."""

    changed: list[str]  # keys of those with another tag
    lost: list[str]  # keys of those that are gone
    unknown: int  # how many examples could not be compared
    reason: str | None = None  # why nothing was compared
    version: str | None = None  # the table's version now, if it is another than the run's


def compare_objects(run: Run, rounds: Sequence[Chosen]) -> Comparison:
    """Find the objects of chosen examples that changed or went since the pool was listed.

    One listing of the pool, or one request for each object, whichever is quicker. A pool that cannot be reached is no
    error: the answer then says that nothing was compared.
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
    """The version that the pool's table has now, if it is another than the run's, which the spec left open."""
    pool = run.spec.pool
    if run.header.pool.version is None or pool.version is not None or pool.timestamp is not None:
        return None
    found = newest_version(open_pool(pool), pool.format, rules_of(pool))
    return None if found == run.header.pool.version else found


def find_changed(tracks: Sequence[Run], numbers: Sequence[int] | None = None) -> ChangedObjects:
    """The objects of chosen examples that changed or went since the pool was listed, as :func:`compare_objects`.

    Parameters
    ----------
    tracks : of one run
    numbers : of the rounds of each; all of them if it is None
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
    """Tag of each of the objects that is there."""
    store = open_pool(run.spec.pool)
    num_files = run.header.pool.num_files
    if num_files is not None and num_files <= LISTED_AT_ONCE * len(keys):
        wanted = set(keys)
        return {entry.key: entry.tag for entry in store.list() if entry.key in wanted}
    return {entry.key: entry.tag for entry in in_order(store.entry, keys, threads=16) if entry}
