"""List and remove the shared sets of features below an output.

The listing of the output has the sets, under ``features/``, and the headers of the runs that use them. Features in the
prefix of a run belong to that run alone and are not listed.
"""

import re
from collections import defaultdict
from contextlib import suppress
from typing import Literal

from pydantic import Field

from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extract.feature_set import DESCRIPTION, HOME, INDEX, read_description, read_index
from opacc_ray.lake.store_uris import Entry, Store, open_store
from opacc_ray.runs.run import HEADER
from opacc_ray.runs.run_documents import RunHeader


class StoredSet(Part):
    """A set of features."""

    digest: str = Field(description="name of the set: digest of everything that decides its content")
    pool: str | None = Field(description="URI of the pool; null if unknown")
    model: str | None = Field(description="factory of the model; null if unknown")
    weights: str | None = Field(description="SHA-256 of the weights; null if unknown")
    features: list[str] = Field(description="features that are complete")
    examples: int | None = Field(ge=0, description="number of examples; null while the features are incomplete")
    bytes: int = Field(ge=0, description="size of all files")
    runs: list[str] = Field(description="names of the runs that use the set")


class FeatureSets(Document):
    """Shared sets of features below an output."""

    format: Literal["opacc-feature-sets/1"] = format_field("opacc-feature-sets/1")
    output: str = Field(description="URI of the output")
    sets: list[StoredSet] = Field(description="sets, sorted by digest")
    unread: list[str] = Field(description="runs with unreadable headers, whose sets are unknown")


class RemovedSet(Document):
    """Report of a removed set."""

    format: Literal["opacc-removed-set/1"] = format_field("opacc-removed-set/1")
    output: str = Field(description="URI of the output")
    removed: StoredSet = Field(description="the removed set")


def list_sets(output: str) -> FeatureSets:
    """All sets of an output; raises DataError where there is neither a run nor a set."""
    home = open_store(output)
    entries = home.list()
    headers = [entry.key for entry in entries if re.fullmatch(rf"[^/]+/{HEADER}", entry.key)]
    users, unread = _find_users(home, headers)
    files: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        match = re.fullmatch(rf"{HOME}/([0-9a-f]{{16}})/(.+)", entry.key)
        if match:
            files[match[1]].append(entry._replace(key=match[2]))
    if not (files or headers):
        what = "is a run" if any(entry.key == HEADER for entry in entries) else "holds no runs and no features"
        raise DataError(f"{home.uri} {what}; give the `output` of a spec, which is the folder of its runs")
    sets = [
        _describe(home.store(f"{HOME}/{digest}"), digest, own, sorted(users[digest]))
        for digest, own in sorted(files.items())
    ]
    return FeatureSets(output=home.uri, sets=sets, unread=unread)


def remove_set(output: str, digest: str, *, force: bool = False) -> RemovedSet:
    """Delete a set, index first, so that an interrupted removal leaves an incomplete set.

    ``digest`` is the name of the set, or its beginning. With ``force``, a set that runs use is deleted as well; their
    rounds, labels and estimates stay. Raises DataError if there is no such set, or several match; SpecError if runs use
    it, or may, and ``force`` is not given.
    """
    found = list_sets(output)
    matching = [item for item in found.sets if digest and item.digest.startswith(digest)]
    if len(matching) != 1:
        there = ", ".join(item.digest for item in matching or found.sets) or "none"
        what = "more than one set" if matching else "no set of features"
        raise DataError(f"{what} in {found.output} begins with {digest!r}; there: {there}")
    [chosen] = matching
    if (chosen.runs or found.unread) and not force:
        raise SpecError(_objection(found, chosen))
    folder = open_store(output).store(f"{HOME}/{chosen.digest}")
    for entry in sorted(folder.list(), key=lambda entry: not entry.key.endswith(INDEX)):
        folder.delete(entry.key)
    return RemovedSet(output=found.output, removed=chosen)


def _objection(found: FeatureSets, chosen: StoredSet) -> str:
    size = f"{chosen.bytes / 1e6:.1f} MB"
    if chosen.runs:
        examples = f" of {chosen.examples} examples" if chosen.examples is not None else ""
        return (
            f"{len(chosen.runs)} runs use {chosen.digest}, such as {chosen.runs[0]}: without its {size} of features"
            f"{examples} they need another extraction before a further round; give --force to remove it"
        )
    return (
        f"the header of {found.unread[0]} is not readable, so it may use {chosen.digest} ({size}); restore it, or give "
        "--force to remove the set"
    )


def _find_users(home: Store, headers: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the names of the runs of each set, by its digest, and those of the runs with unreadable headers."""
    runs: dict[str, list[str]] = defaultdict(list)
    unread = []
    for key, data in zip(headers, home.read_many(headers), strict=True):
        name = key.partition("/")[0]
        try:
            link = RunHeader.from_bytes(data, home.uri_of(key)).features
        except DataError:
            unread.append(name)
            continue
        if link is not None:
            runs[link.digest].append(name)
    return runs, unread


def _describe(folder: Store, digest: str, entries: list[Entry], users: list[str]) -> StoredSet:
    """Describe a set as far as it is readable."""
    keys = {entry.key for entry in entries}
    said = index = None
    with suppress(DataError):
        said = read_description(folder) if DESCRIPTION in keys else None
    with suppress(DataError):
        index = read_index(folder) if INDEX in keys else None
    model = said.decided_by.get("model", {}) if said else {}
    added = {key.partition("/")[0].partition("-")[0] for key in keys if key.endswith(f"/{INDEX}")} - {"all"}
    return StoredSet(
        digest=digest,
        pool=said.pool if said else None,
        model=model.get("factory"),
        weights=model.get("sha256"),
        features=[*(index.features if index else ()), *sorted(added)],
        examples=index.num_examples if index else None,
        bytes=sum(entry.size for entry in entries),
        runs=users,
    )
