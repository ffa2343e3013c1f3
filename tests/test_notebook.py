"""An audit from Python: what the commands do, on the same files."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest
from reported_run import CLASSES, KEYS, PREDICTION, TRUTH, write_run
from waiting import LONG

import opacc_ray
import opacc_ray.audit
from opacc_ray.cli.main import main
from opacc_ray.errors import LabelError
from opacc_ray.estimation.intervals import as_html
from opacc_ray.labels.label_log import read_log
from opacc_ray.runs.run import Run
from opacc_ray.stored_audit import Audit

ROOT = Path(__file__).parents[1]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return write_run(tmp_path)


def answers(audit: Audit) -> dict[str, str]:
    return {item.id: CLASSES[TRUTH[KEYS.index(item.id)]] for item in audit.labels_needed()}


def test_a_whole_audit(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    audit = Audit.open(run.uri)
    audit.next(30)
    (first,) = audit.selections()
    assert [item.id for item in audit.labels_needed()] == list(first.ids)
    assert {item.uri for item in audit.labels_needed()} == {f"{run.spec.pool.uri}/{id}" for id in first.ids}
    assert audit.add_labels(answers(audit)).missing == 0
    assert audit.labels_needed() == []

    second = audit.next(20, method="css", parameters={"allocation": (0.5, 0.25, 0.25)})
    assert (second.round, second.method, second.n) == (2, "css", 20)
    some = dict(list(answers(audit).items())[:5])
    audit.add_labels(some, annotator="ann")
    assert len(audit.labels_needed()) == 15
    with pytest.raises(LabelError, match="15 of 50 labels are missing"):
        audit.estimate()
    audit.add_labels(answers(audit))

    stated = audit.estimate(level=0.9)
    assert (stated.n, stated.level) == (50, 0.9)
    assert stated == run.read_estimate()
    assert [len(item) for item in audit.selections()] == [30, 20]
    assert audit.status().waits_for == "nothing"
    assert Path(audit.report().files[0]).name == "report.html"
    assert main(["status", run.uri]) == 0
    assert "50 labels" in capsys.readouterr().out


def test_a_run_is_opened_by_its_path_and_takes_a_file_of_labels(run: Run, tmp_path: Path) -> None:
    audit = Audit.open(Path(run.uri))
    audit.next(10)
    rows = "".join(f"{id},{text}\n" for id, text in answers(audit).items())
    (tmp_path / "back.csv").write_text(f"id,label\n{rows}")
    assert audit.add_labels(tmp_path / "back.csv").labelled == 10
    with pytest.raises(LabelError, match=r"there is no file .*none\.csv"):
        audit.add_labels(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "an empty mapping"),
        (None, "what is of type NoneType"),
        ([("a", 1)], "of type list"),
        (pandas.DataFrame({"label": ["cat"]}), "a table with 1 rows and the columns label"),
        (pandas.DataFrame({"id": [], "label": []}), "a table with 0 rows and the columns id, label"),
    ],
)
def test_what_is_no_mapping_of_labels_is_refused(run: Run, given: Any, what: str) -> None:
    audit = Audit.open(run.uri)
    audit.next(10)
    with pytest.raises(LabelError, match=f"labels came as .*{what}: give a mapping of ids to labels"):
        audit.add_labels(given)


def test_labels_come_as_a_table_or_a_list_of_rows(run: Run) -> None:
    audit = Audit.open(run.uri)
    audit.next(12)
    rows = [{"id": id, "label": text, "annotator": "ann", "comment": 3} for id, text in answers(audit).items()]
    rows[0]["label"] = None
    table = pandas.DataFrame(rows)
    table.loc[1, "label"] = float("nan")
    table["labelled_at"] = pandas.Timestamp("2026-01-31 10:00", tz="Asia/Tokyo")
    table.loc[2, "labelled_at"] = pandas.NaT
    taken = audit.add_labels(table)
    assert (taken.labels, taken.missing, taken.annotators) == (10, 2, ["ann"])
    [kept] = list(read_log(run).returned)
    assert [row.labelled_at for row in kept.labels()][2:4] == [None, "2026-01-31 10:00:00+09:00"]
    assert audit.add_labels(rows[1:2]).missing == 1
    assert audit.add_labels(pyarrow.table({"id": [rows[0]["id"]], "label": ["?"]})).unsure == 1


def test_a_selection_is_a_table(run: Run) -> None:
    Audit.open(run.uri).next(12, method="css")
    selection = run.read_selection(1)
    table = selection.to_pandas()
    assert table["id"].tolist() == list(selection.ids)
    assert table["index"].tolist() == selection.index.tolist()
    assert table["stratum"].tolist() == selection.design.columns()["stratum"].tolist()
    assert (table.index.name, table.index[0], table.index[-1]) == ("order", 1, 12)


def test_an_estimate_shows_itself_as_html(run: Run) -> None:
    audit = Audit.open(run.uri)
    audit.next(40, method="ces")
    audit.add_labels(answers(audit))
    stated = audit.estimate()
    assert stated.reason
    shown = stated._repr_html_()
    for part in (f"{stated.value:.4f}", f"{stated.low:.4f} to {stated.high:.4f}", stated.method, "40 labels"):
        assert part in shown
    outcome = [float(TRUTH[KEYS.index(id)] == PREDICTION[KEYS.index(id)]) for id in audit.selections()[0].ids]
    same = opacc_ray.estimate(audit.selections()[0], outcomes=outcome)
    assert (same._repr_html_(), str(same)) == (shown, str(stated))
    assert str(same).startswith(f"{same.value:.4f} [{same.low:.4f}, {same.high:.4f}] (95% {same.method} interval, 40")
    assert "<script>" not in as_html(stated.model_copy(update={"reason": "<script>", "method": "<script>"}))
    assert "<svg" not in as_html(stated.model_copy(update={"high": 25.0}))


@pytest.mark.processes
def test_the_example_runs(run: Run, tmp_path: Path) -> None:
    truth = tmp_path / "truth.csv"
    truth.write_text("id,label\n" + "".join(f"{key},{CLASSES[TRUTH[i]]}\n" for i, key in enumerate(KEYS)))
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "audit_in_a_notebook.py"), run.uri, str(truth)],
        capture_output=True,
        text=True,
        timeout=2 * LONG,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "report.html" in done.stdout
    assert Audit.open(run.uri).estimate().n == 100
