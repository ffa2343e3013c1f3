"""Verify all files of a run by their digests and with one another, and its signatures by public keys.

What is damaged, lost, foreign or not signed is reported.
"""

import base64
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pydantic import Field

from opacc_ray.audit import prior_knowledge
from opacc_ray.audit.sanity import SANITY, read_sanity
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import DataError, OpaccError, counted, shown
from opacc_ray.extensions.evidence.evidence import FOLDER as SIGNATURES
from opacc_ray.extensions.evidence.evidence import PAYLOAD, Predicate, Signer, encoded, read_keys, unlogged_keys
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
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import AccuracyEstimate, ChangedObjects, Stated
from opacc_ray.runs.run import ESTIMATE, HEADER, ROUNDS, Run, read_drawn
from opacc_ray.runs.run_documents import Draw, digest_of
from opacc_ray.spec import PoolSpec, Spec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Result = TypeVar("Result")

COPYING = 10.0
"""Most seconds that a command is given to copy the estimate that it has logged."""


class Fault(Part):
    """One problem of a run."""

    file: str = Field(description="URI of the file that is damaged, lost or foreign")
    problem: str = Field(description="the problem and its fix")


class CheckedSignature(Signer):
    """A signature of a run, and how far it goes."""

    key: str = Field(description="SHA-256 of the public key")
    checked: bool = Field(description="whether its public key was given, and made it; otherwise anybody may have")


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
        found.attempt(store.uri_of("log"), run.refuse_rollback, head)
        check_run(run, found)
        check_signed(run, public, found, allow_later=allow_later)
        with suppress(OpaccError):  # the problem has been noted
            objects = feature_store.find_changed(run)
    return Verification(run=store.uri, objects=objects, **found.fields())


def check_signed(run: Run, keys: Mapping[str, "Ed25519PublicKey"], found: "Findings", *, allow_later: bool) -> None:
    """Note what is not as it was signed, or not signed at all; each of the keys must have signed the run as it is.

    Entries after a signature are allowed, but no signature covers an estimate among them.
    """
    place, store = run.store.uri_of(SIGNATURES), run.store
    found.signed = {"entries": len(run.commits)}
    files = store.list(SIGNATURES)
    if not keys and not files:
        return
    envelopes, valid = list[_Envelope](), list[_Envelope]()
    with found.checking(place):
        for file in files:
            try:
                envelopes.append(_opened(store.read(file.key), keys))
            except DataError as error:
                found.note(place, f"{store.uri_of(file.key)} {error}")
        checked = [envelope for envelope in envelopes if envelope.is_checked]
        for key in keys:
            if key not in {envelope.key for envelope in checked}:
                found.note(place, f"no signature by the key {key[:16]} is there")
        for envelope in checked:
            changes = list(_changes(run, envelope))
            for text in changes:
                found.note(place, text)
            valid += [] if changes else [envelope]
        estimates, others = _not_signed(run, valid) if valid else ([], [])  # without a valid one, a fault says so
        for text in () if allow_later else (*estimates, *others):
            found.note(run.uri, f"{text}; sign the run again, or accept later work by --allow-later")
        found.signed |= {
            "signatures": [
                CheckedSignature(**own.predicate.model_dump(exclude={"run"}), key=own.key, checked=own.is_checked)
                for own in envelopes
            ],
            "newest_estimate_signed": bool(valid) and not estimates if keys and run.logged(Stated) else None,
            "not_signed": [found.shown(text) for text in (*estimates, *others)],
        }


class _Envelope(NamedTuple):
    is_checked: bool  # whether one of the keys signed it
    key: str
    subjects: Mapping[str, str]
    predicate: Predicate


def _opened(data: bytes, keys: Mapping[str, "Ed25519PublicKey"]) -> _Envelope:
    """Return the statement of an envelope; raises DataError without one, or if the key it names did not sign it."""
    try:
        envelope = json.loads(data)
        body = base64.b64decode(envelope["payload"])
        statement, [signature] = json.loads(body), envelope["signatures"]
        subjects = {str(own["name"]): str(own["digest"]["sha256"]) for own in statement["subject"]}
        key, value = str(signature["keyid"]), base64.b64decode(signature["sig"])
        predicate = Predicate.model_validate(statement["predicate"])
        missing = {"log", "features"} - subjects.keys()
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError("is no signature; restore it from a backup") from None
    if missing or envelope.get("payloadType") != PAYLOAD or not _holds(keys.get(key), value, body):
        raise DataError(f"is not signed by the key {shown(key[:16])} that it names; restore it from a backup")
    return _Envelope(key in keys, key, subjects, predicate)


def _holds(key: "Ed25519PublicKey | None", value: bytes, body: bytes) -> bool:
    """Return whether a key made a signature; a key that is not given is not asked."""
    if key is None:
        return True
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(value, encoded(body))
    except InvalidSignature:
        return False
    return True


