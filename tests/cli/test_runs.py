"""`opacc runs`: what is listed of an output, what of a run is removed, and why a run failed."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import small_model
from audited_run import label, write_features, write_pool
from extracting_here import extracting_here
from picture_audits import write_scans
from small_spec import small_spec

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.status import read_failure, status
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.outputs import outputs
from opacc_ray.extensions.outputs.outputs import Removed, RunList, remove_runs
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Happening, Stated
from opacc_ray.spec import Spec, parse_spec


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_pool(str(tmp_path))
    return tmp_path


def write_run(home: Path, name: str, labels: int = 20) -> Run:
    run, _ = write_features(str(home), name)
    chosen = verbs.select(run, "srs", 20, {})
    if labels:
        label(run, chosen.ids[:labels])
    return run


def files_of(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


# -- the list --------------------------------------------------------------------------------------------


def test_runs_are_listed_with_state_accuracy_and_age(home: Path, told) -> None:
    stated = accuracy.estimate(write_run(home, "weekly-1"))
    write_run(home, "weekly-2", labels=0)
    write_run(home, "weekly-3")
    write_features(str(home), "weekly-4", extract=False)
    (Path(write_run(home, "weekly-5").uri) / "spec.json").write_text("{")
    code, out, _ = told("runs", str(home))
    assert code == 0
    head, *rows = out.splitlines()
    assert head.split() == ["run", "state", "accuracy", "interval", "labels", "age"]
    said = {row.split()[0]: " ".join(row.split()[1:]) for row in rows[:5]}
    shown = f"{100 * stated.value:.1f} % {100 * stated.low:.1f} to {100 * stated.high:.1f}"
    assert said["weekly-1"] == f"done {shown} 20 less than an hour"
    assert said["weekly-2"] == "waits for labels - less than an hour"
    assert said["weekly-3"] == "to be estimated 20 less than an hour"
    assert said["weekly-4"] == "not extracted - less than an hour"
    assert said["weekly-5"] == "unreadable -"
    assert any(row.startswith("unreadable  weekly-5: ") and "spec.json" in row for row in rows)
    _, out, _ = told("runs", "list", str(home), "--json")
    found = RunList.from_dict(json.loads(out), "stdout")
    assert {item.name for item in found.runs} == {f"weekly-{i}" for i in range(1, 6)}
    [first] = [item for item in found.runs if item.name == "weekly-1"]
    assert first.estimate is not None
    assert (first.estimate.low, first.state, first.waits_for) == (stated.low, "done", None)
    assert first.days is not None
    assert 0 <= first.days < 0.1


def test_a_place_without_runs_is_told_from_a_run(home: Path, told) -> None:
    run = write_run(home, "weekly-1")
    code, _, err = told("runs", run.uri)
    assert code == 5
    assert "is a run; give the `output` of a spec" in err
    code, _, err = told("runs", str(home / "pool"))
    assert code == 5
    assert "holds no runs; give the `output` of a spec" in err


# -- removing --------------------------------------------------------------------------------------------


def test_a_run_with_labels_is_not_removed_unless_forced(home: Path, told) -> None:
    run, other = write_run(home, "weekly-1"), write_run(home, "weekly-2")
    (Path(run.uri) / "notes.txt").write_text("mine")
    before = files_of(home)
    code, _, err = told("runs", "remove", run.uri)
    assert code == 2
    assert "weekly-1 has 1 file of labels, which would also be deleted" in err
    assert files_of(home) == before
    code, out, _ = told("runs", "remove", run.uri, "--force", "--json")
    assert code == 0
    [done] = Removed.from_dict(json.loads(out), "stdout").runs
    own = {path for path in before if Path(run.uri) in path.parents}
    assert (done.files, done.label_files) == (len(own) - 1, 1)
    assert done.kept == [f"{run.uri}/notes.txt"]
    assert before - files_of(home) == own - {Path(run.uri) / "notes.txt"}
    assert accuracy.estimate(other).n == 20
    code, out, _ = told("runs", str(home))
    assert "weekly-1" not in out


def test_a_run_without_labels_is_removed_with_its_folders(home: Path, told) -> None:
    run = write_run(home, "weekly-1", labels=0)
    number = len(files_of(Path(run.uri)))
    code, out, _ = told("runs", "remove", run.uri)
    assert (code, out.splitlines()[0][:60]) == (0, f"removed   {run.uri}: {number} files"[:60])
    assert not Path(run.uri).exists()
    code, _, err = told("runs", "remove", run.uri)
    assert code == 5
    assert "there is no run at" in err


def test_a_removal_that_was_interrupted_says_so_and_may_be_repeated(
    home: Path, monkeypatch: pytest.MonkeyPatch, told
) -> None:
    run = write_run(home, "weekly-1", labels=0)
    delete, deleted = type(run.store).delete, list[str]()

    def fails(self: Any, key: str) -> None:
        if len(deleted) == 4:
            raise KeyboardInterrupt
        deleted.append(key)
        delete(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(type(run.store), "delete", fails)
        assert told("runs", "remove", run.uri)[0] == 130
    failure = read_failure(Run.open(run.uri))
    assert failure is not None
    assert "its removal was interrupted" in failure.error
    assert told("runs", "remove", run.uri)[0] == 0
    assert not Path(run.uri).exists()


def test_a_run_is_not_removed_beside_another_command_in_silence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, found = write_run(home, "shop-1", labels=0), outputs._described
    slow, ids = Run.open(run.uri), run.read_selection(1).ids

    def found_before_labels(*given: Any) -> Any:
        result = found(*given)
        label(run, ids[:1])
        return result

    with monkeypatch.context() as patched:
        patched.setattr(outputs, "_described", found_before_labels)
        with pytest.raises(SpecError, match="was used meanwhile, so it is kept"):
            remove_runs(run.uri)
    with pytest.raises(SpecError, match="has 1 file of labels, which would also be deleted"):
        remove_runs(run.uri)
    assert slow.commits == run.commits
    remove_runs(run.uri, force=True)
    with pytest.raises(DataError, match="was removed by `opacc runs remove` meanwhile, so nothing was done"):
        slow.log.append(lambda _: Happening([Stated(value=0.5)]))
    assert not run.store.list("log/")


def test_a_failure_that_is_deleted_while_it_is_read_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(home, "weekly-1", labels=0)
    there = type(run.store).exists
    answers = iter([True])
    monkeypatch.setattr(type(run.store), "exists", lambda self, key: next(answers, None) or there(self, key))
    assert read_failure(run) is None


def spec_of(home: Path, **sections: Any) -> Spec:
    if not (home / "pool").exists():
        write_scans(home, 20)
    given = {"name": "first", "sample": {"method": "srs", "budget": 8}} | sections
    return parse_spec(small_spec(str(home), f"{home}/audits", **given), "spec")


def test_features_that_runs_share_are_kept(tmp_path: Path, told) -> None:
    with extracting_here():
        first, second = verbs.first_round(spec_of(tmp_path)), verbs.first_round(spec_of(tmp_path, name="second"))
    before = files_of(tmp_path / "audits" / "features")
    digest = first.features.uri.rpartition("/")[2]
    code, out, _ = told("runs", "remove", first.uri)
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("kept")] == [
        f"kept      features {digest}, which {second.name} use"
    ]
    assert not Path(first.uri).exists()
    code, out, _ = told("runs", "remove", second.uri)
    assert f"features {digest}, which no other run uses: opacc runs remove {tmp_path}/audits --unused-features" in out
    assert files_of(tmp_path / "audits" / "features") == before


# -- failures --------------------------------------------------------------------------------------------


def test_a_run_that_failed_says_when_and_why_until_it_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**arguments: Any) -> Any:
        raise RuntimeError("no weights today")

    spec = spec_of(tmp_path)
    with extracting_here(), monkeypatch.context() as patch:
        patch.setattr(small_model, "network", broken)
        with pytest.raises(DataError, match="no weights today") as raised:
            verbs.first_round(spec)
    [entry] = RunList.from_dict(json.loads(told("runs", f"{tmp_path}/audits", "--json")[1]), "stdout").runs
    run = Run.open(entry.run)
    found = status(run)
    assert entry.state == "failed"
    assert found.failure is not None
    assert (found.failure.error, found.failure.exit_code) == (str(raised.value), 5)
    assert (datetime.now(UTC) - datetime.fromisoformat(found.failure.at)).total_seconds() < 60
    assert found.waits_for == f"another run of its spec, which failed: {raised.value}"
    assert main(["status", run.uri]) == 0
    assert f"failed     {found.failure.at}: " in capsys.readouterr().out
    assert main(["history", "first", "--output", f"{tmp_path}/audits"]) == 0
    said = capsys.readouterr().out
    assert "waiting" not in said
    assert f"failed    `opacc status` reports why: {run.uri}" in said
    assert f"failed    {run.name}: another run of its spec" in told("runs", f"{tmp_path}/audits")[1]
    with extracting_here():
        verbs.first_round(spec)
    assert status(run).failure is None
    assert status(run).waits_for == "8 labels"
