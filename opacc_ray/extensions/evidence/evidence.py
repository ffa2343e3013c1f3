"""Make evidence: seal what will be stated before the first label, sign a run, and pack it into one archive.

A signature is a DSSE envelope (https://github.com/secure-systems-lab/dsse) with an in-toto statement. Its subjects are
the newest entry of the log, which depends on all before it and on the files that they name; the features; and every
other file of the run that does not change with later entries. It is itself logged, so the log says who signed what.

An archive has

    pack.json, SHEET.md     what its maker says of it, and where a reader finds what
    NAME/…                  the run's own files: spec.json, the log, all files that it names, signatures, reports
    features/DIGEST/…       what its model answered for the pool, if that is small

Unpacked, it is an output with one run, so all that reads a run reads it. Members are stored without compression, in
the order of their names: equal files give equal bytes, and nothing else can be in the archive.
"""

import base64
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from opacc_ray.audit.accuracy import request_of
from opacc_ray.documents import Document, Part, SealedDocument
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.extract.feature_set import DESCRIPTION, HOME, INDEX, read_index
from opacc_ray.extract.table_columns import folder_of
from opacc_ray.labels.joining import LabelConflict
from opacc_ray.labels.label_log import LabelAction
from opacc_ray.labels.labelled_rounds import digest_of as digest_of_labels
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.lake.store_uris import Store, write_object
from opacc_ray.registry import require
from opacc_ray.runs.run import RUN_FILES, Run, versions
from opacc_ray.runs.run_documents import FOLDER as LOG
from opacc_ray.runs.run_documents import AccuracyEstimate, Commit, Happening, Seal, digest_of
from opacc_ray.runs.series import Attempts, attempts_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class Signer(Part):
    """Who signed a run, and how much of it."""

    by: str  # who signed it
    role: str  # in which role
    at: str  # time of the signature by the signer's clock: ISO 8601, UTC
    entries: int = Field(ge=1)  # number of entries of the log that are signed


class Predicate(Signer):
    """What a signature says besides the digests of all that it covers."""

    run: str  # digest of the run


class Signature(Signer, Document):
    """A signature of a run."""

    format: Literal["opacc-signature/1"] = "opacc-signature/1"
    run: str  # URI of the run
    key: str  # SHA-256 of the public key
    head: str  # digest of the newest entry of the log that is signed
    file: str  # URI of the envelope


