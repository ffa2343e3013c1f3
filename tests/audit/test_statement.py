"""What is stated is one interval, wherever it is shown: it allows for errors of labels and for a rule that stopped."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from reported_run import CLASSES, KEYS, TRUTH, label, write_run

from opacc_ray.audit import accuracy, goals, verbs
from opacc_ray.audit.status import status
from opacc_ray.cli.main import main
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.sequential import interim_level
from opacc_ray.extensions.fleet.accuracy_history import point_of
from opacc_ray.extensions.fleet.alerts import Evidence, decided, rule_of
from opacc_ray.extensions.fleet.exposition import output_metrics
from opacc_ray.extensions.fleet.fleet_spec import AlertSpec, Limit
from opacc_ray.extensions.lakes.exported_tables import export_tables
from opacc_ray.extensions.trackers.mlflow_report import metrics_of, settings_of
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.report.facts import digits_for, ends
from opacc_ray.report.report_documents import RunReport
from opacc_ray.report.run_report import make_report
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import AccuracyEstimate


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """40 of 240 examples, labelled by ann as it is."""
    run = write_run(tmp_path)
    verbs.select(run, "srs", 40, {})
    answer(run, "ann", run.read_selection(1).ids, wrong=0)
    return run


def answer(run: Run, name: str, ids: Any, wrong: float) -> None:
    """The classes of examples as somebody sees them, who takes a share of them for another one."""
    rng = np.random.default_rng(3)
    said = [(TRUTH[KEYS.index(id)] + (rng.random() < wrong) * rng.integers(1, 3)) % 3 for id in ids]
    rows = "".join(f"{id},{CLASSES[number]},{name}\n" for id, number in zip(ids, said, strict=True))
    import_labels(run, f"{name}.csv", f"id,label,annotator\n{rows}".encode(), conflict="latest")


def by_design(run: Run, level: float = 0.95) -> Any:
    rounds = read_rounds(run)
    return estimate_outcomes([item.known for item in rounds], [item.outcome for item in rounds], level)


def assert_shown_everywhere(run: Run, stated: AccuracyEstimate, tmp_path: Path, capsys: Any) -> RunReport:
    """What is stated is what report, model card, tables, trackers, metrics, fleet and the terminal show."""
    low, high = stated.low, stated.high
    _, report = make_report(run, str(tmp_path / "report"))
    assert report.estimate is not None
    assert (report.estimate.low, report.estimate.high, report.estimate.notes) == (low, high, stated.notes)
    digits = digits_for(low, high)
    as_percent = ends(low, high, digits=digits)
    page, summary = ((tmp_path / "report" / name).read_text() for name in ("report.html", "report.md"))
    assert ("holds whenever you stop" in page) == ("Valid at any time" in page)
    assert f"<b>{as_percent}</b>" in page
    assert f"| {as_percent} |" in summary
    card = yaml.safe_load(summary.partition("```yaml\n")[2].partition("```")[0])
    [metric] = card["model-index"][0]["results"][0]["metrics"]
    assert f"95 % interval {low:.4f} to {high:.4f}" in metric["name"]
    assert all(what in metric["name"] for what in stated.allows_for)
    for note in stated.notes:
        assert note in page
        assert note.split(";")[0].split("(")[0] in summary
    logged = metrics_of(report)
    assert (logged["opacc/low"], logged["opacc/high"]) == (low, high)
    assert settings_of(report)["opacc/notes"] == " ".join(stated.notes)
    export_tables(run, str(tmp_path / "lake"), features=False)
    rows = pq.read_table(tmp_path / "lake" / "estimates").to_pylist()
    whole = [own for own in rows if own["metric"] == "accuracy" and own["sliced_by"] is None]
    row = max(whole, key=lambda own: own["log_entry"])
    assert (row["low"], row["high"], row["method"]) == (low, high, stated.method)
    point = point_of(run, stated)
    assert (point.low, point.high) == (low, high)
    evidence = Evidence.of(run)
    assert evidence is not None
    assert (evidence.number("accuracy", 0.95).low, evidence.number("accuracy", 0.95).high) == (low, high)
    assert exported(run) == (stated.value, low, high)
    capsys.readouterr()
    assert main(["estimate", run.uri]) == 0
    said = capsys.readouterr().out
    assert f"95 % interval {as_percent}" in said
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert {f"note {note}" for note in stated.notes} <= {*lines}
    assert f"[{low:.4f}, {high:.4f}] (95% {stated.method} interval" in str(stated)
    assert main(["status", run.uri, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimate"]["low"] == low
    return report


def exported(run: Run) -> tuple[float, float, float]:
    """The numbers that Prometheus is given."""
    found = {item.name: item.value for item in output_metrics(run.uri.rpartition("/")[0]).samples}
    return found["opacc_estimate"], found["opacc_interval_low"], found["opacc_interval_high"]


def test_annotators_who_agree_by_chance_widen_what_is_stated_everywhere(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(run, "bob", run.read_selection(1).ids[:20], wrong=0.8)
    stated = accuracy.estimate(run)
    own = by_design(run)
    assert stated.label_noise is not None
    assert (stated.low, stated.high) == (stated.label_noise.low, stated.label_noise.high)
    assert stated.low < own.low - 0.2
    assert stated.by_design is not None
    assert (stated.by_design.low, stated.by_design.high) == (own.low, own.high)
    assert stated.allows_for == ["label noise"]
    assert stated.label_noise.alpha is not None
    assert stated.label_noise.alpha < 0.1
    assert stated.method.endswith(" widened for label noise")
    [note] = stated.notes
    assert note.startswith(f"Annotators agree no better than chance (alpha {stated.label_noise.alpha:.2f}): ")
    assert f"they differ on {stated.label_noise.differ} of 20 examples with two opinions" in note
    assert_shown_everywhere(run, stated, tmp_path, capsys)
    assert stated.sequence.low <= own.low
    assisted = accuracy.estimate(run, keep=False, assist=True).assisted
    assert assisted is not None
    assert assisted.low < own.low - 0.2


def test_an_alert_allows_for_errors_of_labels(run: Run) -> None:
    limit = Limit(kind="min", limit=by_design(run).high + 0.01)
    rule = rule_of(AlertSpec(), [AlertSpec(min={"accuracy": limit.limit})])

    def raised(*, by_sequence: bool = False) -> bool:
        evidence = Evidence.of(run)
        assert evidence is not None
        found = evidence.sequence(rule.level) if by_sequence else evidence.number("accuracy", rule.level)
        return decided(rule, limit, found).raised

    assert raised()
    answer(run, "bob", run.read_selection(1).ids[:20], wrong=0.8)
    limit = Limit(kind="min", limit=by_design(run).high + 0.01)
    assert not raised()
    assert not raised(by_sequence=True)


@pytest.mark.parametrize(("number", "wrong"), [(20, 0.0), (3, 1.0)])
def test_what_second_opinions_do_not_show_does_not_widen_it(run: Run, number: int, wrong: float) -> None:
    ids = run.read_selection(1).ids[:number]
    answer(run, "bob", ids, wrong=wrong)
    answer(run, "ann", [*ids, *run.read_selection(1).ids[20:]], wrong=0)
    stated, own = accuracy.estimate(run), by_design(run)
    assert (stated.low, stated.high, stated.allows_for) == (own.low, own.high, [])
    assert any("too few to widen" in note for note in stated.notes) == (wrong > 0)


def test_the_interval_of_a_goal_that_was_reached_is_stated_everywhere(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = accuracy.estimate(run)
    assert main(["next", run.uri, "--until", "0.2", "--json"]) == 0
    goal = json.loads(capsys.readouterr().out)["goal"]
    assert goal["reached"]
    assert not status(run).estimate_is_current
    stated = accuracy.estimate(run)
    assert status(run).estimate_is_current
    assert (stated.low, stated.high, stated.level) == (goal["low"], goal["high"], 0.95)
    assert stated.low < before.low
    assert stated.high > before.high
    assert stated.by_design == before.by_design
    assert (stated.allows_for, stated.goal) == (["stopping"], 0.2)
    assert stated.notes == ["Sampling stopped once the interval was within ±0.2; the stated interval allows for that."]
    report = assert_shown_everywhere(run, stated, tmp_path, capsys)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Stopping because this interval looks narrow would spoil it" not in page
    assert report.estimate is not None
    assert (report.estimate.srs.low, report.estimate.srs.high) == (before.srs.low, before.srs.high)


def test_a_goal_that_is_not_reached_changes_nothing(run: Run) -> None:
    before = accuracy.estimate(run)
    assert main(["next", run.uri, "--until", "0.03"]) == 0
    assert status(run).estimate_is_current
    assert accuracy.estimate(run).to_dict() | {"rounds": [], "missing": 0} == before.to_dict() | {
        "rounds": [],
        "missing": 0,
        "sha256": accuracy.estimate(run).to_dict()["sha256"],
    }


def test_a_goal_that_was_changed_is_told(run: Run) -> None:
    for width in (0.03, 0.2):
        run.write_goal(goals.look_for_goal(run, width))
    assert accuracy.estimate(run).notes[1].startswith("The goal was ±0.03 before; ")


def test_a_pool_that_is_a_sample_states_its_population_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = {"uri": str(tmp_path / "pool"), "format": "images", "sample_of": 1000}
    run = write_run(tmp_path, pool=pool)
    verbs.select(run, "srs", 40, {})
    answer(run, "ann", run.read_selection(1).ids, wrong=0)
    stated, own = accuracy.estimate(run), by_design(run)
    assert stated.low < own.low
    assert own.high < stated.high
    assert stated.by_design is not None
    assert (stated.by_design.low, stated.by_design.high, stated.value) == (own.low, own.high, own.value)
    assert stated.allows_for == ["sampling of the pool"]
    [note] = stated.notes
    assert note.startswith("The interval is about 1,000 examples, of which the pool has 240, drawn at random.")
    assert_shown_everywhere(run, stated, tmp_path, capsys)
    answer(run, "bob", run.read_selection(1).ids[:20], wrong=0.8)
    both = accuracy.estimate(run)
    assert both.label_noise is not None
    assert (both.low, both.high) == (both.label_noise.low, both.label_noise.high)
    assert both.allows_for == ["sampling of the pool", "label noise"]


def test_with_both_the_interval_of_the_goal_is_widened(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.write_goal(goals.look_for_goal(run, 0.2))
    stopped = accuracy.estimate(run)
    answer(run, "bob", run.read_selection(1).ids[:20], wrong=0.8)
    assert main(["next", run.uri, "--until", "0.2"]) == 0
    said = capsys.readouterr().out
    stated, own = accuracy.estimate(run), by_design(run, interim_level(0.95))
    assert stated.allows_for == ["stopping", "label noise"]
    assert stated.method == f"{own.method} for stopping at ±0.2 widened for label noise"
    assert stated.low < own.low
    assert stated.high >= own.high
    assert stopped.notes[0] in stated.notes
    assert f"interval {ends(stated.low, stated.high)}   valid although" in said
    assert "note      Annotators agree no better than chance" in said


def test_labels_that_are_missing_leave_the_rule_of_stopping(run: Run) -> None:
    run.write_goal(goals.look_for_goal(run, 0.2))
    verbs.next_round(run, 10)
    label(run, run.read_selection(2).ids[:4])
    stated = accuracy.estimate(run, partial=True)
    assert stated.n == 44
    assert stated.allows_for == ["stopping"]
