"""Seal what will be stated before the first label, and sign a run.

A signature is a DSSE envelope (https://github.com/secure-systems-lab/dsse) with an in-toto statement. Its subjects are
the newest entry of the log, which depends on all before it and on the files that they name; the features; and every
other file of the run that does not change with later entries. It is itself logged, so the log says who signed what.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from opacc_ray.audit.run_numbers import asked_of
from opacc_ray.documents import Document, Part, SealedDocument, format_field
from opacc_ray.errors import DataError, LabelError, SpecError, counted, shown
from opacc_ray.labels.label_documents import LabelAction
from opacc_ray.packages import require
from opacc_ray.runs.commit_log import FOLDER as LOG
from opacc_ray.runs.commit_log import Commit, Happening, digest_of
from opacc_ray.runs.estimate_documents import Stated
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Seal
from opacc_ray.runs.series import Attempts

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class Signer(Part):
    """Who signed a run, and how much of it."""

    by: str = Field(description="who signed it")
    role: str = Field(description="in which role")
    at: str = Field(description="time of the signature by the signer's clock: ISO 8601, UTC")
    entries: int = Field(ge=1, description="number of entries of the log that are signed")


class Predicate(Signer):
    """What a signature says besides the digests of all that it covers."""

    run: str = Field(description="digest of the run")


class Signature(Signer, Document):
    """A signature of a run."""

    format: Literal["opacc-signature/1"] = format_field("opacc-signature/1")
    run: str = Field(description="URI of the run")
    key: str = Field(description="SHA-256 of the public key")
    head: str = Field(description="digest of the newest entry of the log that is signed")
    file: str = Field(description="URI of the envelope")


class CheckedSignature(Signer):
    """A signature of a run, and how far it goes."""

    key: str = Field(description="SHA-256 of the public key")
    checked: bool = Field(description="whether its public key was given, and made it; otherwise anybody may have")


class Signed(SealedDocument):
    """The run was signed as it was after the entry before this one; the file of this entry is the envelope."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-signed/1"] = format_field("opacc-signed/1")
    by: str = Field(description="who signed it")
    role: str = Field(description="in which role")
    key: str = Field(description="SHA-256 of the public key")

    def words(self) -> str:
        return f"signed by {self.by} ({self.role})"


class SealState(Document):
    """A seal, and how the newest estimate of the run deviates from it."""

    format: Literal["opacc-sealed/1"] = format_field("opacc-sealed/1")
    run: str = Field(description="URI of the run")
    at: str = Field(description="time of the seal: ISO 8601, UTC")
    seal: Seal = Field(description="what was promised")
    deviations: list[str] = Field(description="how the newest estimate deviates, in sentences")


class PackedRun(Document):
    """The file `pack.json` of an archive: what its maker says of it."""

    remedy: ClassVar[str] = "ask for the archive again"

    format: Literal["opacc-packed/1"] = format_field("opacc-packed/1")
    run: str = Field(description="URI of the run")
    name: str = Field(pattern="^[^/\\\\]+$", description="name of the run: its folder in the archive")
    made_with: str = Field(description="version of opacc_ray that made the archive")
    features: bool = Field(description="whether the archive has the features")
    attempts: Attempts = Field(description="the runs and draws of this pool that the output knew")


class EvidencePack(Document):
    """An archive with which others check a run."""

    format: Literal["opacc-pack/2"] = format_field("opacc-pack/2")
    file: str = Field(description="URI of the archive")
    sha256: str = Field(description="its digest")
    files: int = Field(ge=1, description="number of files in it")
    signatures: int = Field(ge=0, description="number of signatures")
    packed: PackedRun = Field(description="what its file `pack.json` says")


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
    asked_of(run, [*metrics] or None, [*by] or None)
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

    run.log.append(decide)
    found = read_seal(run)
    assert found is not None
    return found


def read_seal(run: Run) -> SealState | None:
    """Return the seal of a run, and how its newest estimate deviates; None if it is not sealed."""
    sealed = run.logged(Seal)
    if not sealed:
        return None
    commit, own = sealed[0]
    stated = run.read_estimate()
    found = [] if stated is None else list(own.deviations(stated))
    return SealState(run=run.uri, at=commit.at, seal=own, deviations=found)


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
        statement = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": name, "digest": {"sha256": value}} for name, value in _subjects(run, head).items()],
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


