"""Packs: others recompute every number, and a pack that is forged, damaged or strange is refused in one sentence."""

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from audited_run import CLASSES, KEYS, TRUTH
from consistent_edits import change_estimate, change_label, make_keys
from packed import members_of, verified_pack, write_pack
from tables import parquet

from opacc_ray.audit import accuracy, goals, verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, OpaccError
from opacc_ray.extensions.evidence.evidence import pack, sign
from opacc_ray.extensions.evidence.verify import verify_pack
from opacc_ray.extensions.outputs.outputs import remove_runs
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.lake.store_uris import open_store
from opacc_ray.report.run_report import gather
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

pytestmark = pytest.mark.slow

SIZE = 240


@pytest.fixture
def run(stated: Run) -> Run:
    return stated


def audit(
    home: Path, method: str, model: dict[str, Any], answers: Any, people: Sequence[str] = ("ann", "bo"), **more: Any
) -> Run:
    """A run over a table with slices and a judge, two rounds labelled by one of some people, in part by all."""
    rng = np.random.default_rng(3)
    truth, sure = rng.integers(0, 2, SIZE), rng.uniform(0.4, 1, SIZE)
    columns = {
        "id": [f"{i}" for i in range(SIZE)],
        "prediction": np.where(rng.random(SIZE) < sure, truth, 1 - truth),
        "confidence": sure,
        "camera": np.array(["front", "rear", "side"])[rng.choice(3, SIZE, p=[0.5, 0.45, 0.05])],
        "hidden": list(rng.normal(size=(SIZE, 4)).astype(np.float32) + sure[:, None].astype(np.float32)),
        "gpt": [(None, "?", "right", "wrong")[k] for k in rng.integers(0, 4, SIZE)],
    }
    open_store(str(home / "pool")).create("0.parquet", parquet(pa.table(columns)))
    names: dict[str, Any] = {name: name for name in ("id", "prediction", "confidence", "hidden")}
    if method == "neyman" and "classes" in model:
        names["judges"] = ["gpt"]
    if "classes" not in model:
        del names["confidence"]
    pool = {"uri": str(home / "pool"), "format": "features", "columns": names, "slices": ["camera"]}
    run = verbs.first_round(
        parse_spec(
            {
                "name": method,
                "pool": pool | more.pop("pool", {}),
                "model": model,
                "sample": {"method": method, "budget": 60},
                "output": str(home / "audits"),
                **more,
            },
            "spec",
        )
    )
    for number in (1, 2):
        chosen = run.read_selection(1) if number == 1 else verbs.next_round(run, 40)
        for person in people:
            ids = list(dict.fromkeys(chosen.ids))[: None if person == people[0] else 20]
            rows = "".join(f"{own},{answers(truth[int(own)], person)},{person}\n" for own in ids)
            import_labels(run, f"{person}{number}.csv", f"id,label,annotator\n{rows}".encode(), conflict="latest")
    return run


def of_class(truth: int, person: str) -> str:
    return ["no", "yes"][truth if person == "ann" else 1]


TWO = {"classes": ["no", "yes"]}


@pytest.mark.parametrize(("method", "sample_of"), [("neyman", "more"), ("css", {"camera": 9}), ("gbs", "more")])
def test_all_numbers_are_recomputed(method: str, sample_of: Any, tmp_path: Path) -> None:
    metrics = ["f1@yes", "macro_recall", *(["auc@yes", "calibration_error"] if method != "gbs" else [])]
    run = audit(tmp_path, method, TWO, of_class, metrics=metrics, pool={"sample_of": sample_of})
    found = accuracy.estimate(run, costs={"yes": 3.0}, by=["camera", "prediction", "truth"])
    assert found.label_noise is not None
    verified_pack(run, tmp_path)
    assert goals.next_until(run, 0.5).reached
    accuracy.estimate(run, level=0.9, metrics=["precision@no"])  # without slices, at another level, stopped
    own = verified_pack(run, tmp_path).estimate
    assert (own.level, own.earlier) == (0.9, 1)


