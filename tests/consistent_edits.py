"""Edits of a run by somebody who may write all of its prefix, and who makes every digest and seal fit again.

Or who goes on after the signature, by opacc's own commands. None may verify with the key.
"""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from opacc_ray.audit import accuracy, verbs
from opacc_ray.documents import sealed
from opacc_ray.extensions.evidence.evidence import sign
from opacc_ray.labels.label_actions import correct, import_labels
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import digest_of

Json = dict[str, Any]


def make_keys(home: Path, name: str) -> tuple[str, str]:
    """Write a pair of ed25519 keys; returns the places of the private and the public one."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, pem = Ed25519PrivateKey.generate(), form.Encoding.PEM
    private, public = home / f"{name}.pem", home / f"{name}.pub.pem"
    private.write_bytes(key.private_bytes(pem, form.PrivateFormat.PKCS8, form.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(pem, form.PublicFormat.SubjectPublicKeyInfo))
    return str(private), str(public)


def dump(content: Json) -> bytes:
    return json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"


def read_log(run: Path) -> list[Json]:
    return [json.loads(path.read_bytes()) for path in sorted((run / "log").iterdir())]


def write_log(run: Path, entries: list[Json]) -> None:
    """Write entries with the numbers, digests and seals that make them a log."""
    shutil.rmtree(run / "log")
    (run / "log").mkdir()
    last = None
    for number, entry in enumerate(entries, start=1):
        content = [sealed({key: part[key] for key in part if key != "sha256"}) if "sha256" in part else part
                   for part in entry["content"]]  # fmt: skip
        body = {key: value for key, value in entry.items() if key != "sha256"}
        data = dump(sealed(body | {"number": number, "previous": last, "content": content}))
        (run / f"log/{number:08d}.json").write_bytes(data)
        last = digest_of(data)


def change_label(run: Path, rng: np.random.Generator, other: str) -> None:
    """Give an example another label, under a new name of the file, in the log as well."""
    entries = read_log(run)
    found = [(entry, key) for entry in entries for key in entry["files"] if "/labels/" in key]
    entry, key = found[rng.integers(len(found))]
    lines = (run / key).read_text().splitlines()
    place = int(rng.integers(1, len(lines)))
    words = lines[place].rsplit(",", 1)
    lines[place] = f"{words[0]},{lines[int(rng.integers(1, len(lines)))].rsplit(',', 1)[1]}"
    if lines == (run / key).read_text().splitlines():
        lines = lines[:place] + lines[place + 1 :]
    data = "\n".join(lines).encode() + b"\n"
    name = f"{digest_of(data)[:16]}{Path(key).suffix}"
    new = f"{key.rpartition('/')[0]}/{name}"
    (run / key).unlink()
    (run / new).write_bytes(data)
    entry["files"] = {new: digest_of(data)}
    for part in entry["content"]:
        part["file"] = name
    write_log(run, entries)


def drop_entries(run: Path, rng: np.random.Generator, other: str) -> None:
    """Roll the log back."""
    entries = read_log(run)
    write_log(run, entries[: int(rng.integers(1, len(entries) - 1))])
    for path in run.rglob("estimate.json"):
        path.unlink()


def drop_one(run: Path, rng: np.random.Generator, other: str) -> None:
    """Leave out one entry."""
    entries = read_log(run)
    entries.pop(int(rng.integers(1, len(entries) - 1)))
    write_log(run, entries)


def forge_entry(run: Path, rng: np.random.Generator, other: str) -> None:
    """Put a correction or rule into the past."""
    entries = read_log(run)
    place = int(rng.integers(1, len(entries) - 1))
    action = {"format": "opacc-label-action/1", "action": "rule", "at": entries[place]["at"], "conflict": "latest"}
    entries.insert(place, {**entries[place], "files": {}, "content": [action]})
    write_log(run, entries)


def change_estimate(run: Path, rng: np.random.Generator, other: str) -> None:
    """State another number."""
    entries = read_log(run)
    found = [(entry, key) for entry in entries for key in entry["files"] if "estimates/" in key]
    entry, key = found[rng.integers(len(found))]
    folder = run / key.rpartition("estimates/")[0]
    source = run / key if (run / key).exists() else folder / "estimate.json"
    content = json.loads(source.read_bytes())
    content["value"] = float(rng.uniform(content["low"], content["high"]))
    data = dump(sealed({name: value for name, value in content.items() if name != "sha256"}))
    new = f"{key.rpartition('/')[0]}/{digest_of(data)[:16]}.json"
    (run / new).parent.mkdir(exist_ok=True)
    (run / new).write_bytes(data)
    (folder / "estimate.json").write_bytes(data)
    entry["files"] = {new: digest_of(data)}
    write_log(run, entries)


def change_header(run: Path, rng: np.random.Generator, other: str) -> None:
    """Change what the spec says."""
    content = json.loads((run / "spec.json").read_bytes())
    content["spec"]["seed"] = int(rng.integers(1000))
    content["created"] = f"2020-01-{int(rng.integers(1, 28)):02d}T00:00:00+00:00"
    (run / "spec.json").write_bytes(dump(sealed({key: content[key] for key in content if key != "sha256"})))


def change_time(run: Path, rng: np.random.Generator, other: str) -> None:
    """Move everything to another day."""
    entries = read_log(run)
    for entry in entries:
        entry["at"] = f"2020-01-{int(rng.integers(1, 28)):02d}{entry['at'][10:]}"
    write_log(run, entries)


def sign_as_another(run: Path, rng: np.random.Generator, other: str) -> None:
    """Change a number, and sign it with another key, in the name of the first one."""
    change_estimate(run, rng, other)
    shutil.rmtree(run / "signatures")
    entries = [entry for entry in read_log(run) if not any("signed" in part["format"] for part in entry["content"])]
    write_log(run, entries)
    sign(Run.open(str(run)), "ann", "auditor", other)
    [file] = (run / "signatures").iterdir()
    envelope = json.loads(file.read_bytes())
    envelope["signatures"][0]["keyid"] = digest_of(rng.bytes(32))
    file.write_bytes(json.dumps(envelope).encode())


def rewrite_statement(run: Path, rng: np.random.Generator, other: str) -> None:
    """Change a number, and what the signature says of the log, under the old signature."""
    change_estimate(run, rng, other)
    [file] = (run / "signatures").iterdir()
    envelope = json.loads(file.read_bytes())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    entries = statement["predicate"]["entries"]
    statement["subject"][0]["digest"]["sha256"] = digest_of((run / f"log/{entries:08d}.json").read_bytes())
    envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    file.write_bytes(json.dumps(envelope).encode())


# -- after the signature, without a key ------------------------------------------------------------------------


def relabel(run: Run, rng: np.random.Generator, round: int | None = None) -> None:
    """Say of each example of a round what the model said, or of some another class."""
    chosen = run.read_chosen(round or run.rounds()[0])
    classes, flips = run.spec.model.classes or [], rng.random(len(chosen.ids)) < rng.choice([0, 0.3])
    said = [classes[(int(own) + flip) % len(classes)] for own, flip in zip(chosen.predictions, flips, strict=True)]
    rows = "".join(f"{id},{label}\n" for id, label in zip(chosen.ids, said, strict=True))
    import_labels(run, "later.csv", f"id,label\n{rows}".encode(), conflict="latest")


def label_later(run: Path, rng: np.random.Generator, other: str) -> None:
    """Import other labels, and estimate."""
    opened = Run.open(str(run))
    relabel(opened, rng)
    accuracy.estimate(opened, partial=True)


def correct_later(run: Path, rng: np.random.Generator, other: str) -> None:
    """Correct a label, and estimate."""
    opened = Run.open(str(run))
    id = str(rng.choice(opened.read_selection(1).ids))
    correct(opened, id, str(rng.choice(opened.spec.model.classes or [])), "ann")
    accuracy.estimate(opened, partial=True)


def draw_later(run: Path, rng: np.random.Generator, other: str) -> None:
    """Draw another round, label it and estimate."""
    opened = Run.open(str(run))
    relabel(opened, rng, verbs.next_round(opened, int(rng.integers(5, 15)), close=True).round)
    accuracy.estimate(opened, partial=True)


def state_later(run: Path, rng: np.random.Generator, other: str) -> None:
    """State other numbers of the same labels."""
    accuracy.estimate(Run.open(str(run)), partial=True, level=float(rng.uniform(0.5, 0.94)))


def report_later(run: Path, rng: np.random.Generator, other: str) -> None:
    """Add a page that states what it likes."""
    place = Path(Run.open(str(run)).results().uri)
    (place / str(rng.choice(["report.html", "report.md"]))).write_bytes(rng.bytes(8))


_KINDS: dict[str, Callable[[Path, np.random.Generator, str], None]] = {
    own.__name__: own
    for own in (
        *(change_label, drop_entries, drop_one, forge_entry, change_estimate),
        *(change_header, change_time, sign_as_another, rewrite_statement),
        *(label_later, correct_later, draw_later, state_later, report_later),
    )
}
EDITS = list(_KINDS)


def edit(run: Path, kind: str, rng: np.random.Generator, other: str) -> None:
    """Edit a run; ``other`` is a private key that nobody trusts."""
    _KINDS[kind](run, rng, other)
