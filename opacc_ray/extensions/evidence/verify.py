"""Verify all files of a run by their digests and with one another, and its signatures by public keys.

What is damaged, lost, foreign or not signed is reported.

Nothing of an archive that somebody else made is run, and nothing outside it is read. Its files are unpacked into a
temporary folder, where the run is verified like any other. Then its newest estimate is recomputed from labels and
features, with this version of the estimators.
"""

import base64
import io
import json
import time
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pydantic import Field

from opacc_ray.audit import history
from opacc_ray.audit.accuracy import estimate
from opacc_ray.audit.run_numbers import measure_accuracy
from opacc_ray.audit.sanity import SANITY
from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, OpaccError, counted, shortened, shown
from opacc_ray.estimation.failures import uses_regression
from opacc_ray.extensions.evidence import evidence
from opacc_ray.extensions.evidence.evidence import DESCRIBED, SHEET, PackedRun, Predicate, Signer, zipped
from opacc_ray.extract import reference
from opacc_ray.extract.feature_set import INDEX, Index, check_shard, read_description, read_index
from opacc_ray.extract.inference import check_decided
from opacc_ray.extract.model_code import records
from opacc_ray.extract.table_columns import check_slices, folder_of, with_slices
from opacc_ray.labels.joining import LabelConflict
from opacc_ray.labels.label_log import read_log, refuse_lost
from opacc_ray.labels.labelled_rounds import having_labels, read_rounds
from opacc_ray.lake.s3_store import patience
from opacc_ray.lake.store import in_order
from opacc_ray.lake.store_uris import Store, join, open_store, split
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.runs.run import (
    ESTIMATE,
    HEADER,
    LISTING,
    ROUNDS,
    Run,
    check_chosen,
    find_changed,
    read_kept,
    read_listing,
    versions,
)
from opacc_ray.runs.run_documents import (
    AccuracyEstimate,
    ChangedObjects,
    Draw,
    ModelSanity,
    Stated,
    StatedEstimate,
    digest_of,
)
from opacc_ray.runs.series import Attempts
from opacc_ray.spec import PoolSpec, Spec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

COPYING = 10.0
"""Most seconds that a command is given to copy the estimate that it has logged."""

Result = TypeVar("Result")


class Fault(Part):
    """One problem of a run."""

    file: str  # URI of the file that is damaged, lost or foreign
    problem: str  # the problem and its fix


class CheckedSignature(Signer):
    """A signature of a run, and how far it goes."""

    key: str  # SHA-256 of the public key
    checked: bool  # whether its public key was given, and made it; otherwise anybody may have


class Verified(Part):
    """What a verification found, and how far signatures go."""

    sound: bool  # whether there are no faults
    checked: int = Field(ge=0)  # number of files that were read and compared
    faults: list[Fault]  # all problems
    entries: int = Field(default=0, ge=0)  # number of entries of the log
    signatures: list[CheckedSignature] = Field(default=[])  # signatures, and how far each goes
    # whether checked signatures cover the newest estimate; null: no key, or no estimate
    newest_estimate_signed: bool | None = None
    # what no checked signature covers, in sentences: faults, unless they are allowed
    not_signed: list[str] = Field(default=[])


class Verification(Verified, Document):
    """Result of verifying all files of a run and its signatures."""

    format: Literal["opacc-verification/1"] = "opacc-verification/1"
    run: str  # URI of the run
    objects: ChangedObjects | None  # objects of the pool that changed; null if unknown


def verify(uri: str, keys: Sequence[str] = (), *, head: str | None = None, allow_later: bool = False) -> Verification:
    """Read and compare all of a run, and name all that is wrong; raises DataError if there is no run.

    Parameters
    ----------
    keys : files of public keys; each must have signed the run, and what it signed must be unchanged
    head : a digest with which the log once ended, as `opacc status --log` printed it; a log without that entry is a
        fault
    allow_later : accept a newest estimate, or a report, from after the signatures
    """
    public, found = evidence.read_keys(keys), Findings()
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
            objects = find_changed(run)
    return Verification(run=store.uri, objects=objects, **found.fields())


