"""One guided path: label what is missing, go on to the goal, report; interrupted, it goes on."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reported_run import label, write_run

from opacc_ray import Audit
from opacc_ray.audit import verbs
from opacc_ray.audit.status import has_page, status
from opacc_ray.cli.command import terminal_text
from opacc_ray.cli.main import main
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels.desk import LabelSession
from opacc_ray.report import answers
from opacc_ray.report.report_documents import RunReport
from opacc_ray.runs.run import Run

N = 400
RNG = np.random.default_rng(5)
SURE = RNG.uniform(0.5, 1, N).round(4)
RIGHT = RNG.random(N) < SURE


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Predictions of two classes with a confidence; the example ``e7`` is right if RIGHT[7]."""
    path = tmp_path / "answers.csv"
    rows = [f"e{i},{'yes' if i % 2 else 'no'},{SURE[i]}" for i in range(N)]
    path.write_text("id,prediction,confidence\n" + "\n".join(rows) + "\n")
    return path


def truth(id: str) -> str:
    i = int(id[1:])
    return "yes" if (i % 2 == 1) == RIGHT[i] else "no"


def spec_of(table: Path) -> dict[str, Any]:
    columns = {"id": "id", "prediction": "prediction", "confidence": "confidence"}
    return {
        "name": "guided",
        "pool": {"uri": str(table), "format": "features", "columns": columns},
        "model": {"classes": ["no", "yes"]},
        "sample": {"method": "neyman", "budget": 30},
        "goal": "60 %",
        "output": str(table.parent / "audits"),
    }


