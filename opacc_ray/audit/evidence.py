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
from typing import TYPE_CHECKING, Any, NamedTuple

from opacc_ray.audit.evidence_documents import SealState, Signature, Signed
from opacc_ray.audit.run_numbers import asked_of
from opacc_ray.errors import DataError, LabelError, SpecError, counted
from opacc_ray.labels.label_documents import LabelAction
from opacc_ray.runs.commit_log import FOLDER as LOG
from opacc_ray.runs.commit_log import Commit, Happening, digest_of
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Seal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FOLDER, PAYLOAD, PREDICATE = "signatures/", "application/vnd.in-toto+json", "urn:opacc:evidence:1"

_LOGGED = re.compile(rf"(?:{LOG}|{FOLDER}|features/|reference/|(?:tracks/[^/]+/)?(?:rounds|estimates)/).*", re.DOTALL)
"""Keys of files that the log names, of the log itself, and of features, whose digest is signed."""

_CHANGING = re.compile(r"(?:tracks/[^/]+/)?(?:estimate\.json|failure\.json|derived/.*)", re.DOTALL)
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
    """Log what will be stated of a track.

    Raises LabelError if the run has a label or the track an estimate, or the track is sealed; SpecError for a metric or
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
            raise LabelError(f"{now.title} had labels since entry {late} of its log; a seal must come before the first")
        if now.logged(Seal):
            raise LabelError(f"{now.title} is sealed already, by entry {now.logged(Seal)[0][0].number} of its log")
        return Happening([own], run.track)

    run.log.append(decide)
    found = read_seal(run)
    assert found is not None
    return found


def read_seal(run: Run) -> SealState | None:
    """Return the seal of a track, and how its newest estimate deviates; None if it is not sealed."""
    sealed = run.logged(Seal)
    if not sealed:
        return None
    commit, own = sealed[0]
    stated = run.read_estimate()
    found = [] if stated is None else list(own.deviations(stated))
    return SealState(run=run.uri, track=run.track, at=commit.at, seal=own, deviations=found)


# -- signatures ----------------------------------------------------------------------------------------------


def sign(run: Run, by: str, role: str, key_file: str) -> Signature:
    """Sign a run as it is, with an ed25519 key in PEM; raises SpecError if the key cannot be used."""
    key, made = _private_key(key_file), list[Signature]()
    public = key.public_key().public_bytes_raw()

    def decide(commits: tuple[Commit, ...]) -> Happening:
        if not commits:
            raise DataError(f"{run.uri} has no entry in its log yet; draw a round first")
        head, at = digest_of(commits[-1].to_bytes()), datetime.now(UTC).isoformat(timespec="seconds")
        statement = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": name, "digest": {"sha256": value}} for name, value in _subjects(run, head).items()],
            "predicateType": PREDICATE,
            "predicate": {"run": run.header.digest, "entries": len(commits), "by": by, "role": role, "at": at},
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
        made[:] = [
            Signature(
                run=run.uri,
                by=by,
                role=role,
                at=at,
                key=digest_of(public),
                head=head,
                entries=len(commits),
                file=run.store.uri_of(place),
            )
        ]
        return Happening([Signed(by=by, role=role, key=digest_of(public))], files={place: digest_of(data)})

    run.log.append(decide)
    return made[0]


def encoded(body: bytes) -> bytes:
    """Return what is signed of a payload: DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(body), body)


def _subjects(run: Run, head: str) -> dict[str, str]:
    """Return the digests of all that a signature covers, by name."""
    others = [
        entry.key for entry in run.store.list() if not (_LOGGED.fullmatch(entry.key) or _CHANGING.fullmatch(entry.key))
    ]
    files = dict(zip(others, map(digest_of, run.store.read_many(others)), strict=True))
    return {"log": head, "features": run.complete_features().digest, **files}


class _Envelope(NamedTuple):
    """A signature whose key holds."""

    key: str
    subjects: Mapping[str, str]
    predicate: Mapping[str, Any]


def check_signatures(run: Run, key_files: Sequence[str]) -> list[str]:
    """Return what is wrong with the signatures of a run by some public keys; nothing if each key signed it as it is.

    Later entries than the signed ones may be there: `opacc log` lists them.
    """
    keys = {digest_of(key.public_bytes_raw()): key for key in map(_public_key, key_files)}
    found = [own for entry in run.store.list(FOLDER) if (own := _opened(run.store.read(entry.key), keys))]
    wrong = [f"no signature by the key {key[:16]} is there" for key in keys if key not in {own.key for own in found}]
    return [*wrong, *(text for own in found for text in _differences(run, own))]


def _opened(data: bytes, keys: Mapping[str, "Ed25519PublicKey"]) -> _Envelope | None:
    """Return the statement of an envelope that one of the keys signed; None if none did."""
    from cryptography.exceptions import InvalidSignature

    try:
        envelope = json.loads(data)
        body = base64.b64decode(envelope["payload"])
        for item in envelope["signatures"]:
            if item["keyid"] in keys and envelope["payloadType"] == PAYLOAD:
                keys[item["keyid"]].verify(base64.b64decode(item["sig"]), encoded(body))
                statement = json.loads(body)
                subjects = {own["name"]: own["digest"]["sha256"] for own in statement["subject"]}
                return _Envelope(item["keyid"], subjects, statement["predicate"])
    except (InvalidSignature, ValueError, KeyError, TypeError):
        pass
    return None


def _differences(run: Run, own: _Envelope) -> Iterator[str]:
    who = f"{own.predicate['by']} ({own.predicate['role']}) signed at {own.predicate['at']}"
    entries, commits = own.predicate["entries"], run.commits
    if own.predicate["run"] != run.header.digest:
        yield f"what {who} is another run"
    if len(commits) < entries or digest_of(commits[entries - 1].to_bytes()) != own.subjects["log"]:
        yield f"the log is not the one that {who}: one of its first {counted(entries, 'entry', 'entries')} was changed"
    if run.complete_features().digest != own.subjects["features"]:
        yield f"the features are not those that {who}"
    for key, digest in own.subjects.items():
        if key not in ("log", "features"):
            data = run.store.read_if_there(key)
            if data is None or digest_of(data) != digest:
                yield f"{run.store.uri_of(key)} is not the one that {who}"


# -- keys ----------------------------------------------------------------------------------------------------


def _refuse_without_cryptography() -> None:
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
    except ImportError:
        raise SpecError("signatures need cryptography: pip install 'opacc_ray[evidence]'") from None


def _private_key(path: str) -> "Ed25519PrivateKey":
    _refuse_without_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    make = f"make one with `openssl genpkey -algorithm ed25519 -out {path}`"
    try:
        found = load_pem_private_key(Path(path).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise SpecError(f"the key {path} cannot be read ({type(error).__name__}); {make}") from None
    if not isinstance(found, Ed25519PrivateKey):
        raise SpecError(f"the key {path} is no ed25519 key; {make}")
    return found


def _public_key(path: str) -> "Ed25519PublicKey":
    _refuse_without_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    make = f"write it with `openssl pkey -in KEY.pem -pubout -out {path}`"
    try:
        found = load_pem_public_key(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise SpecError(f"the public key {path} cannot be read ({type(error).__name__}); {make}") from None
    if not isinstance(found, Ed25519PublicKey):
        raise SpecError(f"the public key {path} is no ed25519 key; {make}")
    return found