def check_signed(run: Run, keys: Mapping[str, "Ed25519PublicKey"], found: "Findings", *, allow_later: bool) -> None:
    """Note what is not as it was signed, or not signed at all; each of the keys must have signed the run as it is.

    Entries after a signature are allowed, but no signature covers an estimate among them.
    """
    place, store = run.store.uri_of(evidence.FOLDER), run.store
    found.signed = {"entries": len(run.commits)}
    files = store.list(evidence.FOLDER)
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
    if missing or envelope.get("payloadType") != evidence.PAYLOAD or not _holds(keys.get(key), value, body):
        raise DataError(f"is not signed by the key {shown(key[:16])} that it names; restore it from a backup")
    return _Envelope(key in keys, key, subjects, predicate)


def _holds(key: "Ed25519PublicKey | None", value: bytes, body: bytes) -> bool:
    """Return whether a key made a signature; a key that is not given is not asked."""
    if key is None:
        return True
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(value, evidence.encoded(body))
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
    return estimates, [
        f"{run.store.uri_of(key)} is NOT signed" for key in evidence.unlogged_keys(run) if key not in signed
    ]


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
    found.attempt(run.store.uri_of(LISTING), read_listing, run)
    found.attempt(run.store.uri_of(SANITY), run.read_document, ModelSanity, SANITY)
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
    while (copy := run.read_document(AccuracyEstimate, ESTIMATE)) is not None:
        if copy in [estimate for _, estimate in run.estimates()[-1:]]:
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
    with found.checking(history.history_uri(run)):
        kept = history.read_record(run)
        if kept is not None:
            folder = run.store.store(f"{history.FOLDER}/{kept.folder}")
            found.each(folder, kept.files, lambda name: history.read_file(run, kept, name))
        if kept is not None or run.rounds():
            history.read_history(run, keep=False)


def _check_round(run: Run, number: int, index: Index | None, found: Findings) -> None:
    """Check the draw of a round, and that the chosen examples match the features."""
    for _, draw in run.logged(Draw, number):
        folder = run.folder(number, draw)
        found.each(folder, draw.files, partial(read_kept, folder, draw.files))
    with found.checking(run.store.uri_of(f"{ROUNDS}{number}")):
        selection = run.read_selection(number)
        if index is not None and not found.faults:
            check_chosen(run, selection)


# -- archives of others ------------------------------------------------------------------------------------------

TOLERANCE = 1e-8
"""Relative difference between a stated and a recomputed number that machines explain."""

NAMED = 5
"""Differences of an estimate that are named; the others are counted."""

_NO_NUMBERS = {"run", "lead", "objects", "notes", "warnings", "label_files", "sha256", "by_slice"}
"""Fields of an estimate that are not compared as they are: places, sentences, and slices, which are found by name."""


Extent = Literal["all numbers", "the accuracy by design", "nothing"]
NOTHING: Extent = "nothing"


class RecomputedEstimate(StatedEstimate):
    """The newest estimate of a run, and what of it was recomputed."""

    entry: int = Field(ge=1)  # entry of the log that states it
    measure: str  # what is estimated
    recomputed: Extent  # what was recomputed from the labels: without features little or nothing can be
    earlier: int = Field(ge=0)  # earlier estimates, which are not recomputed


class PackVerification(Verified, Document):
    """Result of checking an archive of evidence."""

    format: Literal["opacc-pack-verification/1"] = "opacc-pack-verification/1"
    file: str  # URI of the archive
    sha256: str  # its digest
    run: str  # URI of the run, as the maker of the archive says
    made_with: str  # version of opacc_ray that made the archive, as its maker says
    verified_with: str  # version of opacc_ray that checked it
    weights: str | None  # SHA-256 of the model's weights; null: unknown
    code: str | None  # digest of the model's code; null: no code ran
    estimate: RecomputedEstimate | None  # the newest estimate; null: none, or it cannot be read
    attempts: Attempts  # the runs and draws of this pool, as the maker of the archive says


