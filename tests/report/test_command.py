"""`opacc report`: what it prints, where it writes, and what it refuses."""

import json
from pathlib import Path

import pytest
from reported_run import labelled_run

from opacc_ray.cli.main import main
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.report.report_documents import RunReport, WrittenReport
from opacc_ray.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return labelled_run(tmp_path, 60)


def test_it_prints_the_answer_and_the_places(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", run.uri]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("answer    The model is right on about")
    assert lines[1].startswith("labels    60 of 60 labelled. Errors of labels are not measured")
    assert {line.split()[0] for line in lines[2:-4]} == {"model", "fails"}
    assert lines[-1].startswith("next: opacc ")
    assert lines[-4:-1] == [
        f"page      {run.uri}/report.html",
        f"document  {run.uri}/report.json",
        f"summary   {run.uri}/report.md",
    ]
    assert verify(run.uri).sound


def test_its_json_is_a_document(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", run.uri, "--out", str(tmp_path / "out"), "--level", "0.8", "--json"]) == 0
    answer = WrittenReport.from_dict(json.loads(capsys.readouterr().out), "answer")
    report = RunReport.from_bytes((tmp_path / "out" / "report.json").read_bytes(), "report.json")
    assert (answer.answer, answer.state) == (report.answer, "complete")
    assert (answer.checks, answer.findings, answer.next) == (report.checks, report.findings, report.next)
    assert [item.name for item in answer.checks] == ["sampling", "labels", "pool", "model"]
    assert "80 % confidence" in report.answer
    assert report.estimate is not None
    assert report.estimate.level == 0.8
    assert not (Path(run.uri) / "report.json").exists()


def test_a_report_is_written_to_a_bucket(run: Run, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    from opacc_ray.lake.store_uris import open_store

    assert main(["report", run.uri, "--out", f"{bucket}/reports"]) == 0
    names = [entry.key for entry in open_store(bucket).list("reports/")]
    assert names == ["reports/report.html", "reports/report.json", "reports/report.md"]