class Signed(SealedDocument):
    """The run was signed as it was after the entry before this one; the file of this entry is the envelope."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-signed/1"] = "opacc-signed/1"
    by: str  # who signed it
    role: str  # in which role
    key: str  # SHA-256 of the public key

    def words(self) -> str:
        return f"signed by {self.by} ({self.role})"


class SealState(Document):
    """A seal of a run."""

    format: Literal["opacc-sealed/1"] = "opacc-sealed/1"
    run: str  # URI of the run
    at: str  # time of the seal: ISO 8601, UTC
    seal: Seal  # what was promised


FOLDER, PAYLOAD, PREDICATE = "signatures/", "application/vnd.in-toto+json", "urn:opacc:evidence:1"

_LOGGED = re.compile(rf"(?:{LOG}|{FOLDER}|features/|reference/|rounds/|estimates/).*", re.DOTALL)
"""Keys of files that the log names, of the log itself, and of features, whose digest is signed."""

_CHANGING = re.compile(r"estimate\.json|failure\.json|derived/.*", re.DOTALL)
"""Keys of files that change with later entries; what is stated in them is logged."""


# -- seals ---------------------------------------------------------------------------------------------------


def seal(
    run: Run,
    *,
    metrics: Sequence[str] = (),
    level: float = 0.95,
    by: Sequence[str] = (),
    half_width: float | None = None,
    promised_by: str | None = None,
) -> SealState:
    """Log what will be stated of a run.

    Raises LabelError if the run has a label, or is sealed; SpecError for a metric or
    slices that the run does not have.
    """
    request_of(run, [*metrics] or None, [*by] or None)
    own = Seal(
        metrics=list(dict.fromkeys(["accuracy", *metrics])),
        level=level,
        by=list(by),
        half_width=half_width,
        promised_by=promised_by,
    )

    def decide(commits: tuple[Commit, ...]) -> Happening:
        now = run.at(commits)
        late = next((commit.number for commit in commits for action in commit.documents(LabelAction) if action.file), 0)
        if late:
            raise LabelError(f"{now.uri} had labels since entry {late} of its log; a seal must come before the first")
        if now.logged(Seal):
            raise LabelError(f"{now.uri} is sealed already, by entry {now.logged(Seal)[0][0].number} of its log")
        return Happening([own])

    commit = run.log.append(decide)
    assert commit is not None
    return SealState(run=run.uri, at=commit.at, seal=own)


# -- signatures ----------------------------------------------------------------------------------------------


def sign(run: Run, by: str, role: str, key_file: str) -> Signature:
    """Sign a run as it is, with an ed25519 key in PEM; raises SpecError if the key cannot be used."""
    key, made = _read_key(key_file, is_private=True), list[Signature]()
    public = key.public_key().public_bytes_raw()

    def decide(commits: tuple[Commit, ...]) -> Happening:
        if not commits:
            raise DataError(f"{run.uri} has no entry in its log yet; draw a round first")
        head, at = digest_of(commits[-1].to_bytes()), datetime.now(UTC).isoformat(timespec="seconds")
        signer = Signer(by=by, role=role, at=at, entries=len(commits))
        others = unlogged_keys(run)
        digests = dict(zip(others, map(digest_of, run.store.read_many(others)), strict=True))
        subjects = {"log": head, "features": run.complete_features().digest, **digests}
        statement = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": name, "digest": {"sha256": value}} for name, value in subjects.items()],
            "predicateType": PREDICATE,
            "predicate": Predicate(**dict(signer), run=run.header.digest).model_dump(),
        }
        body = json.dumps(statement, sort_keys=True, ensure_ascii=False).encode()
        envelope = {
            "payloadType": PAYLOAD,
            "payload": base64.b64encode(body).decode(),
            "signatures": [{"keyid": digest_of(public), "sig": base64.b64encode(key.sign(encoded(body))).decode()}],
        }
        data = json.dumps(envelope, indent=1).encode() + b"\n"
        place = f"{FOLDER}{digest_of(data)[:16]}.json"
        run.store.write(place, data)
        file = run.store.uri_of(place)
        made[:] = [Signature(**dict(signer), run=run.uri, key=digest_of(public), head=head, file=file)]
        return Happening([Signed(by=by, role=role, key=digest_of(public))], files={place: digest_of(data)})

    run.log.append(decide)
    return made[0]


def encoded(body: bytes) -> bytes:
    """Return what is signed of a payload: DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(body), body)


def unlogged_keys(run: Run) -> list[str]:
    """Return the keys of the files that the log does not name, and that later entries do not change."""
    keys = (entry.key for entry in run.store.list())
    return [key for key in keys if not (_LOGGED.fullmatch(key) or _CHANGING.fullmatch(key))]


# -- keys ----------------------------------------------------------------------------------------------------


def read_keys(files: Sequence[str]) -> dict[str, "Ed25519PublicKey"]:
    """Return public keys by their digests; raises SpecError for a file that is none."""
    return {digest_of(key.public_bytes_raw()): key for key in (_read_key(file, is_private=False) for file in files)}


def _read_key(path: str, *, is_private: bool) -> Any:
    """Read a key in PEM; raises SpecError, which says how to make one."""
    require("a signature", "cryptography")
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

    what, make = f"the public key {path}", f"write it with `openssl pkey -in KEY.pem -pubout -out {path}`"
    if is_private:
        what, make = f"the key {path}", f"make one with `openssl genpkey -algorithm ed25519 -out {path}`"
    try:
        data = Path(path).read_bytes()
        key = load_pem_private_key(data, None) if is_private else load_pem_public_key(data)
    except (OSError, ValueError, TypeError) as error:
        raise SpecError(f"{what} cannot be read ({type(error).__name__}); {make}") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey):
        raise SpecError(f"{what} is no ed25519 key; {make}")
    return key


# -- archives ------------------------------------------------------------------------------------------------

DESCRIBED, SHEET = "pack.json", "SHEET.md"

MOST_BYTES = 256 << 20
"""Features up to this size are packed unless the caller decides."""


