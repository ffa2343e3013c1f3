"""Delete old runs with their labels, and the features that only they used: the retention of an output."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from opacc_ray.audit.status import remove_run
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import OpaccError
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs.feature_sets import list_sets, remove_set
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import first_labelled, names_of_runs


class ExpiredRun(Part):
    """A run to which nothing happened for long, and of which the audit has a newer one."""

    run: str = Field(description="URI of the run")
    days: float = Field(description="days since something happened to it")
    labels: int = Field(ge=0, description="files of labels")


class Retention(Document):
    """What the retention of an output deletes."""

    format: Literal["opacc-retention/1"] = format_field("opacc-retention/1")
    output: str = Field(description="URI of the output")
    days: float = Field(ge=0, description="days after which a run expires")
    runs: list[ExpiredRun] = Field(description="expired runs, the oldest first")
    features: list[str] = Field(description="digests of features that no other run uses")
    bytes: int = Field(ge=0, description="size of these features")
    unread: list[str] = Field(description="URIs of runs that cannot be read, which are kept with all features")
    notes: list[str] = Field(default=[], description="what is lost for the audits whose newest run is kept")
    deleted: bool = Field(description="whether all of that is deleted; otherwise it is only listed")


def expire(output: str, days: float, *, force: bool = False, now: datetime | None = None) -> Retention:
    """List the runs of an output to which nothing happened for some days; with ``force``, delete them.

    The newest run of each audit is kept, since the next one is compared with it. Features that only expired runs, or no
    run, use are deleted as well, unless a run cannot be read. Raises DataError if there is no such output.
    """
    sets, home, now = list_sets(output), open_store(output), now or datetime.now(UTC)
    runs, unread = _runs_of(home)
    newest = {run.spec.name: run for run in sorted(runs, key=lambda run: (run.header.created, run.name))}
    ages = {run.name: (now - _last_change(run)).total_seconds() / 86400 for run in runs}
    expired = [run for run in runs if ages[run.name] > days and newest[run.spec.name].name != run.name]
    expired.sort(key=lambda run: -ages[run.name])
    names, heads = {run.name for run in expired}, {run.name: run.head for run in expired}
    unused = [] if unread else [item for item in sets.sets if names.issuperset(item.runs)]
    found = Retention(
        output=home.uri,
        days=days,
        runs=[ExpiredRun(run=run.uri, days=ages[run.name], labels=_num_labels(run)) for run in expired],
        features=[item.digest for item in unused],
        bytes=sum(item.bytes for item in unused),
        unread=unread,
        notes=[note for name in newest for note in _lost(name, runs, names)],
        deleted=force,
    )
    if force:
        for run in expired:
            remove_run(run.uri, force=True, head=heads[run.name])
        for digest in found.features:
            remove_set(home.uri, digest)
    return found


def _lost(name: str, runs: list[Run], expired: set[str]) -> Iterator[str]:
    """Yield what an audit loses with its expired runs: the reference of its watch, and its last estimate."""
    own = sorted((run for run in runs if run.spec.name == name), key=lambda run: (run.header.created, run.name))
    known = first_labelled(own)
    if known is not None and known.name in expired:
        yield f"{known.name} is the first labelled run of {name}, with which `opacc watch` compares the later ones"
    stated = {run.name for run in own if run.store.exists(run.estimate_key)}
    if stated and stated <= expired:
        yield f"no run of {name} with an estimate is left: {own[-1].name}, the newest, has none"


def _runs_of(home: Store) -> tuple[list[Run], list[str]]:
    """Return the runs of an output, and the URIs of those that cannot be read."""
    runs, unread = list[Run](), list[str]()
    for name in names_of_runs(home):
        uri = home.store(name).uri
        try:
            run = Run.open(uri)
            _last_change(run)
            runs.append(run)
        except OpaccError:
            unread.append(uri)
    return runs, unread


def _last_change(run: Run) -> datetime:
    times = [run.header.created, *(commit.at for commit in run.commits[-1:])]
    return max(map(datetime.fromisoformat, times))


def _num_labels(run: Run) -> int:
    return sum("/labels/" in entry.key for place in ("rounds/", "tracks/") for entry in run.store.list(place))