def test_a_pack_names_what_it_is_and_who_signed_how_much(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private, public = make_keys(tmp_path, "ann")
    at, file = sign(run, "ann", "auditor", private).at, str(tmp_path / "e.zip")
    made = pack(run, file)
    assert pack(run, str(tmp_path / "again.zip")).sha256 == made.sha256
    assert main(["verify", file, "--key", public]) == 0
    assert main(["verify", f"{file}.zip"]) == 3
    text = capsys.readouterr().out
    for part in (file, made.sha256, f"ann (auditor), {at}: entries 1-3 of 4\n", "all numbers", "run 1 of 1"):
        assert part in text
    accuracy.estimate(run, level=0.9)
    pack(run, file)
    assert main(["verify", file, "--key", public, "--json"]) == 5
    said = json.loads(capsys.readouterr().out)
    assert (said["newest_estimate_signed"], said["entries"], len(said["faults"])) == (False, 5, 1)
    assert main(["verify", file, "--key", public, "--allow-later"]) == 0
    [own] = verify_pack(file).signatures
    assert not own.checked
    sign(run, "ann", "auditor", private)
    assert not pack(run, file, features=False).packed.features
    found = verify_pack(file, [public])
    assert (found.sound, found.estimate.recomputed) == (True, "the accuracy by design")


def test_a_pack_tells_of_other_attempts(tmp_path: Path) -> None:
    for seed in (1, 2):
        run = audit(tmp_path, "srs", TWO, of_class, seed=seed)
        accuracy.estimate(run)
        if seed == 1:
            remove_runs(audit(tmp_path, "css", TWO, of_class, seed=7).uri, force=True)
    found = verified_pack(run, tmp_path).attempts
    assert (found.place, [own.seed for own in found.runs], found.seeds) == (2, [1, 2], 3)
    assert [(own.method, own.seed) for own in found.removed] == [("css", 7)]
    assert found.estimates == 1
    assert found.runs[0].stated is not None
    verbs.next_round(run, 5)
    report, _ = gather(run)
    [text] = [check.text for check in report.checks if check.name == "sampling"]
    assert "Run 2 of 2 of this pool by time (3 seeds, 1 more removed); in this run 1 estimate" in text


# -- what a stranger may send ----------------------------------------------------------------------------------


def test_consistent_forgeries_are_named_without_a_key(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for change, reason in ((change_estimate, "recomputed"), (change_label, "labels")):
        pack(run, str(tmp_path / "e.zip"))
        home = tmp_path / change.__name__
        for name, data in members_of(tmp_path / "e.zip").items():
            open_store(str(home)).write(name, data)
        forged = home / run.name
        change(forged, rng, "")
        kept = {entry.key: open_store(str(home)).read(entry.key) for entry in open_store(str(home)).list()}
        kept = {name: data for name, data in kept.items() if not name.endswith("/estimate.json")}
        found = verify_pack(write_pack(tmp_path / "f.zip", kept))
        assert any(reason in fault.problem for fault in found.faults), found.faults


def test_members_that_a_run_does_not_have_are_named(run: Run, tmp_path: Path) -> None:
    pack(run, str(tmp_path / "e.zip"))
    whole = members_of(tmp_path / "e.zip")
    for name in ("verify.py", f"{run.name}/log.sh", f"{run.name}/estimates/0.json", "features/0/x.parquet"):
        [fault] = verify_pack(write_pack(tmp_path / "f.zip", whole | {name: b"1"})).faults
        assert fault.problem.startswith(f"{name} is no file of the run")
    [fault] = verify_pack(write_pack(tmp_path / "f.zip", whole | {"SHEET.md": b"99 %"})).faults
    assert fault.file == "SHEET.md"
    older = json.dumps(json.loads(whole["pack.json"]) | {"made_with": "0.0.1"}).encode()
    [fault] = verify_pack(write_pack(tmp_path / "f.zip", whole | {"pack.json": older, "SHEET.md": b"99 %"})).faults
    assert "made with opacc 0.0.1" in fault.problem
    for name in ("/etc/x", "../x", "a/../../x", "a//b", "a\\b", "c:/x", "a/"):
        with pytest.raises(DataError, match="no file below a folder"):
            verify_pack(write_pack(tmp_path / "f.zip", whole | {name: b"1"}))


def test_doubled_compressed_and_hidden_members_are_refused(run: Run, tmp_path: Path) -> None:
    pack(run, str(tmp_path / "e.zip"))
    whole, data = members_of(tmp_path / "e.zip"), (tmp_path / "e.zip").read_bytes()
    [name] = [name for name in whole if "/estimates/" in name]

    def refused(content: bytes) -> str:
        (tmp_path / "f.zip").write_bytes(content)
        with pytest.raises(DataError) as caught:
            verify_pack(str(tmp_path / "f.zip"))
        return str(caught.value)

    out = io.BytesIO(data)
    with zipfile.ZipFile(out, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(name, b"{}")
    assert "members twice" in refused(out.getvalue())
    out = io.BytesIO(data)
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", b"0" * 1_000_000)
    assert "members that expand" in refused(out.getvalue())
    for strange in (b"#!/bin/sh\n" + data, data + b"more", data[:-2] + b"\x01\0x"):
        assert "f.zip" in refused(strange)


def test_a_damaged_pack_is_one_sentence_or_a_fault(run: Run, tmp_path: Path) -> None:
    pack(run, str(tmp_path / "e.zip"))
    data, rng = (tmp_path / "e.zip").read_bytes(), np.random.default_rng(0)
    whole = members_of(tmp_path / "e.zip")
    for number in range(45):
        if number % 3 == 0:
            place = int(rng.integers(len(data)))
            content = data[:place] + bytes([data[place] ^ 1 << int(rng.integers(8))]) + data[place + 1 :]
        elif number % 3 == 1:
            content = data[: int(rng.integers(len(data)))]
        else:  # a sound archive with a member that is lost, cut or other bytes
            name = str(rng.choice(sorted(whole)))
            cut = [None, whole[name][: len(whole[name]) // 2], rng.bytes(50), b"{}", b"[" * 50_000][rng.integers(5)]
            members = {key: own for key, own in (whole | {name: cut}).items() if own is not None}
            content = Path(write_pack(tmp_path / "f.zip", members)).read_bytes()
        (tmp_path / "f.zip").write_bytes(content)
        said = outcome(str(tmp_path / "f.zip"))
        assert said
        assert not any("\n" in text for text in said)


def outcome(file: str) -> list[str]:
    """Return the faults of a pack, or the sentence with which it is refused."""
    try:
        return [fault.problem for fault in verify_pack(file).faults]
    except OpaccError as error:
        return [str(error)] if file in str(error) else []


def test_nothing_outside_a_pack_is_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(run, str(tmp_path / "e.zip"))
    opened = list[str]()
    monkeypatch.setattr(run_module, "open_pool", lambda pool: opened.append(pool.uri) or open_store(pool.uri))
    assert verify_pack(str(tmp_path / "e.zip")).sound
    assert opened
    assert not any(run.uri.rpartition("/")[0] in uri for uri in opened)


def test_a_pack_needs_an_estimate_of_all_labels(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    id = run.read_selection(1).ids[0]
    wrong = next(name for name in CLASSES if name != CLASSES[TRUTH[KEYS.index(id)]])
    import_labels(run, "b.csv", f"id,label,annotator\n{id},{wrong},bo\n".encode(), conflict="latest")
    assert main(["evidence", "pack", run.uri, "--to", str(tmp_path / "e.zip")]) == 5
    assert "has labels that its newest estimate does not count" in capsys.readouterr().err
