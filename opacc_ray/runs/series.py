"""The runs of one audit over time: how the pool of one has grown, what features of an earlier run still hold, and how
many attempts a number is one of: other runs of the same pool, their seeds, and draws that were replaced.

Runs of one population are one series over time; others are kept apart. A population is defined by the place and format
of the pool, its filter, split and table, and by task and classes. Neither the version of the data nor the model belongs
to it, because they change over time. If a spec names its population, the name replaces the keys of the pool.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, OpaccError, counted, shortened
from opacc_ray.extract.feature_set import FeatureLink, Index, describe, read_index
from opacc_ray.extract.model_code import Code
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.store import Entry, Store, in_order
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import HEADER, Run, read_listing
from opacc_ray.runs.run_documents import Draw, Stated
from opacc_ray.spec import Spec
from opacc_ray.spec.spec_sections import plain_name

THREADS = 16  # runs that are read at a time


POOL_KEYS = ("pool", "format", "filter", "split", "catalog", "table")
"""Keys of the pool that the name of a population replaces."""


class Population(Part):
    """The population that an accuracy is for; keys of the pool are null if the spec names the population."""

    name: str | None  # name in the spec; null: none
    pool: str | None  # URI of the pool
    format: str | None  # format of the pool
    filter: str | None  # filter of the rows; null: all
    split: str | None  # split of the dataset; null: its only one
    catalog: str | None  # catalog of the table; null: the table is found by its URI
    table: str | None  # name of the table in the catalog
    task: str  # classification or regression
    classes: list[str] | None  # names of the classes, sorted; null: no names

    @classmethod
    def of(cls, spec: Spec) -> "Population":
        """Return the population of a spec with absolute paths, such as the spec in the header of a run."""
        keys = {key: getattr(spec.pool, key) for key in POOL_KEYS if key != "pool"}
        classes = spec.model.classes and sorted(map(plain_name, spec.model.classes))
        return cls.named(name=spec.population, pool=spec.pool.uri, task=spec.model.task, classes=classes, **keys)

    @classmethod
    def named(cls, *, name: str | None, pool: str, **keys: Any) -> "Population":
        """Return the population with these keys; a name replaces the keys of the pool."""
        place, folder, file = pool.rstrip("/").rpartition("/metadata/")
        is_metadata = keys["format"] == "iceberg" and folder and file.endswith(".metadata.json")
        pool = place if is_metadata else pool.rstrip("/")  # this file is one version of its table
        return cls(**{"name": name, "pool": pool} | keys | (dict.fromkeys(POOL_KEYS) if name is not None else {}))

    @property
    def digest(self) -> str:
        """Digest of the population: 16 hexadecimal digits."""
        content = self.model_dump(exclude_none=True)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return ", ".join(f"{key} {text}" for key, text in self._texts().items() if text is not None)

    def differs(self, other: "Population") -> str:
        """Describe the differences from another population: ``filter "score > 0.5", not none``."""
        own, theirs = self._texts(), other._texts()
        return "; ".join(
            f"{key} {own[key] or 'none'}, not {theirs[key] or 'none'}" for key in own if own[key] != theirs[key]
        )

    def _texts(self) -> dict[str, str | None]:
        texts = self.model_dump()
        texts["classes"] = None if self.classes is None else ", ".join(self.classes)
        for key in ("name", "filter"):
            texts[key] = texts[key] and f'"{texts[key]}"'
        return {key: text if key == "pool" else text and shortened(text, 120) for key, text in texts.items()}


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

    run: str  # name of the earlier run
    created: str  # when that run was created
    new: int = Field(ge=0)  # objects that it did not have
    changed: int = Field(ge=0)  # objects with another content
    gone: int = Field(ge=0)  # objects that are no longer there

    def __str__(self) -> str:
        files = f"{counted(self.new, 'new file')}, {self.changed} changed, {self.gone} gone"
        return f"{files} since {self.run} ({self.created[:10]})"


def changes_since(before: Run, entries: Sequence[Entry]) -> PoolChanges | None:
    """Return how the objects of a pool differ from those of an earlier run; None if its listing is lost."""
    old = dict[str, Entry]()
    with suppress(DataError):
        old = read_listing(before)
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


def runs_on_pool(run: Run) -> list[Run]:
    """Return the runs of its output whose pool had the same listing, itself included; unreadable ones are left out."""
    output = output_of(run)
    runs = in_order(lambda name: run_beside(output, name), names_of_runs(output), THREADS)
    return [other for other in runs if other and other.header.pool.digest == run.header.pool.digest]


def output_of(run: Run) -> Store:
    """Return the folder of a run and of those next to it."""
    return open_store(run.uri.rpartition("/")[0])


def run_beside(output: Store, name: str | None) -> Run | None:
    """Return a run of an output by its name; None if it is lost or damaged."""
    with suppress(DataError):
        return None if name is None else Run.open(output.store(name).uri)
    return None


def features_before(spec: Spec, plan: Plan, link: FeatureLink | None, code: Code | None) -> str | None:
    """Return the name of the newest earlier run with features of the same model and code; None without one.

    Models without weights in the spec may differ from run to run, so nothing is taken for them.
    """
    if link is None and (not spec.pool.holds_features or spec.compares_with()):
        return None
    wanted = set(link.features) if link else set(spec.extracted())
    if "coverage" in wanted and "ranges" in spec.compares_with():
        return None  # which are those of a reference that may have changed
    for run in grown_from(runs_of(spec.output, spec.name)[0][::-1], spec, plan.digest):
        same = run.header.code == code and _deciding(run.spec, plan, wanted) == _deciding(spec, plan, wanted)
        index = _sound_index(run.features) if same else None
        if index is not None and wanted <= index.features.keys():
            return run.name
    return None


def _deciding(spec: Spec, plan: Plan, features: set[str]) -> dict[str, Any]:
    """Return all that decides features of a listing, apart from the code."""
    return describe(spec, plan, None, sorted(features)).decided_by


def _sound_index(folder: Store) -> Index | None:
    with suppress(DataError):
        return read_index(folder)
    return None


def known_features(run: Run) -> Store | None:
    """Return the folder of the run that a run has grown from; None if there is none, or its features were removed."""
    earlier = run_beside(output_of(run), run.header.grown_from)
    return earlier.features if earlier is not None and _sound_index(earlier.features) is not None else None


def pool_changes(run: Run, entries: Sequence[Entry] | None = None) -> PoolChanges | None:
    """Return how the pool of a run differs from that of the run that it has grown from; None if it has not.

    ``entries`` are the pool's objects; None: those of the run's listing.
    """
    earlier = run_beside(output_of(run), run.header.grown_from)
    with suppress(DataError):
        if earlier is not None:
            return changes_since(earlier, [*read_listing(run).values()] if entries is None else entries)
    return None


REMOVED = "removed/"  # folder of an output


class Attempt(Part):
    """One run of a pool."""

    name: str  # name of the run
    created: str  # when it was created: ISO 8601, UTC
    method: str  # sampling method of its spec
    seed: int  # its seed
    weights: str | None  # SHA-256 of the weights; null: unknown
    code: str | None  # digest of the code; null: no code ran
    stated: float | None  # the newest estimate; null: none, or it cannot be read


class RemovedAttempt(Document):
    """What an output keeps of a run that was removed after a round was drawn, in ``removed/``."""

    format: Literal["opacc-removed-attempt/1"] = "opacc-removed-attempt/1"
    pool: str  # digest of the listing of its pool
    attempt: Attempt  # the run


class Attempts(Part):
    """The runs and draws of one pool that an output knows."""

    runs: list[Attempt]  # all runs of the pool below the output, the oldest first
    place: int = Field(ge=1)  # place of this run among them
    removed: list[Attempt]  # further runs of the pool that `opacc runs remove` deleted
    seeds: int = Field(ge=1)  # different seeds of all these runs
    estimates: int = Field(ge=0)  # estimates that this run has stated

    def __str__(self) -> str:
        """Return the counts in a line."""
        gone = f", {len(self.removed)} more removed" if self.removed else ""
        runs = f"run {self.place} of {len(self.runs)} of this pool by time ({counted(self.seeds, 'seed')}{gone})"
        return f"{runs}; in this run {counted(self.estimates, 'estimate')} stated"


def attempts_of(run: Run) -> Attempts:
    """Return the runs below the output of a run whose pool had the same listing, and the estimates of this one.

    Runs that cannot be read are left out.
    """
    output, places = output_of(run), dict[tuple[str, str], Attempt]()
    for other in runs_on_pool(run):
        places[other.header.created, other.name] = _described(other)
    place = (run.header.created, run.name)
    places[place] = _described(run)
    removed = [attempt for attempt in _removed(output, run) if (attempt.created, attempt.name) not in places]
    return Attempts(
        runs=[places[key] for key in sorted(places)],
        place=1 + sorted(places).index(place),
        removed=removed,
        seeds=len({attempt.seed for attempt in (*places.values(), *removed)}),
        estimates=sum(1 for commit in run.commits for _ in commit.documents(Stated)),
    )


def keep_removed(run: Run) -> None:
    """Keep what an auditor must know of a run that is about to be removed, if a round was drawn."""
    if run.head and any(True for commit in run.commits for _ in commit.documents(Draw)):
        record = RemovedAttempt(pool=run.header.pool.digest, attempt=_described(run))
        output_of(run).write(f"{REMOVED}{run.name}-{run.head[:8]}.json", record.to_bytes())


def _removed(output: Store, run: Run) -> Iterator[Attempt]:
    """Yield the removed runs of the pool of a run; a record that cannot be read is left out."""
    for entry in output.list(REMOVED):
        with suppress(OpaccError):
            record = RemovedAttempt.from_bytes(output.read(entry.key), output.uri_of(entry.key))
            if record.pool == run.header.pool.digest:
                yield record.attempt


def _described(run: Run) -> Attempt:
    header, stated = run.header, None
    with suppress(OpaccError):
        stated = run.read_estimate()
    return Attempt(
        name=run.name,
        created=header.created,
        method=run.spec.sample.method,
        seed=run.spec.seed,
        weights=header.model.sha256,
        code=header.code_digest,
        stated=stated.value if stated else None,
    )
