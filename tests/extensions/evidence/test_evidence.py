"""Evidence: promises before the first label, and signatures that no edit survives and no later work extends."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from audited_run import CLASSES, label
from consistent_edits import EDITS, edit, make_keys
from golden_run import copy_golden_run

from opacc_ray.audit import accuracy, verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import LabelError
from opacc_ray.extensions.evidence.evidence import seal, sign
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.runs.run import Run


@pytest.fixture
def run(drawn: Run) -> Run:
    return drawn


@pytest.fixture
def keys(tmp_path: Path) -> tuple[str, str]:
    return make_keys(tmp_path, "ann")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out + err


def test_what_is_stated_is_compared_with_what_was_sealed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "evidence", "seal", run.uri, "--level", "0.9", "--as", "ann")[0] == 0
    code, text = said(capsys, "evidence", "seal", run.uri)
    assert (code, "is sealed already, by entry 2" in text) == (6, True)
    label(run, run.read_selection(1).ids)
    with pytest.raises(LabelError, match="had labels since entry 3 of its log; a seal must come before the first"):
        seal(run)
    assert accuracy.estimate(run, level=0.9).notes == []
    [note] = accuracy.estimate(run, level=0.95).notes
    assert note == "This is not what was sealed before the first label: the level is 0.95, and 0.9 was sealed."
    _, text = said(capsys, "status", "--log", run.uri)
    assert "sealed: accuracy at level 0.9" in text
    _, more = said(capsys, "estimate", run.uri, "--level", "0.9", "--metric", "macro_f1")
    assert "metric macro_f1 is stated and was not sealed" in more


def test_a_sealed_goal_is_no_deviation_of_goals_before_a_round_could_be_drawn_towards_it(run: Run) -> None:
    seal(run, half_width=0.05)
    label(run, run.read_selection(1).ids)
    [note] = accuracy.estimate(run).notes
    assert note.endswith("first label: no round was drawn towards ±0.05 yet, which `opacc next --until` does.")
    verbs.next_round(run, 5)
    label(run, run.read_selection(2).ids, "two.csv")
    [note] = accuracy.estimate(run).notes
    assert note.endswith("the goal is none, and ±0.05 was sealed.")


def test_a_signature_holds_until_something_is_changed(
    run: Run, keys: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label(run, run.read_selection(1).ids)
    accuracy.estimate(run)
    private, public = keys
    code, text = said(capsys, "verify", run.uri, "--key", public)
    assert (code, "no signature by the key" in text) == (5, True)
    made = sign(run, "ann", "auditor", private)
    assert (made.entries, verify(run.uri, keys=[public]).sound) == (3, True)
    assert "signed by ann (auditor)" in said(capsys, "status", "--log", run.uri)[1]
    code, text = said(capsys, "verify", run.uri)
    assert (code, "not checked" in text, "signed by" in text) == (0, True, False)
    [own] = verify(run.uri).signatures
    assert (own.checked, verify(run.uri).newest_estimate_signed) == (False, None)
    verbs.next_round(run, 5)  # later entries are not signed, and change nothing that is
    found = verify(run.uri, keys=[public])
    assert (found.sound, found.newest_estimate_signed) == (True, True)
    _, other = make_keys(tmp_path, "mallory")
    assert [fault.problem.partition(": ")[2][:23] for fault in verify(run.uri, keys=[other]).faults] == [
        "no signature by the key"
    ]
    header = json.loads(run.store.read("spec.json"))
    run.store.write("spec.json", json.dumps(header).encode())  # the same content in other bytes
    [fault] = verify(run.uri, keys=[public]).faults
    assert "spec.json is not the one that ann (auditor) signed at" in fault.problem


@pytest.mark.parametrize("wrong", ["nothing", "rsa"])
def test_a_key_that_cannot_be_used_says_how_to_make_one(
    run: Run, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.pem"
    if wrong == "rsa":
        file.write_bytes(make_rsa())
    arguments = ["--as", "ann", "--role", "auditor", "--key", str(file)]
    code, text = said(capsys, "evidence", "sign", run.uri, *arguments)
    assert (code, f"openssl genpkey -algorithm ed25519 -out {file}" in text) == (2, True)


def make_rsa() -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


# -- what the whole prefix can be made to say ------------------------------------------------------------------


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run that ann signed, her public key, and a private one of somebody else."""
    home = tmp_path_factory.mktemp("signed")
    run = Run.open(str(copy_golden_run(home)))
    (private, public), (other, _) = make_keys(home, "ann"), make_keys(home, "mallory")
    sign(run, "ann", "auditor", private)
    return Path(run.uri), public, other


@pytest.mark.parametrize("kind", EDITS)
def test_no_consistent_edit_verifies_against_a_signed_head(
    kind: str, signed: tuple[Path, str, str], tmp_path: Path
) -> None:
    whole, public, other = signed
    rng = np.random.default_rng(EDITS.index(kind))
    for number in range(2):
        place = tmp_path / str(number) / whole.name
        shutil.copytree(whole, place)
        edit(place, kind, rng, other)
        found = verify(str(place), keys=[public])
        assert not found.sound
        own = {fault.problem for fault in verify(str(place)).faults}
        assert {fault.problem for fault in found.faults} - own  # the key finds what nothing else may


def test_a_later_estimate_or_page_is_not_signed(
    run: Run, keys: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    label(run, run.read_selection(1).ids)
    stated = accuracy.estimate(run)
    at = sign(run, "ann", "auditor", keys[0]).at
    chosen = run.read_chosen(1)
    rows = "".join(f"{id},{CLASSES[own]}\n" for id, own in zip(chosen.ids, chosen.predictions, strict=True))
    import_labels(run, "forged.csv", f"id,label\n{rows}".encode(), conflict="latest")
    code, text = said(capsys, "verify", run.uri, "--key", keys[1])
    assert (code, f"ann (auditor), {at}: entries 1-3 of 5\n" in text) == (0, True)
    assert accuracy.estimate(run).value == 1 > stated.value
    code, text = said(capsys, "verify", run.uri, "--key", keys[1])
    assert (code, f"ann (auditor), {at}: entries 1-3 of 6; the newest estimate is NOT signed" in text) == (5, True)
    assert "(entry 6 of 6) is NOT signed; sign the run again" in text
    code, text = said(capsys, "verify", run.uri, "--key", keys[1], "--allow-later")
    assert (code, "the newest estimate is NOT signed" in text) == (0, True)
    code, text = said(capsys, "verify", run.uri, "--key", keys[1], "--json")
    found = json.loads(text.splitlines()[0])
    assert (code, found["sound"], found["newest_estimate_signed"], found["entries"]) == (5, False, False, 6)
    assert [(own["by"], own["entries"], own["checked"]) for own in found["signatures"]] == [("ann", 3, True)]
    sign(run, "ann", "auditor", keys[0])
    assert verify(run.uri, keys=[keys[1]]).sound
    run.store.write("report.html", b"99 %")
    [fault] = verify(run.uri, keys=[keys[1]]).faults
    assert "report.html is NOT signed" in fault.problem
    assert verify(run.uri, keys=[keys[1]], allow_later=True).sound
