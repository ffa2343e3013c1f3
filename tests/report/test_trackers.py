"""Numbers and files in trackers, and a report that is made whatever a tracker does."""

import builtins
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from reported_run import label, write_run
from stated_numbers import CAMERAS, METRICS, slice_of, table, with_numbers

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.report import trackers
from opacc_ray.report.report_documents import WrittenReport
from opacc_ray.report.run_report import make_report
from opacc_ray.report.trackers import key_of, metrics_of, params_of, settings_of, track
from opacc_ray.runs.identity import Population
from opacc_ray.runs.run import Run

FILES = ["report.html", "report.json", "report.md"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = write_run(tmp_path_factory.mktemp("tracked"))
    label(run, verbs.select(run, "srs", 60, {}).ids)
    return run


def test_the_numbers_are_those_of_the_estimate(run: Run) -> None:
    _, report = make_report(run)
    stated = report.estimate
    assert stated is not None
    found = metrics_of(report)
    by_class = {name for name in found if name.count("/") > 1}
    tables = {table.by: table for table in report.tables}
    assert {name.split("/")[2] for name in by_class} == {"prediction", "truth", "confidence"}
    dog = tables["prediction"].slices["dog"]
    assert found["opacc/accuracy/prediction/dog"] == dog.value
    assert {name: found[name] for name in found.keys() - by_class} == {
        "opacc/value": stated.value,
        "opacc/low": stated.low,
        "opacc/high": stated.high,
        "opacc/n": 60.0,
        "opacc/effective_sample_size": stated.srs.effective_size,
    }
    assert settings_of(report)["opacc/run_digest"] == run.header.digest
    assert settings_of(report)["opacc/labels_digest"] == stated.labels_digest
    assert settings_of(report)["opacc/population"] == Population.of(run.spec).digest


def test_what_identifies_an_audit_stays_the_same_while_labels_come(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    ids = verbs.select(run, "srs", 40, {}).ids
    before = make_report(run)[1]
    label(run, ids)
    after = make_report(run, goal=0.5)[1]
    assert params_of(before) == params_of(after)
    assert params_of(after)["opacc/pool"] == run.spec.pool.uri
    assert key_of(before) == key_of(after) != key_of(after.model_copy(update={"track": "more"}))
    assert (settings_of(before)["opacc/verdict"], settings_of(after)["opacc/verdict"]) == ("", "Meets 50 %")


def test_names_of_classes_and_slices_are_names_that_trackers_allow(run: Run) -> None:
    report = make_report(run)[1]
    assert report.estimate is not None
    evil = {"../../x": slice_of(0.5, 0.4, 0.6), "a|b?é": slice_of(0.6, 0.5, 0.7), "few": CAMERAS["roof"]}
    tables = [table("camera", evil, "f1@do/g")]
    changed = report.model_copy(update={"estimate": with_numbers(report.estimate, METRICS, tables), "tables": []})
    names = {name.removeprefix("opacc/") for name in metrics_of(changed) if name.count("/") > 1}
    assert names == {"f1/dog", "recall/dog", "f1/do/g/camera/_/_/x", "f1/do/g/camera/a_b__"}


def test_without_labels_no_number_is_logged(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    verbs.select(run, "srs", 20, {})
    assert metrics_of(make_report(run)[1]) == {}


def test_a_tracker_that_fails_costs_a_warning(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> str:
        raise ConnectionError("https://me:secret@tracker.example is down")

    monkeypatch.setitem(trackers.TRACKERS, "mlflow", refuse)
    written = track(*make_report(run), ["mlflow"])
    assert written.tracked == []
    assert written.warnings == ["mlflow refused the report: ConnectionError: https://***@tracker.example is down"]


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_tracker_that_is_not_installed_is_named_with_its_extra(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    real = builtins.__import__

    def without(module: str, *arguments: Any, **settings: Any) -> Any:
        if module.partition(".")[0] == name:
            raise ImportError(f"No module named {name!r}")
        return real(module, *arguments, **settings)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["report", run.uri, f"--{name}", "--json"]) == 0
    answer = WrittenReport.from_dict(json.loads(capsys.readouterr().out), "answer")
    assert [Path(uri).name for uri in answer.files] == FILES
    [warning] = answer.warnings
    assert f"pip install 'opacc_ray[{name}]'" in warning


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs the extra mlflow")
def test_a_real_mlflow_keeps_numbers_and_files(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    mlflow.set_tracking_uri(None)
    written, report = make_report(run)
    tracked = track(written, report, ["mlflow"])
    assert tracked.warnings == []
    [kept] = mlflow.search_runs(output_format="list", search_all_experiments=True)
    assert params_of(report).items() <= kept.data.params.items()
    [given] = kept.inputs.dataset_inputs
    assert given.dataset.digest == report.header.pool.digest[:16]
    if hasattr(mlflow, "create_external_model"):
        [model] = mlflow.search_logged_models(output_format="list")
        assert {own.key for own in model.metrics} == set(metrics_of(report))
    assert kept.info.run_id in tracked.tracked[0]
    assert kept.info.status == "FINISHED"
    assert kept.data.metrics == pytest.approx(metrics_of(report))
    assert settings_of(report).items() <= kept.data.tags.items()
    files = mlflow.MlflowClient().list_artifacts(kept.info.run_id, "opacc")
    assert sorted(Path(item.path).name for item in files) == FILES

    label(run, verbs.next_round(run, 20).ids)  # the same run gets the new numbers
    later = make_report(run)
    assert track(*later, ["mlflow"]).tracked == tracked.tracked
    [same] = mlflow.search_runs(output_format="list", search_all_experiments=True)
    assert same.data.metrics["opacc/n"] == 80
    points = mlflow.MlflowClient().get_metric_history(same.info.run_id, "opacc/n")
    assert [(point.step, point.value) for point in points] == [(60, 60), (80, 80)]
    assert len(same.inputs.dataset_inputs) == 1

    with mlflow.start_run() as own:
        again = track(written, report, ["mlflow"])
        assert mlflow.active_run() is not None
    assert own.info.run_id in again.tracked[0]


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs the extra wandb")
def test_a_real_wandb_keeps_a_run_offline(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    tracked = track(*make_report(run), ["wandb"])
    assert tracked.warnings == []
    [kept] = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert kept.stem.removeprefix("run-") in tracked.tracked[0]
    assert b"effective_sample_size" in kept.read_bytes()
