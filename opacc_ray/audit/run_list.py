"""The runs of an output: how each stands; and removing one."""

import re
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from opacc_ray.audit.state_documents import RunStatus
from opacc_ray.audit.status import status
from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, OpaccError, SpecError, counted
from opacc_ray.lake.storage import Store, open_store
from opacc_ray.runs.estimate_documents import StatedEstimate
from opacc_ray.runs.failure import FAILURE, write_failure
from opacc_ray.runs.feature_sets import list_sets
from opacc_ray.runs.run import HEADER, Run

_FILES = "listing|estimate|report|characterization|failure|sanity|spec"
_FOLDERS = "features|reference|history|rounds|labels|tracks|figures|generated|characterized-test"
OWN = re.compile(rf"(?:{_FILES})\.(?:json|parquet|html|md)|(?:{_FOLDERS})/.*", re.DOTALL)
"""Keys of what a run keeps below its prefix."""

LABELS = re.compile(r"(?:tracks/[^/]+/)?rounds/\d+/labels/.")
"""Keys of files of labels, from their beginning."""

State = Literal["failed", "not extracted", "waits for labels", "to be estimated", "done", "unreadable"]


class ListedRun(Part):
    """A run of an output, along its first track."""

    name: str = Field(description="name of the run: the last part of its URI")
    run: str = Field(description="URI of the run")
    state: State = Field(description="how it stands")
    waits_for: str | None = Field(description="what is to be done next, or why it cannot be read, in words")
    labels: int = Field(default=0, ge=0, description="draws that have a label")
    estimate: StatedEstimate | None = Field(default=None, description="the last accuracy that it stated; null: none")
    measure: str | None = Field(default=None, description="what that is: accuracy, or a score; null: nothing is stated")
    created: str | None = Field(default=None, description="when it was made: ISO 8601, UTC; null if that is not known")
    days: float | None = Field(default=None, description="days since then")
    tracks: list[str] = Field(default=[], description="its other tracks")


class RunList(Document):
    """The runs of an output, the newest first."""

    format: Literal["opacc-runs/1"] = Field(default="opacc-runs/1", description="name and version of this form")
    output: str = Field(description="URI of the output")
    runs: list[ListedRun] = Field(description="the newest first")


class RemovedRun(Document):
    """A run that was removed."""

    format: Literal["opacc-removed-run/1"] = Field(
        default="opacc-removed-run/1", description="name and version of this form"
    )
    run: str = Field(description="URI of the run")
    files: int = Field(ge=1, description="files that were deleted")
    bytes: int = Field(ge=0, description="their size")
    label_files: int = Field(ge=0, description="files of labels among them")
    kept: list[str] = Field(description="URIs below its prefix that are none of a run's, and were kept")
    features: str | None = Field(
        description="digest of its set of features, which was kept; null if they lay in its prefix"
    )
    used_by: list[str] = Field(description="names of the other runs that use that set")


def list_runs(output: str, now: datetime | None = None) -> RunList:
    """Return how the runs of an output stand; raises DataError where there is none."""
    home = open_store(output)
    keys = [entry.key for entry in home.list() if re.fullmatch(rf"[^/]+/{HEADER}", entry.key)]
    if not keys:
        what = "is a run" if home.exists(HEADER) else "holds no runs"
        raise DataError(f"{home.uri} {what}; give the `output` of a spec, the folder that its runs lie in")
    found = [_listed(home, key.partition("/")[0], now or datetime.now(UTC)) for key in keys]
    return RunList(output=home.uri, runs=sorted(found, key=lambda item: (item.created or "", item.name), reverse=True))


def _listed(home: Store, name: str, now: datetime) -> ListedRun:
    uri = home.store(name).uri
    try:
        run = Run.open(uri)
        found = status(run)
    except OpaccError as error:
        return ListedRun(name=name, run=uri, state="unreadable", waits_for=str(error))
    created, stated = run.header.created, found.estimate
    fields = {} if stated is None else {key: getattr(stated, key) for key in StatedEstimate.model_fields}
    return ListedRun(
        name=name,
        run=uri,
        state=_state(found),
        waits_for=None if found.waits_for == "nothing" else found.waits_for,
        labels=sum(item.labelled for item in found.rounds),
        estimate=StatedEstimate(**fields) if stated else None,
        measure=stated.measure if stated else None,
        created=created,
        days=(now - datetime.fromisoformat(created)).total_seconds() / 86400 if created else None,
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


def remove_run(uri: str, *, force: bool = False) -> RemovedRun:
    """Delete a run with all that it keeps below its prefix; features that runs share stay.

    The header goes last: a removal that was interrupted leaves a run that says so, and may be repeated.

    Parameters
    ----------
    force : though it holds labels, which are deleted with it

    Raises
    ------
    DataError
        There is no run.
    SpecError
        It holds labels, and ``force`` is not given.
    """
    store = open_store(uri)
    if not store.exists(HEADER):
        raise DataError(f"there is no run at {store.uri} (no {HEADER}); give the URI that `opacc run` printed")
    entries = store.list()
    own = [entry for entry in entries if OWN.fullmatch(entry.key)]
    labels = [entry.key for entry in own if LABELS.match(entry.key)]
    if labels and not force:
        raise SpecError(
            f"{store.uri} holds {counted(len(labels), 'file')} of labels, which would be deleted with it; keep them "
            "with `opacc export RUN --to URI`, then give --force"
        )
    features, used_by = _set_of(store)
    _delete(store, [entry.key for entry in own])
    return RemovedRun(
        run=store.uri,
        files=len(own),
        bytes=sum(entry.size for entry in own),
        label_files=len(labels),
        kept=[store.uri_of(entry.key) for entry in entries if not OWN.fullmatch(entry.key)],
        features=features,
        used_by=used_by,
    )


def _set_of(store: Store) -> tuple[str | None, list[str]]:
    """The digest of the set of features that a run uses, and the other runs that do."""
    output, _, name = store.uri.rpartition("/")
    for item in list_sets(output).sets:
        if name in item.runs:
            return item.digest, [other for other in item.runs if other != name]
    return None, []


def _delete(store: Store, keys: list[str]) -> None:
    try:
        run = Run.open(store.uri)
    except DataError:  # its header is damaged
        pass
    else:
        write_failure(run, "its removal was interrupted; give `opacc runs remove` again, with --force", 5)
    for key in sorted({*keys, FAILURE}, key=lambda key: (key == HEADER, key == FAILURE, key)):
        store.delete(key)
    store.prune()