class PackedRun(Document):
    """The file `pack.json` of an archive: what its maker says of it."""

    remedy: ClassVar[str] = "ask for the archive again"

    format: Literal["opacc-packed/1"] = "opacc-packed/1"
    run: str  # URI of the run
    name: str = Field(pattern="^[^/\\\\]+$")  # name of the run: its folder in the archive
    made_with: str  # version of opacc_ray that made the archive
    features: bool  # whether the archive has the features
    attempts: Attempts  # the runs and draws of this pool that the output knew


class EvidencePack(Document):
    """An archive with which others check a run."""

    format: Literal["opacc-pack/2"] = "opacc-pack/2"
    file: str  # URI of the archive
    sha256: str  # its digest
    files: int = Field(ge=1)  # number of files in it
    signatures: int = Field(ge=0)  # number of signatures
    packed: PackedRun  # what its file `pack.json` says


def pack(run: Run, to: str, *, features: bool | None = None) -> EvidencePack:
    """Write an archive, with features if they are small; ``features`` decides otherwise.

    Raises DataError if there is no estimate, labels came after the newest one, or a file is lost.
    """
    stated = run.read_estimate()
    if stated is None:
        raise DataError(f"{run.uri} has no estimate, so a pack would state no number; run `opacc estimate` first")
    refuse_other_labels(run, stated)
    if features is None:
        features = sum(size for *_, size in _features(run)) <= MOST_BYTES
    said = PackedRun(
        run=run.uri,
        name=run.name,
        made_with=versions()["opacc_ray"],
        features=features,
        attempts=attempts_of(run),
    )
    contents = {DESCRIBED: said.to_bytes(), SHEET: sheet()}
    for name, (store, key) in members(run, features=features).items():
        content = store.read_if_there(key)
        if content is None:
            raise DataError(f"{store.uri_of(key)} is lost; restore it from a backup")
        contents[name] = content
    data = zipped(contents)
    return EvidencePack(
        file=write_object(to, data),
        sha256=digest_of(data),
        files=len(contents),
        signatures=len(run.store.list(FOLDER)),
        packed=said,
    )


def refuse_other_labels(run: Run, stated: AccuracyEstimate) -> None:
    """Raise DataError if an estimate does not count the labels of its run."""
    with suppress(LabelConflict):
        if digest_of_labels(read_rounds(run)) == stated.labels_digest:
            return
    raise DataError(f"{run.uri} has labels that its newest estimate does not count; run `opacc estimate` first")


def members(run: Run, *, features: bool) -> dict[str, tuple[Store, str]]:
    """Return the store and key of each file of a run that belongs into its archive, by its name there."""
    places = [entry.key for place in (LOG, FOLDER) for entry in run.store.list(place)]
    logged = [key for commit in run.commits for key in commit.files]
    others = [key for key in unlogged_keys(run) if RUN_FILES.fullmatch(key)]
    found = {f"{run.name}/{key}": (run.store, key) for key in (*places, *logged, *others)}
    in_run = run.header.features is None
    for place, folder, key, _ in _features(run):
        if features or key in (INDEX, DESCRIPTION):
            home = f"{run.name}/features" if in_run else f"{HOME}/{run.feature_set.folder.uri.rpartition('/')[2]}"
            found["/".join(filter(None, (home, place, key)))] = folder, key
    return found


def _features(run: Run) -> Iterator[tuple[str, Store, str, int]]:
    """Yield each file of the features: the place of its folder in the set, its store, its key and its size."""
    slices = [folder_of(run.spec.pool, run.complete_features().features)] if run.spec.pool.slice_rules else []
    for folder in (*run.feature_set.folders, *slices):
        index, place = read_index(folder), folder.uri.removeprefix(run.features.uri).strip("/")
        sizes = {entry.key: entry.size for entry in folder.list()}
        yield from ((place, folder, key, sizes[key]) for key in (INDEX, DESCRIPTION) if key in sizes)
        if index:
            yield from ((place, folder, own.file, sizes.get(own.file, 0)) for own in index.shards)


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return an archive; equal files give equal bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name)
            info.create_system = 3  # on every system
            archive.writestr(info, files[name])
    return out.getvalue()


def sheet() -> bytes:
    """Return the page of an archive that says where a reader finds what."""
    return (files("opacc_ray.extensions.evidence") / "templates" / "sheet.md").read_bytes()