def verify_pack(
    uri: str, keys: Sequence[str] = (), *, head: str | None = None, allow_later: bool = False
) -> PackVerification:
    """Check an archive, its signatures by public keys, and recompute its newest estimate.

    The arguments are those of :func:`opacc_ray.extensions.evidence.verify.verify`.
    Raises DataError if it is no archive of evidence, or was not written by `opacc evidence pack`.
    """
    folder, name = split(uri)
    store = open_store(folder)
    data, place = store.read(name), store.uri_of(name)
    files, public = _files_in(data, place), evidence.read_keys(keys)
    with TemporaryDirectory(prefix="opacc-") as home:
        open_store(home).write_many(files.items())
        try:
            return _verified(place, data, files, home, public, head, allow_later=allow_later)
        except OpaccError as error:
            raise DataError(f"{place}: {str(error).replace(f'{home}/', '')}") from None
        except Exception as error:  # whatever a stranger's bytes do to a reader is their fault, and one sentence
            said = f"{type(error).__name__}: {shortened(str(error), 100)}".replace(f"{home}/", "")
            raise DataError(f"{place} cannot be verified ({said}); ask for the archive again") from None


def _files_in(data: bytes, place: str) -> dict[str, bytes]:
    """Return the content of each member by its name; raises DataError unless `zipped` would write the same bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = archive.infolist()
            _refuse_strange(found, len(data), place)
            files = {member.filename: archive.read(member) for member in found}
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError, UnicodeError) as error:
        reason = shortened(str(error), 100)
        raise DataError(f"{place} is no sound archive of evidence ({reason}); ask for it again") from None
    if zipped(files) != data:
        raise DataError(
            f"{place} has members twice or compressed, bytes of none, or another order; ask for the archive as "
            "`opacc evidence pack` wrote it"
        )
    if DESCRIBED not in files:
        raise DataError(f"{place} has no {DESCRIBED}; give an archive that `opacc evidence pack` wrote")
    return files


def _refuse_strange(found: Sequence[zipfile.ZipInfo], size: int, place: str) -> None:
    """Raise DataError for members that other programs may unpack elsewhere, or to a larger size."""
    remedy = "do not unpack it, and ask for the archive as `opacc evidence pack` wrote it"
    for member in found:
        name = member.filename
        if not set(name.split("/")).isdisjoint(("", ".", "..")) or "\\" in name or ":" in name:
            raise DataError(f"{place} has the member {shown(name)}, which is no file below a folder; {remedy}")
    if sum(member.file_size for member in found) > size:
        raise DataError(f"{place} has members that expand, and `opacc evidence pack` compresses none; {remedy}")


def _verified(
    place: str,
    data: bytes,
    files: Mapping[str, bytes],
    home: str,
    keys: Mapping[str, "Ed25519PublicKey"],
    head: str | None,
    *,
    allow_later: bool,
) -> PackVerification:
    """Verify the run that was unpacked below ``home``, and recompute its estimate."""
    said = PackedRun.from_bytes(files[DESCRIBED], f"{place}: {DESCRIBED}")
    run, found = _open_apart(home, said.name), Findings(home)
    found.attempt(run.store.uri_of("log"), run.refuse_rollback, head)
    check_signed(run, keys, found, allow_later=allow_later)
    check_run(run, found, has_features=said.features)
    known = {DESCRIBED, SHEET, *evidence.members(run, features=said.features)}
    for name in sorted(files.keys() - known):
        found.note(name, f"{name} is no file of the run: its log does not name it; do not use it")
    if files.get(SHEET) != evidence.sheet():
        found.note(SHEET, f"{SHEET} is not what opacc writes; do not read it{_versions(said)}")
    estimate = _recomputed(run, said, found)
    return PackVerification(
        file=place,
        sha256=digest_of(data),
        run=said.run,
        made_with=said.made_with,
        verified_with=versions()["opacc_ray"],
        weights=run.header.model.sha256,
        code=run.header.code_digest,
        estimate=estimate,
        attempts=said.attempts,
        **found.fields(),
    )


def _open_apart(home: str, name: str) -> Run:
    """Open an unpacked run so that nothing outside ``home`` is read: its spec may name any pool and reference."""
    run = Run.open(join(home, name))
    pool = run.spec.pool.model_copy(
        update={"uri": join(home, "no-pool"), "catalog": None, "table": None, "access": None}
    )
    header = run.header.model_copy(
        update={
            "spec": run.spec.model_copy(update={"pool": pool}),
            "pool": run.header.pool.model_copy(update={"version": None}),
            "reference": None,
        }
    )
    return Run(run.store, header)


# -- recomputed numbers ----------------------------------------------------------------------------------------


def _recomputed(run: Run, said: PackedRun, found: Findings) -> RecomputedEstimate | None:
    """Recompute the newest estimate, and note where it differs."""
    if not run.logged(Stated):
        found.note(DESCRIBED, "the log has no estimate, so this archive states no number")
    estimates = found.attempt(run.uri, run.estimates)
    if not estimates:
        return None
    commit, stated = estimates[-1]
    source, what = run.store.uri_of(next(iter(commit.files))), NOTHING
    with found.checking(source):
        before = run.at(run.commits[: commit.number - 1])
        what, numbers = _numbers(before, stated, has_features=said.features)
        differences = list(_differences(_comparable(stated), numbers, ""))
        for text in differences[:NAMED]:
            found.note(source, f"{source}: {text}{_versions(said)}")
        if len(differences) > NAMED:
            found.note(source, f"{source}: {counted(len(differences) - NAMED, 'more number')} differ")
    numbers = stated.model_dump(include={"measure", *StatedEstimate.model_fields})
    return RecomputedEstimate(entry=commit.number, recomputed=what, earlier=len(estimates) - 1, **numbers)


def _versions(said: PackedRun) -> str:
    now = versions()["opacc_ray"]
    return "" if now == said.made_with else f"; it was made with opacc {said.made_with} and checked with {now}"


def _numbers(run: Run, stated: AccuracyEstimate, *, has_features: bool) -> tuple[Extent, dict[str, Any]]:
    """Return what could be recomputed of an estimate, and its numbers, from a run as it was before."""
    evidence.refuse_other_labels(run, stated)
    if has_features:
        found = estimate(
            run,
            level=stated.level,
            partial=True,
            costs=stated.mean_cost.costs if stated.mean_cost else None,
            assist=stated.assisted is not None,
            metrics=[ACCURACY, *stated.metrics],
            by=list(dict.fromkeys(table.by for table in stated.by_slice)),
            keep=False,
        )
        return "all numbers", _comparable(found)
    known = having_labels(read_rounds(run))
    if uses_regression([item.known for item in known]) or stated.by_design is None:
        return NOTHING, _comparable(stated)
    by_design = measure_accuracy(run, known).estimate(stated.level)
    kept = {name: getattr(by_design, name) for name in ("value", "low", "high", "standard_error")}
    return "the accuracy by design", _comparable(stated) | {"by_design": stated.by_design.model_dump() | kept}


def _comparable(own: AccuracyEstimate) -> dict[str, Any]:
    """Return the numbers of an estimate, slices by their names."""
    content = own.model_dump(mode="json", exclude=_NO_NUMBERS)
    tables = {f"{table.metric} by {table.by}": table.model_dump(mode="json") for table in own.by_slice}
    return content | {"slices": tables}


def _differences(stated: Any, found: Any, place: str) -> Iterator[str]:
    """Yield where a stated value differs from the recomputed one; what was not stated is not compared."""
    if isinstance(stated, dict) and isinstance(found, dict):
        for key, own in stated.items():
            yield from _differences(own, found.get(key), f"{place}/{key}" if place else str(key))
    elif isinstance(stated, list) and isinstance(found, list) and len(stated) == len(found):
        for number, (own, other) in enumerate(zip(stated, found, strict=True)):
            yield from _differences(own, other, f"{place}/{number}")
    elif isinstance(stated, float | int) and isinstance(found, float | int):
        if not abs(stated - found) <= TOLERANCE * max(1.0, abs(stated)):
            yield f"{place} is {stated:.10g}, and {found:.10g} recomputed"
    elif stated is not None and stated != found:
        yield f"{place} is {shown(stated)}, and {shown(found)} recomputed"
