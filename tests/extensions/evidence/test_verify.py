"""What is wrong with a run is named, and what can be made again is."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import audited_run
import numpy as np
import pytest
import stored_run
from audited_run import CLASSES, KEYS, PREDICTION, TRUTH, label, write_features
from audited_run import extract_by_hand as extract
from logged import log_labels
from restored import Restored

from opacc_ray.audit import accuracy, extraction_stages, goals, verbs
from opacc_ray.audit.extraction_stages import index_features, unfinished
from opacc_ray.audit.status import run_log, status
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, OpaccError
from opacc_ray.extensions.evidence.verify import Verification, verify
from opacc_ray.extract.feature_set import read_index
from opacc_ray.extract.inference import decided_by_output
from opacc_ray.extract.shards import FeatureShard, Machine, encode_shard
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Happening


@pytest.fixture
def run(prepared: Restored, home: Path) -> Run:
    """A run with two rounds, labels and an estimate."""
    return Run.open(str(prepared.restore("two rounds") / "audit"))


def problems(run: Run) -> list[str]:
    return [fault.problem for fault in verify(run.uri).faults]


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


# -- verify ----------------------------------------------------------------------------------------------


def test_sound_run_is_sound(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["verify", run.uri, "--json"]) == 0
    found = Verification.from_dict(json.loads(capsys.readouterr().out), "stdout")
    assert (found.sound, found.faults) == (True, [])
    assert found.checked > 15
    assert main(["verify", run.uri]) == 0
    assert "sound     nothing is wrong" in capsys.readouterr().out


def test_an_entry_of_a_kind_that_nothing_here_knows_is_kept_and_shown_by_its_name(run: Run) -> None:
    run.log.append(lambda commits: Happening([{"format": "acme-approved/1", "by": "ann"}]))
    again = Run.open(run.uri)
    assert run_log(again).entries[-1].what == "acme-approved/1"
    assert verify(run.uri).sound


def replaced(old: bytes, new: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes().replace(old, new))


SHARD, LAST = "features/part-000001.parquet", "features/part-000002.parquet"
DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "header": ("spec.json", replaced(b'"srs"', b'"css"')),
    "index": ("features/index.json", replaced(b".parquet", b".parquex")),
    "lost index": ("features/index.json", Path.unlink),
    "page": (SHARD, lambda path: flip(path, 300)),
    "footer": (SHARD, lambda path: flip(path, path.stat().st_size - 30)),
    "empty": (LAST, lambda path: path.write_bytes(b"")),
    "lost shard": (LAST, Path.unlink),
    "foreign shard": (LAST, lambda path: shutil.copy(path.with_name("part-000000.parquet"), path)),
    "listing": ("listing.parquet", lambda path: flip(path, 200)),
    "selection": ("rounds/2/*/selection.json", replaced(b" 90", b" 91")),
    "predictions": ("rounds/1/*/predictions.parquet", lambda path: flip(path, 100)),
    "lost predictions": ("rounds/1/*/predictions.parquet", Path.unlink),
    "log": ("log/00000002.json", lambda path: flip(path, 100)),
    "lost entry": ("log/00000002.json", Path.unlink),
    "estimate": ("estimate.json", replaced(b'"value": 0.', b'"value": 0.1')),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(kind: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    file, damage = DAMAGE[kind]
    [path] = Path(run.uri).glob(file)
    damage(path)
    found = problems(run)
    assert any(str(path) in text for text in found), found
    assert not [text for text in found if "\n" in text]
    capsys.readouterr()
    assert main(["verify", run.uri]) == 5
    assert f"faults    {len(found)}" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "wrong"), [("prediction", lambda own: (own + 1) % 3), ("confidence", np.square)])
def test_shard_whose_predictions_do_not_follow_from_its_output_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[[Any], Any]
) -> None:
    shards = iter(range(3))

    def decided(output: Any, model: Any) -> dict[str, Any]:
        own = decided_by_output(output, model)
        return own | {name: wrong(own[name])} if next(shards) == 1 else own

    monkeypatch.setattr(stored_run, "decided_by_output", decided)
    run, stage = write_features(str(home))
    [problem] = problems(run)
    assert f"{SHARD}: the {name} of 30 of its 30 examples is not that of their stored output" in problem
    assert [shard.name for shard in unfinished(stage.job, stage.plan).missing] == ["part-000001"]


def test_shards_of_an_interrupted_run_are_of_one_opacc(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, stage = write_features(str(home), extract=False)
    before = Machine(processor="a chip", capability="AVX2", torch="2.9", opacc="0.1.9 (code 1a)")
    for shard, machine in zip(stage.plan.shards, (None, before, None), strict=True):
        features = FeatureShard(list(shard.keys), None, {"prediction": np.zeros(len(shard.keys), int)}, [], False)
        run.features.write(shard.file, encode_shard(features, machine))
    assert [shard.name for shard in unfinished(stage.job, stage.plan).missing] == ["part-000001"]
    assert "was made by opacc 0.1.9 (code 1a), and this is" in caplog.text


def test_filled_in_manifests_and_answers_that_the_rule_of_the_run_settles_are_sound(run: Run) -> None:
    run.folder(1).write("manifest.csv", b"id,label\n")
    run.folder(2).delete("manifest.csv")
    [id, *_] = run.read_selection(1).ids
    other = CLASSES[(TRUTH[KEYS.index(id)] + 1) % 3]  # by majority a tie
    import_labels(run, "more.csv", f"id,label,annotator\n{id},{other},bob\n".encode(), conflict="latest")
    accuracy.estimate(run)
    assert problems(run) == []


def test_answers_in_conflict_wait_for_people_and_are_no_fault(run: Run) -> None:
    [id, *_] = run.read_selection(1).ids
    rows = f"{id},dog,bob\n{id},owl,eve\n"
    log_labels(run, "raced.csv", f"id,label,annotator\n{rows}".encode())  # as two imports at once leave them
    assert "in conflict" in status(run).waits_for
    assert problems(run) == []


def test_features_of_another_model_are_refused(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audited_run, "PREDICTION", (PREDICTION + (np.arange(90) % 4 == 0)) % 3)
    other, _ = write_features(str(home), "other")
    before = {entry.key: run.features.read(entry.key) for entry in run.features.list()}
    shutil.copytree(other.features.uri, run.features.uri, dirs_exist_ok=True)
    said = "with the prediction .* where its features have .*; restore the round, or the features"
    for command in (
        accuracy.estimate,
        lambda run: verbs.next_round(run, 5),
        lambda run: goals.look_for_goal(run, 0.1),
    ):
        with pytest.raises(DataError, match=said):
            command(Run.open(run.uri))
    assert any("where its features have" in text for text in problems(run))
    run.features.write_many(before.items())
    assert accuracy.estimate(Run.open(run.uri)).n == 30


def test_features_that_were_made_again_on_another_machine_are_taken(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stated = accuracy.estimate(run)
    for entry in run.features.list():
        run.features.delete(entry.key)
    monkeypatch.setattr(audited_run, "CONFIDENCE", audited_run.CONFIDENCE + 1e-7)
    write_features(str(home))
    assert accuracy.estimate(Run.open(run.uri)).value == stated.value
    assert "were extracted again after round 2 was drawn from them" in caplog.text
    assert verbs.next_round(Run.open(run.uri), 5).round == 3


# -- made again ------------------------------------------------------------------------------------------


def complete(home: Path) -> list[str]:
    """What `opacc run` does of extraction; returns the shards that it extracts."""
    _, stage = write_features(str(home), extract=False)
    missing = unfinished(stage.job, stage.plan).missing
    for shard in missing:
        extract(stage.job, shard)
    extraction_stages._complete(stage, {})
    return [shard.name for shard in missing]


@pytest.mark.parametrize("kind", ["page", "footer", "empty", "lost shard", "foreign shard", "index", "lost index"])
def test_damaged_shards_are_refused_where_they_are_read_and_extracted_again(
    kind: str, run: Run, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = {entry.key: run.features.read(entry.key) for entry in run.features.list()}
    file, damage = DAMAGE[kind]
    damage(Path(run.uri) / file)
    if kind in ("page", "footer", "empty", "foreign shard"):
        with pytest.raises(OpaccError, match=rf"{Path(file).name}\b"), run_module.open_view(run, ["hidden"]) as view:
            view.map(lambda pool: pool.hidden)  # read when it is asked for
    with caplog.at_level(logging.INFO):
        again = complete(home)
    assert again == ([] if "index" in kind else [Path(file).stem])
    assert {entry.key: run.features.read(entry.key) for entry in run.features.list()} == before
    assert problems(run) == []
    if kind not in ("lost index", "index"):
        assert "2 of 3 shards were done before" in caplog.text
        assert Path(file).name in caplog.text or "lacks 1 of its shards" in caplog.text


def test_shard_with_other_examples_than_the_plan_is_extracted_again(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """28 rows lost, or rows in another order, before there is an index."""
    run, stage = write_features(str(home))
    run.features.delete("index.json")
    for names in (KEYS[30:32], KEYS[30:60][::-1]):
        columns = {"prediction": run_module.np.zeros(len(names), int)}
        run.features.write("part-000001.parquet", encode_shard(FeatureShard(names, names, columns, [])))
        with pytest.raises(DataError, match=r"part-000001\.parquet holds .* which are not the 30 of its plan"):
            index_features(stage.job, stage.plan)
        assert [shard.name for shard in unfinished(stage.job, stage.plan).missing] == ["part-000001"]
    assert complete(home) == ["part-000001"]
    index = read_index(run.features)
    assert index.num_examples == 90


def test_listing_that_is_damaged_is_written_again(run: Run, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = Path(run.uri) / "listing.parquet"
    before = path.read_bytes()
    flip(path, 200)
    write_features(str(home), extract=False)
    assert path.read_bytes() == before
    assert "it is written again" in caplog.text


# -- objects of the pool ---------------------------------------------------------------------------------


def test_objects_that_changed_since_extraction_are_counted_and_named(
    run: Run, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = run.read_selection(1).ids[:2]
    other = next(key for key in KEYS if key not in {*run.read_selection(1).ids, *run.read_selection(2).ids})
    (home / "pool" / other).write_bytes(b"nobody chose it")
    assert accuracy.estimate(run).objects.changed == 0
    (home / "pool" / first).write_bytes(b"another picture")
    (home / "pool" / second).unlink()
    found = accuracy.estimate(run).objects
    assert (found.changed, found.lost, found.unknown, found.first) == (1, 1, 0, sorted([first, second]))
    assert verify(run.uri).objects == found
    capsys.readouterr()
    assert main(["estimate", run.uri]) == 0
    said = "1 object of a chosen example changed since extraction and 1 object of a chosen example is gone, such as "
    said += min(first, second)
    assert said in capsys.readouterr().out
    assert main(["next", run.uri, "--budget", "60"]) == 0  # all that are left
    assert "1 object of a chosen example changed since extraction" in capsys.readouterr().out


# -- status ----------------------------------------------------------------------------------------------


def test_status_says_that_an_estimate_is_old(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = write_features(str(home))

    def said() -> str:
        capsys.readouterr()
        assert main(["status", run.uri]) == 0
        return capsys.readouterr().out

    chosen = verbs.select(run, "srs", 20, {})
    label(run, chosen.ids[:12])
    accuracy.estimate(run, partial=True)
    assert status(run).estimate_is_current is True
    label(run, chosen.ids[12:])
    assert status(run).estimate_is_current is False
    assert "12 of 20 labels   old: 20 labels now" in said()
    accuracy.estimate(run)
    second = verbs.next_round(run, 6)  # without an answer it makes no estimate old
    assert (status(run).estimate_is_current, status(run).waits_for) == (True, "6 labels")
    label(run, second.ids[:4])
    assert "old: 24 labels now" in said()
    accuracy.estimate(run, partial=True)
    verbs.close_round(run)
    assert "old: labels, rounds or score changed" in said()  # as many labels


def test_a_log_that_was_rolled_back_is_named_by_a_digest_kept_elsewhere(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--log", run.uri, "--json"]) == 0
    head = json.loads(capsys.readouterr().out)["head"]
    accuracy.estimate(run)
    assert main(["verify", run.uri, "--head", head]) == 0
    for key in [entry.key for entry in run.store.list("log/")][-2:]:
        run.store.delete(key)
    run.store.delete("estimate.json")
    assert verify(run.uri).sound  # nothing of the run itself shows it
    assert main(["verify", run.uri, "--head", head]) == 5
    assert f"has no entry {head[:16]}, with which it ended before" in capsys.readouterr().out
