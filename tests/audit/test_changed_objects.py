"""Pool files that changed after the model saw them: what annotators get says so, and how to answer it."""

import csv
import json
from pathlib import Path

import pytest
from audited_run import KEYS, label, write_features, write_pool

from opacc_ray.audit import accuracy, verbs
from opacc_ray.cli.main import main
from opacc_ray.labels import label_actions
from opacc_ray.labels.formats import NOTES
from opacc_ray.runs.run import Run


def rows_of(run: Run, number: int) -> list[dict[str, str]]:
    text = run.folder(number).read("manifest.csv").decode()
    return list(csv.DictReader(text.splitlines()))


def test_manifest_notes_the_examples_whose_file_changed_or_went(tmp_path: Path) -> None:
    write_pool(str(tmp_path))
    run, _ = write_features(str(tmp_path))
    label(run, verbs.select(run, "srs", 20, {}).ids)
    assert "note" not in rows_of(run, 1)[0]
    first, second, *_ = sorted(set(KEYS) - set(run.read_selection(1).ids))
    (tmp_path / "pool" / first).write_bytes(b"another picture")
    (tmp_path / "pool" / second).unlink()
    verbs.next_round(run, len(KEYS) - 20)
    there = {first: NOTES["changed"], second: NOTES["lost"]}
    notes = {row["id"]: row["note"] for row in rows_of(run, 2)}
    assert {name: note for name, note in notes.items() if note} == there
    lines = map(json.loads, run.folder(2).read("manifest.jsonl").splitlines())
    assert {line["id"]: line["note"] for line in lines if "note" in line} == there


def test_tasks_for_a_tool_are_written_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pool(str(tmp_path))
    run, _ = write_features(str(tmp_path))
    chosen = verbs.select(run, "srs", 20, {}).ids
    assert main(["manifest", run.uri, "--to", "csv", "--out", str(tmp_path / "before")]) == 0
    assert "warning" not in capsys.readouterr().out
    (tmp_path / "pool" / chosen[3]).write_bytes(b"another picture")
    assert main(["manifest", run.uri, "--to", "csv", "--out", str(tmp_path / "after")]) == 0
    said = capsys.readouterr().out
    assert f"warning   1 object of a chosen example changed since extraction, such as {chosen[3]}: their labels" in said


def test_changed_file_that_nobody_can_tell_is_left_out_and_stated(tmp_path: Path) -> None:
    write_pool(str(tmp_path))
    run, _ = write_features(str(tmp_path))
    (tmp_path / "pool" / KEYS[0]).write_bytes(b"another picture")
    chosen = verbs.select(run, "srs", len(KEYS), {}).ids
    label(run, [name for name in chosen if name != KEYS[0]])
    (row,) = [row for row in rows_of(run, 1) if row["note"]]
    label_actions.import_labels(run, "note.csv", f"id,label,note\n{row['id']},?,{row['note']}\n".encode())
    stated = accuracy.estimate(run)
    assert (stated.n, stated.unsure, stated.missing) == (len(KEYS) - 1, 1, 0)
    assert stated.reason is not None
    assert stated.objects is not None
    assert stated.objects.first == [KEYS[0]]


def test_pool_that_cannot_be_listed_leaves_the_manifest_without_notes(tmp_path: Path) -> None:
    write_pool(str(tmp_path))
    run, _ = write_features(str(tmp_path))
    (tmp_path / "pool").rename(tmp_path / "away")
    (tmp_path / "pool").write_bytes(b"no folder")
    verbs.select(run, "srs", 20, {})
    assert len(rows_of(run, 1)) == 20
