"""The runs of one audit over time: find them, and say how the pool of one differs from that of the run before."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import Field

from opacc_ray.documents import Part
from opacc_ray.errors import DataError, counted
from opacc_ray.lake.store import Entry, Store
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.feature_store import read_listing
from opacc_ray.runs.identity import Population
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.spec import Spec


def names_of_runs(output: Store) -> list[str]:
    """Return the names of the runs of an output, in order."""
    return [name for name, *rest in (entry.key.split("/") for entry in output.list()) if rest == [HEADER]]


def runs_of(output: str, name: str) -> tuple[list[Run], list[str]]:
    """Return all runs of an audit below an output, the oldest first, and the URIs of headers that cannot be read."""
    store = open_store(output)
    form = re.compile(rf"({re.escape(name)}-[0-9a-f]{{8}})/{re.escape(HEADER)}")
    found, unread = [], []
    for match in filter(None, [form.fullmatch(entry.key) for entry in store.list(f"{name}-")]):
        try:
            run = Run.open(store.store(match[1]).uri)
        except DataError:
            unread.append(store.uri_of(match[0]))
            continue
        if run.spec.name == name:
            found.append(run)
    return sorted(found, key=lambda run: (run.header.created or "", run.name)), unread


def grown_from(runs: Iterable[Run], spec: Spec, listing: str) -> Iterator[Run]:
    """Yield those of the runs whose pool was read in the same way from the same place, but not with this ``listing``.

    ``listing`` is the digest of the pool's listing now.
    """

    def reading(own: Spec) -> tuple[Any, ...]:
        return own.pool.uri.rstrip("/"), own.pool.reading(), Population.of(own)

    return (run for run in runs if run.header.pool.digest != listing and reading(run.spec) == reading(spec))


class PoolChanges(Part):
    """Objects of a pool, compared with those of an earlier run."""

    run: str = Field(description="name of the earlier run")
    created: str = Field(description="when that run was created")
    new: int = Field(ge=0, description="objects that it did not have")
    changed: int = Field(ge=0, description="objects with another content")
    gone: int = Field(ge=0, description="objects that are no longer there")

    def __str__(self) -> str:
        files = f"{counted(self.new, 'new file')}, {self.changed} changed, {self.gone} gone"
        return f"{files} since {self.run} ({self.created[:10]})"


def changes_since(before: Run, entries: Sequence[Entry]) -> PoolChanges | None:
    """Return how the objects of a pool differ from those of an earlier run; None if its listing is lost."""
    try:
        old = read_listing(before)
    except DataError:
        return None
    if not old:
        return None
    now = {entry.key: entry for entry in entries}
    return PoolChanges(
        run=before.name,
        created=before.header.created,
        new=len(now.keys() - old.keys()),
        changed=sum(now[key] != old[key] for key in now.keys() & old.keys()),
        gone=len(old.keys() - now.keys()),
    )


def first_labelled(runs: Iterable[Run]) -> Run | None:
    """Return the first of the runs of an audit that has a file of labels, with which a watch compares the others."""
    return next((run for run in runs if any("/labels/" in entry.key for entry in run.store.list("rounds/"))), None)


def output_of(run: Run) -> Store:
    """Return the folder of a run and of those next to it."""
    return open_store(run.uri.rpartition("/")[0])


def run_beside(output: Store, name: str | None) -> Run | None:
    """Return a run of an output by its name; None if it is lost or damaged."""
    if name is None:
        return None
    try:
        return Run.open(output.store(name).uri)
    except DataError:
        return None
