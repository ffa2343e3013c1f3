"""Numbers and files in MLflow."""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from reported_run import label, labelled_run, write_run
from stated_numbers import CAMERAS, METRICS, slice_of, table, with_numbers

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, SpecError, StorageError
from opacc_ray.extensions.trackers.mlflow_report import key_of, log_report, metrics_of, params_of, settings_of
from opacc_ray.report.run_report import make_report
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import Population

FILES = ["report.html", "report.json", "report.md"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = labelled_run(tmp_path_factory.mktemp("tracked"), 60)
    return run


def test_the_numbers_are_those_of_the_estimate(run: Run) -> None:
    _, report = make_report(run)
    stated = report.estimate
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
    assert metrics_of(before) == {}
    assert params_of(before) == params_of(after)
    assert params_of(after)["opacc/pool"] == run.spec.pool.uri
    assert key_of(before) == key_of(after) != key_of(after.model_copy(update={"run": "s3://another"}))
    assert (settings_of(before)["opacc/verdict"], settings_of(after)["opacc/verdict"]) == ("", "Meets 50 %")


def test_names_of_classes_and_slices_are_names_that_mlflow_allows(run: Run) -> None:
    report = make_report(run)[1]
    evil = {"../../x": slice_of(0.5, 0.4, 0.6), "a|b?é": slice_of(0.6, 0.5, 0.7), "few": CAMERAS["roof"]}
    tables = [table("camera", evil, "f1@do/g")]
    changed = report.model_copy(update={"estimate": with_numbers(report.estimate, METRICS, tables), "tables": []})
    names = {name.removeprefix("opacc/") for name in metrics_of(changed) if name.count("/") > 1}
    assert names == {"f1/dog", "f1/do/g/camera/_/_/x", "f1/do/g/camera/a_b__"}  # recall@dog has too few labels


def test_without_a_report_or_mlflow_one_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path)
    verbs.select(run, "srs", 20, {})
    with pytest.raises(DataError, match="`opacc report`"):
        log_report(run)
    make_report(run)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(SpecError, match=r"opacc_ray\[mlflow\]"):
        log_report(run)


def test_what_mlflow_refuses_is_named_without_its_password(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ConnectionError("it is down")

    broken = SimpleNamespace(active_run=refuse, get_tracking_uri=lambda: "https://me:secret@tracker.example")
    monkeypatch.setitem(sys.modules, "mlflow", broken)
    make_report(run)
    with pytest.raises(StorageError, match=r"https://\*\*\*@tracker.example .*ConnectionError.*it is down"):
        log_report(run)


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs the extra mlflow")
def test_a_real_mlflow_keeps_numbers_and_files(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import mlflow

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    mlflow.set_tracking_uri(None)
    _, report = make_report(run)
    assert main(["mlflow", run.uri, "--json"]) == 0
    logged = json.loads(capsys.readouterr().out)
    [kept] = mlflow.search_runs(output_format="list", search_all_experiments=True)
    assert params_of(report).items() <= kept.data.params.items()
    assert kept.info.run_id == logged["id"]
    assert kept.info.status == "FINISHED"
    assert kept.data.metrics == pytest.approx(metrics_of(report))
    assert settings_of(report).items() <= kept.data.tags.items()
    files = mlflow.MlflowClient().list_artifacts(kept.info.run_id, "opacc")
    assert sorted(Path(item.path).name for item in files) == FILES

    label(run, verbs.next_round(run, 20).ids)  # the same run gets the new numbers
    make_report(run)
    assert log_report(run).to_dict() == logged
    [same] = mlflow.search_runs(output_format="list", search_all_experiments=True)
    assert same.data.metrics["opacc/n"] == 80
    points = mlflow.MlflowClient().get_metric_history(same.info.run_id, "opacc/n")
    assert [(point.step, point.value) for point in points] == [(60, 60), (80, 80)]

    with mlflow.start_run() as own:
        again = log_report(run)
    assert own.info.run_id == again.id
