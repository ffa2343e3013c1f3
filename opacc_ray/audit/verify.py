"""Verify all files of a run by their digests and with one another; report what is damaged, lost or foreign."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Literal

from pydantic import Field

from opacc_ray.audit import prior_knowledge
from opacc_ray.audit.evidence import FOLDER as SIGNATURES
from opacc_ray.audit.evidence import check_signatures
from opacc_ray.audit.sanity import SANITY, read_sanity
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import DataError, OpaccError
from opacc_ray.extract import reference
from opacc_ray.extract.feature_set import INDEX, Index, check_shard, read_description, read_index
from opacc_ray.extract.slice_columns import check_slices, folder_of, with_slices
from opacc_ray.labels.joining import LabelConflict
from opacc_ray.labels.label_log import read_log, refuse_lost
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs import draws, feature_store
from opacc_ray.runs.commit_log import digest_of
from opacc_ray.runs.estimate_documents import AccuracyEstimate, ChangedObjects
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.runs.run_documents import Draw


class Fault(Part):
    """One problem of a run."""

    file: str = Field(description="URI of the file that is damaged, lost or foreign")
    problem: str = Field(description="the problem and its fix")


class Verification(Document):
    """Result of verifying all files of a run."""

    format: Literal["opacc-verification/1"] = format_field("opacc-verification/1")
    run: str = Field(description="URI of the run")
    sound: bool = Field(description="whether there are no faults")
    checked: int = Field(ge=0, description="number of files that were read and compared")
    faults: list[Fault] = Field(description="all problems")
    objects: ChangedObjects | None = Field(description="objects of the pool that changed; null if unknown")


def verify(uri: str, head: str | None = None, keys: Sequence[str] = ()) -> Verification:
    """Read and compare all of a run, and name all that is wrong; raises DataError if there is no run.

    ``head`` is a digest with which the log once ended, as `opacc log` printed it; a log without that entry is a fault.
    ``keys`` are files of public keys; each must have signed the run, and what it signed must be unchanged.
    """
    found = _Findings()
    store = open_store(uri)
    if not store.list():
        raise DataError(f"there is no run at {store.uri}; give the URI that `opacc run` printed")
    objects = None
    with found.checking(store.uri_of(HEADER)):
        run = Run.open(uri)
        with found.checking(store.uri_of("log")):
            run.refuse_rollback(head)
        with found.checking(store.uri_of(SIGNATURES)):
            for problem in check_signatures(run, keys) if keys else []:
                found.note(store.uri_of(SIGNATURES), problem)
        objects = _check_run(run, found)
    return Verification(
        run=store.uri, sound=not found.faults, checked=found.checked, faults=found.faults, objects=objects
    )


class _Findings:
    def __init__(self) -> None:
        self.checked = 0
        self.faults: list[Fault] = []

    @contextmanager
    def checking(self, uri: str) -> Iterator[None]:
        """Count a file, and note an error of its check."""
        self.checked += 1
        try:
            yield
        except OpaccError as error:
            self.note(uri, str(error))

    def note(self, uri: str, problem: str) -> None:
        known = {fault.problem for fault in self.faults}
        if problem not in known:
            self.faults.append(Fault(file=uri, problem=problem if uri in problem else f"{uri}: {problem}"))

    def each(self, folder: Store, names: Collection[str], check: Callable[[str], object]) -> None:
        """Check files of a folder on several threads."""

        def problem(name: str) -> str | None:
            try:
                check(name)
            except OpaccError as error:
                return str(error)
            return None

        for name, text in zip(names, folder.each(problem, list(names), threads=4), strict=True):
            self.checked += 1
            if text:
                self.note(folder.uri_of(name), text)


def _check_run(run: Run, found: _Findings) -> ChangedObjects | None:
    tracks = run.tracks()
    index = _check_set(run, tracks, found)
    _check_slices(run, found)
    _check_reference(run, found)
    _check_history(run, found)
    with found.checking(run.store.uri_of(feature_store.LISTING)):
        feature_store.read_listing(run)
    with found.checking(run.store.uri_of(SANITY)):
        read_sanity(run)
    with found.checking(run.store.uri_of("log")):
        for key, text in read_log(run).lost.items():
            found.note(run.store.uri_of(key), text)
    _check_logged(run, found)
    for track in tracks:
        _check_track(track, index, found)
    try:
        return feature_store.find_changed(tracks)
    except OpaccError:  # the problem has been noted
        return None


def _check_logged(run: Run, found: _Findings) -> None:
    """Compare every file that the log names with the whole digest that it has; names of files are digests in part."""
    with found.checking(run.store.uri_of("log")):
        logged = {key: digest for commit in run.commits for key, digest in commit.files.items()}

        def check(key: str) -> None:
            data = run.store.read_if_there(key)  # one that is lost is named where it is read
            if data is not None and not digest_of(data).startswith(logged[key]):
                raise DataError(f"{run.store.uri_of(key)} is not the file that the log names; restore it")

        found.each(run.store, logged, check)


def _check_track(run: Run, index: Index | None, found: _Findings) -> None:
    """Check all rounds of a track, separately and together, and its estimate."""
    numbers: list[int] = []
    place = run.store.uri_of(run.key_of("").rstrip("/"))
    with found.checking(place):
        numbers = run.rounds()
    for number in numbers:
        _check_round(run, number, index, found)
    with found.checking(place), suppress(LabelConflict):  # for people to resolve: `opacc status` names it
        if numbers:
            read_rounds(run, with_lost=True)
    with found.checking(run.store.uri_of(run.estimate_key)):
        copy, kept = run.read_document(AccuracyEstimate, run.estimate_key), [own for _, own in run.estimates()]
        refuse_lost(run, copy)
        if copy is not None and copy not in kept[-1:]:
            raise DataError(
                f"{run.store.uri_of(run.estimate_key)} is not the newest estimate of the log; {copy.remedy}"
            )


def _check_set(run: Run, tracks: Sequence[Run], found: _Findings) -> Index | None:
    """Check the features of a run, its own or shared; returns their index."""
    folders = run.feature_set.folders
    with found.checking(run.features.uri):
        folders = run.feature_set.in_use()
        if run.header.features:
            read_description(run.features)
    for folder in folders:
        if _check_features(folder, found) is None and any(run.store.list(track.key_of("")) for track in tracks):
            found.note(folder.uri_of(INDEX), "it is lost or damaged, and rounds were drawn from its features")
    with found.checking(run.features.uri):
        return run.read_index()
    return None


def _check_features(folder: Store, found: _Findings) -> Index | None:
    """Check a folder of features, all bytes of it."""
    index = None
    with found.checking(folder.uri_of(INDEX)):
        index = read_index(folder)
    if index is None:
        return None
    sizes = {entry.key: entry.size for entry in folder.list()}
    shards = {shard.file: shard for shard in index.shards}

    def check(file: str) -> None:
        if file not in sizes:
            raise DataError(f"{folder.uri_of(file)} is lost; run the spec again, which extracts it anew")
        check_shard(folder, index, shards[file], sizes[file])

    found.each(folder, shards, check)
    for key in sizes:
        if key.endswith(".parquet") and "/" not in key and key not in shards:
            found.note(folder.uri_of(key), f"{folder.uri_of(key)} is not in the index of its folder; remove it")
    return index


def _check_slices(run: Run, found: _Findings) -> None:
    """Check the stored columns of the slices."""
    there = run.read_features() if run.spec.pool.slice_rules and not found.faults else None
    if there is None:
        return
    folder = folder_of(run.spec.pool, there.features)
    with found.checking(folder.uri_of(INDEX)):
        with_slices(run.spec.pool, there)
        shards = {shard.file: shard for shard in (read_index(folder) or there.index).shards}
        found.each(folder, shards, lambda file: check_slices(folder, shards[file]))


def _check_reference(run: Run, found: _Findings) -> None:
    known = run.header.reference
    if known is None:
        return
    folder = reference.folder_of(run.spec, known.digest, run.store)
    _check_features(folder, found)
    if "ranges" in run.spec.compares_with():
        with found.checking(folder.uri_of(reference.RANGES)):
            reference.read_ranges(folder)


def _check_history(run: Run, found: _Findings) -> None:
    """Check the knowledge from before the first label."""
    if not run.spec.has_history:
        return
    with found.checking(prior_knowledge.uri_of(run)):
        kept = prior_knowledge.read_record(run)
        if kept is not None:
            folder = run.store.store(f"{prior_knowledge.FOLDER}/{kept.folder}")
            found.each(folder, kept.files, lambda name: prior_knowledge.read_file(run, kept, name))
        if kept is not None or any(track.rounds() for track in run.tracks()):
            prior_knowledge.read_history(run, keep=False)


def _check_round(run: Run, number: int, index: Index | None, found: _Findings) -> None:
    """Check every draw of a round, its copies, and that the chosen examples match the features."""
    folder = run.folder(number)
    drawn = [draw for _, draw in run.logged(Draw, number)]
    for draw in drawn:
        found.each(folder.store(draw.folder), draw.files, partial(draws.read_file, folder, draw))
    for name, problem in draws.faults(folder, drawn[-1]):
        found.note(folder.uri_of(name), f"{problem}; run the spec again, which copies it anew")
    with found.checking(folder.uri):
        selection = run.read_selection(number)
        if index is not None and not found.faults:
            feature_store.check_chosen(run, selection)
