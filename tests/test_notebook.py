"""An audit from Python: what the commands do, on the same files."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import written_run
from reported_run import CLASSES, KEYS, PREDICTION, TRUTH, write_run

import opacc_ray
import opacc_ray.audit
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, LabelError
from opacc_ray.estimators.accuracy_estimate import as_html
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.notebook import Audit
from opacc_ray.runs.run import Run

ROOT = Path(__file__).parents[1]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return write_run(tmp_path)


def answers(audit: Audit) -> dict[str, str]:
    return {item.id: CLASSES[TRUTH[KEYS.index(item.id)]] for item in audit.labels_needed()}


def test_it_is_found_where_one_looks_for_it() -> None:
    assert opacc_ray.Audit is Audit


def test_a_whole_audit(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    audit = Audit.open(run.uri)
    first = audit.next(30)
    assert [item.id for item in audit.labels_needed()] == list(first.ids)
    assert {item.uri for item in audit.labels_needed()} == {f"{run.spec.pool.uri}/{id}" for id in first.ids}
    assert audit.add_labels(answers(audit)).missing == 0
    assert audit.labels_needed() == []

    second = audit.next(20, method="css", allocation=(0.5, 0.25, 0.25))
    assert (second.round, second.method) == (2, "css")
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


def test_a_run_is_opened_by_its_path_too(run: Run) -> None:
    assert Audit.open(Path(run.uri)).uri == run.uri


def test_labels_come_from_a_file_too(run: Run, tmp_path: Path) -> None:
    audit = Audit.open(run.uri)
    audit.next(10)
    rows = "".join(f"{id},{text}\n" for id, text in answers(audit).items())
    (tmp_path / "back.csv").write_text(f"id,label\n{rows}")
    assert audit.add_labels(tmp_path / "back.csv").labelled == 10


@pytest.mark.parametrize(
    ("given", "what"), [({}, "an empty mapping"), (None, "what is of type NoneType"), ([("a", 1)], "of type list")]
)
def test_what_is_no_mapping_of_labels_is_refused(run: Run, given: Any, what: str) -> None:
    audit = Audit.open(run.uri)
    audit.next(10)
    with pytest.raises(LabelError, match=f"labels came as .*{what}: give a mapping of ids to labels"):
        audit.add_labels(given)


def test_none_is_no_label_yet(run: Run) -> None:
    audit = Audit.open(run.uri)
    audit.next(10)
    first, *others = answers(audit).items()
    assert audit.add_labels(dict(others) | {first[0]: None}).missing == 1


def test_labels_come_as_a_table_or_a_list_of_rows(run: Run) -> None:
    pandas = pytest.importorskip("pandas")
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
    assert audit.add_labels([{"id": rows[0]["id"], "label": "?"}]).unsure == 1


def test_a_table_of_values_is_taken_with_gaps(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    zeros = np.zeros(written_run.N)
    made = written_run.write_run(tmp_path, "values", zeros, task="regression", error_scale=2.0)
    audit = Audit.open(made.uri)
    ids = [item.id for item in audit.next(4) and audit.labels_needed()]
    audit.add_labels(pandas.DataFrame({"id": ids, "label": np.array([1, np.nan, 0.1, 3])}))
    [now] = read_rounds(made)
    assert (now.truth, now.missing) == (("1", "0.1", "3"), (ids[1],))


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"label": ["cat"]}, "a table with 1 rows and the columns label: give a mapping of ids to labels, a table"),
        ({"id": [], "label": []}, "a table with 0 rows and the columns id, label"),
    ],
)
def test_a_table_without_ids_or_rows_is_refused(run: Run, columns: dict[str, list[str]], what: str) -> None:
    pandas = pytest.importorskip("pandas")
    audit = Audit.open(run.uri)
    audit.next(10)
    with pytest.raises(LabelError, match=f"labels came as {what}"):
        audit.add_labels(pandas.DataFrame(columns))


def test_a_wrong_label_keeps_nothing(run: Run) -> None:
    audit = Audit.open(run.uri)
    audit.next(10)
    good, bad = audit.labels_needed()[:2]
    with pytest.raises(LabelError, match="which is none of the 3 classes"):
        audit.add_labels({good.id: "cat", bad.id: "horse"})
    assert len(audit.labels_needed()) == 10


def test_another_track_is_another_audit(run: Run) -> None:
    Audit.open(run.uri).next(10)
    Audit(run.along("more")).next(25)
    assert len(Audit.open(run.uri, "more").labels_needed()) == 25
    assert repr(Audit.open(run.uri, "more")) == f"Audit('{run.uri} (track more)')"


def test_there_must_be_a_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no run at"):
        Audit.open(str(tmp_path))


def test_a_selection_is_a_table(run: Run) -> None:
    table = Audit.open(run.uri).next(12, method="css").to_pandas()
    selection = run.read_selection(1)
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
    for part in (f"{stated.value:.4f}", f"{stated.low:.4f} to {stated.high:.4f}", stated.interval, "40 labels"):
        assert part in shown
    outcome = [float(TRUTH[KEYS.index(id)] == PREDICTION[KEYS.index(id)]) for id in audit.selections()[0].ids]
    same = opacc_ray.estimate(audit.selections()[0], outcome)
    assert (same._repr_html_(), str(same)) == (shown, str(stated))
    assert str(same).startswith(f"{same.value:.4f} [{same.low:.4f}, {same.high:.4f}] (95% {same.interval} interval, 40")
    assert "<script>" not in as_html(stated.model_copy(update={"reason": "<script>", "interval": "<script>"}))
    assert "<svg" not in as_html(stated.model_copy(update={"high": 25.0}))


@pytest.mark.processes
def test_the_example_runs(run: Run, tmp_path: Path) -> None:
    truth = tmp_path / "truth.csv"
    truth.write_text("id,label\n" + "".join(f"{key},{CLASSES[TRUTH[i]]}\n" for i, key in enumerate(KEYS)))
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "audit_in_a_notebook.py"), run.uri, str(truth)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "report.html" in done.stdout
    assert Audit.open(run.uri).estimate().n == 100