def _changes(run: Run, signed: "_Envelope") -> Iterator[str]:
    """Yield what is no longer as it was signed."""
    said, commits = signed.predicate, run.commits
    who = f"{said.by} ({said.role}) signed at {said.at}"
    if said.run != run.header.digest:
        yield f"what {who} is another run"
    if len(commits) < said.entries or digest_of(commits[said.entries - 1].to_bytes()) != signed.subjects["log"]:
        first = counted(said.entries, "entry", "entries")
        yield f"the log is not the one that {who}: one of its first {first} was changed"
    if run.complete_features().digest != signed.subjects["features"]:
        yield f"the features are not those that {who}"
    for key, digest in signed.subjects.items():
        if key not in ("log", "features"):
            data = run.store.read_if_there(key)
            if data is None or digest_of(data) != digest:
                yield f"{run.store.uri_of(key)} is not the one that {who}"


def _not_signed(run: Run, valid: Sequence[_Envelope]) -> tuple[list[str], list[str]]:
    """Return the newest estimate, and files that later entries do not change, if no valid signature covers them."""
    entries = max(own.predicate.entries for own in valid)
    signed, total = {key for own in valid for key in own.subjects}, len(run.commits)
    estimates = [
        f"the newest estimate of {run.uri} (entry {commit.number} of {total}) is NOT signed"
        for commit, _ in run.logged(Stated)[-1:]
        if commit.number > entries
    ]
    return estimates, [f"{run.store.uri_of(key)} is NOT signed" for key in unlogged_keys(run) if key not in signed]


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

    def attempt(self, uri: str, check: Callable[..., Result], *arguments: Any) -> Result | None:
        """Count a file, and return what its check returns; None after an error, which is noted."""
        with self.checking(uri):
            return check(*arguments)
        return None

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
    found.attempt(run.store.uri_of(feature_store.LISTING), feature_store.read_listing, run)
    found.attempt(run.store.uri_of(SANITY), read_sanity, run)
    with found.checking(run.store.uri_of("log")):
        for key, text in read_log(run).lost.items():
            found.note(run.store.uri_of(key), text)
    _check_logged(run, found)
    place = run.store.uri_of(ROUNDS.rstrip("/"))
    numbers = found.attempt(place, run.rounds) or []
    for number in numbers:
        _check_round(run, number, index, found)
    with found.checking(place), suppress(LabelConflict):  # for people to resolve: `opacc status` names it
        if numbers:
            read_rounds(run, with_lost=True)
    found.attempt(run.store.uri_of(ESTIMATE), _check_estimate, run)


def _check_logged(run: Run, found: Findings) -> None:
    """Compare every file that the log names with the whole digest that it has; names of files are digests in part."""
    with found.checking(run.store.uri_of("log")):
        logged = {key: digest for commit in run.commits for key, digest in commit.files.items()}

        def check(key: str) -> None:
            data = run.store.read_if_there(key)  # one that is lost is named where it is read
            if data is not None and not digest_of(data).startswith(logged[key]):
                raise DataError(f"{run.store.uri_of(key)} is not the file that the log names; restore it")

        found.each(run.store, logged, check)


def _check_estimate(run: Run) -> None:
    """Raise DataError unless the copy of the estimate is the newest one; it is written just after the log's entry."""
    refuse_lost(run, run.read_document(AccuracyEstimate, ESTIMATE))
    end = time.monotonic() + min(COPYING, patience())
    while True:
        copy, stated = run.read_document(AccuracyEstimate, ESTIMATE), [estimate for _, estimate in run.estimates()]
        if copy is None or copy in stated[-1:]:
            return
        if time.monotonic() >= end:
            place = run.store.uri_of(ESTIMATE)
            raise DataError(f"{place} is not the newest estimate of the log; {AccuracyEstimate.remedy}")
        time.sleep(0.1)


def _check_set(run: Run, found: Findings) -> Index | None:
    """Check the features of a run, its own or shared; returns their index."""
    with found.checking(run.features.uri):
        if run.header.features:
            read_description(run.features)
    for folder in run.feature_set.folders:
        sound = _check_features(folder, run.spec, run.spec.pool, found)
        if sound is None and run.store.list(ROUNDS):
            found.note(folder.uri_of(INDEX), "it is lost or damaged, and rounds were drawn from its features")
    return found.attempt(run.features.uri, run.read_index)


def _check_features(folder: Store, spec: Spec, source: PoolSpec, found: Findings) -> Index | None:
    """Check a folder of features of a pool: all bytes of it, and what follows from the stored output."""
    index = found.attempt(folder.uri_of(INDEX), read_index, folder)
    if index is None:
        return None
    found.attempt(folder.uri, records, folder)
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
        found.attempt(folder.uri_of(reference.RANGES), reference.read_ranges, folder)


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
        found.each(folder, draw.files, partial(read_drawn, folder, draw))
    with found.checking(run.store.uri_of(f"{ROUNDS}{number}")):
        selection = run.read_selection(number)
        if index is not None and not found.faults:
            feature_store.check_chosen(run, selection)
