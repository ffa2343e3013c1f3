"""Report the state of a run or of all runs of an output, keep the error of a run, and remove runs."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from opacc_ray.audit.growth import pool_changes
from opacc_ray.audit.next_step import step_of
from opacc_ray.audit.sanity import predicted_by, warnings_of
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import DataError, LabelError, OpaccError, SpecError, counted, shortened
from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.labels.label_log import label_files, read_log
from opacc_ray.labels.labelled_rounds import LabelledRound, digest_of, read_rounds
from opacc_ray.lake.redaction import redacted
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs.commit_log import FOLDER as LOG
from opacc_ray.runs.commit_log import Commit, Happening, Removal
from opacc_ray.runs.estimate_documents import AccuracyEstimate, RoundCounts, StatedEstimate
from opacc_ray.runs.feature_sets import list_sets
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.runs.run_documents import Predicted
from opacc_ray.runs.series import PoolChanges, first_labelled, names_of_runs, runs_of

log = logging.getLogger(__name__)

FAILURE = "failure.json"


class RunFailure(Document):
    """Error of the last `opacc run`, kept until a later one succeeds."""

    remedy = "delete it"

    format: Literal["opacc-run-failure/1"] = format_field("opacc-run-failure/1")
    at: str = Field(description="time: ISO 8601, UTC")
    error: str = Field(description="error message")
    exit_code: int = Field(ge=1, description="exit code of `opacc run`")


class ShardCounts(Part):
    """Shards of the pool."""

    done: int = Field(ge=0, description="shards with features")
    total: int = Field(ge=0, description="all shards")


class TrackStatus(Part):
    """State of one track of a run."""

    track: str | None = Field(default=None, description="name of the track; null for the first track")
    rounds: list[RoundCounts] = Field(description="every round in numbers")
    estimate: AccuracyEstimate | None = Field(description="the last estimate; null if there is none")
    estimate_is_current: bool | None = Field(
        default=None, description="whether the last estimate uses all present labels; null without an estimate"
    )
    waits_for: str = Field(description="the next thing to do, in words")
    step: list[str] = Field(
        default=[], description="command to run next and its arguments, without the run; empty: run the spec again"
    )


class RunStatus(Document, TrackStatus):
    """State of a run: extraction, one of its tracks, and the other tracks."""

    format: Literal["opacc-status/1"] = format_field("opacc-status/1")
    run: str = Field(description="URI of the run")
    shards: ShardCounts = Field(description="progress of extraction")
    examples: int | None = Field(ge=0, description="examples in the pool; null while extraction is incomplete")
    excluded: int | None = Field(ge=0, description="examples that could not be read; null as above")
    pool_changes: PoolChanges | None = Field(
        default=None, description="objects of the pool, compared with the run that it has grown from; null: none"
    )
    predicted: Predicted | None = Field(default=None, description="predictions for the pool; null if unknown")
    warnings: list[str] = Field(default=[], description="signs that this may be the wrong model")
    others: list[TrackStatus] = Field(default=[], description="the other tracks")
    failure: RunFailure | None = Field(default=None, description="error of the last `opacc run`; null if it succeeded")


def status(run: Run, *, with_warnings: bool = True) -> RunStatus:
    """Return the state of a run on its own track and on all others.

    A run with lost labels, or with labels in conflict, waits for their repair. Warnings are found by all labels, so a
    caller that does not show them leaves them out.
    """
    index, total = run.read_index(), run.header.pool.num_shards
    lost, failure = "; ".join(read_log(run).lost.values()), read_failure(run)
    tracks = [run, *(track for track in run.tracks() if track.track != run.track)]
    known = [_rounds(track) if index and track.rounds() else ([], None) for track in tracks]
    own, *rest = [
        _track_status(track, *found, lost, failure, complete=index is not None)
        for track, found in zip(tracks, known, strict=True)
    ]
    return RunStatus(
        run=run.uri,
        shards=ShardCounts(done=total if index else len(run.finished_shards()), total=total),
        examples=index.num_examples if index else None,
        excluded=len(index.bad) if index else None,
        pool_changes=pool_changes(run),
        predicted=predicted_by(run) if index else None,
        warnings=warnings_of(run, known[0][0]) if index and with_warnings else [],
        others=[track for track in rest if track.rounds],
        failure=failure,
        **{name: getattr(own, name) for name in TrackStatus.model_fields},
    )


def _track_status(
    run: Run,
    rounds: Sequence[LabelledRound],
    conflict: str | None,
    lost: str,
    failure: RunFailure | None,
    *,
    complete: bool,
) -> TrackStatus:
    """Return the state of one track; ``lost`` names lost files of labels."""
    estimate, is_current = run.read_estimate(), None
    if estimate is not None:
        goal = run.newest_goal(reached=True) if rounds else None
        stops_at = (None, ACCURACY) if goal is None else (goal.half_width, goal.target)
        stated = estimate.labels_digest, (estimate.goal, estimate.goal_of)
        is_current = bool(rounds) and stated == (digest_of(rounds), stops_at)
    counts = [item.counts() for item in rounds]
    waits_for, step = lost or conflict or _waits_for(rounds, is_current), list[str]()
    if failure and not rounds:
        waits_for = f"another run of its spec, which failed: {failure.error}"
    elif not complete:
        waits_for = "extraction: run the spec again, finished shards are kept"
    elif rounds:
        step = ["labels list"] if lost or conflict else step_of(run, counts, stated=is_current is True)
    return TrackStatus(
        track=run.track,
        rounds=counts,
        estimate=estimate,
        estimate_is_current=is_current,
        waits_for=waits_for,
        step=step,
    )


def _rounds(run: Run) -> tuple[list[LabelledRound], str | None]:
    """Return the rounds, and the conflict of labels if there is one; the majority is counted then."""
    try:
        return read_rounds(run, with_lost=True), None
    except LabelError as error:
        reason = str(error)
    try:
        return read_rounds(run, conflict="majority", with_lost=True), reason
    except LabelError:
        return [], reason


def _waits_for(rounds: Sequence[LabelledRound], is_current: bool | None) -> str:
    """Return what a run with complete features waits for."""
    if not rounds:
        return "a selection: run the spec again, or `opacc select`"
    missing = sum(len(item.missing) for item in rounds)
    if missing:
        return counted(missing, "label")
    if not any(item.labelled.any() for item in rounds):
        return 'another round: all answers so far are "can\'t tell", so draw more examples with `opacc next`'
    return "nothing" if is_current else "nothing but `opacc estimate`"


# -- failures --------------------------------------------------------------------------------------------------


def read_failure(run: Run) -> RunFailure | None:
    """Read the error of the last `opacc run`; None if it succeeded."""
    return run.read_document(RunFailure, FAILURE)


def _write_failure(run: Run, error: str, exit_code: int) -> None:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    run.store.write(FAILURE, RunFailure(at=at, error=redacted(error), exit_code=exit_code).to_bytes())


@contextmanager
def failure_kept(run: Run) -> Iterator[None]:
    """Store an error of the block; once the block succeeds, remove an earlier error."""
    try:
        yield
    except Exception as error:
        said = (
            str(error)
            if isinstance(error, OpaccError)
            else f"unexpected {type(error).__name__}: {shortened(str(error))}"
        )
        try:
            _write_failure(run, said, error.exit_code if isinstance(error, OpaccError) else 1)
        except OpaccError as trouble:  # the first error matters more
            log.warning("the error of the run could not be stored: %s", trouble)
        raise
    if run.store.exists(FAILURE):
        run.store.delete(FAILURE)


_FILES = "listing|estimate|report|characterization|failure|sanity|spec"
_FOLDERS = (
    "features|reference|history|rounds|labels|log|estimates|signatures|tracks|figures|generated|characterized-test"
)
OWN = re.compile(rf"(?:{_FILES})\.(?:json|parquet|html|md)|(?:{_FOLDERS})/.*", re.DOTALL)
"""Keys of the files of a run, below its prefix."""

LABELS = re.compile(r"(?:tracks/[^/]+/)?rounds/\d+/labels/.")
"""Start of the keys of files of labels."""

State = Literal["failed", "not extracted", "waits for labels", "to be estimated", "done", "unreadable"]


class ListedRun(Part):
    """A run of an output, with its first track."""

    name: str = Field(description="name of the run: the last part of its URI")
    run: str = Field(description="URI of the run")
    state: State = Field(description="state of the run")
    waits_for: str | None = Field(
        description="the next thing to do, or why the run is not readable; null if nothing is left"
    )
    labels: int = Field(default=0, ge=0, description="draws with a label")
    estimate: StatedEstimate | None = Field(default=None, description="the last estimate; null if there is none")
    measure: str | None = Field(
        default=None, description="what is estimated: accuracy, or a score; null without an estimate"
    )
    created: str | None = Field(default=None, description="when the run was created: ISO 8601, UTC; null if unknown")
    days: float | None = Field(default=None, description="days since then")
    tracks: list[str] = Field(default=[], description="names of the other tracks")


class RunList(Document):
    """The runs of an output, the newest first."""

    format: Literal["opacc-runs/1"] = format_field("opacc-runs/1")
    output: str = Field(description="URI of the output")
    runs: list[ListedRun] = Field(description="the newest first")


class RemovedRun(Document):
    """Report of a removed run."""

    format: Literal["opacc-removed-run/1"] = format_field("opacc-removed-run/1")
    run: str = Field(description="URI of the run")
    files: int = Field(ge=1, description="number of deleted files")
    bytes: int = Field(ge=0, description="size of the deleted files")
    label_files: int = Field(ge=0, description="number of deleted files of labels")
    kept: list[str] = Field(description="URIs of other files below its prefix, which were kept")
    features: str | None = Field(
        description="digest of its shared features, which were kept; null if they were in its prefix"
    )
    used_by: list[str] = Field(description="names of other runs that use these features")
    reference_of: str | None = Field(
        default=None, description="audit with later runs of which it was the first labelled run; null: none"
    )


def list_runs(output: str, now: datetime | None = None) -> RunList:
    """Return the states of the runs of an output; raises DataError if there is none."""
    home = open_store(output)
    names = names_of_runs(home)
    if not names:
        what = "is a run" if home.exists(HEADER) else "holds no runs"
        raise DataError(f"{home.uri} {what}; give the `output` of a spec, which is the folder of its runs")
    found = [_listed(home, name, now or datetime.now(UTC)) for name in names]
    return RunList(output=home.uri, runs=sorted(found, key=lambda item: (item.created or "", item.name), reverse=True))


def _listed(home: Store, name: str, now: datetime) -> ListedRun:
    uri = home.store(name).uri
    try:
        run = Run.open(uri)
        found = status(run)
    except OpaccError as error:
        return ListedRun(name=name, run=uri, state="unreadable", waits_for=str(error))
    created, stated = run.header.created, found.estimate
    names = set(StatedEstimate.model_fields)
    return ListedRun(
        name=name,
        run=uri,
        state=_state(found),
        waits_for=None if found.waits_for == "nothing" else found.waits_for,
        labels=sum(item.labelled for item in found.rounds),
        estimate=StatedEstimate(**stated.model_dump(include=names)) if stated else None,
        measure=stated.measure if stated else None,
        created=created,
        days=(now - datetime.fromisoformat(created)).total_seconds() / 86400,
        tracks=[str(track.track) for track in found.others],
    )


def _state(found: RunStatus) -> State:
    if found.failure and not found.rounds:
        return "failed"
    if found.examples is None or not found.rounds:
        return "not extracted"
    if any(item.missing for item in found.rounds):
        return "waits for labels"
    return "done" if found.waits_for == "nothing" else "to be estimated"


def remove_run(uri: str, *, force: bool = False, head: str | None = None) -> RemovedRun:
    """Delete all files of a run; shared features are kept.

    The header is deleted last, so that an interrupted removal is visible and can be repeated. Raises DataError if there
    is no run; SpecError if it has labels, and ``force`` is not given, or if its log does not end with a ``head``.
    """
    store = open_store(uri)
    if not store.exists(HEADER):
        raise DataError(f"there is no run at {store.uri} (no {HEADER}); give the URI that `opacc run` printed")
    if not force:
        _refuse_labels(store, [entry.key for entry in store.list() if LABELS.match(entry.key)])
    before = {entry.key for entry in store.list(LOG)}
    _log_removal(store, force, head)
    entries = [entry for entry in store.list() if entry.key in before or not entry.key.startswith(LOG)]
    own = [entry for entry in entries if OWN.fullmatch(entry.key)]
    labels = [entry.key for entry in own if LABELS.match(entry.key)]
    output, _, name = store.uri.rpartition("/")
    shared = next((item for item in list_sets(output).sets if name in item.runs), None)
    watched = _watched_with(output, name) if labels else None
    _delete(store, [entry.key for entry in own])
    return RemovedRun(
        run=store.uri,
        files=len(own),
        bytes=sum(entry.size for entry in own),
        label_files=len(labels),
        kept=[store.uri_of(entry.key) for entry in entries if not OWN.fullmatch(entry.key)],
        features=shared.digest if shared else None,
        used_by=[other for other in shared.runs if other != name] if shared else [],
        reference_of=watched,
    )


def _refuse_labels(store: Store, labels: Sequence[str]) -> None:
    if labels:
        raise SpecError(
            f"{store.uri} has {counted(len(labels), 'file')} of labels, which would also be deleted; save them "
            "with `opacc export RUN --to URI`, then give --force"
        )


def _log_removal(store: Store, force: bool, head: str | None) -> None:
    """Log that a run is removed, so that no other command adds to it, unless its header or log is damaged."""

    def decide(commits: tuple[Commit, ...]) -> Happening:
        now = run.at(commits)
        if head is not None and now.head != head:
            raise SpecError(f"{store.uri} was used meanwhile, so it is kept; give the command again")
        if not force:
            _refuse_labels(store, label_files(now))
        return Happening([Removal()])

    with suppress(DataError):
        run = Run.open(store.uri)
        run.log.append(decide)


def _watched_with(output: str, run: str) -> str | None:
    """Return the audit of which a run is the first labelled one, if it has others."""
    audit = run.rpartition("-")[0]
    runs = runs_of(output, audit)[0]
    first = first_labelled(runs) if len(runs) > 1 else None
    return audit if first is not None and first.name == run else None


def _delete(store: Store, keys: list[str]) -> None:
    with suppress(DataError):  # its header is damaged
        run = Run.open(store.uri)
        _write_failure(run, "its removal was interrupted; give `opacc runs remove` again, with --force", 5)
    keys += [entry.key for entry in store.list(LOG)]
    for key in sorted({*keys, FAILURE}, key=lambda key: (key == HEADER, key == FAILURE, key)):
        store.delete(key)
    store.prune()