def test_whoever_stops_labelling_goes_on_later(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    ids, audit = verbs.select(run, "srs", 30, {}).ids, Audit(run)
    assert audit.label(lambda needed: label(run, ids[:10]), until=0.2) is None
    assert audit.num_missing() == 20
    assert audit.label(lambda needed: label(run, ids)) is None  # no goal: one round
    assert (audit.num_missing(), run.rounds()) == (0, [1])


@pytest.mark.slow
def test_from_python_it_is_three_calls(table: Path) -> None:
    asked: list[int] = []

    def people(needed: list[Any]) -> Mapping[str, str]:
        asked.append(len(needed))
        return {item.id: truth(item.id) for item in needed}

    audit = Audit.run(spec_of(table))
    goal = audit.label(people, until=0.05)
    audit.report()
    assert len(asked) == len(audit.selections()) > 1
    assert goal is not None
    assert goal.reached
    assert (asked[0], sum(asked)) == (30, goal.looks[-1].labels)
    assert (goal.high - goal.low) / 2 <= 0.05
    stated = audit.estimate()
    assert stated.goal == 0.05
    assert stated.low <= RIGHT.mean() <= stated.high
    report = RunReport.from_bytes((Path(audit.uri) / "report.json").read_bytes(), "report.json")
    assert report.verdict is not None
    assert report.verdict.met
    again = Audit.run(spec_of(table))
    assert again.label(people, until=0.05) == goal
    assert again.uri == audit.uri
    assert len(asked) == len(audit.selections())  # nobody is asked again


def test_an_audit_in_python_corrects_withdraws_closes_and_compares(table: Path, tmp_path: Path) -> None:
    audit = Audit.run(spec_of(table))
    audit.label(lambda needed: {item.id: truth(item.id) for item in needed[:-3]})
    assert len(audit.labels_needed()) == 3
    audit.close()
    assert audit.labels_needed() == []
    before = audit.estimate(partial=True)
    first = audit.selections()[0].ids[0]
    audit.correct(first, "no" if truth(first) == "yes" else "yes", annotator="boss")
    assert audit.estimate(partial=True).value != before.value
    other = spec_of(table)
    flipped = tmp_path / "other.csv"
    flipped.write_text(
        table.read_text().replace(",yes,", ",maybe,").replace(",no,", ",yes,").replace(",maybe,", ",no,")
    )
    second = Audit.run(other | {"name": "flipped", "pool": other["pool"] | {"uri": str(flipped)}})
    assert audit.compare(second).differences[0].difference.low > 0
    with pytest.raises(SpecError):
        audit.compare(second, metric="no_such_metric")
    audit.withdraw(first)
    assert [item.id for item in audit.labels_needed()] == [first]


@pytest.mark.slow
def test_a_label_that_a_later_round_was_drawn_with_may_become_cannot_tell(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = Audit.run(spec_of(table))
    audit.label(lambda needed: {item.id: truth(item.id) for item in needed})
    audit.next(budget=10)
    audit.add_labels({item.id: truth(item.id) for item in audit.labels_needed()})
    before, gone, drawn = audit.estimate(), audit.selections()[0].ids[0], audit.selections()[1].to_json()
    assert main(["labels", "correct", audit.uri, gone, "?", "--annotator", "boss"]) == 0
    assert main(["estimate", audit.uri]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 of 30 labels of round 1 are assumed to be missing at random; " in said
    assert "round 2 was drawn with 1 label since withdrawn, or corrected to can't tell; its example is assumed" in said
    after = audit.estimate()
    assert (after.n, after.unsure, after.missing, after.design_based) == (before.n - 1, 1, 0, False)
    assert 0 < abs(after.value - before.value) < before.standard_error
    audit.report()
    summary = (Path(audit.uri) / "report.md").read_text()
    assert "round 2 was drawn with 1 label since withdrawn" in summary
    assert audit.selections()[1].to_json() == drawn
    audit.next(budget=5)
    audit.correct(gone, truth(gone), annotator="boss")
    assert audit.estimate(partial=True).value == before.value


def test_labels_that_nobody_gives_are_no_goal(table: Path) -> None:
    with pytest.raises(LabelError):
        Audit.run(spec_of(table)).label(lambda needed: {item.id: "?" for item in needed}, until=0.05)


def test_the_command_waits_for_labels_and_goes_on(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = table.parent / "audits"
    command = ["audit", str(table), "--budget", "40", "--output", str(output), "--no-browser"]
    assert main(command) == 7
    out, err = capsys.readouterr()
    run = re.search(r"^run +(\S+)$", out, re.MULTILINE)
    assert run is not None
    assert out.splitlines()[-1] == f"next: opacc labels import {Path(run[1]).name} FILE"
    assert "waits for 40 labels; then run the same command again" in err
    ids = Run.open(run[1]).read_selection(1).ids
    (table.parent / "back.csv").write_text("id,label\n" + "".join(f"{id},{truth(id)}\n" for id in ids))
    assert main(["labels", "import", run[1], str(table.parent / "back.csv")]) == 0
    capsys.readouterr()
    assert main(command) == 0
    out, _ = capsys.readouterr()
    assert re.search(r"^answer +The model is right on about", out, re.MULTILINE)
    assert out.splitlines()[-1].startswith("next: opacc report ")
    assert (Path(run[1]) / "report.html").exists()


def test_status_ends_with_the_command_to_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path)

    def last_line() -> str:
        capsys.readouterr()
        assert main(["status", run.uri]) == 0
        return capsys.readouterr().out.splitlines()[-1]

    assert last_line() == "next: opacc run SPEC.yaml"
    ids = verbs.select(run, "srs", 30, {}).ids
    assert last_line() == f"next: opacc label {run.uri}"
    label(run, ids[:1])
    assert last_line() == f"next: opacc label {run.uri}"  # the page stays
    label(run, ids)
    assert last_line() == f"next: opacc estimate {run.uri}"
    assert main(["estimate", run.uri]) == 0
    assert last_line() == f"next: opacc report {run.uri}"


@pytest.mark.slow
def test_a_run_with_an_open_goal_ends_with_the_command_for_the_next_round(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def last_line(*command: str) -> str:
        assert main(list(command)) == 0
        out = capsys.readouterr().out
        assert ("copy " in out) == ("next: opacc labels import" in out)
        return re.sub(r"\S*/(answers-[0-9a-f]{8})(?= |$)", r"\1", out.splitlines()[-1])

    def answer(number: int) -> str:
        file = tmp_path / f"labels{number}.csv"
        ids = Run.open(run).read_selection(number).ids
        file.write_text("id,label\n" + "".join(f"{id},{truth(id)}\n" for id in ids))
        return last_line("labels", "import", run, str(file))

    command = ["run", str(table), "--budget", "40", "--output", str(table.parent / "audits")]
    assert last_line(*command).endswith(" labels-1.csv")
    run = str(
        next(path for path in (table.parent / "audits").iterdir() if path.is_dir() and path.name[:8] == "answers-")
    )
    name = Path(run).name
    assert answer(1) == f"next: opacc estimate {name}"
    assert last_line(*command) == f"next: opacc estimate {name}"  # no file is to be filled in
    assert last_line("estimate", run) == f"next: opacc report {name}"
    assert last_line(*command) == f"next: opacc report {name}"
    assert last_line("next", run, "--until", "±0.03").startswith(f"next: opacc labels import {name} labels-2.csv")
    goal = f"next: opacc next {name} --until ±0.03"
    assert answer(2) == goal
    for again in (["estimate", run], ["status", run], command):
        assert last_line(*again) == goal
    labelled = LabelSession(run=run, saved=1, done=2, total=2, different=0)  # as `opacc label` ends
    assert terminal_text(answers.session(labelled, Run.open(run))).splitlines()[-1] == goal
    assert status(Run.open(run)).step == ["next", "--until", "±0.03"]


@pytest.mark.parametrize(("ending", "has"), [(".png", True), (".txt", False)])
def test_rows_that_name_files_are_for_the_page_if_these_are_pictures(tmp_path: Path, ending: str, has: bool) -> None:
    rows = [f"e{i},{'yes' if i % 2 else 'no'},{SURE[i]},file://{tmp_path}/{i}{ending}" for i in range(40)]
    (tmp_path / "answers.csv").write_text("id,prediction,confidence,uri\n" + "\n".join(rows) + "\n")
    content = spec_of(tmp_path / "answers.csv")
    content["pool"]["columns"]["uri"] = "uri"
    audit = Audit.run(content | {"sample": {"method": "srs", "budget": 5}})
    assert has_page(Run.open(audit.uri)) == has
