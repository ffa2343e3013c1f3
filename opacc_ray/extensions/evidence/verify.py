"""Verify all files of a run by their digests and with one another, and its signatures by public keys.

What is damaged, lost, foreign or not signed is reported.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from opacc_ray.audit import prior_knowledge
from opacc_ray.audit.sanity import SANITY, read_sanity
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import DataError, OpaccError
from opacc_ray.extensions.evidence.evidence import FOLDER as SIGNATURES
from opacc_ray.extensions.evidence.evidence import CheckedSignature, check_signatures, read_keys
from opacc_ray.extract import reference
from opacc_ray.extract.feature_set import INDEX, Index, check_shard, read_description, read_index
from opacc_ray.extract.inference import check_decided
from opacc_ray.extract.model_code import records
from opacc_ray.extract.table_columns import check_slices, folder_of, with_slices
from opacc_ray.labels.joining import LabelConflict
from opacc_ray.labels.label_log import read_log, refuse_lost
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.lake.store import in_order, patience
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs import draws, feature_store
from opacc_ray.runs.commit_log import digest_of
from opacc_ray.runs.estimate_documents import AccuracyEstimate, ChangedObjects
from opacc_ray.runs.run import ESTIMATE, HEADER, ROUNDS, Run
from opacc_ray.runs.run_documents import Draw
from opacc_ray.spec import PoolSpec, Spec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

COPYING = 10.0
"""Most seconds that a command is given to copy the estimate that it has logged."""


class Fault(Part):
    """One problem of a run."""

    file: str = Field(description="URI of the file that is damaged, lost or foreign")
    problem: str = Field(description="the problem and its fix")


class Verified(Part):
    """What a verification found, and how far signatures go."""

    sound: bool = Field(description="whether there are no faults")
    checked: int = Field(ge=0, description="number of files that were read and compared")
    faults: list[Fault] = Field(description="all problems")
    entries: int = Field(default=0, ge=0, description="number of entries of the log")
    signatures: list[CheckedSignature] = Field(default=[], description="signatures, and how far each goes")
    newest_estimate_signed: bool | None = Field(
        default=None,
        description="whether checked signatures cover the newest estimate; null: no key, or no estimate",
    )
    not_signed: list[str] = Field(
        default=[], description="what no checked signature covers, in sentences: faults, unless they are allowed"
    )


class Verification(Verified, Document):
    """Result of verifying all files of a run and its signatures."""

    format: Literal["opacc-verification/1"] = format_field("opacc-verification/1")
    run: str = Field(description="URI of the run")
    objects: ChangedObjects | None = Field(description="objects of the pool that changed; null if unknown")


def verify(uri: str, keys: Sequence[str] = (), *, head: str | None = None, allow_later: bool = False) -> Verification:
    """Read and compare all of a run, and name all that is wrong; raises DataError if there is no run.

    Parameters
    ----------
    keys : files of public keys; each must have signed the run, and what it signed must be unchanged
    head : a digest with which the log once ended, as `opacc status --log` printed it; a log without that entry is a
        fault
    allow_later : accept a newest estimate, or a report, from after the signatures
    """
    public, found = read_keys(keys), Findings()
    store = open_store(uri)
    if not store.list():
        raise DataError(f"there is no run at {store.uri}; give the URI that `opacc run` printed")
    objects = None
    with found.checking(store.uri_of(HEADER)):
        run = Run.open(uri)
        with found.checking(store.uri_of("log")):
            run.refuse_rollback(head)
        check_run(run, found)
        check_signed(run, public, found, allow_later=allow_later)
        with suppress(OpaccError):  # the problem has been noted
            objects = feature_store.find_changed(run)
    return Verification(run=store.uri, objects=objects, **found.fields())


def check_signed(run: Run, keys: Mapping[str, "Ed25519PublicKey"], found: "Findings", *, allow_later: bool) -> None:
    """Note what is not as it was signed, or not signed at all."""
    uri = run.store.uri_of(SIGNATURES)
    found.signed = {"entries": len(run.commits)}
    if not keys and not run.store.list(SIGNATURES):
        return
    with found.checking(uri):
        own = check_signatures(run, keys)
        for problem in own.faults:
            found.note(uri, problem)
        for problem in () if allow_later else own.not_signed:
            found.note(run.uri, f"{problem}; sign the run again, or accept later work by --allow-later")
        found.signed |= {
            "signatures": own.found,
            "newest_estimate_signed": own.newest_signed,
            "not_signed": [found.shown(text) for text in own.not_signed],
        }


@dataclass
class Findings:
    """What a verification has found so far."""

    home: str = ""  # folder of unpacked files, which no text names
    checked: int = 0
    faults: list[Fault] = field(default_factory=list)
    signed: dict[str, Any] = field(default_factory=dict)  # fields of the signatures

    def fields(self) -> dict[str, Any]:
        """Return the fields of :class:`Verified`."""
        return {"sound": not self.faults, "checked": self.checked, "faults": self.faults, **self.signed}

    @contextmanager
    def checking(self, uri: str) -> Iterator[None]:
        """Count a file, and note an error of its check."""
        self.checked += 1
        try:
            yield
        except OpaccError as error:
            self.note(uri, str(error))

    def shown(self, text: str) -> str:
        return text.replace(f"{self.home}/", "") if self.home else text

    def note(self, uri: str, problem: str) -> None:
        uri, problem = self.shown(uri), self.shown(problem)
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

        for name, text in zip(names, in_order(problem, list(names), threads=4), strict=True):
            self.checked += 1
            if text:
                self.note(folder.uri_of(name), text)


def check_run(run: Run, found: Findings, *, has_features: bool = True) -> None:
    """Check all files of a run; of features that it does not have here, only the index that gives their digest."""
    index = _check_set(run, found) if has_features else None
    if has_features:
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
    _check_rounds(run, index, found)


def _check_logged(run: Run, found: Findings) -> None:
    """Compare every file that the log names with the whole digest that it has; names of files are digests in part."""
    with found.checking(run.store.uri_of("log")):
        logged = {key: digest for commit in run.commits for key, digest in commit.files.items()}

        def check(key: str) -> None:
            data = run.store.read_if_there(key)  # one that is lost is named where it is read
            if data is not None and not digest_of(data).startswith(logged[key]):
                raise DataError(f"{run.store.uri_of(key)} is not the file that the log names; restore it")

        found.each(run.store, logged, check)


def _check_rounds(run: Run, index: Index | None, found: Findings) -> None:
    """Check all rounds, separately and together, and the estimate."""
    numbers: list[int] = []
    place = run.store.uri_of(ROUNDS.rstrip("/"))
    with found.checking(place):
        numbers = run.rounds()
    for number in numbers:
        _check_round(run, number, index, found)
    with found.checking(place), suppress(LabelConflict):  # for people to resolve: `opacc status` names it
        if numbers:
            read_rounds(run, with_lost=True)
    estimate = run.store.uri_of(ESTIMATE)
    with found.checking(estimate):
        refuse_lost(run, run.read_document(AccuracyEstimate, ESTIMATE))
        if _is_lasting(lambda: _is_older_estimate(run)):
            raise DataError(f"{estimate} is not the newest estimate of the log; {AccuracyEstimate.remedy}")


def _is_older_estimate(run: Run) -> bool:
    copy, kept = run.read_document(AccuracyEstimate, ESTIMATE), [own for _, own in run.estimates()]
    return copy is not None and copy not in kept[-1:]


def _is_lasting(problem: Callable[[], bool]) -> bool:
    """Return whether a problem of a copy stays: a command writes the copy just after the entry of the log."""
    end = time.monotonic() + min(COPYING, patience())
    while (found := problem()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def _check_set(run: Run, found: Findings) -> Index | None:
    """Check the features of a run, its own or shared; returns their index."""
    with found.checking(run.features.uri):
        if run.header.features:
            read_description(run.features)
    for folder in run.feature_set.folders:
        sound = _check_features(folder, run.spec, run.spec.pool, found)
        if sound is None and run.store.list(ROUNDS):
            found.note(folder.uri_of(INDEX), "it is lost or damaged, and rounds were drawn from its features")
    with found.checking(run.features.uri):
        return run.read_index()
    return None


def _check_features(folder: Store, spec: Spec, source: PoolSpec, found: Findings) -> Index | None:
    """Check a folder of features of a pool: all bytes of it, and what follows from the stored output."""
    index = None
    with found.checking(folder.uri_of(INDEX)):
        index = read_index(folder)
    if index is None:
        return None
    with found.checking(folder.uri):
        records(folder)
    sizes = {entry.key: entry.size for entry in folder.list()}
    shards = {shard.file: shard for shard in index.shards}

    def check(file: str) -> None:
        if file not in sizes:
            raise DataError(f"{folder.uri_of(file)} is lost; run the spec again, which extracts it anew")
        check_decided(check_shard(folder, index, shards[file], sizes[file]), spec, source, folder.uri_of(file))

    found.each(folder, shards, check)
    for key in sizes:
        if key.endswith(".parquet") and "/" not in key and key not in shards:
            found.note(folder.uri_of(key), f"{folder.uri_of(key)} is not in the index of its folder; remove it")
    return index


def _check_slices(run: Run, found: Findings) -> None:
    """Check the stored columns of the slices."""
    there = run.read_features() if run.spec.pool.slice_rules and not found.faults else None
    if there is None:
        return
    folder = folder_of(run.spec.pool, there.features)
    with found.checking(folder.uri_of(INDEX)):
        with_slices(run.spec.pool, there)
        shards = {shard.file: shard for shard in (read_index(folder) or there.index).shards}
        found.each(folder, shards, lambda file: check_slices(folder, shards[file]))


def _check_reference(run: Run, found: Findings) -> None:
    known = run.header.reference
    if known is None or run.spec.reference is None:
        return
    folder = reference.folder_of(run.spec, known.digest, run.store)
    _check_features(folder, run.spec, run.spec.reference, found)
    if "ranges" in run.spec.compares_with():
        with found.checking(folder.uri_of(reference.RANGES)):
            reference.read_ranges(folder)


def _check_history(run: Run, found: Findings) -> None:
    """Check the knowledge from before the first label."""
    if not run.spec.has_history:
        return
    with found.checking(prior_knowledge.uri_of(run)):
        kept = prior_knowledge.read_record(run)
        if kept is not None:
            folder = run.store.store(f"{prior_knowledge.FOLDER}/{kept.folder}")
            found.each(folder, kept.files, lambda name: prior_knowledge.read_file(run, kept, name))
        if kept is not None or run.rounds():
            prior_knowledge.read_history(run, keep=False)


def _check_round(run: Run, number: int, index: Index | None, found: Findings) -> None:
    """Check the draw of a round, and that the chosen examples match the features."""
    for _, draw in run.logged(Draw, number):
        folder = run.folder(number, draw)
        found.each(folder, draw.files, partial(draws.read_file, folder, draw))
    with found.checking(run.store.uri_of(f"{ROUNDS}{number}")):
        selection = run.read_selection(number)
        if index is not None and not found.faults:
            feature_store.check_chosen(run, selection)
