"""List and delete what an output holds: its runs, and the sets of features that they share.

One set of rules decides what is deleted:

- What is named, a run or a set of features, is deleted at once. A run with labels, or features that a run uses, need
  ``force``.
- What is found, old runs or unused features, is only listed without ``force``. The newest run of each audit is kept,
  since the next one is compared with it. While a run cannot be read, all features count as used.
- A run that another command used meanwhile is kept. Features in the prefix of a run belong to that run alone.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from shlex import quote
from typing import Literal, NamedTuple

from pydantic import Field

from opacc_ray.audit.status import FAILURE, RunStatus, status, write_failure
from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, OpaccError, SpecError, counted
from opacc_ray.extract.feature_set import DESCRIPTION, HOME, INDEX, read_description, read_index
from opacc_ray.labels.formats import few
from opacc_ray.lake.store import in_order
from opacc_ray.lake.store_uris import Entry, Store, open_store
from opacc_ray.report.facts import Column, Fact, Line, Table, count_text, duration, facts, next_fact, size, stated
from opacc_ray.runs.run import HEADER, RUN_FILES, Run
from opacc_ray.runs.run_documents import Commit, Happening, Removal, StatedEstimate
from opacc_ray.runs.series import THREADS, keep_removed, names_of_runs

LABELS = re.compile(r"rounds/\d+/labels/.")
"""Start of the keys of files of labels."""

State = Literal["failed", "not extracted", "not drawn", "waits for labels", "to be estimated", "done", "unreadable"]


class ListedRun(Part):
    """A run of an output."""

    name: str  # name of the run: the last part of its URI
    run: str  # URI of the run
    state: State  # state of the run
    waits_for: str | None  # the next thing to do, or why the run is not readable; null if nothing is left
    labels: int = Field(default=0, ge=0)  # draws with a label
    estimate: StatedEstimate | None = None  # the last estimate; null if there is none
    measure: str | None = None  # what is estimated: accuracy, or a score; null without an estimate
    created: str | None = None  # when the run was created: ISO 8601, UTC; null if unknown
    days: float | None = None  # days since then


class StoredSet(Part):
    """A set of features that runs of an output share."""

    digest: str  # name of the set: digest of everything that decides its content
    pool: str | None  # URI of the pool; null if unknown
    model: str | None  # factory of the model; null if unknown
    weights: str | None  # SHA-256 of the weights; null if unknown
    features: list[str]  # features that are complete
    examples: int | None = Field(ge=0)  # number of examples; null while the features are incomplete
    bytes: int = Field(ge=0)  # size of all files
    runs: list[str]  # names of the runs that use the set


class RunList(Document):
    """The runs of an output, the newest first."""

    format: Literal["opacc-runs/1"] = "opacc-runs/1"
    output: str  # URI of the output
    runs: list[ListedRun]  # the newest first
    features: list[StoredSet] | None = None  # shared sets of features, sorted by digest; null unless asked for


class RemovedRun(Part):
    """A run that is deleted, or would be."""

    run: str  # URI of the run
    files: int = Field(ge=1)  # number of its files
    bytes: int = Field(ge=0)  # size of these files
    label_files: int = Field(ge=0)  # number of files of labels among them
    days: float | None  # days since something happened to it; null: its log cannot be read
    kept: list[str]  # URIs of other files below its prefix, which are kept
    features: str | None  # digest of its shared features; null if they are in its prefix
    used_by: list[str]  # names of other runs that use these features and stay


class Removed(Document):
    """What is deleted of an output, or would be."""

    format: Literal["opacc-removed/1"] = "opacc-removed/1"
    deleted: bool  # whether all of it is deleted; otherwise it is only listed
    runs: list[RemovedRun] = Field(default=[])  # runs; of old ones, the oldest first
    features: list[StoredSet] = Field(default=[])  # sets of features
    unread: list[str] = Field(default=[])  # URIs of runs that cannot be read, which are kept with all features


# -- listing -------------------------------------------------------------------------------------------------


def list_runs(output: str, *, features: bool = False, now: datetime | None = None) -> RunList:
    """Return the states of the runs of an output, and its shared features; raises DataError if it holds nothing."""
    home = open_store(output)
    names, sets = names_of_runs(home), _contents(home).sets if features else []
    if not (names or sets):
        _refuse_place(home, "holds no runs and no features" if features else "holds no runs")
    listed = [_listed(home, name, now or datetime.now(UTC)) for name in names]
    listed.sort(key=lambda item: (item.created or "", item.name), reverse=True)
    return RunList(output=home.uri, runs=listed, features=sets if features else None)


def _refuse_place(home: Store, holds: str) -> None:
    what = "is a run" if home.exists(HEADER) else holds
    raise DataError(f"{home.uri} {what}; give the `output` of a spec, which is the folder of its runs")


def _listed(home: Store, name: str, now: datetime) -> ListedRun:
    uri = home.store(name).uri
    try:
        run = Run.open(uri)
        state = status(run)
    except OpaccError as error:
        return ListedRun(name=name, run=uri, state="unreadable", waits_for=str(error))
    created, estimate = run.header.created, state.estimate
    names = set(StatedEstimate.model_fields)
    return ListedRun(
        name=name,
        run=uri,
        state=_state(state),
        waits_for=None if state.waits_for == "nothing" else state.waits_for,
        labels=sum(item.labelled for item in state.rounds),
        estimate=StatedEstimate(**estimate.model_dump(include=names)) if estimate else None,
        measure=estimate.measure if estimate else None,
        created=created,
        days=_days(created, now),
    )


def _days(since: str, now: datetime) -> float:
    return (now - datetime.fromisoformat(since)).total_seconds() / 86400


def _state(found: RunStatus) -> State:
    if found.failure and not found.rounds:
        return "failed"
    if found.examples is None or not found.rounds:
        return "not extracted" if found.examples is None else "not drawn"
    if any(item.missing for item in found.rounds):
        return "waits for labels"
    return "done" if found.waits_for == "nothing" else "to be estimated"


class _Contents(NamedTuple):
    """What an output holds."""

    runs: list[Run]  # the oldest first
    unread: list[str]  # URIs of runs that cannot be read
    sets: list[StoredSet]  # by digest


def _contents(home: Store) -> _Contents:
    uris = [home.store(name).uri for name in names_of_runs(home)]
    opened = list(in_order(_opened, uris, THREADS))
    runs = sorted(filter(None, opened), key=lambda run: (run.header.created, run.name))
    users: dict[str, list[str]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.name):
        if run.header.features is not None:
            users[run.header.features.digest].append(run.name)
    files: dict[str, list[Entry]] = defaultdict(list)
    for entry in home.list(f"{HOME}/"):
        match = re.fullmatch(rf"{HOME}/([0-9a-f]{{16}})/(.+)", entry.key)
        if match:
            files[match[1]].append(entry._replace(key=match[2]))
    sets = [
        _described_set(home.store(f"{HOME}/{digest}"), digest, files[digest], users[digest]) for digest in sorted(files)
    ]
    return _Contents(runs, [uri for uri, run in zip(uris, opened, strict=True) if run is None], sets)


def _opened(uri: str) -> Run | None:
    """Return a run whose log was read; None if it cannot be read."""
    with suppress(OpaccError):
        run = Run.open(uri)
        _ = run.commits
        return run
    return None


def _described_set(folder: Store, digest: str, entries: list[Entry], users: list[str]) -> StoredSet:
    """Describe a set as far as it is readable."""
    keys = {entry.key for entry in entries}
    description = index = None
    with suppress(DataError):
        description = read_description(folder) if DESCRIPTION in keys else None
    with suppress(DataError):
        index = read_index(folder) if INDEX in keys else None
    model = description.decided_by.get("model", {}) if description else {}
    added = {key.partition("/")[0].partition("-")[0] for key in keys if key.endswith(f"/{INDEX}")}
    return StoredSet(
        digest=digest,
        pool=description.pool if description else None,
        model=model.get("factory"),
        weights=model.get("sha256"),
        features=[*(index.features if index else ()), *sorted(added)],
        examples=index.num_examples if index else None,
        bytes=sum(entry.size for entry in entries),
        runs=users,
    )


# -- deleting ------------------------------------------------------------------------------------------------


def remove_runs(*uris: str, force: bool = False) -> Removed:
    """Delete runs with all their files; shared features are kept, and a record without labels for :class:`Attempts`.

    Raises DataError if one is no run; SpecError if one has labels and ``force`` is not given. Nothing is deleted then.
    """
    stores = list({store.uri: store for store in map(open_store, uris)}.values())
    for store in stores:
        if not store.exists(HEADER):
            raise DataError(f"there is no run at {store.uri} (no {HEADER}); give the URI that `opacc run` printed")
    going = {store.uri for store in stores}
    sets = {output: _contents(open_store(output)).sets for output in {uri.rpartition("/")[0] for uri in going}}
    doomed = [_described(store, sets[store.uri.rpartition("/")[0]], going) for store in stores]
    for item, _ in doomed:
        if item.label_files and not force:
            raise SpecError(
                f"{item.run} has {counted(item.label_files, 'file')} of labels, which would also be deleted; "
                "save them with `opacc export RUN --to URI`, then give --force"
            )
    for item, head in doomed:
        _delete_run(item.run, head)
    return Removed(deleted=True, runs=[item for item, _ in doomed])


def remove_features(output: str, digest: str, *, force: bool = False) -> Removed:
    """Delete a set of features by its digest or the beginning of it.

    With ``force``, a set that runs use is deleted as well; their rounds, labels and estimates stay. Raises DataError if
    there is no such set, or several match; SpecError if runs use it, or may, and ``force`` is not given.
    """
    home = open_store(output)
    contents = _contents(home)
    matching = [item for item in contents.sets if digest and item.digest.startswith(digest)]
    if len(matching) != 1:
        there = ", ".join(item.digest for item in matching or contents.sets) or "none"
        what = "more than one set" if matching else "no set of features"
        raise DataError(f"{what} in {home.uri} begins with {digest!r}; there: {there}")
    [chosen] = matching
    users = [*chosen.runs, *(uri.rpartition("/")[2] for uri in contents.unread)]
    if users and not force:
        raise SpecError(
            f"{counted(len(users), 'run')} use {chosen.digest}, or cannot be read and may, such as {users[0]}: without "
            f"its {chosen.bytes / 1e6:.1f} MB of features they need another extraction before a further round; give "
            "--force to remove it"
        )
    _delete_set(home, chosen)
    return Removed(deleted=True, features=[chosen])


def remove_unneeded(
    output: str,
    older_than: float | None = None,
    *,
    unused_features: bool = False,
    force: bool = False,
    now: datetime | None = None,
) -> Removed:
    """List what an output needs no more; with ``force``, delete it.

    Parameters
    ----------
    older_than : days without a change after which a run that a newer one replaced goes; None: no run
    unused_features : whether sets of features go that no run uses, or only those runs

    Raises DataError if there is no such output.
    """
    home, now = open_store(output), now or datetime.now(UTC)
    runs, unread, sets = _contents(home)
    if not (runs or unread or sets):
        _refuse_place(home, "holds no runs and no features")
    newest = {run.spec.name: run.name for run in runs}
    old = [run for run in runs if older_than is not None and _age(run, now) > older_than]
    old = sorted((run for run in old if newest[run.spec.name] != run.name), key=lambda run: -_age(run, now))
    gone = {run.name for run in old}
    doomed = [_described(run.store, sets, {run.uri for run in old}, now) for run in old]
    unused = [item for item in sets if gone.issuperset(item.runs)] if unused_features and not unread else []
    if force:
        for item, head in doomed:
            _delete_run(item.run, head)
        for chosen in unused:
            remove_features(home.uri, chosen.digest)
    return Removed(deleted=force, runs=[item for item, _ in doomed], features=unused, unread=unread)


def _age(run: Run, now: datetime) -> float:
    """Return the days since something happened to a run."""
    return min(_days(at, now) for at in (run.header.created, *(commit.at for commit in run.commits[-1:])))


Doomed = tuple[RemovedRun, str | None]
"""A run that is to be deleted, and the digest of its log; None: it cannot be read."""


def _described(store: Store, sets: Sequence[StoredSet], going: set[str], now: datetime | None = None) -> Doomed:
    """Describe a run that is to be deleted, together with the other ``going`` runs."""
    entries, (output, _, name) = store.list(), store.uri.rpartition("/")
    own = [entry for entry in entries if RUN_FILES.fullmatch(entry.key)]
    num_labels = sum(bool(LABELS.match(entry.key)) for entry in own)
    shared = next((item for item in sets if name in item.runs), None)
    days = head = None
    with suppress(DataError):  # its header or its log is damaged
        run = Run.open(store.uri)
        days, head = _age(run, now or datetime.now(UTC)), run.head
    described = RemovedRun(
        run=store.uri,
        files=len(own),
        bytes=sum(entry.size for entry in own),
        label_files=num_labels,
        days=days,
        kept=[store.uri_of(entry.key) for entry in entries if not RUN_FILES.fullmatch(entry.key)],
        features=shared.digest if shared else None,
        used_by=[other for other in shared.runs if f"{output}/{other}" not in going] if shared else [],
    )
    return described, head


def _delete_run(uri: str, head: str | None) -> None:
    """Delete the files of a run; raises SpecError if something happened to it since its log had this digest.

    The header is deleted last, so that an interrupted removal is visible and can be repeated.
    """
    store = open_store(uri)

    def decide(commits: tuple[Commit, ...]) -> Happening:
        if run.at(commits).head != head:
            raise SpecError(f"{store.uri} was used meanwhile, so it is kept; give the command again")
        return Happening([Removal()])

    with suppress(DataError):  # its header or its log is damaged, or it was removed in part
        run = Run.open(store.uri)
        run.log.append(decide)  # no other command adds to it from now on
        keep_removed(run)
    with suppress(DataError):
        write_failure(
            Run.open(store.uri), "its removal was interrupted; give `opacc runs remove` again, with --force", 5
        )
    keys = [entry.key for entry in store.list() if RUN_FILES.fullmatch(entry.key)]
    for key in sorted(keys, key=lambda key: (key == HEADER, key == FAILURE, key)):
        store.delete(key)
    store.prune()


def _delete_set(home: Store, chosen: StoredSet) -> None:
    """Delete a set, index first, so that an interrupted removal leaves an incomplete set."""
    folder = home.store(f"{HOME}/{chosen.digest}")
    for entry in sorted(folder.list(), key=lambda entry: not entry.key.endswith(INDEX)):
        folder.delete(entry.key)


def listed(found: RunList) -> list[Line]:
    """Describe runs in a table, why runs failed or cannot be read, and features in another table."""
    numeric = ("accuracy", "interval", "labels")
    names = ("run", "state", "accuracy", "interval", "labels", "age")
    columns = [Column(name, "n" if name in numeric else "") for name in names]
    wrong = [item for item in found.runs if item.state in ("failed", "unreadable")]
    lines: list[Line] = [Table(columns, [_row(item) for item in found.runs])] if found.runs else []
    lines += [Fact(item.state, f"{item.name}: {item.waits_for}", "error") for item in wrong]
    if found.features is None:
        return lines
    heads = [Column(name, "n" if name in ("examples", "size") else "") for name in SET]
    sets = Table(heads, [_set(item) for item in found.features])
    return [*lines, sets if found.features else f"no features are shared in {found.output}"]


def _row(item: ListedRun) -> tuple[str, ...]:
    estimate = item.estimate
    numbers = stated(estimate, item.measure) if estimate and item.measure else ("", "")
    return item.name, item.state, *numbers, count_text(item.labels), "" if item.days is None else duration(item.days)


SET = ("features", "examples", "size", "model", "pool", "runs")
"""Columns of a table of features."""


def _set(item: StoredSet) -> tuple[str, ...]:
    examples = "not complete" if item.examples is None else count_text(item.examples)
    model = f"{item.model or 'not known'} {(item.weights or '')[:8]}".rstrip()
    return (
        item.digest,
        examples,
        size(item.bytes),
        model,
        item.pool or "not known",
        few(item.runs, most=3) or "none",
    )


def removed(done: Removed, again: str) -> list[Line]:
    """Describe what of an output is deleted; or what would be, and the command that deletes it."""
    verb = "removed" if done.deleted else "unneeded"
    lines: list[Line] = [line for item in done.runs for line in _removed_run(item, verb)]
    lines += facts(*((verb, _removed_set(item)) for item in done.features))
    lines += [Fact("kept", f"{uri} cannot be read, so all features are kept", "warning") for uri in done.unread]
    if done.deleted:
        return lines
    if not (done.runs or done.features):
        return [*lines, "nothing is old enough and replaced, or unused"]
    return [*lines, next_fact(again)]


def _removed_run(item: RemovedRun, verb: str) -> list[Fact]:
    labels = f", {counted(item.label_files, 'file')} of labels among them" if item.label_files else ""
    since = "" if verb == "removed" or item.days is None else f"; unchanged for {duration(item.days)}"
    kept = None
    if item.features and item.used_by:
        kept = f"features {item.features}, which {', '.join(item.used_by)} use"
    elif item.features and verb == "removed":
        output = quote(item.run.rpartition("/")[0])
        kept = f"features {item.features}, which no other run uses: opacc runs remove {output} --unused-features"
    return facts(
        (verb, f"{item.run}: {counted(item.files, 'file')}, {size(item.bytes)}{labels}{since}"),
        *(("kept", f"{uri}, which is no file of a run") for uri in item.kept),
        ("kept", kept),
    )


def _removed_set(item: StoredSet) -> str:
    again = f"; to extract it again, run the spec of {few(item.runs)}" if item.runs else ""
    return f"features {item.digest}: {size(item.bytes)}{again}"