def _subjects(run: Run, head: str) -> dict[str, str]:
    """Return the digests of all that a signature covers, by name."""
    others = unlogged_keys(run)
    files = dict(zip(others, map(digest_of, run.store.read_many(others)), strict=True))
    return {"log": head, "features": run.complete_features().digest, **files}


class Signatures(NamedTuple):
    """What the signatures of a run cover, as far as public keys show it."""

    found: list[CheckedSignature]
    faults: list[str]  # what is not as it was signed
    not_signed: list[str]  # what no checked signature covers
    newest_signed: bool | None  # whether one covers the newest estimate; None: no key, or no estimate


class _Envelope(NamedTuple):
    is_checked: bool  # whether one of the keys signed it
    key: str
    subjects: Mapping[str, str]
    predicate: Predicate


def read_keys(files: Sequence[str]) -> dict[str, "Ed25519PublicKey"]:
    """Return public keys by their digests; raises SpecError for a file that is none."""
    return {digest_of(key.public_bytes_raw()): key for key in (_read_key(file, is_private=False) for file in files)}


def check_signatures(run: Run, keys: Mapping[str, "Ed25519PublicKey"]) -> Signatures:
    """Return what the signatures of a run cover; each of the keys must have signed it as it is.

    Entries after a signature are allowed, but no signature covers an estimate among them.
    """
    faults, found = list[str](), list[_Envelope]()
    for entry in run.store.list(FOLDER):
        try:
            found.append(_opened(run.store.read(entry.key), keys))
        except DataError as error:
            faults.append(f"{run.store.uri_of(entry.key)} {error}")
    checked = [own for own in found if own.is_checked]
    faults += [
        f"no signature by the key {key[:16]} is there" for key in keys if key not in {own.key for own in checked}
    ]
    valid = list[_Envelope]()
    for own in checked:
        differences = list(_differences(run, own))
        faults += differences
        valid += [] if differences else [own]
    estimates, files = _not_signed(run, valid) if valid else ([], [])  # without a valid one, a fault says so
    asked = keys and run.logged(Stated)
    newest = bool(valid) and not estimates if asked else None
    described = [
        CheckedSignature(**own.predicate.model_dump(exclude={"run"}), key=own.key, checked=own.is_checked)
        for own in found
    ]
    return Signatures(described, faults, [*estimates, *files], newest)


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


def _differences(run: Run, own: _Envelope) -> Iterator[str]:
    """Yield what is no longer as it was signed."""
    said, commits = own.predicate, run.commits
    who = f"{said.by} ({said.role}) signed at {said.at}"
    if said.run != run.header.digest:
        yield f"what {who} is another run"
    if len(commits) < said.entries or digest_of(commits[said.entries - 1].to_bytes()) != own.subjects["log"]:
        first = counted(said.entries, "entry", "entries")
        yield f"the log is not the one that {who}: one of its first {first} was changed"
    if run.complete_features().digest != own.subjects["features"]:
        yield f"the features are not those that {who}"
    for key, digest in own.subjects.items():
        if key not in ("log", "features"):
            data = run.store.read_if_there(key)
            if data is None or digest_of(data) != digest:
                yield f"{run.store.uri_of(key)} is not the one that {who}"


def _not_signed(run: Run, valid: Sequence[_Envelope]) -> tuple[list[str], list[str]]:
    """Return the newest estimate, and files that later entries do not change, if no valid signature covers them."""
    entries = max((own.predicate.entries for own in valid), default=0)
    signed, total = {key for own in valid for key in own.subjects}, len(run.commits)
    estimates = [
        f"the newest estimate of {run.uri} (entry {commit.number} of {total}) is NOT signed"
        for commit, _ in run.logged(Stated)[-1:]
        if commit.number > entries
    ]
    return estimates, [f"{run.store.uri_of(key)} is NOT signed" for key in unlogged_keys(run) if key not in signed]


# -- keys ----------------------------------------------------------------------------------------------------


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
