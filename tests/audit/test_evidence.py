"""Evidence: promises before the first label, signatures that no edit survives, and numbers that others recompute."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from audited_run import CLASSES, KEYS, TRUTH, label, write_features, write_pool
from consistent_edits import EDITS, edit, make_keys
from golden_run import copy_golden_run
from tables import parquet

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.evidence import seal, sign
from opacc_ray.audit.evidence_pack import VERIFIER, pack
from opacc_ray.audit.verify import verify
from opacc_ray.cli.main import main
from opacc_ray.errors import LabelError
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with a round that nobody has labelled."""
    write_pool(str(tmp_path))
    run, _ = write_features(str(tmp_path))
    verbs.select(run, "srs", 20, {})
    return run


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
    assert accuracy.estimate(run, level=0.9).notes == []
    [note] = accuracy.estimate(run, level=0.95).notes
    assert note == "This is not what was sealed before the first label: the level is 0.95, and 0.9 was sealed."
    _, text = said(capsys, "log", run.uri)
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


def test_a_seal_after_the_first_label_is_refused(run: Run) -> None:
    label(run, run.read_selection(1).ids)
    with pytest.raises(LabelError, match="had labels since entry 2 of its log; a seal must come before the first"):
        seal(run)


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
    verbs.next_round(run, 5)  # later entries are not signed, and change nothing that is
    assert verify(run.uri, keys=[public]).sound
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
    """A run with two tracks that ann signed, her public key, and a private one of somebody else."""
    home = tmp_path_factory.mktemp("signed")
    run = Run.open(str(copy_golden_run(home)))
    (private, public), (other, _) = make_keys(home, "ann"), make_keys(home, "mallory")
    sign(run, "ann", "auditor", private)
    return Path(run.uri), public, other


@pytest.mark.parametrize("kind", EDITS)
def test_no_consistent_edit_verifies_against_a_signed_head(
    kind: str, signed: tuple[Path, str, str], tmp_path: Path
) -> None:
    """`python -m consistent_edits 2000` tries more."""
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


# -- packs -----------------------------------------------------------------------------------------------------


def check_pack(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the verifier of a pack as somebody who has no opacc."""
    with zipfile.ZipFile(file) as archive:
        archive.extractall(file.parent, VERIFIER)
    asked = [sys.executable, "-I", str(file.parent / "verify.py"), str(file), *arguments]
    return subprocess.run(asked, capture_output=True, text=True, timeout=120)


@pytest.mark.processes
def test_others_recompute_the_numbers_of_a_pack(run: Run, keys: tuple[str, str], tmp_path: Path) -> None:
    label(run, run.read_selection(1).ids)
    verbs.next_round(run, 10)
    label(run, run.read_selection(2).ids)
    accuracy.estimate(run)
    other = run.along("n")
    verbs.select(other, "neyman", 30, {})
    label(other, other.read_selection(1).ids)
    verbs.next_round(other, 20)
    label(other, other.read_selection(2).ids)
    accuracy.estimate(run)
    accuracy.estimate(other)
    sign(run, "ann", "auditor", keys[0])
    made = pack(run, str(tmp_path / "evidence.zip"))
    assert pack(run, str(tmp_path / "again.zip")).sha256 == made.sha256
    done = check_pack(tmp_path / "evidence.zip", keys[1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("numbers recomputed within") == 2
    assert f"1 signatures by {keys[1]}" in done.stdout
    assert not any("import opacc" in (tmp_path / name).read_text() for name in VERIFIER)
    asked = [sys.executable, "-I", str(tmp_path / "verify.py"), "none.zip"]
    alone = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    assert (alone.returncode, alone.stderr) == (2, "")
    assert alone.stdout.startswith("none.zip is no pack that can be read (")

    for name, old, new, problem in [
        ("numbers/n.json", '"leverage": [\n    0.', '"leverage": [\n    0.0', "recomputed"),
        ("log/00000002.json", '"number": 2', '"number": 3', "breaks the chain"),
    ]:
        with zipfile.ZipFile(tmp_path / "evidence.zip") as archive:
            files = {item: archive.read(item) for item in archive.namelist()}
        assert old.encode() in files[name]
        files[name] = files[name].replace(old.encode(), new.encode(), 1)
        with zipfile.ZipFile(tmp_path / "edited.zip", "w") as archive:
            for item, data in files.items():
                archive.writestr(item, data)
        done = check_pack(tmp_path / "edited.zip", keys[1])
        assert (done.returncode, problem in done.stdout) == (1, True), done.stdout + done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("method", ["srs", "neyman", "css", "two_ups"])
def test_numbers_of_a_grown_pool_are_recomputed(method: str, tmp_path: Path) -> None:
    """Two runs of one audit: labels of the first one are carried, if its design allows it; then another round."""
    pool = open_store(str(tmp_path / "pool"))
    for week in range(2):
        ids = [f"row-{i}" for i in range(1000 * week, 1000 * week + 200)]
        sure = np.random.default_rng(week).uniform(0.6, 1, 200)
        columns = {"id": ids, "prediction": [0] * 200, "confidence": sure}
        pool.write(f"{week}.parquet", parquet(pa.table(columns)))
        content = {
            "name": "weekly",
            "pool": {"uri": pool.uri, "format": "features", "columns": {name: name for name in columns}},
            "model": {"classes": ["right", "wrong"]},
            "sample": {"method": method, "budget": 60},
            "output": str(tmp_path / "audits"),
        }
        found = verbs.run(parse_spec(content, "spec"))
        for budget in (None, 20):
            chosen = found.read_selection(1) if budget is None else verbs.next_round(found, budget)
            rows = [f"{name},{'wrong' if int(name[4:]) % 7 == 0 else 'right'}\n" for name in dict.fromkeys(chosen.ids)]
            import_labels(found, f"{budget}.csv", f"id,label\n{''.join(rows)}".encode())
        accuracy.estimate(found)
        pack(found, str(tmp_path / "evidence.zip"))
        done = check_pack(tmp_path / "evidence.zip")
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_pack_needs_an_estimate_of_all_labels(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label(run, run.read_selection(1).ids)
    accuracy.estimate(run)
    id = run.read_selection(1).ids[0]
    wrong = next(name for name in CLASSES if name != CLASSES[TRUTH[KEYS.index(id)]])
    import_labels(run, "b.csv", f"id,label,annotator\n{id},{wrong},bo\n".encode(), conflict="latest")
    code, text = said(capsys, "evidence", "pack", run.uri, "--to", str(tmp_path / "e.zip"))
    assert (code, "has labels that its newest estimate does not count" in text) == (5, True)
